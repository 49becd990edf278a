//! Events in memory, ready to be sent: read and spelled once, and matched for each stream.

use std::collections::HashMap;
use std::ops::Range;

use super::frames;
use crate::api::json;
use crate::store::EventRecord;
use crate::webhooks::filter::Filter;

/// All events after the batch before it, up to [`Batch::last`].
pub(super) struct Batch {
    pub last: u64,
    /// Their messages, one after the other.
    text: Vec<u8>,
    /// Their topics, one after the other.
    values: Vec<u8>,
    /// Where each topic is in `values`.
    topics: Vec<Range<usize>>,
    events: Vec<Event>,
    /// Places in `events`, by the contract that emitted them.
    by_contract: HashMap<[u8; 32], Vec<usize>>,
}

struct Event {
    id: u64,
    contract: Option<[u8; 32]>,
    /// Its message in `text`.
    text: Range<usize>,
    /// Its topics in `topics`.
    topics: Range<usize>,
}

/// A batch that is being read.
pub(super) struct Making {
    batch: Batch,
    list: json::List,
}

impl Making {
    /// A batch of the events after an id.
    pub(super) fn after(after: u64) -> Self {
        let batch = Batch {
            last: after,
            text: Vec::new(),
            values: Vec::new(),
            topics: Vec::new(),
            events: Vec::new(),
            by_contract: HashMap::new(),
        };
        Self { batch, list: json::List::loose() }
    }

    /// Takes the next event; says how many bytes of text there are now.
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

    /// Id of the last event that was taken.
    pub(super) fn last(&self) -> u64 {
        self.batch.last
    }

    /// The batch, in which all events up to `last` are.
    pub(super) fn up_to(mut self, last: u64) -> Batch {
        Batch { last, text: self.list.take(), ..self.batch }
    }
}

impl Batch {
    /// Bytes of memory, about.
    pub(super) fn bytes(&self) -> usize {
        self.text.capacity()
            + self.values.capacity()
            + self.topics.capacity() * size_of::<Range<usize>>()
            + self.events.capacity() * size_of::<Event>()
            + self.events.len() * size_of::<usize>()
    }

    /// Appends the messages of those events after `after` that match, until `out` has `most` bytes. Returns
    /// the id up to which nothing is left out.
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
