//! Marks of stored ledgers of which less is known than of others, in memory and as rows of the
//! database: whatever process stored a ledger, all others know.
//!
//! Each range of consecutive ledgers with a mark is one row of `meta`, so a write changes only the rows
//! of the ranges that it extends.

use orrery_ledger::domain::{LedgerRange, LedgerSeq, LedgerSet};

use crate::db::database::{Batch, Database};
use crate::encoding::bytes::{Malformed, Reader};
use crate::encoding::columns::Family;
use crate::encoding::error::{StoreError, corrupt};

/// Stored ledgers of which less is known than of others, by what is not known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Marks {
    /// Ledgers that are not as their header says, and were stored because `trust.events` says so.
    pub reported: LedgerSet,
    /// Ledgers with rewritten events (CAP-67) whose earlier form was not found.
    pub unproven: LedgerSet,
    /// Ledgers that were restored from a backup without their raw form, so that nothing of them could be
    /// checked.
    pub from_backup: LedgerSet,
}

/// Beginning of the keys of each kind, which the first ledger of the range follows.
const PREFIXES: [&[u8]; 3] = [b"reported_ledgers/", b"unproven_ledgers/", b"ledgers_from_backup/"];

impl Marks {
    /// Reads all rows.
    pub(crate) fn load(database: &Database) -> Result<Self, StoreError> {
        let mut marks = Self::default();
        database.scan(Family::Meta, |key, value| {
            let found = PREFIXES.iter().position(|prefix| key.starts_with(prefix));
            let Some(kind) = found else { return Ok(()) };
            let range = decode(&key[PREFIXES[kind].len()..], value);
            marks.kinds_mut()[kind].insert(range.map_err(corrupt(Family::Meta, key))?);
            Ok(())
        })?;
        Ok(marks)
    }

    /// Returns whether no ledger has a mark.
    pub fn is_empty(&self) -> bool {
        self.kinds().iter().all(|set| set.is_empty())
    }

    /// Returns the ledgers whose events their header does not bind, or is not known to bind.
    pub fn unbound(&self) -> LedgerSet {
        let mut unbound = self.reported.clone();
        unbound.insert_all(&self.unproven);
        unbound
    }

    /// Returns the marks of the ledgers in a range.
    pub fn within(&self, range: LedgerRange) -> Self {
        let [reported, unproven, from_backup] = self.kinds().map(|set| set.within(range));
        Self { reported, unproven, from_backup }
    }

    /// Adds all marks of `other`.
    pub(crate) fn insert_all(&mut self, other: &Self) {
        for (set, added) in self.kinds_mut().into_iter().zip(other.kinds()) {
            set.insert_all(added);
        }
    }

    /// Puts the rows of the ranges that differ from those of `before`, of which none was shortened.
    pub(crate) fn put_additions(
        &self,
        before: &Self,
        batch: &mut Batch<'_>,
    ) -> Result<(), StoreError> {
        let kinds = self.kinds().into_iter().zip(before.kinds()).zip(PREFIXES);
        for ((after, before), prefix) in kinds.filter(|((after, before), _)| after != before) {
            let (after, before) = (after.ranges(), before.ranges());
            for gone in before.iter().filter(|range| !begins_with(after, range.first)) {
                batch.delete_raw(Family::Meta, &key(prefix, gone.first))?;
            }
            for range in after.iter().filter(|range| before.binary_search(range).is_err()) {
                batch.put_raw(
                    Family::Meta,
                    &key(prefix, range.first),
                    &range.last.0.to_be_bytes(),
                )?;
            }
        }
        Ok(())
    }

    fn kinds(&self) -> [&LedgerSet; 3] {
        [&self.reported, &self.unproven, &self.from_backup]
    }

    fn kinds_mut(&mut self) -> [&mut LedgerSet; 3] {
        [&mut self.reported, &mut self.unproven, &mut self.from_backup]
    }
}

/// Returns whether this is the key of a mark, for the audit.
pub(crate) fn is_row(key: &[u8]) -> bool {
    PREFIXES.iter().any(|prefix| key.strip_prefix(*prefix).is_some_and(|first| first.len() == 4))
}

fn begins_with(ranges: &[LedgerRange], first: LedgerSeq) -> bool {
    ranges.binary_search_by_key(&first, |range| range.first).is_ok()
}

fn key(prefix: &[u8], first: LedgerSeq) -> Vec<u8> {
    [prefix, &first.0.to_be_bytes()].concat()
}

fn decode(first: &[u8], last: &[u8]) -> Result<LedgerRange, Malformed> {
    let number = |bytes| {
        let mut reader = Reader::new(bytes);
        let number = reader.u32()?;
        reader.end().map(|()| number)
    };
    let range = LedgerRange::new(number(first)?, number(last)?);
    if range.is_empty() { Err(Malformed) } else { Ok(range) }
}

#[cfg(test)]
mod tests {
    use orrery_ledger::decode::decode;
    use orrery_testkit::sandbox::local;
    use rand::seq::SliceRandom;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::ingest::commit::Durability;
    use crate::sample_ledgers::{chain, everything, open};

    /// In whatever order ledgers are stored, and several with one write, the rows are the marks of the
    /// ledgers that were stored with them.
    #[test]
    fn marks_are_those_of_the_stored_ledgers_after_each_start() {
        let ledgers = chain(6, 0..=1, 40);
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(3);
        for _ in 0..5 {
            let directory = tempfile::tempdir().unwrap();
            let (mut store, mut expected) = (open(directory.path()), Marks::default());
            let mut order: Vec<usize> = (0..ledgers.len()).collect();
            order.shuffle(&mut rng);
            while !order.is_empty() {
                let count = rng.random_range(1..=4).min(order.len());
                let batch = order.drain(..count).map(|at| {
                    let view = decode(&ledgers[at], local().id()).unwrap();
                    let only = LedgerRange::only(view.header.sequence);
                    let (reported, unproven) = (rng.random_bool(0.5), rng.random_bool(0.1));
                    if reported {
                        expected.reported.insert(only);
                    }
                    if unproven {
                        expected.unproven.insert(only);
                    }
                    let prepared = store.prepare(&view, None, &everything()).unwrap();
                    prepared.marked(reported, unproven)
                });
                let batch: Vec<_> = batch.collect();
                store.commit_all(batch, Durability::Synced).1.unwrap();
                assert_eq!(store.marks(), expected);
                if rng.random_bool(0.2) {
                    drop(store);
                    store = open(directory.path());
                    assert_eq!(store.marks(), expected);
                }
            }
            // A ledger that is stored already keeps its marks.
            let view = decode(&ledgers[0], local().id()).unwrap();
            let again = store.prepare(&view, None, &everything()).unwrap().marked(true, true);
            store.commit(again, Durability::Synced).unwrap();
            assert_eq!(store.marks(), expected);
            let rows = expected.kinds().iter().map(|set| set.ranges().len()).sum::<usize>();
            let mut found = 0;
            let count = |key: &[u8], _: &[u8]| {
                found += usize::from(is_row(key));
                Ok(())
            };
            store.database.scan(Family::Meta, count).unwrap();
            assert_eq!(found, rows);
        }
    }
}
