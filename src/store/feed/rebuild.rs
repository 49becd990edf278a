//! Building what a consumer keeps anew, while the old is read. A second generation is fed as if it were a
//! consumer of its own, from the beginning; once it has got as far as the first, one write puts it in its
//! place.

use super::super::{Store, StoreError};
use super::rows::family;
use super::state::{self, Consumer};
use crate::domain::{LedgerSeq, LedgerSet};

/// What the name of a second generation ends with; no other name does.
const MARK: char = '~';

/// How far a second generation has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RebuildProgress {
    /// The place up to which it has got.
    pub done: u64,
    /// The place up to which the first has.
    pub of: u64,
}

/// The name under which a consumer's second generation is fed.
pub(super) fn second(name: &str) -> String {
    format!("{name}{MARK}")
}

/// Whether a name is that of a second generation.
pub(super) fn is_second(name: &str) -> bool {
    name.ends_with(MARK)
}

/// The name of the consumer to which a generation belongs.
pub(super) fn first(name: &str) -> &str {
    name.strip_suffix(MARK).unwrap_or(name)
}

impl Store {
    /// Begins to build what a consumer keeps anew; when that is under way already, it goes on. Ledgers of
    /// which something that it needs was removed are lost to the second generation. Returns the name under
    /// which that is fed ([`Store::consume`]).
    ///
    /// # Errors
    /// [`StoreError::UnknownConsumer`], and what the database says.
    pub fn begin_rebuild(&self, name: &str) -> Result<String, StoreError> {
        let second = second(name);
        let _only = self.pruning.lock();
        let (named, unknown) = (name.to_owned(), StoreError::UnknownConsumer(name.to_owned()));
        let needs = self.consumers.lock().get(name).map(|served| served.needs);
        let lost = needs.map_or(Ok(LedgerSet::default()), |needs| self.gone(needs))?;
        let built = second.clone();
        self.change_consumers(self.database.batch(), move |known, batch| {
            if known.get(&built).is_some() {
                return Ok(None);
            }
            let found = known.spec(&named).zip(known.get(&named));
            let (spec, served) = found.ok_or(unknown)?;
            let generation = served.generation.wrapping_add(1);
            for own in spec.families {
                // Nothing is there, unless the numbers of generations have begun again.
                let (from, to) = bounds(generation);
                batch.delete_foreign_range(&family(&named, own), &from, &to)?;
            }
            let active = served.active;
            let consumer = Consumer { generation, lost, active, ..Consumer::new(served.needs, 0) };
            Ok(Some(vec![(built, Some(consumer))]))
        })?;
        Ok(second)
    }

    /// Puts a second generation in the place of the first, if it has got as far. Says whether it has, or
    /// none was being built.
    ///
    /// # Errors
    /// What the database says; then the first is still there, or nobody knows.
    pub fn finish_rebuild(&self, name: &str) -> Result<bool, StoreError> {
        let turn = self.consumers.turn(name);
        let _turn = turn.ok_or_else(|| StoreError::UnknownConsumer(name.to_owned()))?.take();
        let (second, name) = (second(name), name.to_owned());
        self.change_consumers(self.database.batch(), move |known, batch| {
            let unknown = || StoreError::UnknownConsumer(name.clone());
            let served = known.get(&name).ok_or_else(unknown)?;
            let Some(built) = known.get(&second).cloned() else { return Ok(Some(Vec::new())) };
            if built.place < served.place {
                return Ok(None);
            }
            for own in known.spec(&name).ok_or_else(unknown)?.families {
                let (from, to) = bounds(served.generation);
                batch.delete_foreign_range(&family(&name, own), &from, &to)?;
            }
            Ok(Some(vec![(name, Some(built)), (second, None)]))
        })
    }

    /// Makes rows for consumers that are new to the directory. Whatever retention removed before one begins is lost
    /// to it. To be called when the store is opened.
    ///
    /// # Errors
    /// What the database says; then they are as new as before.
    pub(in super::super) fn begin_new_consumers(&self) -> Result<(), StoreError> {
        let mut new = self.consumers.lock().unwritten();
        for (_, consumer) in &mut new {
            if let Some(consumer) = consumer.as_mut().filter(|it| it.place == 0) {
                consumer.lost.insert_all(&self.gone(consumer.needs)?);
            }
        }
        if !new.is_empty() {
            self.change_consumers(self.database.batch(), move |_, _| Ok(Some(new)))?;
        }
        Ok(())
    }

    /// Covered ledgers of which retention has removed something that is needed.
    fn gone(&self, needs: super::Needs) -> Result<LedgerSet, StoreError> {
        let totals = *self.totals.read();
        let covered: LedgerSet = self.coverage.read().ranges().map(|range| range.ledgers).collect();
        let first_raw = if needs.raw_ledgers { self.first_raw()? } else { Some(LedgerSeq(0)) };
        let Some(raw_ledgers) = first_raw else { return Ok(covered) };
        let floors = super::Floors {
            raw_ledgers,
            events: totals.events_from,
            transactions: totals.transactions_from,
        };
        Ok(covered.within(state::before(floors.of(needs))))
    }
}

/// The keys of a generation.
fn bounds(generation: u32) -> (Vec<u8>, Vec<u8>) {
    let to = match generation.checked_add(1) {
        Some(next) => next.to_be_bytes().to_vec(),
        None => vec![u8::MAX; 64],
    };
    (generation.to_be_bytes().to_vec(), to)
}
