//! Collects the rows of all indexes that are derived from records of one ledger, record by record.

use orrery_ledger::decode::changed_entries;
use orrery_ledger::domain::{EventId, LedgerSeq, TxHash};

use super::index::{Index, IndexedTransaction, RowsOf};
use super::registry::Indexes;
use super::values::{EventsOfTransaction, Located, MAX_TAG_LEN, Row, SortKey, Tags, Values};
use crate::encoding::block::Block;
use crate::encoding::bytes::Malformed;
use crate::encoding::columns::{BlockKey, Family, Key, TransactionKey};
use crate::encoding::error::StoreError;
use crate::encoding::positions::{EVENTS_PER_BLOCK, Positions};
use crate::encoding::records::{EventRecord, TransactionPosition, TransactionRecord};

/// Maximum length of the key of a record in bytes.
const MAX_RECORD_KEY_LEN: usize = 8;
/// Approximate memory of a row besides its value, in bytes.
const ROW_OVERHEAD: usize = 24;

/// Index rows of one ledger. Events are numbered from 0; when the rows are visited, event 0 gets
/// the id `first_event`.
#[derive(Debug)]
pub(crate) struct Rows {
    of: Vec<RowsOfIndex>,
    located: Vec<Located>,
}

/// Rows of one index.
#[derive(Debug)]
struct RowsOfIndex {
    index: Index,
    /// Tags of events, one element per tag and event, until they are grouped by blocks.
    occurrences: Vec<SortKey>,
    rows: Vec<Row>,
    /// Concatenated values.
    values: Vec<u8>,
}

impl Rows {
    pub(crate) fn new(indexes: &Indexes) -> Self {
        Self::with_capacity(indexes, 0)
    }

    /// Creates an empty collection with capacity for the tags of `events` events.
    pub(crate) fn with_capacity(indexes: &Indexes, events: usize) -> Self {
        const TAGS_OF_EVENT: usize = 4;
        let of = indexes.iter().map(|index| RowsOfIndex {
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

    /// Adds the rows derived from an event.
    pub(crate) fn add_event(&mut self, number: u32, event: &EventRecord<'_>) {
        for of in &mut self.of {
            if let RowsOf::Event(rows_of) = of.index.rows_of {
                rows_of(event, &mut Tags { number, occurrences: &mut of.occurrences });
            }
        }
    }

    /// Adds the rows derived from the events of a stored block, whose first event has the number 0.
    pub(crate) fn add_block(&mut self, block: &Block<'_>) -> Result<(), Malformed> {
        let mut topics = Vec::new();
        for position in 0..block.len() {
            let event = block.event(position, &mut topics)?;
            self.add_event(position as u32, &EventRecord { id: EventId(0), ..event });
        }
        Ok(())
    }

    /// Adds the rows derived from a smart-contract transaction.
    pub(crate) fn add_transaction(&mut self, transaction: &IndexedTransaction<'_>) {
        for of in &mut self.of {
            if let RowsOf::Transaction(rows_of) = of.index.rows_of {
                rows_of(transaction, &mut of.values_of(transaction.position.application_order));
            }
        }
    }

    /// Adds the rows derived from a stored smart-contract transaction.
    pub(crate) fn add_record(&mut self, record: &TransactionRecord<'_>) -> Result<(), Malformed> {
        let changed = match record.successful {
            true => changed_entries(record.meta).map_err(|_| Malformed)?,
            false => Vec::new(),
        };
        self.add_transaction(&IndexedTransaction::of_record(record, &changed));
        Ok(())
    }

    /// Adds a transaction of which a record or an event is stored, with the numbers of its events.
    pub(crate) fn locate(
        &mut self,
        application_order: u32,
        tx: TxHash,
        inner_tx: Option<TxHash>,
        events: EventsOfTransaction,
    ) {
        self.located.push(Located { application_order, tx, inner_tx, events });
    }

    /// Sorts the rows by key, the order in which the database inserts them fastest. Called once
    /// everything has been added.
    pub(crate) fn close(&mut self) {
        self.located.sort_unstable_by_key(|located| located.tx);
        for of in &mut self.of {
            of.close();
        }
    }

    /// Returns the approximate size of the rows in bytes.
    pub(crate) fn bytes(&self) -> usize {
        const PER_HASH: usize = 64;
        let of_index = |of: &RowsOfIndex| {
            of.values.len() + (ROW_OVERHEAD + MAX_RECORD_KEY_LEN) * of.rows.len()
        };
        self.of.iter().map(of_index).sum::<usize>() + PER_HASH * self.located.len()
    }

    /// Returns whether the rows were collected for these indexes.
    pub(crate) fn are_for(&self, indexes: &Indexes) -> bool {
        let ours = self.of.iter().map(|of| of.index.family);
        ours.eq(indexes.iter().map(Index::family))
    }

    /// Visits all rows: number of the index, family, key and value. Event 0 gets the id
    /// `first_event`.
    pub(crate) fn visit(
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
            // The ids of events in these rows depend on `first_event`.
            let (rows, values) = (Vec::with_capacity(self.located.len()), Vec::new());
            let mut located =
                RowsOfIndex { index: of.index, occurrences: Vec::new(), rows, values };
            for one in &self.located {
                rows_of(one, first_event, &mut located.values_of(one.application_order));
            }
            located.visit(ledger, first_event, &mut visit)?;
        }
        Ok(())
    }

    /// Calls [`Self::close`] and [`Self::visit`], then removes all rows.
    pub(crate) fn drain(
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

impl RowsOfIndex {
    fn values_of(&mut self, application_order: u32) -> Values<'_> {
        Values { application_order, rows: &mut self.rows, values: &mut self.values }
    }

    fn close(&mut self) {
        self.rows.sort_unstable_by_key(|row| row.sort_key);
        self.rows.dedup_by_key(|row| row.sort_key);
        let mut occurrences = std::mem::take(&mut self.occurrences);
        occurrences.sort_unstable();
        self.rows.reserve(occurrences.len());
        let mut occurrences = occurrences.into_iter().peekable();
        while let Some(first) = occurrences.next() {
            const IN_BLOCK: SortKey = EVENTS_PER_BLOCK as SortKey - 1;
            let sort_key = first & !IN_BLOCK;
            let mut positions = Positions::default();
            positions.insert((first & IN_BLOCK) as usize);
            while let Some(next) = occurrences.next_if(|next| next & !IN_BLOCK == sort_key) {
                positions.insert((next & IN_BLOCK) as usize);
            }
            let start = self.values.len();
            positions.encode(&mut self.values);
            let len = (self.values.len() - start) as u32;
            self.rows.push(Row { sort_key, start: start as u32, len });
        }
    }

    fn visit(
        &self,
        ledger: LedgerSeq,
        first_event: EventId,
        visit: &mut impl FnMut(&[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let tag_len = self.index.tag_len.min(MAX_TAG_LEN);
        let mut key = [0; MAX_TAG_LEN + MAX_RECORD_KEY_LEN];
        self.rows.iter().try_for_each(|row| {
            key[..tag_len].copy_from_slice(&row.sort_key.to_be_bytes()[..tag_len]);
            let number = row.sort_key as u32;
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

/// Copies bytes into a key and returns the offset of their end.
fn append(key: &mut [u8], at: usize, bytes: &[u8]) -> usize {
    let end = at + bytes.len();
    key[at..end].copy_from_slice(bytes);
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use orrery_ledger::domain::CloseTime;

    /// Uses each byte of an event's data as a tag.
    fn tags(event: &EventRecord<'_>, tags: &mut Tags<'_>) {
        event.data.iter().for_each(|tag| tags.add(&[*tag]));
    }

    #[test]
    fn rows_of_events_are_sorted_by_key() {
        let indexes = Indexes::only(Index::of_events("test", 1, tags));
        let mut rows = Rows::new(&indexes);
        let add = |rows: &mut Rows, number, data: &[u8]| {
            let event = EventRecord {
                id: EventId(0),
                ledger: LedgerSeq(1),
                closed_at: CloseTime::Seconds(0),
                tx: &[0; 32],
                application_order: 1,
                placement: orrery_ledger::decode::Placement::BeforeAllTransactions,
                operation_begins: None,
                contract: None,
                event_type: orrery_ledger::decode::EventType::Contract,
                successful: None,
                topics: &[],
                data,
            };
            rows.add_event(number, &event);
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
