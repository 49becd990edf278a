//! Rebuilds a consumer's rows while the old ones are served. A second generation is fed like a
//! separate consumer, from the first ledger on; once it has caught up with the first generation,
//! one write puts it in that one's place.

use orrery_ledger::domain::{LedgerSeq, LedgerSet};

use super::super::{Store, StoreError};
use super::rows::family;
use super::state::{self, Consumer};

/// Suffix of the name of a second generation; no other name ends with it.
const SECOND_SUFFIX: char = '~';

/// Progress of a second generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RebuildProgress {
    /// Place that the second generation has reached.
    pub done: u64,
    /// Place that the served generation has reached.
    pub target: u64,
}

/// Returns the name under which a consumer's second generation is fed.
pub(super) fn second(name: &str) -> String {
    format!("{name}{SECOND_SUFFIX}")
}

/// Returns whether a name is that of a second generation.
pub(super) fn is_second(name: &str) -> bool {
    name.ends_with(SECOND_SUFFIX)
}

/// Returns the name of the consumer to which a generation belongs.
pub(super) fn first(name: &str) -> &str {
    name.strip_suffix(SECOND_SUFFIX).unwrap_or(name)
}

impl Store {
    /// Begins to rebuild a consumer's rows, or continues if a rebuild is under way. Ledgers of
    /// which retention has removed something that the consumer needs are lost to the second
    /// generation. Returns the name under which that is fed ([`Store::consume`]).
    ///
    /// # Errors
    /// [`StoreError::UnknownConsumer`], and errors of the database.
    pub fn begin_rebuild(&self, name: &str) -> Result<String, StoreError> {
        let second = second(name);
        let _only = self.pruning.lock();
        let (named, unknown) = (name.to_owned(), StoreError::UnknownConsumer(name.to_owned()));
        let needs = self.consumers.lock().get(name).map(|served| served.needs);
        let lost = needs.map_or(Ok(LedgerSet::default()), |needs| self.pruned_ledgers(needs))?;
        let built = second.clone();
        self.change_consumers(self.database.batch(), move |known, batch| {
            if known.get(&built).is_some() {
                return Ok(None);
            }
            let found = known.spec(&named).zip(known.get(&named));
            let (spec, served) = found.ok_or(unknown)?;
            let generation = served.generation.wrapping_add(1);
            for own in spec.families {
                // Deletes rows only if the generation counter has wrapped around.
                let (from, to) = bounds(generation);
                batch.delete_consumer_range(&family(&named, own), &from, &to)?;
            }
            let active = served.active;
            let consumer = Consumer { generation, lost, active, ..Consumer::new(served.needs, 0) };
            Ok(Some(vec![(built, Some(consumer))]))
        })?;
        Ok(second)
    }

    /// Replaces the served generation with the second one if that has caught up. Returns whether it
    /// was replaced or none was being built.
    ///
    /// # Errors
    /// Errors of the database, after which the old generation is still served, or it is unknown
    /// whether it was replaced.
    pub fn finish_rebuild(&self, name: &str) -> Result<bool, StoreError> {
        let lock = self.consumers.lock_of(name);
        let _guard = lock.ok_or_else(|| StoreError::UnknownConsumer(name.to_owned()))?.acquire();
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
                batch.delete_consumer_range(&family(&name, own), &from, &to)?;
            }
            Ok(Some(vec![(name, Some(built)), (second, None)]))
        })
    }

    /// Writes rows for consumers that are new to the directory. For one that begins at the first
    /// ledger, everything that retention has removed already is lost. Must be called when the store
    /// is opened.
    ///
    /// # Errors
    /// Errors of the database; the consumers are then still new.
    pub(in super::super) fn begin_new_consumers(&self) -> Result<(), StoreError> {
        let mut new = self.consumers.lock().unwritten();
        for (_, consumer) in &mut new {
            if let Some(consumer) = consumer.as_mut().filter(|it| it.place == 0) {
                consumer.lost.insert_all(&self.pruned_ledgers(consumer.needs)?);
            }
        }
        if !new.is_empty() {
            self.change_consumers(self.database.batch(), move |_, _| Ok(Some(new)))?;
        }
        Ok(())
    }

    /// Returns the covered ledgers of which retention has removed something in `needs`.
    fn pruned_ledgers(&self, needs: super::Needs) -> Result<LedgerSet, StoreError> {
        let totals = *self.totals.read();
        let covered: LedgerSet = self.coverage.read().ranges().map(|range| range.ledgers).collect();
        let first_raw = if needs.raw_ledgers { self.first_raw()? } else { Some(LedgerSeq(0)) };
        let Some(raw_ledgers) = first_raw else { return Ok(covered) };
        let floors = super::Floors {
            raw_ledgers,
            events: totals.events_from,
            transactions: totals.transactions_from,
        };
        Ok(covered.within(state::ledgers_below(floors.of(needs))))
    }
}

/// Returns the key range of a generation: first key (included) and last (excluded).
fn bounds(generation: u32) -> (Vec<u8>, Vec<u8>) {
    let to = match generation.checked_add(1) {
        Some(next) => next.to_be_bytes().to_vec(),
        None => vec![u8::MAX; 64],
    };
    (generation.to_be_bytes().to_vec(), to)
}
