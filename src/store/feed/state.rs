//! Progress of each consumer, in memory and as a row of the family `consumers`.

use std::collections::BTreeMap;
use std::sync::Arc;

use orrery_ledger::domain::{LedgerRange, LedgerSeq, LedgerSet};
use parking_lot::{Mutex, MutexGuard};

use super::super::bytes::{Malformed, Reader, put_varint};
use super::super::columns::Family;
use super::super::database::{Batch, Database, corrupt};
use super::super::{Store, StoreError};
use super::change::ConsumerLock;
use super::rebuild::{self, RebuildProgress};
use super::{ConsumerSpec, ConsumerStatus, Needs, StartPosition};

/// Ledgers after its place that a consumer is done with, for a consumer that does not work in the
/// order of ingestion.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in super::super) struct OutOfOrderProgress {
    /// All ledgers that it has processed.
    pub done: LedgerSet,
    /// Number of ledgers after its place that it has processed or that are lost to it.
    pub ledgers: u64,
}

/// A consumer's state in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Consumer {
    pub needs: Needs,
    /// Generation of its rows.
    pub generation: u32,
    /// Place in the feed up to which it has processed every ledger.
    pub place: u64,
    pub lost: LedgerSet,
    /// Whether it takes ledgers in this process.
    pub active: bool,
    /// What it has processed after its place. In memory only.
    pub ahead: OutOfOrderProgress,
    /// Whether the state in memory is newer than the row.
    pub dirty: bool,
}

impl Consumer {
    /// Creates the state of a consumer at `place` that has processed nothing itself.
    pub(in super::super) fn new(needs: Needs, place: u64) -> Self {
        let lost = LedgerSet::default();
        let ahead = OutOfOrderProgress::default();
        Self { needs, generation: 0, place, lost, active: false, ahead, dirty: false }
    }

    pub(super) fn mark_passed(&mut self, place: u64, lost: &LedgerSet) {
        if place > self.place || !lost.is_empty() {
            self.place = self.place.max(place);
            self.lost.insert_all(lost);
            self.dirty = true;
        }
    }

    fn encode(&self) -> Vec<u8> {
        let Needs { raw_ledgers, events, transactions } = self.needs;
        let needs = u8::from(raw_ledgers) | u8::from(events) << 1 | u8::from(transactions) << 2;
        let mut out = vec![needs];
        put_varint(&mut out, u64::from(self.generation));
        put_varint(&mut out, self.place);
        for range in self.lost.ranges() {
            out.extend_from_slice(&range.first.0.to_be_bytes());
            out.extend_from_slice(&range.last.0.to_be_bytes());
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let needs = match reader.u8()? {
            bits @ 0..8 => Needs {
                raw_ledgers: bits & 1 != 0,
                events: bits & 2 != 0,
                transactions: bits & 4 != 0,
            },
            _ => return Err(Malformed),
        };
        let generation = u32::try_from(reader.varint()?).map_err(|_| Malformed)?;
        let place = reader.varint()?;
        let mut lost = LedgerSet::default();
        while !reader.is_at_end() {
            lost.insert(LedgerRange::new(reader.u32()?, reader.u32()?));
        }
        Ok(Self { generation, lost, ..Self::new(needs, place) })
    }
}

/// New state of a consumer, by name; `None` deletes its row.
pub(in super::super) type Update = (String, Option<Consumer>);

/// All consumers, with the locks that order changes to them.
pub(in super::super) struct Consumers {
    known: Mutex<ConsumerStates>,
    /// Held from the check of the state on which a write depends until the write is done. Locked
    /// before `known`, and by threads of normal priority only: see [`super::super::writer_thread`].
    writing: Mutex<()>,
    /// Locks of the registered consumers, by name. Taken before `writing`.
    locks: BTreeMap<&'static str, ConsumerLock>,
}

/// State of all consumers in memory.
#[derive(Debug, Default)]
pub(in super::super) struct ConsumerStates {
    by_name: BTreeMap<String, Consumer>,
    specs: BTreeMap<&'static str, ConsumerSpec>,
    /// A write failed that may have taken effect: the rows are read again before the next write.
    in_doubt: bool,
}

impl Consumers {
    /// Reads the rows of all consumers and adds the new ones in `specs`, which get their rows from
    /// [`Store::begin_new_consumers`].
    pub(in super::super) fn load(
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
            if let Some(second) = by_name.get_mut(&rebuild::second(spec.name)) {
                second.active = true;
            }
        }
        if batch.rows() > 0 {
            database.write_synced(batch)?;
        }
        let locks = specs.iter().map(|spec| (spec.name, ConsumerLock::default())).collect();
        let specs = specs.iter().map(|spec| (spec.name, spec.clone())).collect();
        let known = ConsumerStates { by_name, specs, in_doubt: false };
        Ok(Self { known: Mutex::new(known), writing: Mutex::default(), locks })
    }

    /// Returns the lock that serialises changes to the rows of a registered consumer.
    pub(super) fn lock_of(&self, name: &str) -> Option<&ConsumerLock> {
        self.locks.get(name)
    }

    /// Locks the state in memory. Locked after the store's writer and before its coverage.
    pub(in super::super) fn lock(&self) -> MutexGuard<'_, ConsumerStates> {
        self.known.lock()
    }

    /// Writes `batch` with what `decide` adds to it and with the updates that it returns, synced.
    /// Writes nothing when `decide` returns `None` or the batch stays empty. Returns false only
    /// when `decide` returned `None`.
    pub(in super::super) fn change(
        &self,
        database: &Database,
        mut batch: Batch<'_>,
        decide: impl FnOnce(&ConsumerStates, &mut Batch<'_>) -> Result<Option<Vec<Update>>, StoreError>,
    ) -> Result<bool, StoreError> {
        let _only = self.writing.lock();
        self.reload_if_in_doubt(database)?;
        let Some(updates) = decide(&self.known.lock(), &mut batch)? else { return Ok(false) };
        put(&mut batch, &updates)?;
        if batch.rows() == 0 {
            return Ok(true);
        }
        if let Err(error) = database.write_synced(batch) {
            self.known.lock().in_doubt = true;
            return Err(error);
        }
        self.known.lock().apply(updates);
        Ok(true)
    }

    /// Applies the updates that `decide` returns in memory only; they are written with the next
    /// write of those consumers. Returns false, and changes nothing, when `decide` returns `None`.
    fn change_in_memory(
        &self,
        database: &Database,
        decide: impl FnOnce(&ConsumerStates) -> Result<Option<Vec<Update>>, StoreError>,
    ) -> Result<bool, StoreError> {
        let _only = self.writing.lock();
        self.reload_if_in_doubt(database)?;
        let mut known = self.known.lock();
        let Some(updates) = decide(&known)? else { return Ok(false) };
        let names: Vec<String> = updates.iter().map(|(name, _)| name.clone()).collect();
        known.apply(updates);
        for name in names {
            if let Some(consumer) = known.get_mut(&name) {
                consumer.dirty = true;
            }
        }
        Ok(true)
    }

    /// Returns the consumer's place, after rereading the rows if a write had failed.
    pub(super) fn cursor(
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
                if before.dirty && before.generation == consumer.generation {
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
    pub(super) fn all(&self) -> impl Iterator<Item = (&String, &Consumer)> {
        self.by_name.iter()
    }

    pub(in super::super) fn get(&self, name: &str) -> Option<&Consumer> {
        self.by_name.get(name)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Consumer> {
        self.by_name.get_mut(name)
    }

    pub(super) fn spec(&self, name: &str) -> Option<&ConsumerSpec> {
        self.specs.get(rebuild::first(name))
    }

    pub(super) fn status(&self, name: &str, consumer: &Consumer, last: u64) -> ConsumerStatus {
        let second = self.by_name.get(&rebuild::second(name));
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
    pub(super) fn unwritten(&self) -> Vec<Update> {
        let dirty = self.by_name.iter().filter(|(_, consumer)| consumer.dirty);
        dirty.map(|(name, consumer)| (name.clone(), Some(consumer.clone()))).collect()
    }

    fn apply(&mut self, updates: Vec<Update>) {
        for (name, consumer) in updates {
            match consumer {
                Some(consumer) => {
                    // `active` and `ahead` may have changed in memory since the update was made.
                    let now = self.by_name.get(&name).map(|it| (it.active, it.ahead.clone()));
                    let (active, ahead) = now.unwrap_or((consumer.active, consumer.ahead.clone()));
                    let consumer = Consumer { active, ahead, dirty: false, ..consumer };
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

impl Store {
    /// Calls [`Consumers::change`] on a thread of normal priority.
    pub(in super::super) fn change_consumers(
        &self,
        batch: Batch<'_>,
        decide: impl FnOnce(&ConsumerStates, &mut Batch<'_>) -> Result<Option<Vec<Update>>, StoreError>
        + Send
        + 'static,
    ) -> Result<bool, StoreError> {
        let (consumers, batch) = (Arc::clone(&self.consumers), batch.detach());
        self.writer_thread
            .run(move |database| consumers.change(database, database.attach(batch), decide))
    }
}

impl Store {
    /// Calls [`Consumers::change_in_memory`] on a thread of normal priority.
    pub(super) fn change_consumers_in_memory(
        &self,
        decide: impl FnOnce(&ConsumerStates) -> Result<Option<Vec<Update>>, StoreError> + Send + 'static,
    ) -> Result<bool, StoreError> {
        let consumers = Arc::clone(&self.consumers);
        self.writer_thread.run(move |database| consumers.change_in_memory(database, decide))
    }
}

/// Checks a row of the family `consumers` and returns its place, for the audit.
pub(in super::super) fn check(key: &[u8], value: &[u8]) -> Result<u64, Malformed> {
    std::str::from_utf8(key).map_err(|_| Malformed)?;
    Ok(Consumer::decode(value)?.place)
}

/// Returns the range of all ledgers below `floor`.
pub(super) fn ledgers_below(floor: LedgerSeq) -> LedgerRange {
    match floor.previous() {
        Some(last) => LedgerRange { first: LedgerSeq(0), last },
        None => LedgerRange::new(1, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consumer_rows_round_trip() {
        let needs = Needs { events: true, raw_ledgers: true, ..Needs::default() };
        let mut consumer = Consumer { generation: 3, ..Consumer::new(needs, 1 << 40) };
        assert_eq!(Consumer::decode(&consumer.encode()), Ok(consumer.clone()));
        consumer.lost = [LedgerRange::new(2, 9), LedgerRange::new(11, 11)].into_iter().collect();
        assert_eq!(Consumer::decode(&consumer.encode()), Ok(consumer.clone()));
        let bytes = consumer.encode();
        assert_eq!(Consumer::decode(&bytes[..bytes.len() - 1]), Err(Malformed));
        assert_eq!(Consumer::decode(&[8, 0, 0]), Err(Malformed));
    }
}
