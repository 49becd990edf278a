//! The rows of all indexes that follow from some records of one ledger, collected record by record.

use super::super::StoreError;
use super::super::block::Block;
use super::super::bytes::Malformed;
use super::super::columns::{BlockKey, Family, Key, TransactionKey};
use super::super::positions::{EVENTS_PER_BLOCK, Positions};
use super::super::query::{EventRecord, TransactionPosition, TransactionRecord};
use super::{Index, IndexedTransaction, Indexes, RowsOf};
use crate::decode::changed_entries;
use crate::domain::{EventId, LedgerSeq, TxHash};

/// Bytes of a tag at the most.
const LONGEST_TAG: usize = 12;
/// Bytes of the key of a record at the most.
const LONGEST_RECORD: usize = 8;
/// What a row takes beside its value, about.
const PER_ROW: usize = 24;

/// Rows of one ledger. Events are numbered from 0, and get the ids after `first_event` when the rows are visited.
#[derive(Debug)]
pub(in super::super) struct Rows {
    of: Vec<OfIndex>,
    located: Vec<Located>,
}

/// Rows of one index.
#[derive(Debug)]
struct OfIndex {
    index: Index,
    /// Occurrences of tags in events, until they are grouped by blocks.
    occurrences: Vec<Place>,
    rows: Vec<Row>,
    /// Values, one after the other.
    values: Vec<u8>,
}

#[derive(Debug)]
struct Row {
    place: Place,
    start: u32,
    len: u32,
}

/// A tag, and below it the number of an event or the application order of a transaction: one number, because
/// that is what sorts fastest, in the order of keys.
type Place = u128;

fn place(tag: &[u8], number: u32) -> Place {
    let mut bytes = [0; LONGEST_TAG + 4];
    let len = tag.len().min(LONGEST_TAG);
    bytes[..len].copy_from_slice(&tag[..len]);
    bytes[LONGEST_TAG..].copy_from_slice(&number.to_be_bytes());
    Place::from_be_bytes(bytes)
}

/// Takes in the tags of an event.
pub struct Tags<'a> {
    number: u32,
    occurrences: &'a mut Vec<Place>,
}

impl Tags<'_> {
    /// Adds a tag: once more makes no difference.
    pub fn add(&mut self, tag: &[u8]) {
        self.occurrences.push(place(tag, self.number));
    }
}

/// Takes in the tags of a transaction, each with a value.
pub struct Values<'a> {
    application_order: u32,
    rows: &'a mut Vec<Row>,
    values: &'a mut Vec<u8>,
}

impl Values<'_> {
    /// Adds a row. There is one for each tag.
    pub fn add(&mut self, tag: &[u8], value: &[u8]) {
        self.add_with(tag, |values| values.extend_from_slice(value));
    }

    pub(super) fn add_with(&mut self, tag: &[u8], append: impl FnOnce(&mut Vec<u8>)) {
        let start = self.values.len();
        append(self.values);
        let len = (self.values.len() - start) as u32;
        let place = place(tag, self.application_order);
        self.rows.push(Row { place, start: start as u32, len });
    }
}

/// Which events of a ledger are a transaction's.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct EventsOfTransaction {
    /// First of its operations' events.
    pub first: u64,
    /// How many its operations emitted; they follow one another.
    pub operations: u64,
    /// Its fee events.
    pub fees: Vec<u64>,
}

impl EventsOfTransaction {
    pub(in super::super) fn add(&mut self, number: u64, by_operation: bool) {
        if !by_operation {
            return self.fees.push(number);
        }
        if self.operations == 0 {
            self.first = number;
        }
        self.operations += 1;
    }

    pub(in super::super) fn count(&self) -> u64 {
        self.operations + self.fees.len() as u64
    }
}

/// A transaction of which something is stored.
#[derive(Debug)]
pub(super) struct Located {
    application_order: u32,
    /// Hash (the outer one of a fee bump).
    pub tx: TxHash,
    /// Hash of the inner transaction of a fee bump.
    pub inner_tx: Option<TxHash>,
    /// Its events.
    pub events: EventsOfTransaction,
}

impl Rows {
    pub(in super::super) fn new(indexes: &Indexes) -> Self {
        Self::with_room(indexes, 0)
    }

    /// With room for the tags of so many events.
    pub(in super::super) fn with_room(indexes: &Indexes, events: usize) -> Self {
        const TAGS_OF_EVENT: usize = 4;
        let of = indexes.iter().map(|index| OfIndex {
            index: *index,
            occurrences: match index.rows_of {
                RowsOf::Event(_) => Vec::with_capacity(TAGS_OF_EVENT * events),
                _ => Vec::new(),
            },
            rows: Vec::new(),
            values: Vec::new(),
        });
        Self { of: of.collect(), located: Vec::new() }
    }

    /// Adds what follows from an event.
    pub(in super::super) fn event(&mut self, number: u32, event: &EventRecord<'_>) {
        for of in &mut self.of {
            if let RowsOf::Event(rows_of) = of.index.rows_of {
                rows_of(event, &mut Tags { number, occurrences: &mut of.occurrences });
            }
        }
    }

    /// Adds what follows from the events of a stored block, the first of which has the number 0.
    pub(in super::super) fn block(&mut self, block: &Block<'_>) -> Result<(), Malformed> {
        let mut topics = Vec::new();
        for position in 0..block.len() {
            let event = block.event(position, &mut topics)?;
            self.event(position as u32, &EventRecord { id: EventId(0), ..event });
        }
        Ok(())
    }

    /// Adds what follows from a smart-contract transaction.
    pub(in super::super) fn transaction(&mut self, transaction: &IndexedTransaction<'_>) {
        for of in &mut self.of {
            if let RowsOf::Transaction(rows_of) = of.index.rows_of {
                rows_of(transaction, &mut of.values_of(transaction.position.application_order));
            }
        }
    }

    /// Adds what follows from a stored smart-contract transaction.
    pub(in super::super) fn record(
        &mut self,
        record: &TransactionRecord<'_>,
    ) -> Result<(), Malformed> {
        let changed = match record.successful {
            true => changed_entries(record.meta).map_err(|_| Malformed)?,
            false => Vec::new(),
        };
        self.transaction(&IndexedTransaction::of_record(record, &changed));
        Ok(())
    }

    /// Adds what follows from there being a transaction of which something is stored.
    pub(in super::super) fn locate(
        &mut self,
        application_order: u32,
        tx: TxHash,
        inner_tx: Option<TxHash>,
        events: EventsOfTransaction,
    ) {
        self.located.push(Located { application_order, tx, inner_tx, events });
    }

    /// To be called when everything is added: puts the rows in the order of their keys, which is how the
    /// database takes them in fastest.
    pub(in super::super) fn close(&mut self) {
        self.located.sort_unstable_by_key(|located| located.tx);
        for of in &mut self.of {
            of.close();
        }
    }

    /// About how many bytes they take.
    pub(in super::super) fn bytes(&self) -> usize {
        const PER_HASH: usize = 64;
        let of_index = |of: &OfIndex| of.values.len() + (PER_ROW + LONGEST_RECORD) * of.rows.len();
        self.of.iter().map(of_index).sum::<usize>() + PER_HASH * self.located.len()
    }

    /// Whether they are those of a store with these indexes.
    pub(in super::super) fn are_of(&self, indexes: &Indexes) -> bool {
        let ours = self.of.iter().map(|of| of.index.family);
        ours.eq(indexes.iter().map(Index::family))
    }

    /// Visits all rows: number of the index, family, key and value. The first event gets the id `first_event`.
    pub(in super::super) fn visit(
        &self,
        ledger: LedgerSeq,
        first_event: EventId,
        mut visit: impl FnMut(usize, Family, &[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        for (number, of) in self.of.iter().enumerate() {
            let family = of.index.family;
            let mut visit = |key: &[u8], value: &[u8]| visit(number, family, key, value);
            let RowsOf::Located(rows_of) = of.index.rows_of else {
                of.visit(ledger, first_event, &mut visit)?;
                continue;
            };
            // What they say of events is known only now.
            let (rows, values) = (Vec::with_capacity(self.located.len()), Vec::new());
            let mut located = OfIndex { index: of.index, occurrences: Vec::new(), rows, values };
            for one in &self.located {
                rows_of(one, first_event, &mut located.values_of(one.application_order));
            }
            located.visit(ledger, first_event, &mut visit)?;
        }
        Ok(())
    }

    /// As [`Self::visit`], without [`Self::close`] before, and lets all rows go.
    pub(in super::super) fn drain(
        &mut self,
        ledger: LedgerSeq,
        first_event: EventId,
        visit: impl FnMut(usize, Family, &[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.close();
        let visited = self.visit(ledger, first_event, visit);
        self.located.clear();
        for of in &mut self.of {
            of.rows.clear();
            of.values.clear();
        }
        visited
    }
}

impl OfIndex {
    fn values_of(&mut self, application_order: u32) -> Values<'_> {
        Values { application_order, rows: &mut self.rows, values: &mut self.values }
    }

    fn close(&mut self) {
        self.rows.sort_unstable_by_key(|row| row.place);
        self.rows.dedup_by_key(|row| row.place);
        let mut occurrences = std::mem::take(&mut self.occurrences);
        occurrences.sort_unstable();
        self.rows.reserve(occurrences.len());
        let mut occurrences = occurrences.into_iter().peekable();
        while let Some(first) = occurrences.next() {
            const IN_BLOCK: Place = EVENTS_PER_BLOCK as Place - 1;
            let place = first & !IN_BLOCK;
            let mut positions = Positions::default();
            positions.insert((first & IN_BLOCK) as usize);
            while let Some(next) = occurrences.next_if(|next| next & !IN_BLOCK == place) {
                positions.insert((next & IN_BLOCK) as usize);
            }
            let start = self.values.len();
            positions.encode(&mut self.values);
            let len = (self.values.len() - start) as u32;
            self.rows.push(Row { place, start: start as u32, len });
        }
    }

    fn visit(
        &self,
        ledger: LedgerSeq,
        first_event: EventId,
        visit: &mut impl FnMut(&[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let tag_len = self.index.tag_len.min(LONGEST_TAG);
        let mut key = [0; LONGEST_TAG + LONGEST_RECORD];
        self.rows.iter().try_for_each(|row| {
            key[..tag_len].copy_from_slice(&row.place.to_be_bytes()[..tag_len]);
            let number = row.place as u32;
            let end = match self.index.rows_of {
                RowsOf::Event(_) => {
                    let id = EventId(first_event.0 + u64::from(number));
                    append(&mut key, tag_len, &BlockKey(id).encode())
                }
                RowsOf::Transaction(_) | RowsOf::Located(_) => {
                    let position = TransactionPosition { ledger, application_order: number };
                    append(&mut key, tag_len, &TransactionKey(position).encode())
                }
            };
            visit(&key[..end], &self.values[row.start as usize..][..row.len as usize])
        })
    }
}

/// Puts bytes into a key and says where they end.
fn append(key: &mut [u8], at: usize, bytes: &[u8]) -> usize {
    let end = at + bytes.len();
    key[at..end].copy_from_slice(bytes);
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::CloseTime;

    /// Tags 1 and 2 of an event whose data says so.
    fn tags(event: &EventRecord<'_>, tags: &mut Tags<'_>) {
        event.data.iter().for_each(|tag| tags.add(&[*tag]));
    }

    #[test]
    fn rows_of_events_come_in_the_order_of_their_keys() {
        let indexes = Indexes::only(Index::of_events("test", 1, tags));
        let mut rows = Rows::new(&indexes);
        let add = |rows: &mut Rows, number, data: &[u8]| {
            let event = EventRecord {
                id: EventId(0),
                ledger: LedgerSeq(1),
                closed_at: CloseTime::Seconds(0),
                tx: &[0; 32],
                application_order: 1,
                placement: crate::decode::Placement::BeforeAllTransactions,
                operation_begins: None,
                contract: None,
                event_type: crate::decode::EventType::Contract,
                topics: &[],
                data,
            };
            rows.event(number, &event);
        };
        for (number, data) in [(64, &[2][..]), (130, &[1]), (0, &[2]), (3, &[1, 1]), (127, &[2])] {
            add(&mut rows, number, data);
        }
        let mut found = Vec::new();
        let expected =
            [(1, 1000, vec![3]), (1, 1128, vec![2]), (2, 1000, vec![0]), (2, 1064, vec![0, 63])];
        for _ in 0..2 {
            rows.drain(LedgerSeq(1), EventId(1000), |number, family, key, value| {
                assert_eq!((number, family), (0, Family::Index("test")));
                let id: EventId = BlockKey::decode(&key[1..]).unwrap().0;
                found.push((key[0], id.0, value.to_vec()));
                Ok(())
            })
            .unwrap();
            assert_eq!(found, expected);
        }
    }
}
