//! Checks the rows of indexes: all rows are summed up, and where the sums differ from those that
//! follow from the contents, rows are compared one by one.

use std::collections::BTreeMap;

use orrery_ledger::domain::{EventId, LedgerRange};

use super::contents::Contents;
use super::problems;
use super::subject::Subject;
use super::tally::{Bucket, Side, Sink};
use crate::encoding::bytes::Malformed;
use crate::encoding::error::{StoreError, corrupt};
use crate::indexes::index::{Index, Indexed};

/// Maximum number of buckets compared row by row: each one takes memory.
const MAX_COMPARED_BUCKETS: usize = 16;

/// Passes all rows of an index that belong to the wanted ledgers to `sink`. Returns whether all
/// rows could be read.
pub(super) fn scan(
    subject: &Subject<'_>,
    number: usize,
    index: &Index,
    sink: &mut impl Sink,
) -> Result<bool, StoreError> {
    let (filter, family) = (RowFilter::new(subject)?, index.family());
    let mut rows = subject.database.rows_on_disk(family)?;
    let mut readable = true;
    rows.seek_to_first();
    while let Some((key, value)) = rows.item() {
        match filter.includes(index, key) {
            Ok(true) => sink.add_row(Side::Found, number, key, value),
            Ok(false) => {}
            Err(malformed) => {
                readable = false;
                subject.add(problems::row(family, key), &corrupt(family, key)(malformed));
            }
        }
        rows.next();
    }
    if let Err(error) = rows.status() {
        readable = false;
        subject.add(family.name().to_owned(), &error.into());
    }
    Ok(readable)
}

/// Reads the differing buckets, and the contents that they follow from, once more and reports each
/// wrong row.
pub(super) fn compare(
    subject: &Subject<'_>,
    windows: &[Vec<LedgerRange>],
    different: &[Bucket],
) -> Result<(), StoreError> {
    let compared = &different[..different.len().min(MAX_COMPARED_BUCKETS)];
    let mut rows = Rows { compared, expected: BTreeMap::new(), found: BTreeMap::new() };
    let mut contents = Contents::new(subject)?.without_raw();
    windows.iter().for_each(|window| contents.check(window, &mut rows));
    for (number, index) in subject.indexes.iter().enumerate() {
        scan(subject, number, index, &mut rows)?;
    }
    let Rows { expected, found, .. } = rows;
    let add = |(number, key): &(usize, Vec<u8>), what: &str| {
        if let Some(index) = subject.indexes.get(*number) {
            subject.problems.add(problems::row(index.family(), key), what.to_owned());
        }
    };
    for (row, value) in &expected {
        match found.get(row) {
            Some(found) if found == value => {}
            Some(_) => add(row, "it points to the wrong record"),
            None => add(row, "it is missing"),
        }
    }
    for row in found.keys().filter(|row| !expected.contains_key(*row)) {
        add(row, "it points to a record that is not stored");
    }
    Ok(())
}

/// Expected and found rows of the compared buckets.
struct Rows<'a> {
    compared: &'a [Bucket],
    expected: BTreeMap<(usize, Vec<u8>), Vec<u8>>,
    found: BTreeMap<(usize, Vec<u8>), Vec<u8>>,
}

impl Sink for Rows<'_> {
    fn add_row(&mut self, side: Side, index: usize, key: &[u8], value: &[u8]) {
        if self.compared.contains(&Bucket::of(index, key)) {
            let rows = match side {
                Side::Expected => &mut self.expected,
                Side::Found => &mut self.found,
            };
            rows.insert((index, key.to_vec()), value.to_vec());
        }
    }
}

/// A filter for index rows that belong to the wanted ledgers.
struct RowFilter<'a> {
    subject: &'a Subject<'a>,
    /// Event id ranges of the wanted ledgers (first, end), ascending; `None` when all rows are
    /// wanted, including those that lead to nothing.
    ids: Option<Vec<(EventId, EventId)>>,
}

impl<'a> RowFilter<'a> {
    fn new(subject: &'a Subject<'a>) -> Result<Self, StoreError> {
        if subject.is_whole() {
            return Ok(Self { subject, ids: None });
        }
        let mut ids = Vec::new();
        for ledgers in subject.windows().iter().flatten() {
            let [first, last] = [ledgers.first, ledgers.last].map(|ledger| subject.ledger(ledger));
            if let (Some(first), Some(last)) = (first?, last?) {
                ids.push((
                    first.first_event,
                    EventId(last.first_event.0.saturating_add(last.counts.events())),
                ));
            }
        }
        Ok(Self { subject, ids: Some(ids) })
    }

    /// Returns whether a row belongs to the wanted ledgers.
    fn includes(&self, index: &Index, key: &[u8]) -> Result<bool, Malformed> {
        Ok(match (index.leads_to(key)?, &self.ids) {
            (Indexed::Event(_), None) => true,
            (Indexed::Event(block), Some(ids)) => {
                let at = ids.partition_point(|(_, end)| *end <= block);
                ids.get(at).is_some_and(|(first, _)| *first <= block)
            }
            (Indexed::Transaction(position), _) => {
                // The location of events can be checked only for ledgers whose events are all
                // stored.
                self.subject.wanted.contains(position.ledger)
                    && (!index.holds_event_locations()
                        || !self.subject.removed.events.contains(position.ledger))
            }
        })
    }
}
