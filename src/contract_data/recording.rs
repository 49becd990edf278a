//! Records the state of contracts at a checkpoint: compares it with what the stored ledgers say, and
//! keeps what they do not say.
//!
//! 1. *Comparing.* Entries of the state and known keys are both in ascending order, and are merged. What
//!    nothing stored says gets a row, which counts for nothing yet. The first difference ends the work:
//!    the rows are removed, and the checkpoint is marked.
//!    Settings of the network are compared, too, and recorded at once.
//! 2. *Listing.* The keys of the rows are added to those that lists and counters show.
//! 3. The checkpoint counts from the last write on.
//!
//! After a kill, all of it is done again; rows that are there already are those of the same state, for it
//! is proved by the same header. Once more after ledgers were added, it compares with these as well.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::ops::ControlFlow;

use orrery_checkpoint::{CheckpointError, Found as FoundInState, FoundData};
use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq};
use orrery_store::{ConsumerEffects, RowBounds, RowCodec, RowFlow, Store, StoreError};

use super::changes::hash_of;
use super::consumer::{Changed, ChangedRow};
use super::entry::{DataKey, Durability, modified};
use super::found::{
    CHECKED, CHECKPOINTS, CheckpointRow, Difference, FOUND, FoundRow, REFUSED, key_of,
};
use super::lookup::{Lookup, State, Value};
use super::rows::{
    CONSUMER, EVICTED, Given, KEYS, Key, KeyRow, KeyTag, NEVER_GIVEN, NOWHERE, end_of,
};
use super::scope::Watches;

/// Size of the rows that are written at once, in bytes.
const BATCH_BYTES: usize = 2 << 20;
/// Number of keys that are listed at once.
const BATCH_KEYS: usize = 1024;
/// Number of entries between two calls of [`Recording::observe`].
const ENTRIES_BETWEEN_CALLS: u64 = 1024;

/// What is recorded, and of which checkpoint.
pub struct Recording<'a> {
    /// The store.
    pub store: &'a Store,
    /// The ledger of the checkpoint, which is stored.
    pub ledger: LedgerSeq,
    /// Contracts whose state is recorded; `None` for all.
    pub contracts: Option<&'a BTreeSet<ContractId>>,
    /// Whether trusted validators attest the header that proves the state.
    pub is_attested: bool,
    /// Is told how much was done. Returns whether to go on.
    pub observe: &'a dyn Fn(Recorded) -> bool,
}

/// How much was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recorded {
    /// Entries of the state.
    pub entries: u64,
    /// Those that no stored ledger says, and that are recorded.
    pub found: u64,
    /// Those of contracts of which not all transactions are stored: nothing is answered about them.
    pub skipped: u64,
}

/// Why the state at a checkpoint was not recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The state is not what the stored ledgers say. Nothing is recorded but that it is so.
    #[error(
        "the state at ledger {ledger} and the stored ledgers contradict each other: the entry under key \
         {} of contract {} is not what ledger {} left",
        difference.key_hash,
        difference.contract,
        difference.ledger
    )]
    Differs {
        /// The ledger of the checkpoint.
        ledger: LedgerSeq,
        /// Where.
        difference: Difference,
    },
    /// The state cannot be read.
    #[error("{0}")]
    State(#[from] CheckpointError),
    /// The store failed.
    #[error("{0}")]
    Store(#[from] StoreError),
}

impl Recording<'_> {
    /// Records a state, whose entries are in ascending order.
    ///
    /// # Errors
    /// [`RecordError`]; what was written before counts for nothing.
    pub fn record(
        &self,
        state: impl Iterator<Item = Result<FoundInState, CheckpointError>>,
    ) -> Result<Recorded, RecordError> {
        let view = self.store.consumer_view(CONSUMER, RowBounds::none())?;
        let watches = Watches::load(&view, self.contracts)?;
        drop(view);
        let (recorded, settings) = match self.compare(state, &watches) {
            Err(RecordError::Differs { ledger, difference }) => {
                self.refuse(difference)?;
                self.store.end_generation();
                return Err(RecordError::Differs { ledger, difference });
            }
            compared => compared?,
        };
        self.store.put_found_settings(self.ledger, &settings)?;
        self.list_keys(recorded, &watches)?;
        self.finish(watches)?;
        self.store.end_generation();
        Ok(recorded)
    }

    fn compare(
        &self,
        state: impl Iterator<Item = Result<FoundInState, CheckpointError>>,
        watches: &Watches,
    ) -> Result<(Recorded, Vec<Vec<u8>>), RecordError> {
        let lookup = Lookup::new(self.store, self.ledger, RowBounds::none())?;
        let mut lookup = lookup.without_updated();
        // What was recorded of this checkpoint and of later ones does not count: which rows an earlier one
        // gets must not depend on them.
        let is_again = lookup.checkpoints.leave_out_from(self.ledger);
        let mut comparison = Comparison {
            recording: self,
            lookup: &lookup,
            watches,
            is_again,
            of_contract: None,
            rows: Vec::new(),
            bytes: 0,
            recorded: Recorded::default(),
        };
        let mut left = Left { state, next: None, settings: Vec::new() };
        let mut failure = None;
        let mut visit = |key: Key, _: KeyRow| -> RowFlow {
            Ok(match comparison.up_to(&key, &mut left) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failure = Some(error);
                    ControlFlow::Break(())
                }
            })
        };
        match self.contracts {
            None => drop(KEYS.scan_all(&lookup.view, None, &mut visit)?),
            Some(contracts) => {
                for contract in contracts {
                    if KEYS.scan(&lookup.view, contract, None, &mut visit)? {
                        break;
                    }
                }
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        while let Some(data) = left.take()? {
            comparison.add_unnamed(data)?;
        }
        comparison.write()?;
        Ok((comparison.recorded, left.settings))
    }

    /// Adds the keys of all rows to those that are listed.
    fn list_keys(&self, recorded: Recorded, watches: &Watches) -> Result<(), RecordError> {
        let view = self.store.consumer_view(CONSUMER, RowBounds::none())?;
        let (ledger, mut keys, mut failure) = (self.ledger, Vec::new(), None);
        let list = |keys: Vec<(Key, FoundKey)>| -> Result<(), RecordError> {
            if !(self.observe)(recorded) {
                return Err(CheckpointError::Stopped.into());
            }
            let watches = watches.clone();
            Ok(self.store.change_consumer_rows(CONSUMER, move |effects| {
                let mut changed = Changed::default();
                for (key, found) in &keys {
                    if watches.still_has(effects, &key.0)? {
                        changed.add_found(effects, *key, found)?;
                    }
                }
                changed.write(effects)
            })?)
        };
        FOUND.scan(&view, &ledger, None, |(_, key), row| {
            let Some(found) = FoundKey::of(ledger, &row) else {
                return Err(FOUND.damaged(&(ledger, key)));
            };
            keys.push((key, found));
            if keys.len() == BATCH_KEYS
                && let Err(error) = list(std::mem::take(&mut keys))
            {
                failure = Some(error);
                return Ok(ControlFlow::Break(()));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        failure.map_or(Ok(()), Err)?;
        if keys.is_empty() { Ok(()) } else { list(keys) }
    }

    /// Makes the checkpoint count.
    fn finish(&self, watches: Watches) -> Result<(), StoreError> {
        let (ledger, is_attested) = (self.ledger, self.is_attested);
        let contracts = self.contracts.cloned();
        self.store.change_consumer_rows(CONSUMER, move |effects| {
            let known = CHECKPOINTS.get(effects, &ledger)?;
            let is_whole = contracts.is_none() || known.is_some_and(|known| known.is_whole);
            CHECKPOINTS.put(effects, &ledger, &CheckpointRow { is_attested, is_whole })?;
            for contract in contracts.iter().flatten() {
                if watches.still_has(effects, contract)? {
                    CHECKED.put(effects, &(*contract, ledger), &())?;
                }
            }
            // It is not there any more: ledgers were stored again.
            if let Some(difference) = REFUSED.get(effects, &ledger)?
                && contracts.is_none_or(|contracts| contracts.contains(&difference.contract))
            {
                REFUSED.delete(effects, &ledger)?;
            }
            Ok(())
        })
    }

    /// Marks the checkpoint, and removes its rows if it does not count.
    fn refuse(&self, difference: Difference) -> Result<(), StoreError> {
        let ledger = self.ledger;
        self.store.change_consumer_rows(CONSUMER, move |effects| {
            REFUSED.put(effects, &ledger, &difference)?;
            if !CHECKPOINTS.has(effects, &ledger)? {
                let next = LedgerSeq(ledger.0.saturating_add(1));
                effects.delete_range(FOUND.family, &ledger.encode(), &next.encode())?;
            }
            Ok(())
        })
    }
}

/// What is left of a state.
struct Left<I> {
    state: I,
    next: Option<FoundData>,
    /// Settings of the network, XDR `LedgerEntry`, which come first.
    settings: Vec<Vec<u8>>,
}

impl<I: Iterator<Item = Result<FoundInState, CheckpointError>>> Left<I> {
    /// Returns the next entry of contract data.
    fn take(&mut self) -> Result<Option<FoundData>, CheckpointError> {
        if let Some(next) = self.next.take() {
            return Ok(Some(next));
        }
        for found in &mut self.state {
            match found? {
                FoundInState::Data(data) => return Ok(Some(data)),
                FoundInState::Setting(setting) => self.settings.push(setting.entry),
                FoundInState::Code(_) => {}
            }
        }
        Ok(None)
    }
}

/// What is known of a contract at the checkpoint.
#[derive(Clone, Copy)]
struct OfContract {
    contract: ContractId,
    /// The ledgers around it that have all its changes.
    range: Option<LedgerRange>,
    /// Whether it had no data when they began.
    begins_without: bool,
}

struct Comparison<'a, 's> {
    recording: &'a Recording<'a>,
    lookup: &'a Lookup<'s>,
    /// How the contracts are watched.
    watches: &'a Watches,
    /// Whether the checkpoint counts already.
    is_again: bool,
    of_contract: Option<OfContract>,
    /// Rows that are not written yet.
    rows: Vec<(Key, FoundRow)>,
    /// Their size.
    bytes: usize,
    recorded: Recorded,
}

impl Comparison<'_, '_> {
    /// Compares a known key with the state, after all entries that come before it.
    fn up_to<I: Iterator<Item = Result<FoundInState, CheckpointError>>>(
        &mut self,
        key: &Key,
        left: &mut Left<I>,
    ) -> Result<(), RecordError> {
        while let Some(data) = left.take()? {
            let here = key_of_data(&data);
            if here < *key {
                self.add_unnamed(data)?;
            } else if here == *key {
                return self.add_named(data);
            } else {
                left.next = Some(data);
                break;
            }
        }
        self.add_missing(key)
    }

    /// Adds an entry under a key that nothing stored names.
    fn add_unnamed(&mut self, data: FoundData) -> Result<(), RecordError> {
        let of = self.of_contract(&data.contract)?;
        let Some(range) = of.range else { return self.skip() };
        let since = LedgerSeq(modified(&data.entry).unwrap_or(0));
        let is_alive = is_alive(&data, self.recording.ledger);
        let is_untold = of.begins_without || (!data.is_evicted && range.contains(since));
        if is_alive && is_untold {
            return Err(self.differs(&data, since));
        }
        self.push(data)
    }

    /// Compares an entry under a key that something stored names.
    fn add_named(&mut self, data: FoundData) -> Result<(), RecordError> {
        let Some(range) = self.of_contract(&data.contract)?.range else { return self.skip() };
        let (of, ledger) = (key_of_data(&data), self.recording.ledger);
        let past = self.lookup.past(of, range, end_of(ledger))?;
        let state = self.lookup.state(of, range, end_of(ledger))?;
        let since = LedgerSeq(modified(&data.entry).unwrap_or(0));
        let is_alive = is_alive(&data, ledger);
        let is_other = match &state.value {
            Value::Entry(entry) => *entry != data.entry,
            Value::Absent => is_alive,
            // No ledger that is stored wrote it.
            Value::Unknown => is_alive && !data.is_evicted && range.contains(since),
        };
        let written = past.written.as_ref().map(|(at, _)| at.ledger);
        // The network itself has archived another value.
        if data.is_evicted && state.evicted.is_some() && self.lookup.is_disputed(&of.1)? {
            return self.count();
        }
        if is_other {
            return Err(self.differs(&data, written.unwrap_or(since)));
        }
        if let (Some(until), Some(stored)) = (data.live_until, state.live_until)
            && until != stored
            && matches!(state.value, Value::Entry(_))
        {
            let given = past.ttl.map(|ttl| ttl.at).or(written);
            return Err(self.differs(&data, given.unwrap_or(since)));
        }
        let is_archived = data.is_evicted || data.live_until.is_some_and(|until| until < ledger);
        let was_archived = match state.evicted {
            Some(_) => Some(true),
            None => state.live_until.map(|until| until < ledger),
        };
        if is_alive && was_archived.is_some_and(|it| it != is_archived) {
            return Err(self.differs(&data, written.unwrap_or(since)));
        }
        if self.is_told(of, range, &state, written.is_some())? {
            return self.count();
        }
        self.push(data)
    }

    /// Whether changes, or an earlier checkpoint, say all that the state says of an entry.
    fn is_told(
        &self,
        of: Key,
        range: LedgerRange,
        state: &State,
        is_written: bool,
    ) -> Result<bool, StoreError> {
        let is_life_known = state.live_until.is_some() || state.evicted.is_some();
        Ok(match &state.value {
            Value::Entry(_) if !is_life_known => false,
            Value::Entry(_) if is_written => true,
            Value::Entry(_) => self.lookup.has_found(of, range, self.recording.ledger)?,
            Value::Absent => is_written,
            Value::Unknown => false,
        })
    }

    /// Compares a key of which the state has no entry.
    fn add_missing(&mut self, key: &Key) -> Result<(), RecordError> {
        let Some(range) = self.of_contract(&key.0)?.range else { return Ok(()) };
        let ledger = self.recording.ledger;
        let state = self.lookup.state(*key, range, end_of(ledger))?;
        let (Value::Entry(entry), Some(own)) = (&state.value, &state.key) else { return Ok(()) };
        let may_be_over = own.durability() == Durability::Temporary
            && state.live_until.is_none_or(|until| until < ledger);
        if may_be_over {
            return Ok(());
        }
        let key_hash = hash_of(&own.entry_key());
        let at = LedgerSeq(modified(entry).unwrap_or(0));
        let difference = Difference { contract: key.0, key_hash, ledger: at };
        Err(RecordError::Differs { ledger, difference })
    }

    fn of_contract(&mut self, contract: &ContractId) -> Result<OfContract, StoreError> {
        if let Some(known) = self.of_contract.filter(|known| known.contract == *contract) {
            return Ok(known);
        }
        let range = self.lookup.range(contract)?;
        let begins_without = match range {
            Some(range) => self.lookup.begins_without(contract, range)?,
            None => false,
        };
        let of = OfContract { contract: *contract, range, begins_without };
        self.of_contract = Some(of);
        Ok(of)
    }

    fn differs(&self, data: &FoundData, ledger: LedgerSeq) -> RecordError {
        let FoundData { contract, key_hash, .. } = *data;
        let difference = Difference { contract, key_hash, ledger };
        RecordError::Differs { ledger: self.recording.ledger, difference }
    }

    fn push(&mut self, data: FoundData) -> Result<(), RecordError> {
        let key = key_of_data(&data);
        if self.is_again && FOUND.has(&self.lookup.view, &(self.recording.ledger, key))? {
            return self.count();
        }
        let FoundData { entry, live_until, is_evicted, .. } = data;
        let live_until = live_until.unwrap_or(LedgerSeq(0));
        self.bytes += entry.len() + 64;
        self.rows.push((key, FoundRow { live_until, is_evicted, entry }));
        self.recorded.found += 1;
        if self.bytes >= BATCH_BYTES {
            self.write()?;
        }
        self.count()
    }

    fn skip(&mut self) -> Result<(), RecordError> {
        self.recorded.skipped += 1;
        self.count()
    }

    fn count(&mut self) -> Result<(), RecordError> {
        self.recorded.entries += 1;
        let is_due = self.recorded.entries.is_multiple_of(ENTRIES_BETWEEN_CALLS);
        if is_due && !(self.recording.observe)(self.recorded) {
            return Err(CheckpointError::Stopped.into());
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), StoreError> {
        self.bytes = 0;
        let (rows, ledger) = (std::mem::take(&mut self.rows), self.recording.ledger);
        let watches = self.watches.clone();
        self.recording.store.change_consumer_rows(CONSUMER, move |effects| {
            for (key, row) in &rows {
                if watches.still_has(effects, &key.0)? {
                    FOUND.put(effects, &(ledger, *key), row)?;
                }
            }
            Ok(())
        })
    }
}

/// What a row says of its key.
struct FoundKey {
    key: DataKey<'static>,
    found: Given,
}

impl FoundKey {
    fn of(ledger: LedgerSeq, row: &FoundRow) -> Option<Self> {
        let found = Given { live_until: row.live_until, at: ledger };
        Some(Self { key: row.key()?.into_owned(), found })
    }
}

impl Changed {
    /// Adds the key of an entry that a checkpoint has.
    fn add_found(
        &mut self,
        effects: &mut ConsumerEffects<'_>,
        key: Key,
        FoundKey { key: own, found }: &FoundKey,
    ) -> Result<(), StoreError> {
        let Entry::Vacant(new) = self.0.entry(key) else { return Ok(()) };
        let before = KEYS.get(effects, &key)?;
        let mut now = match &before {
            Some(known) => known.clone(),
            None => {
                let mut evicted = LedgerSeq(0);
                EVICTED.scan(effects, &key, None, |(_, by), _| {
                    evicted = by.0;
                    Ok(ControlFlow::Break(()))
                })?;
                KeyRow {
                    durability: own.durability(),
                    changed: NOWHERE,
                    is_gone: false,
                    evicted,
                    ttl: NEVER_GIVEN,
                    found: NEVER_GIVEN,
                    leads: own.leads(),
                    name: own.name().unwrap_or_default().to_vec(),
                }
            }
        };
        if found.at >= now.found.at {
            now.found = *found;
        }
        new.insert(ChangedRow { before, now });
        Ok(())
    }
}

/// Returns the key of an entry.
fn key_of_data(data: &FoundData) -> Key {
    (data.contract, KeyTag::of(&data.key_hash))
}

/// Whether an entry of the state at a ledger is there for contracts, live or archived.
fn is_alive(data: &FoundData, ledger: LedgerSeq) -> bool {
    let is_over = data.live_until.is_some_and(|until| until < ledger);
    !is_over || key_of(&data.entry).is_some_and(|key| key.durability() == Durability::Persistent)
}
