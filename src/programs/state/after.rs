//! Entries at the end of a ledger, from what is stored alone: contract code, accounts, trustlines and
//! nonces. `orrery_contract_data` answers for other contract data.
//!
//! The rules are those of [`super::neighbours`], one ledger later: what the nearest change up to the
//! ledger's end left, or what the next one found, if nothing can have happened in between.

use stellar_xdr::LedgerKey;

use super::changes::{ValueBefore, last_modified, live_until};
use super::ledger::{
    Found, LedgerStates, RequestedKey, after_step, before_step, is_older, ttl_key,
};
use super::neighbours::{Changer, MAX_CHANGES_PER_LEDGER};
use super::raw::MAX_DISTANCE;
use super::upstream;
use super::{EntryState, StateError};
use orrery_ledger::decode::{EntryKey, EntryKind};
use orrery_ledger::domain::{LedgerSeq, is_temporary};

impl LedgerStates<'_> {
    /// Returns an entry at the end of the ledger, with its time to live if it has one; as unknown when
    /// the time to live is not known. `begins_empty` says that before the consecutive ledgers around
    /// this one, of which all transactions are stored, no contract had any entries.
    ///
    /// # Errors
    /// When the store fails or its data is damaged.
    pub fn entry_after(
        &self,
        key: &LedgerKey,
        begins_empty: bool,
    ) -> Result<EntryState, StateError> {
        let xdr = upstream::xdr(key)?;
        let Some(entry_key) = EntryKey::from_ledger_key(&xdr) else {
            return Ok(EntryState::Unknown);
        };
        let wanted = RequestedKey { key: entry_key, xdr: &xdr, temporary: is_temporary(key) };
        let found = match entry_key.kind {
            EntryKind::Account | EntryKind::Trustline => self.account_after(&wanted)?,
            EntryKind::ContractCode | EntryKind::ContractData => {
                return self.contract_entry_after(&wanted, begins_empty);
            }
            EntryKind::Ttl => None,
        };
        Ok(match found {
            None => EntryState::Unknown,
            Some(Found::Absent) => EntryState::Absent,
            Some(Found::Present { entry, .. }) => {
                EntryState::Present(upstream::entry(&entry, self.ledger)?.into(), None)
            }
        })
    }

    fn contract_entry_after(
        &self,
        wanted: &RequestedKey<'_>,
        begins_empty: bool,
    ) -> Result<EntryState, StateError> {
        let entry = match self.contract_value_after(wanted, begins_empty)? {
            None => return Ok(EntryState::Unknown),
            Some(Found::Absent) => return Ok(EntryState::Absent),
            Some(Found::Present { entry, .. }) => entry,
        };
        let Some(until) = self.live_until_after(wanted)? else { return Ok(EntryState::Unknown) };
        if wanted.temporary && until < self.ledger.0 {
            return Ok(EntryState::Absent);
        }
        Ok(EntryState::Present(upstream::entry(&entry, self.ledger)?.into(), Some(until)))
    }

    fn contract_value_after(
        &self,
        wanted: &RequestedKey<'_>,
        begins_empty: bool,
    ) -> Result<Option<Found>, StateError> {
        let last = self.reader.last_change(&wanted.key, self.end()).map_err(StateError::store)?;
        match last {
            Some(at) if self.is_connected(at.ledger) => {
                let Some(changer) = self.changer(wanted, at)? else { return Ok(None) };
                return Ok(changer.of(wanted).last().map(|step| after_step(step, false)));
            }
            None if self.is_complete_from_genesis() || (begins_empty && self.is_complete()) => {
                return Ok(Some(Found::Absent));
            }
            _ => {}
        }
        let Some(changer) = self.next_changer(wanted)? else { return Ok(None) };
        let Some(step) = changer.first(wanted) else { return Ok(None) };
        let connected = self.is_connected(changer.at.ledger);
        let is_held = |entry: &[u8]| connected || self.is_older(entry);
        Ok(match &step.before {
            ValueBefore::Absent if connected && wanted.temporary => {
                // It may have existed and been evicted since.
                let evicted =
                    self.states.raw.is_evicted(wanted.xdr, self.ledger, changer.at.ledger)?;
                Some(Found::Absent).filter(|_| evicted == Some(false))
            }
            ValueBefore::Absent => Some(Found::Absent).filter(|_| connected),
            ValueBefore::Present(entry) | ValueBefore::Restored(entry) if is_held(entry) => {
                Some(Found::Present { entry: entry.clone(), live: false })
            }
            _ => None,
        })
    }

    /// Whether an entry was modified last in this ledger or before.
    fn is_older(&self, entry: &[u8]) -> bool {
        last_modified(entry).is_some_and(|modified| modified <= self.ledger.0)
    }

    /// Returns the last ledger in which contract data or code is live, as of the end of the ledger.
    fn live_until_after(&self, of: &RequestedKey<'_>) -> Result<Option<u32>, StateError> {
        let xdr = ttl_key(of.xdr);
        let Some(key) = EntryKey::from_ledger_key(&xdr) else { return Ok(None) };
        let wanted = RequestedKey { key, xdr: &xdr, temporary: false };
        let last = self.reader.last_change(&key, self.end()).map_err(StateError::store)?;
        if let Some(at) = last.filter(|at| self.is_connected(at.ledger)) {
            return match self.changer(&wanted, at)? {
                Some(last) => self.greatest_ttl(of, &wanted, last),
                None => Ok(None),
            };
        }
        let Some(changer) = self.next_changer(&wanted)? else { return Ok(None) };
        let connected = self.is_connected(changer.at.ledger);
        Ok(match changer.first(&wanted).map(|step| &step.before) {
            Some(ValueBefore::Present(ttl)) if connected || self.is_older(ttl) => live_until(ttl),
            _ => None,
        })
    }

    /// Returns the time to live after the last ledger that changed it, of which `last` is the last
    /// transaction that did. Transactions that are applied in parallel may each extend an entry that
    /// they only read; the greatest since the last write holds (CAP-63).
    fn greatest_ttl(
        &self,
        of: &RequestedKey<'_>,
        wanted: &RequestedKey<'_>,
        last: Changer,
    ) -> Result<Option<u32>, StateError> {
        let ledger = last.at.ledger;
        let (mut greatest, mut changer) = (None, last);
        for _ in 0..MAX_CHANGES_PER_LEDGER {
            let left = changer.of(wanted).last().and_then(|step| step.after.as_deref());
            greatest = greatest.max(Some(left.and_then(live_until).unwrap_or(0)));
            let earlier =
                self.reader.last_change(&wanted.key, changer.at).map_err(StateError::store)?;
            let earlier = earlier.filter(|at| at.ledger == ledger);
            let is_written = changer.of(of).first().is_some();
            let Some(at) = earlier.filter(|_| !is_written) else { return Ok(greatest) };
            match self.changer(wanted, at)? {
                Some(earlier) => changer = earlier,
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Returns an account or a trustline, which any transaction may change.
    fn account_after(&self, wanted: &RequestedKey<'_>) -> Result<Option<Found>, StateError> {
        let raw = self.states.raw.get(self.ledger)?;
        if let Some(step) = raw.as_ref().and_then(|raw| raw.steps.of(wanted.xdr).last()) {
            return Ok(Some(after_step(step, true)));
        }
        if let Some(after) = self.ledger.next()
            && let Some(changer) = self.next_changer(wanted)?
            && changer.first(wanted).is_some_and(|step| is_older(step, after))
        {
            return changer.before(wanted);
        }
        // Only the raw ledger shows that this ledger did not change the entry.
        if raw.is_none() {
            return Ok(None);
        }
        let neighbours = |next: fn(LedgerSeq) -> Option<LedgerSeq>| {
            std::iter::successors(next(self.ledger), move |at| next(*at))
                .take(MAX_DISTANCE as usize)
        };
        for previous in neighbours(LedgerSeq::previous) {
            let Some(raw) = self.states.raw.get(previous)? else { break };
            if let Some(step) = raw.steps.of(wanted.xdr).last() {
                return Ok(Some(after_step(step, true)));
            }
        }
        for next in neighbours(LedgerSeq::next) {
            let Some(raw) = self.states.raw.get(next)? else { break };
            if let Some(step) = raw.steps.of(wanted.xdr).first() {
                return before_step(wanted, &raw.steps, step, next);
            }
        }
        Ok(None)
    }
}
