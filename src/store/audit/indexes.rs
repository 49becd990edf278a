//! The indexes, row by row: what they lead to is summed up, or, where the sums differ from what the
//! contents lead to, compared one by one.

use std::collections::BTreeMap;

use super::super::StoreError;
use super::super::bytes::Malformed;
use super::super::columns::{
    ContractBlockKey, ContractTransactionKey, EntryChangeKey, Family, HashKey, HashTag, Key,
    TopicBlockKey,
};
use super::super::database::corrupt;
use super::super::entries::Changed;
use super::super::lookup::{HashEntry, HashRole};
use super::super::positions::Positions;
use super::contents::Contents;
use super::expected::whereabouts;
use super::tally::{Bucket, Index, Side, Sink};
use super::{Subject, problems};
use crate::domain::{EventId, LedgerRange, TxHash};

/// The families that are indexes.
pub(super) const FAMILIES: [Family; 5] = [
    Family::EventsByTopic,
    Family::EventsByContract,
    Family::TxByHash,
    Family::TxByContract,
    Family::Entries,
];

/// Parts of indexes that are compared row by row at the most: each part takes some memory.
const MOST_COMPARED: usize = 16;

/// Gives all rows of an index that are about the wanted ledgers, and says whether all could be read.
pub(super) fn scan(
    subject: &Subject<'_>,
    family: Family,
    sink: &mut impl Sink,
) -> Result<bool, StoreError> {
    let wanted = Wanted::of(subject)?;
    let mut rows = subject.database.rows_on_disk(family)?;
    let mut readable = true;
    rows.seek_to_first();
    while let Some((key, value)) = rows.item() {
        if give(&wanted, family, key, value, sink).is_err() {
            readable = false;
            subject.add(problems::row(family, key), &corrupt(family, key)(Malformed));
        }
        rows.next();
    }
    if let Err(error) = rows.status() {
        readable = false;
        subject.add(family.name().to_owned(), &error.into());
    }
    Ok(readable)
}

/// Reads parts of the indexes, and what leads to them, once more and says which rows are wrong.
pub(super) fn compare(
    subject: &Subject<'_>,
    windows: &[Vec<LedgerRange>],
    different: &[Bucket],
) -> Result<(), StoreError> {
    let compared = &different[..different.len().min(MOST_COMPARED)];
    let mut rows = Rows { compared, expected: BTreeMap::new(), found: BTreeMap::new() };
    let mut contents = Contents::new(subject)?.without_raw();
    windows.iter().for_each(|window| contents.check(window, &mut rows));
    for family in FAMILIES {
        scan(subject, family, &mut rows)?;
    }
    let Rows { expected, found, .. } = rows;
    for ((index, key), value) in &expected {
        let what = match found.get(&(*index, key.clone())) {
            Some(found) if found == value => continue,
            Some(_) => "it does not lead to where it should",
            None => "it is missing",
        };
        subject.problems.add(problems::row(index.family(), key), what.to_owned());
    }
    for (index, key) in found.keys().filter(|key| !expected.contains_key(*key)) {
        let what = "it leads to nothing that is stored";
        subject.problems.add(problems::row(index.family(), key), what.to_owned());
    }
    Ok(())
}

/// The rows of some parts of indexes.
struct Rows<'a> {
    compared: &'a [Bucket],
    expected: BTreeMap<(Index, Vec<u8>), Vec<u8>>,
    found: BTreeMap<(Index, Vec<u8>), Vec<u8>>,
}

impl Sink for Rows<'_> {
    fn row(&mut self, side: Side, index: Index, key: &[u8], value: &[u8]) {
        if self.compared.contains(&Bucket::of(index, key)) {
            let rows = match side {
                Side::Expected => &mut self.expected,
                Side::Found => &mut self.found,
            };
            rows.insert((index, key.to_vec()), value.to_vec());
        }
    }
}

/// Which rows are about the wanted ledgers.
struct Wanted<'a> {
    subject: &'a Subject<'a>,
    /// Ids of their events, ascending; none when everything is wanted, also what leads nowhere.
    ids: Option<Vec<(EventId, EventId)>>,
}

impl<'a> Wanted<'a> {
    fn of(subject: &'a Subject<'a>) -> Result<Self, StoreError> {
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

    fn block(&self, block: EventId) -> bool {
        self.ids.as_ref().is_none_or(|ids| {
            let at = ids.partition_point(|(_, end)| *end <= block);
            ids.get(at).is_some_and(|(first, _)| *first <= block)
        })
    }
}

fn give(
    wanted: &Wanted<'_>,
    family: Family,
    key: &[u8],
    value: &[u8],
    sink: &mut impl Sink,
) -> Result<(), Malformed> {
    match family {
        Family::EventsByContract | Family::EventsByTopic => {
            let (index, block) = if family == Family::EventsByContract {
                (Index::Contract, ContractBlockKey::decode(key).ok_or(Malformed)?.block)
            } else {
                (Index::Topic, TopicBlockKey::decode(key).ok_or(Malformed)?.block)
            };
            let positions = Positions::decode(value).ok_or(Malformed)?;
            if wanted.block(block) {
                sink.row(Side::Found, index, key, &positions.0.to_be_bytes());
            }
        }
        Family::TxByContract => {
            let parsed = ContractTransactionKey::decode(key).ok_or(Malformed)?;
            if wanted.subject.wanted.contains(parsed.position.ledger) {
                sink.row(Side::Found, Index::ContractTransaction, key, value);
            }
        }
        Family::Entries => {
            let parsed = EntryChangeKey::decode(key).ok_or(Malformed)?;
            let changed = Changed::decode(value)?;
            if wanted.subject.wanted.contains(parsed.position.ledger) {
                sink.row(Side::Found, Index::Entry, key, &changed.encode());
            }
        }
        _ => {
            let parsed = HashKey::decode(key).ok_or(Malformed)?;
            let entry = HashEntry::decode(value)?;
            let ledger = parsed.position.ledger;
            // Where the events are, and whether there are any, only a ledger with all its events says.
            if wanted.subject.wanted.contains(ledger) && ledger >= wanted.subject.totals.events_from
            {
                give_hash(key, &parsed, &entry, sink)?;
            }
        }
    }
    Ok(())
}

/// An outer hash must have the row of its inner hash beside it, and the other way round: each gives
/// the same row of [`Index::InnerHash`], one as what is expected and one as what is found.
fn give_hash(
    key: &[u8],
    parsed: &HashKey,
    entry: &HashEntry,
    sink: &mut impl Sink,
) -> Result<(), Malformed> {
    let inner_row = |inner: &TxHash| [inner.as_bytes(), whereabouts(entry).as_slice()].concat();
    match &entry.role {
        HashRole::Only => sink.row(Side::Found, Index::Hash, key, &whereabouts(entry)),
        HashRole::Outer { inner } => {
            sink.row(Side::Found, Index::Hash, key, &whereabouts(entry));
            let key = HashKey { tag: HashTag::from(inner), position: parsed.position };
            sink.row(Side::Expected, Index::InnerHash, &key.encode(), &inner_row(inner));
        }
        HashRole::Inner(inner) => {
            if HashTag::from(inner) != parsed.tag {
                return Err(Malformed);
            }
            sink.row(Side::Found, Index::InnerHash, key, &inner_row(inner));
        }
    }
    Ok(())
}
