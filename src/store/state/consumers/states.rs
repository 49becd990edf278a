//! The states of all consumers in memory, and the locks under which they change.

use std::collections::BTreeMap;

use parking_lot::{Mutex, MutexGuard};

use super::consumer::Consumer;
use super::rows::{ConsumerEffects, family};
use super::spec::{
    ConsumerSpec, ConsumerStatus, RebuildProgress, StartPosition, first_build, second_build,
};
use crate::db::database::{Batch, Database};
use crate::encoding::bytes::Malformed;
use crate::encoding::columns::Family;
use crate::encoding::error::{StoreError, corrupt};

/// New state of a consumer, by name; `None` deletes its row.
pub(crate) type Update = (String, Option<Consumer>);

/// Makes one change, and returns the callback that receives the outcome of the write.
pub(crate) type Change = Box<dyn FnOnce(&mut ConsumerEffects<'_>) -> OutcomeCallback + Send>;
pub(crate) type OutcomeCallback = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// Serialises changes to the rows of one consumer: its steps and changes from outside.
#[derive(Default)]
pub(crate) struct ConsumerLock {
    /// Held from the first read of the rows until the changes that depend on it are durable.
    changing: Mutex<()>,
    /// Changes waiting for the lock.
    pub(crate) waiting: Mutex<Vec<Change>>,
}

impl ConsumerLock {
    /// Waits for the lock, and holds it until the guard is dropped.
    pub(crate) fn acquire(&self) -> MutexGuard<'_, ()> {
        self.changing.lock()
    }
}

/// All consumers, with the locks that order changes to them.
pub(crate) struct Consumers {
    known: Mutex<ConsumerStates>,
    /// Held from the check of the state on which a write depends until the write is done. Locked
    /// before `known`, and by threads of normal priority only: see [`crate::db::writer_thread`].
    writing: Mutex<()>,
    /// Locks of the registered consumers, by name. Taken before `writing`.
    locks: BTreeMap<&'static str, ConsumerLock>,
}

/// State of all consumers in memory.
#[derive(Debug, Default)]
pub(crate) struct ConsumerStates {
    by_name: BTreeMap<String, Consumer>,
    specs: BTreeMap<&'static str, ConsumerSpec>,
    /// A write failed that may have taken effect: the rows are read again before the next write.
    in_doubt: bool,
}

impl Consumers {
    /// Reads the rows of all consumers and adds the new ones in `specs`, which get their rows from
    /// `Store::begin_new_consumers`.
    pub(crate) fn load(
        database: &Database,
        specs: &[ConsumerSpec],
        last_place: u64,
    ) -> Result<Self, StoreError> {
        let mut by_name = stored(database)?;
        let mut batch = database.batch();
        for spec in specs {
            let begins = match spec.start {
                StartPosition::FirstLedger => 0,
                StartPosition::NextLedger => last_place,
            };
            let is_new = |own: &&str| database.is_new_family(&family(spec.name, own));
            if spec.start == StartPosition::FirstLedger
                && by_name.get(spec.name).is_some_and(|old| old.place > 0)
                && spec.families.iter().any(is_new)
            {
                // The rows have the layout of another version: they are made again.
                let second = second_build(spec.name);
                let builds = [&second, spec.name].map(|name| by_name.get(name).map(|it| it.build));
                let build = builds.into_iter().flatten().max().unwrap_or_default().wrapping_add(1);
                let again = Consumer { build, dirty: true, ..Consumer::new(spec.needs, 0) };
                batch.put_raw(Family::Consumers, spec.name.as_bytes(), &again.encode())?;
                batch.delete_raw(Family::Consumers, second.as_bytes())?;
                by_name.remove(&second);
                by_name.insert(spec.name.to_owned(), again);
            }
            let there = by_name.get(spec.name);
            let mut consumer = there.cloned().unwrap_or_else(|| Consumer::new(spec.needs, begins));
            consumer.needs = spec.needs;
            if there.is_none() {
                consumer.dirty = true;
            } else if there != Some(&consumer) {
                batch.put_raw(Family::Consumers, spec.name.as_bytes(), &consumer.encode())?;
            }
            consumer.active = true;
            by_name.insert(spec.name.to_owned(), consumer);
            if let Some(second) = by_name.get_mut(&second_build(spec.name)) {
                second.active = true;
            }
        }
        // What a read-only directory lacks is written when it is next opened for writing.
        if batch.rows() > 0 && !database.is_read_only() {
            database.write_synced(batch)?;
        }
        let locks = specs.iter().map(|spec| (spec.name, ConsumerLock::default())).collect();
        let specs = specs.iter().map(|spec| (spec.name, spec.clone())).collect();
        let known = ConsumerStates { by_name, specs, in_doubt: false };
        Ok(Self { known: Mutex::new(known), writing: Mutex::default(), locks })
    }

    /// Returns the lock that serialises changes to the rows of a registered consumer.
    pub(crate) fn lock_of(&self, name: &str) -> Option<&ConsumerLock> {
        self.locks.get(name)
    }

    /// Locks the state in memory. Locked after the store's writer and before its coverage.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ConsumerStates> {
        self.known.lock()
    }

    /// Writes `batch` with what `decide` adds to it and with the updates that it returns, synced.
    /// Writes nothing when `decide` returns `None` or the batch stays empty. Returns false only
    /// when `decide` returned `None`.
    pub(crate) fn change(
        &self,
        database: &Database,
        mut batch: Batch<'_>,
        decide: impl FnOnce(&ConsumerStates, &mut Batch<'_>) -> Result<Option<Vec<Update>>, StoreError>,
    ) -> Result<bool, StoreError> {
        let _only = self.writing.lock();
        self.reload_if_in_doubt(database)?;
        let (updates, decided_on) = {
            let known = self.known.lock();
            let Some(updates) = decide(&known, &mut batch)? else { return Ok(false) };
            let decided_on = known.named_in(&updates);
            (updates, decided_on)
        };
        put(&mut batch, &updates)?;
        if batch.rows() == 0 {
            return Ok(true);
        }
        // Also after a panic, memory and rows may differ.
        self.known.lock().in_doubt = true;
        database.write_synced(batch)?;
        let mut known = self.known.lock();
        known.apply(updates, &decided_on);
        known.in_doubt = false;
        Ok(true)
    }

    /// Applies the updates that `decide` returns in memory only; they are written with the next
    /// write of those consumers. Returns false, and changes nothing, when `decide` returns `None`.
    pub(crate) fn change_in_memory(
        &self,
        database: &Database,
        decide: impl FnOnce(&ConsumerStates) -> Result<Option<Vec<Update>>, StoreError>,
    ) -> Result<bool, StoreError> {
        let _only = self.writing.lock();
        self.reload_if_in_doubt(database)?;
        let mut known = self.known.lock();
        let Some(updates) = decide(&known)? else { return Ok(false) };
        let names: Vec<String> = updates.iter().map(|(name, _)| name.clone()).collect();
        let decided_on = known.named_in(&updates);
        known.apply(updates, &decided_on);
        for name in names {
            if let Some(consumer) = known.get_mut(&name) {
                consumer.dirty = true;
            }
        }
        Ok(true)
    }

    /// Returns the consumer's place, after rereading the rows if a write had failed.
    pub(crate) fn cursor(
        &self,
        database: &Database,
        name: &str,
    ) -> Result<Option<u64>, StoreError> {
        let _only = self.writing.lock();
        self.reload_if_in_doubt(database)?;
        Ok(self.known.lock().get(name).map(|consumer| consumer.place))
    }

    /// Rereads the consumers' rows if a write has failed since memory and rows last agreed.
    fn reload_if_in_doubt(&self, database: &Database) -> Result<(), StoreError> {
        let mut known = self.known.lock();
        if !known.in_doubt {
            return Ok(());
        }
        let mut stored = stored(database)?;
        for (name, consumer) in &mut stored {
            if let Some(before) = known.by_name.get(name) {
                consumer.active = before.active;
                consumer.ahead = before.ahead.clone();
                // Unwritten progress in memory stays valid, whether or not the write took effect.
                if before.dirty && before.build == consumer.build {
                    consumer.mark_passed(before.place, &before.lost);
                }
            }
        }
        known.by_name = stored;
        known.in_doubt = false;
        Ok(())
    }
}

impl ConsumerStates {
    pub(crate) fn all(&self) -> impl Iterator<Item = (&String, &Consumer)> {
        self.by_name.iter()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Consumer> {
        self.by_name.get(name)
    }

    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut Consumer> {
        self.by_name.get_mut(name)
    }

    pub(crate) fn spec(&self, name: &str) -> Option<&ConsumerSpec> {
        self.specs.get(first_build(name))
    }

    pub(crate) fn status(&self, name: &str, consumer: &Consumer, last: u64) -> ConsumerStatus {
        let second = self.by_name.get(&second_build(name));
        ConsumerStatus {
            name: name.to_owned(),
            active: consumer.active,
            place: consumer.place,
            lag: last.saturating_sub(consumer.place).saturating_sub(consumer.ahead.ledgers),
            lost: consumer.lost.clone(),
            rebuild: second
                .map(|second| RebuildProgress { done: second.place, target: consumer.place }),
        }
    }

    /// Returns updates for the consumers whose state in memory is newer than their row.
    pub(crate) fn unwritten(&self) -> Vec<Update> {
        let dirty = self.by_name.iter().filter(|(_, consumer)| consumer.dirty);
        dirty.map(|(name, consumer)| (name.clone(), Some(consumer.clone()))).collect()
    }

    /// Returns the states of the consumers that have an update.
    fn named_in(&self, updates: &[Update]) -> BTreeMap<String, Consumer> {
        let states = updates.iter().map(|(name, _)| (name, self.by_name.get(name)));
        states.filter_map(|(name, state)| Some((name.clone(), state?.clone()))).collect()
    }

    /// Applies updates that are written. They were decided on the states `decided_on`, and what has
    /// changed in memory since then, while they were written, stays.
    fn apply(&mut self, updates: Vec<Update>, decided_on: &BTreeMap<String, Consumer>) {
        for (name, consumer) in updates {
            match consumer {
                Some(mut consumer) => {
                    consumer.dirty = false;
                    if let Some(now) = self.by_name.get(&name) {
                        consumer.keep_newer(decided_on.get(&name), now);
                    }
                    self.by_name.insert(name, consumer);
                }
                None => drop(self.by_name.remove(&name)),
            }
        }
    }
}

fn stored(database: &Database) -> Result<BTreeMap<String, Consumer>, StoreError> {
    let mut found = BTreeMap::new();
    database.scan(Family::Consumers, |key, value| {
        let name = std::str::from_utf8(key).map_err(|_| Malformed);
        let consumer = name.and_then(|name| Ok((name.to_owned(), Consumer::decode(value)?)));
        found.extend([consumer.map_err(corrupt(Family::Consumers, key))?]);
        Ok(())
    })?;
    Ok(found)
}

/// Adds the rows of `updates` to `batch`.
fn put(batch: &mut Batch<'_>, updates: &[Update]) -> Result<(), StoreError> {
    updates.iter().try_for_each(|(name, consumer)| match consumer {
        Some(consumer) => batch.put_raw(Family::Consumers, name.as_bytes(), &consumer.encode()),
        None => batch.delete_raw(Family::Consumers, name.as_bytes()),
    })
}
