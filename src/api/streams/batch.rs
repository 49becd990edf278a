//! Batches of events in memory: read and serialised once, and matched against the filter of each
//! stream.

use std::collections::HashMap;
use std::ops::Range;

use super::frames;
use crate::json;
use orrery_store::EventRecord;
use orrery_webhooks::filter::Filter;

/// All events after the previous batch, up to [`Batch::last`].
pub(super) struct Batch {
    pub last: u64,
    /// Messages of all events, concatenated.
    text: Vec<u8>,
    /// Topics of all events, concatenated.
    values: Vec<u8>,
    /// Range of each topic in `values`.
    topics: Vec<Range<usize>>,
    events: Vec<Event>,
    /// Indexes into `events`, by the contract that emitted them.
    by_contract: HashMap<[u8; 32], Vec<usize>>,
}

struct Event {
    id: u64,
    contract: Option<[u8; 32]>,
    /// Range of the event's message in `text`.
    text: Range<usize>,
    /// Range of the event's topics in `topics`.
    topics: Range<usize>,
}

/// A batch under construction.
pub(super) struct BatchBuilder {
    batch: Batch,
    list: json::List<'static>,
}

impl BatchBuilder {
    /// Begins a batch of the events after an id.
    pub(super) fn after(after: u64) -> Self {
        let batch = Batch {
            last: after,
            text: Vec::new(),
            values: Vec::new(),
            topics: Vec::new(),
            events: Vec::new(),
            by_contract: HashMap::new(),
        };
        Self { batch, list: json::List::without_array() }
    }

    /// Appends the next event and returns the size of the text so far, in bytes.
    pub(super) fn push(&mut self, event: &EventRecord<'_>) -> usize {
        let Batch { values, topics, events, by_contract, last, .. } = &mut self.batch;
        let (text, first) = (self.list.written(), topics.len());
        for topic in event.topics {
            let start = values.len();
            values.extend_from_slice(topic);
            topics.push(start..values.len());
        }
        frames::event(&mut self.list, event);
        if let Some(contract) = event.contract {
            by_contract.entry(*contract).or_default().push(events.len());
        }
        let text = text..self.list.written();
        let bytes = text.end;
        let (id, contract) = (event.id.0, event.contract.copied());
        events.push(Event { id, contract, text, topics: first..topics.len() });
        *last = id;
        bytes
    }

    /// Returns the batch, which contains all events up to `last`.
    pub(super) fn up_to(mut self, last: u64) -> Batch {
        Batch { last, text: self.list.take(), ..self.batch }
    }
}

impl Batch {
    /// Returns the approximate memory of the batch in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.text.capacity()
            + self.values.capacity()
            + self.topics.capacity() * size_of::<Range<usize>>()
            + self.events.capacity() * size_of::<Event>()
            + self.events.len() * size_of::<usize>()
    }

    /// Appends the messages of the events after `after` that match, until `out` has `most` bytes.
    /// Returns the id up to which all matching events were appended.
    pub(super) fn append(
        &self,
        filter: &Filter,
        after: u64,
        most: usize,
        out: &mut Vec<u8>,
    ) -> u64 {
        match filter.contract {
            Some(contract) => {
                let places = self.by_contract.get(&contract).map_or(&[][..], Vec::as_slice);
                self.append_of(places.iter().copied(), filter, after, most, out)
            }
            None => self.append_of(0..self.events.len(), filter, after, most, out),
        }
    }

    fn append_of(
        &self,
        places: impl Iterator<Item = usize>,
        filter: &Filter,
        after: u64,
        most: usize,
        out: &mut Vec<u8>,
    ) -> u64 {
        let mut topics: Vec<&[u8]> = Vec::with_capacity(8);
        for event in places.map(|place| &self.events[place]).filter(|event| event.id > after) {
            topics.clear();
            topics.extend(
                self.topics[event.topics.clone()].iter().map(|at| &self.values[at.clone()]),
            );
            if !filter.matches(event.contract.as_ref(), &topics) {
                continue;
            }
            out.extend_from_slice(&self.text[event.text.clone()]);
            if out.len() >= most {
                return event.id;
            }
        }
        self.last
    }
}
