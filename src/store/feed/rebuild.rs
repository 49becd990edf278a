//! Rebuilds a consumer's rows while the old ones are served. A second build is fed like a
//! separate consumer, from the first ledger on; once it has caught up with the first build,
//! one write puts it in that one's place.

use orrery_ledger::domain::LedgerSet;

use crate::encoding::error::StoreError;
use crate::state::consumers::consumer::Consumer;
use crate::state::consumers::rows::family;
use crate::state::consumers::spec::{ConsumerSpec, Needs, second_build};
use crate::state::store::Store;

/// Keys before and after those of all builds.
const FIRST_KEY: [u8; 0] = [];
const AFTER_ALL: [u8; 64] = [u8::MAX; 64];

/// Whether a rebuild may begin when the new rows would lack ledgers that the served ones include.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Losses {
    /// It may not.
    Refused,
    /// It may.
    Accepted,
}

impl Store {
    /// Begins to rebuild a consumer's rows, or continues if a rebuild is under way. Ledgers of
    /// which retention has removed something that the consumer needs are lost to the second
    /// build. Returns the name under which that is fed ([`Store::consume`]).
    ///
    /// # Errors
    /// [`StoreError::UnknownConsumer`]; [`StoreError::RebuildLoses`] when `losses` refuses ledgers
    /// that the second build would lack although the first includes them; errors of the database.
    pub fn begin_rebuild(&self, name: &str, losses: Losses) -> Result<String, StoreError> {
        let second = second_build(name);
        let _only = self.pruning.lock();
        let (named, unknown) = (name.to_owned(), StoreError::UnknownConsumer(name.to_owned()));
        let needs = self.consumers.lock().get(name).map(|served| served.needs);
        let lost = needs.map(|needs| self.incomplete_ledgers(needs)).unwrap_or_default();
        let built = second.clone();
        self.change_consumers(self.database.batch(), move |known, batch| {
            if known.get(&built).is_some() {
                return Ok(None);
            }
            let found = known.spec(&named).zip(known.get(&named));
            let (spec, served) = found.ok_or(unknown)?;
            if losses == Losses::Refused {
                refuse_losses(&named, &lost, &served.lost)?;
            }
            let build = served.build.wrapping_add(1);
            for own in spec.families {
                // Deletes rows only if the build counter has wrapped around.
                let (from, to) = bounds(build);
                batch.delete_consumer_range(&family(&named, own), &from, &to)?;
            }
            let active = served.active;
            let consumer = Consumer { build, lost, active, ..Consumer::new(served.needs, 0) };
            Ok(Some(vec![(built, Some(consumer))]))
        })?;
        Ok(second)
    }

    /// Replaces the served build with the second one if that has caught up. Returns whether it
    /// was replaced or none was being built.
    ///
    /// # Errors
    /// Errors of the database, after which the old build is still served, or it is unknown
    /// whether it was replaced.
    pub fn finish_rebuild(&self, name: &str) -> Result<bool, StoreError> {
        let lock = self.consumers.lock_of(name);
        let _guard = lock.ok_or_else(|| StoreError::UnknownConsumer(name.to_owned()))?.acquire();
        let (second, name) = (second_build(name), name.to_owned());
        // Answers from the old rows must not be cached any longer.
        let _writer = self.writer.lock();
        let _change = self.generations.change();
        self.change_consumers(self.database.batch(), move |known, batch| {
            let unknown = || StoreError::UnknownConsumer(name.clone());
            let served = known.get(&name).ok_or_else(unknown)?;
            let Some(built) = known.get(&second).cloned() else { return Ok(Some(Vec::new())) };
            if built.place < served.place {
                return Ok(None);
            }
            for own in known.spec(&name).ok_or_else(unknown)?.families {
                let (from, to) = bounds(served.build);
                batch.delete_consumer_range(&family(&name, own), &from, &to)?;
            }
            Ok(Some(vec![(name, Some(built)), (second, None)]))
        })
    }

    /// Makes a consumer begin again at the first ledger, without the rows that it has, and without a
    /// second build. Ledgers of which retention has removed something that it needs are lost to it.
    ///
    /// # Errors
    /// [`StoreError::UnknownConsumer`] when none of this name is registered; errors of the database.
    pub fn begin_again(&self, name: &str) -> Result<(), StoreError> {
        let _only = self.pruning.lock();
        let lock = self.consumers.lock_of(name);
        let _guard = lock.ok_or_else(|| StoreError::UnknownConsumer(name.to_owned()))?.acquire();
        let needs = self.consumers.lock().get(name).map(|it| it.needs).unwrap_or_default();
        let lost = self.incomplete_ledgers(needs);
        // Answers from the old rows must not be cached any longer.
        let _writer = self.writer.lock();
        let _change = self.generations.change();
        let (name, second) = (name.to_owned(), second_build(name));
        self.change_consumers(self.database.batch(), move |known, batch| {
            let found = known.spec(&name).zip(known.get(&name));
            let unknown = || StoreError::UnknownConsumer(name.clone());
            let (spec, before) = found.ok_or_else(unknown)?;
            let built = known.get(&second).map(|it| it.build).unwrap_or_default();
            let build = before.build.max(built).wrapping_add(1);
            for own in spec.families {
                batch.delete_consumer_range(&family(&name, own), &FIRST_KEY, &AFTER_ALL)?;
            }
            let again = Consumer { build, lost, ..Consumer::new(before.needs, 0) };
            Ok(Some(vec![(name, Some(again)), (second, None)]))
        })?;
        Ok(())
    }

    /// Removes a consumer that is not registered, with all its rows. Returns whether there was one. Should
    /// it be registered again later, it is new.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn forget_consumer(&self, spec: &ConsumerSpec) -> Result<bool, StoreError> {
        let (name, second) = (spec.name.to_owned(), second_build(spec.name));
        if self.consumers.lock().get(&name).is_none() {
            return Ok(false);
        }
        let families = spec.families;
        let existing: Vec<String> = families
            .iter()
            .map(|own| family(&name, own))
            .filter(|family| self.database.has_family(family))
            .collect();
        let _writer = self.writer.lock();
        let _change = self.generations.change();
        self.change_consumers(self.database.batch(), move |_, batch| {
            for family in &existing {
                batch.delete_consumer_range(family, &FIRST_KEY, &AFTER_ALL)?;
            }
            Ok(Some(vec![(name, None), (second, None)]))
        })
    }

    /// Writes rows for consumers that are new to the directory. For one that begins at the first
    /// ledger, everything that retention has removed already is lost. Must be called when the store
    /// is opened.
    ///
    /// # Errors
    /// Errors of the database; the consumers are then still new.
    pub(crate) fn begin_new_consumers(&self) -> Result<(), StoreError> {
        let mut new = self.consumers.lock().unwritten();
        for (_, consumer) in &mut new {
            if let Some(consumer) = consumer.as_mut().filter(|it| it.place == 0) {
                consumer.lost.insert_all(&self.incomplete_ledgers(consumer.needs));
            }
        }
        if !new.is_empty() {
            self.change_consumers(self.database.batch(), move |_, _| Ok(Some(new)))?;
        }
        Ok(())
    }

    /// Returns the covered ledgers of which something in `needs` is not stored.
    fn incomplete_ledgers(&self, needs: Needs) -> LedgerSet {
        let mut covered: LedgerSet =
            self.coverage.read().ranges().map(|range| range.ledgers).collect();
        let mut complete = covered.clone();
        complete.remove_all(&self.removed.read().of(needs));
        covered.remove_all(&complete);
        covered
    }
}

/// Returns an error if `lost` contains ledgers that the served rows include.
fn refuse_losses(name: &str, lost: &LedgerSet, lost_before: &LedgerSet) -> Result<(), StoreError> {
    let mut newly = lost.clone();
    newly.remove_all(lost_before);
    match (newly.ranges().first(), newly.ranges().last()) {
        (Some(first), Some(last)) => Err(StoreError::RebuildLoses {
            name: name.to_owned(),
            ledgers: newly.ledgers(),
            first: first.first,
            last: last.last,
        }),
        _ => Ok(()),
    }
}

/// Returns the key range of a build: first key (included) and last (excluded).
fn bounds(build: u32) -> (Vec<u8>, Vec<u8>) {
    let to = match build.checked_add(1) {
        Some(next) => next.to_be_bytes().to_vec(),
        None => vec![u8::MAX; 64],
    };
    (build.to_be_bytes().to_vec(), to)
}
