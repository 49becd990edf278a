//! Reads what a ledger changed in the data of a project's contracts, as its events are read. What is not
//! known of a change may become known with ledgers that are stored later, and is looked up again then.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use super::data_log::{ChangesWriter, DataChangeKind, LoggedChange, LoggedChanges};
use super::examining::Declaring;
use super::members::Updates;
use super::{EventProject, Summary};
use crate::ProgramError;
use crate::manifest::Manifest;
use crate::runner::Runner;
use orrery_contract_data::{
    CONSUMER, Durability, Event, Held, Key, KeyTag, Kind, LAST_ORDER, Lookup, Past, are_recorded,
    changed_in, hash_of, held,
};
use orrery_ledger::domain::{CloseTime, ContractId, LedgerSeq, TxHash};
use orrery_store::{Evicted, RowBounds, Store, TransactionPosition};

/// How long a turn waits for the index of contract data, and how often it looks.
///
/// Unit tests, which advance the index themselves, would wait in vain.
const LONGEST_WAIT: Duration = if cfg!(test) { Duration::ZERO } else { Duration::from_secs(1) };
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Number of ledgers by which the index may be behind for a turn to wait for it.
const FAR_BEHIND: u64 = 64;

/// What a transaction, or the end of a ledger, changed in the data of a project's contracts.
pub(super) struct ReadChanges {
    /// Hash of the transaction; zeros for evictions.
    pub transaction: TxHash,
    /// Close time of the ledger.
    pub closed_at: CloseTime,
    /// The changes, ordered by the hashes of the keys, without interfaces.
    pub changes: ChangesWriter,
}

/// Looks up changes of contract data, ledger by ledger.
pub(super) struct DataReader<'s> {
    store: &'s Store,
    /// That of the ledger that was looked at last.
    lookup: Option<Lookup<'s>>,
    /// The changes of a contract at a position that were looked at last.
    last: Option<((ContractId, TransactionPosition), BTreeMap<KeyTag, Past>)>,
}

impl<'s> DataReader<'s> {
    pub fn new(store: &'s Store) -> Self {
        Self { store, lookup: None, last: None }
    }

    fn of(&mut self, ledger: LedgerSeq) -> Result<&Lookup<'s>, ProgramError> {
        let lookup = match self.lookup.take().filter(|it| it.ledger() == ledger) {
            Some(lookup) => lookup,
            None => Lookup::new(self.store, ledger, RowBounds::none())?.without_updated(),
        };
        Ok(self.lookup.insert(lookup))
    }

    /// Returns a change at a position as it is known now; `None` when its ledger has lost something since.
    pub fn now(
        &mut self,
        change: &LoggedChange<'_>,
        at: TransactionPosition,
    ) -> Result<Option<Past>, ProgramError> {
        let (contract, tag) = (change.contract, KeyTag::of(&change.key_hash));
        let past = match change.kind {
            DataChangeKind::Found => self.held((contract, tag), at)?,
            _ => {
                let is_known = self.last.as_ref().is_some_and(|(of, _)| *of == (contract, at));
                if !is_known {
                    let all = self.of(at.ledger)?.changes_at(&contract, at)?.unwrap_or_default();
                    let all = all.into_iter().map(|past| (past.tag, past)).collect();
                    self.last = Some(((contract, at), all));
                }
                self.last.as_ref().and_then(|(_, all)| all.get(&tag).cloned())
            }
        };
        // What was read before is complete only if nothing has been removed.
        Ok(past.filter(|_| self.store.has_all_transactions(at.ledger).unwrap_or(false)))
    }

    /// Returns what a key held at the end of a ledger.
    fn held(&mut self, of: Key, at: TransactionPosition) -> Result<Option<Past>, ProgramError> {
        let Held::Present(entry) = self.of(at.ledger)?.held(of)? else { return Ok(None) };
        Ok(Some(Past {
            key: Some(entry.key),
            tag: of.1,
            event: Event::Changed(Kind::Extended),
            position: at,
            tx: None,
            before: None,
            after: Some(entry.entry),
            live_until: entry.live_until,
        }))
    }
}

impl Runner {
    /// Waits until the index of contract data has processed a stored ledger for these contracts.
    ///
    /// # Errors
    /// [`ProgramError::DataNotIndexed`] when that takes long.
    fn await_data(&self, ledger: LedgerSeq, contracts: &[ContractId]) -> Result<(), ProgramError> {
        let begun = Instant::now();
        while self.store.lacks(CONSUMER, ledger) != Some(false) {
            let lag = self.store.consumer(CONSUMER).map_or(u64::MAX, |index| index.lag);
            if lag > FAR_BEHIND || begun.elapsed() > LONGEST_WAIT {
                return Err(ProgramError::DataNotIndexed(ledger));
            }
            thread::sleep(LOOK_EVERY);
        }
        match are_recorded(&self.store, contracts)? {
            true => Ok(()),
            false => Err(ProgramError::DataNotIndexed(ledger)),
        }
    }

    /// Returns those contracts of a project of which a ledger may have changed what they hold, or the only one
    /// that is wanted, once the index has all of them.
    ///
    /// # Errors
    /// [`ProgramError::DataNotIndexed`] when that takes long.
    fn contracts_with_data(
        &self,
        ledger: LedgerSeq,
        manifest: &Manifest,
        only: Option<ContractId>,
    ) -> Result<Vec<ContractId>, ProgramError> {
        let project = manifest.events.as_ref();
        if !project.is_some_and(|project| project.selectors.have_members()) {
            self.await_data(ledger, &manifest.contracts)?;
            return Ok(manifest.contracts.clone());
        }
        self.await_data(ledger, &[])?;
        let contracts = match only {
            Some(contract) => vec![contract],
            // Each contract of the ledger is looked up once, whatever the number of members.
            None => self.events.members().changed(&self.store, ledger, manifest.id)?,
        };
        self.await_data(ledger, &contracts)?;
        Ok(contracts)
    }

    /// Whether a ledger has changed data of the contracts of a project that records it.
    pub(super) fn has_data(
        &self,
        ledger: LedgerSeq,
        manifest: &Manifest,
    ) -> Result<bool, ProgramError> {
        let contracts = self.contracts_with_data(ledger, manifest, None)?;
        Ok(!changed_in(&self.store, ledger, &contracts)?.is_empty())
    }

    /// Returns what a ledger changed in the data of a project's contracts, or of one of them alone, from a
    /// transaction on, by application order.
    pub(super) fn data_by_transaction(
        &self,
        ledger: LedgerSeq,
        manifest: &Manifest,
        (from, only): (Option<TransactionPosition>, Option<ContractId>),
    ) -> Result<BTreeMap<u32, ReadChanges>, ProgramError> {
        let mut read = BTreeMap::new();
        let contracts = self.contracts_with_data(ledger, manifest, only)?;
        let mut by_position: BTreeMap<TransactionPosition, Vec<ContractId>> = BTreeMap::new();
        for (contract, positions) in changed_in(&self.store, ledger, &contracts)? {
            for at in positions.into_iter().filter(|at| from.is_none_or(|from| *at >= from)) {
                by_position.entry(at).or_default().push(contract);
            }
        }
        let Some(closed_at) = self.store.ledger(ledger)?.map(|row| row.close_time) else {
            return Ok(read);
        };
        let evicted = self.store.evicted(ledger)?.unwrap_or_default();
        let mut reader = DataReader::new(&self.store);
        for (at, contracts) in by_position {
            let mut changes = Vec::new();
            for contract in contracts {
                let found = reader.of(ledger)?.changes_at(&contract, at)?.unwrap_or_default();
                changes.extend(found.into_iter().map(|past| (contract, past)));
            }
            let transaction = changes.iter().find_map(|(_, past)| past.tx);
            let transaction = TxHash::from(transaction.unwrap_or_default().0);
            let changes = logged(&changes, &evicted)?;
            if !changes.is_empty() {
                let order = at.application_order;
                read.insert(order, ReadChanges { transaction, closed_at, changes });
            }
        }
        Ok(read)
    }

    /// Looks for the interfaces by which changes are written, and for what is not known of them, and adds
    /// them to a summary. Returns those that belong to the project, with what is known now, and whether that is
    /// other than before. `updates` are those of the transaction.
    pub(super) fn examine_changes(
        &self,
        declaring: &Declaring<'_>,
        reader: &mut DataReader<'_>,
        (at, updates): (TransactionPosition, &Updates),
        (project, changes): (&EventProject, LoggedChanges<'_>),
        summary: &mut Summary,
    ) -> Result<(ChangesWriter, bool), ProgramError> {
        let (mut examined, mut has_changed) = (ChangesWriter::default(), false);
        let held_at = project.position_of(at);
        for change in changes.iter() {
            let change = change?;
            let found = declaring.examine_change(change.clone(), (held_at, updates), summary)?;
            let Some(found) = found else {
                has_changed = true;
                continue;
            };
            let past = if found.is_open() { reader.now(&found, held_at)? } else { None };
            let now = with(&found, past.as_ref());
            has_changed |= now != change;
            if now.is_open() {
                summary.open.add(at);
            }
            examined.push(&now)?;
        }
        Ok((examined, has_changed))
    }
}

/// Returns a change with what was not known of it and is now.
pub(super) fn with<'a>(change: &LoggedChange<'a>, now: Option<&'a Past>) -> LoggedChange<'a> {
    match now.filter(|_| change.is_open()) {
        Some(past) => filled(change.clone(), past),
        None => change.clone(),
    }
}

fn filled<'a>(mut change: LoggedChange<'a>, past: &'a Past) -> LoggedChange<'a> {
    let Past { key, after, live_until, .. } = past;
    change.live_until = change.live_until.or(live_until.map(|until| until.0));
    change.key = change.key.or(key.as_ref().map(|key| key.scval()));
    let value = key.as_ref().zip(after.as_ref()).and_then(|(key, entry)| held(entry, key));
    change.value = change.value.or(value);
    change
}

/// Returns the changes of one position in stored form, ordered by the hashes of the keys.
fn logged(
    changes: &[(ContractId, Past)],
    evicted: &[Evicted],
) -> Result<ChangesWriter, ProgramError> {
    let mut all: Vec<LoggedChange<'_>> = Vec::with_capacity(changes.len());
    for (contract, past) in changes {
        // The index has no more of an evicted key than the beginning of its hash.
        let is_it =
            |it: &&Evicted| it.contract == *contract && KeyTag::of(&it.key_hash) == past.tag;
        let evicted = || {
            let is_eviction = past.position.application_order == LAST_ORDER;
            let found = evicted.iter().filter(|_| is_eviction).find(is_it)?;
            let temporary = found.temporary;
            let durability = if temporary { Durability::Temporary } else { Durability::Persistent };
            Some((found.key_hash, durability))
        };
        let of_key = past.key.as_ref().map(|key| (hash_of(&key.entry_key()), key.durability()));
        let Some((key_hash, durability)) = of_key.or_else(evicted) else { continue };
        let bare = LoggedChange {
            contract: *contract,
            key_hash,
            kind: DataChangeKind::from(past.event),
            durability,
            live_until: None,
            key: None,
            value: None,
            interfaces: Vec::new(),
            is_sure: false,
            is_apart: false,
        };
        all.push(filled(bare, past));
    }
    all.sort_by_key(|change| change.key_hash);
    let mut writer = ChangesWriter::default();
    all.iter().try_for_each(|change| writer.push(change))?;
    Ok(writer)
}
