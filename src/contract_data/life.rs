//! Until when entries live, as the ledgers up to one say.

use std::collections::HashMap;
use std::ops::ControlFlow;

use orrery_ledger::decode::{EntryKey, EntryKind, transaction_changes};
use orrery_ledger::domain::{ContractId, Direction, Hash32, LedgerSeq};
use orrery_store::{StoreError, TransactionPosition};
use sha2::{Digest, Sha256};
use stellar_xdr::{Hash, LedgerKey, LedgerKeyContractCode, Limits, WriteXdr};

use super::by_ledger::changed_in;
use super::changes::Unreadable;
use super::entry::{DataKey, live_until};
use super::lookup::{Lookup, MOST_VISITED};
use super::rows::{Given, KEYS, Key, KeyTag, NEVER_GIVEN, end_of};

/// Maximum number of modules of which a [`CodeLives`] keeps the time to live.
const MOST_KEPT: usize = 10_000;

/// Times to live of modules that were read, each with the transaction that says it.
#[derive(Debug, Default)]
pub struct CodeLives(HashMap<Hash32, (TransactionPosition, Given)>);

impl Lookup<'_> {
    /// Returns the time to live of an entry that is live at the end of this ledger; `None` also where the
    /// ledgers up to this one do not say it.
    ///
    /// # Errors
    /// Errors of the database, or that stored bytes are damaged.
    pub fn given(&self, of: Key) -> Result<Option<Given>, StoreError> {
        let Some(range) = self.range(&of.0)? else { return Ok(None) };
        let end = end_of(self.ledger);
        let row = KEYS.get(&self.view, &of)?;
        let is_found = row.is_some_and(|row| row.found != NEVER_GIVEN);
        let (newest, _) = self.newest(of, range, end)?;
        let (given, is_evicted) = match newest.filter(|_| !is_found) {
            Some(given) => (Some(given), self.evicted(of, range, end, Some(given.at))?.is_some()),
            None => {
                let mut past = self.past(of, range, end)?;
                let around = self.checkpoints.around(&self.view, of, range, end)?;
                let was_evicted = past.add_found(&around);
                let evicted = self.evicted(of, range, end, past.newest)?;
                (past.ttl, was_evicted || evicted.is_some())
            }
        };
        Ok(given.filter(|given| !is_evicted && given.live_until >= self.ledger))
    }

    /// Returns the key with this tag, where the ledgers up to this one have it.
    ///
    /// # Errors
    /// As [`Self::given`].
    pub fn key_of(&self, of: Key) -> Result<Option<DataKey<'static>>, StoreError> {
        let Some(range) = self.range(&of.0)? else { return Ok(None) };
        let end = end_of(self.ledger);
        let mut past = self.past(of, range, end)?;
        past.add_found(&self.checkpoints.around(&self.view, of, range, end)?);
        if past.key.is_some() {
            return Ok(past.key);
        }
        // Those that only changed its time to live name it, too.
        let (mut key, mut visited) = (None, 0);
        self.walk(&of.1.0, end, Direction::NewestFirst, |at, _| {
            visited += 1;
            if at.ledger < range.first || visited > MOST_VISITED {
                return Ok(ControlFlow::Break(()));
            }
            let transaction = self.transaction(at)?;
            let change = transaction.as_ref().and_then(|it| it.changes.get(&of));
            key = change.map(|change| change.key.clone());
            Ok(if key.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(key)
    }

    /// Returns the XDR `LedgerEntry` that the last write before a transaction of this ledger has left;
    /// `None` also where the ledgers before do not say it.
    ///
    /// # Errors
    /// As [`Self::given`].
    pub fn written_before(
        &self,
        of: Key,
        at: TransactionPosition,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(range) = self.range(&of.0)? else { return Ok(None) };
        let application_order = at.application_order.saturating_sub(1);
        let before = TransactionPosition { application_order, ..at };
        let mut past = self.past(of, range, before)?;
        past.add_found(&self.checkpoints.around(&self.view, of, range, before)?);
        Ok(past.written.and_then(|(_, entry)| entry))
    }

    /// Returns the keys of a contract of which transactions of this ledger changed entry or time to live.
    ///
    /// # Errors
    /// As [`Self::given`].
    pub fn changed_keys(&self, contract: &ContractId) -> Result<Vec<KeyTag>, StoreError> {
        let mut keys = Vec::new();
        for (_, positions) in changed_in(self.store, self.ledger, &[*contract])? {
            for at in positions {
                let Some(transaction) = self.transaction(at)? else { continue };
                let own = transaction.changes.keys().filter(|(of, _)| of == contract);
                keys.extend(own.map(|(_, tag)| *tag));
            }
        }
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }

    /// Returns the time to live of a module that is live at the end of this ledger; `None` also where the
    /// ledgers up to this one do not say it.
    ///
    /// # Errors
    /// As [`Self::given`].
    pub fn code_given(
        &self,
        code: &Hash32,
        known: &mut CodeLives,
    ) -> Result<Option<Given>, StoreError> {
        let Some(range) = self.reader.complete() else { return Ok(None) };
        let Some(of) = hash_of_code(code) else { return Ok(None) };
        let mut newest: Option<(TransactionPosition, Given)> = None;
        let mut is_known = false;
        self.walk(&of.0, end_of(self.ledger), Direction::NewestFirst, |at, changed| {
            let is_over = newest.is_some_and(|(found, _)| found.ledger != at.ledger);
            if at.ledger < range.first || is_over {
                return Ok(ControlFlow::Break(()));
            }
            if !changed.ttl {
                return Ok(ControlFlow::Continue(()));
            }
            if newest.is_none()
                && let Some(before) = known.0.get(&of).filter(|(found, _)| *found == at)
            {
                (newest, is_known) = (Some(*before), true);
                return Ok(ControlFlow::Break(()));
            }
            let mut said = Ok(None);
            self.reader.transaction(at, |record| said = told(record.meta, &of))?;
            let said = said.map_err(|error| error.at(at))?;
            let Some(Said { until, is_written }) = said else {
                return Ok(ControlFlow::Continue(()));
            };
            let greatest = newest.map_or(until, |(_, given)| given.live_until.max(until));
            let position = newest.map_or(at, |(found, _)| found);
            newest = Some((position, Given { live_until: greatest, at: at.ledger }));
            Ok(if is_written { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        if let Some(found) = newest.filter(|_| !is_known) {
            if known.0.len() >= MOST_KEPT {
                known.0.clear();
            }
            known.0.insert(of, found);
        }
        Ok(newest.map(|(_, given)| given).filter(|given| given.live_until >= self.ledger))
    }
}

/// What a transaction says of a module.
struct Said {
    /// Its time to live; ledger 0 when it is gone.
    until: LedgerSeq,
    /// Whether the transaction wrote the module.
    is_written: bool,
}

fn told(meta: &[u8], of: &Hash32) -> Result<Option<Said>, Unreadable> {
    let changes = transaction_changes(meta);
    let changes = changes.map_err(|error| Unreadable(format!("its metadata: {error}")))?;
    let (mut until, mut is_written) = (None, false);
    for change in &changes.operations {
        match change.key.kind {
            EntryKind::Ttl if change.key.body.starts_with(&of.0) => {
                until = Some(LedgerSeq(change.entry.and_then(live_until).unwrap_or(0)));
            }
            EntryKind::ContractCode => {
                is_written |= super::changes::hash_of(&change.key) == *of;
            }
            _ => {}
        }
    }
    Ok(until.map(|until| Said { until, is_written }))
}

/// Returns the SHA-256 of the XDR `LedgerKey` of a module.
pub fn hash_of_code(code: &Hash32) -> Option<Hash32> {
    let key = LedgerKey::ContractCode(LedgerKeyContractCode { hash: Hash(code.0) });
    Some(Hash32(Sha256::digest(key.to_xdr(Limits::none()).ok()?).into()))
}

/// Returns the contract and tag of contract data with this XDR `LedgerKey`, and the hash of that.
pub fn key_of_data(ledger_key: &[u8]) -> Option<(Key, Hash32)> {
    let key = EntryKey::from_ledger_key(ledger_key)?;
    let hash = super::changes::hash_of(&key);
    Some(((key.contract()?, KeyTag::of(&hash)), hash))
}
