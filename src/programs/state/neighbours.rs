//! Looks up entries that a ledger itself does not mention: from the stored transactions before and
//! after it, and from another server's answer, if no change can have happened in between.
//!
//! What the nearest transaction before left, or the nearest one after found, is exact in two cases:
//! all ledgers in between are stored, with every transaction that could have changed the entry; or
//! the entry itself says that it was last modified earlier.

use std::rc::Rc;

use stellar_xdr::{LedgerKey, Limits, ReadXdr, WriteXdr};

use super::changes::{Clock, EntrySteps, Step, Steps, StepsByKey, ValueBefore};
use super::ledger::{Found, LedgerStates, RequestedKey, after_step, before_step, is_older};
use super::raw::MAX_DISTANCE;
use super::upstream::{self, Evidence};
use super::{EntryState, StateError};
use orrery_ledger::decode::{EntryKey, EntryKind, transaction_changes};
use orrery_ledger::domain::{DEEPEST_VALUE, LedgerSeq, instance_key_at, is_temporary};
use orrery_store::TransactionPosition;

/// Maximum number of other transactions whose steps are cached per ledger looked up.
const MAX_CACHED_TRANSACTIONS: usize = 256;

/// Maximum number of transactions of one ledger that are examined for the TTL they left.
pub(super) const MAX_CHANGES_PER_LEDGER: usize = 16;

/// The first ledger after genesis: an entry without any change from here on never existed.
const FIRST: LedgerSeq = LedgerSeq(2);

/// A stored transaction that changed an entry.
pub(super) struct Changer {
    pub at: TransactionPosition,
    steps: Rc<Steps>,
}

impl Changer {
    pub fn of(&self, wanted: &RequestedKey<'_>) -> &EntrySteps {
        self.steps.of(wanted.xdr)
    }

    pub fn first(&self, wanted: &RequestedKey<'_>) -> Option<&Step> {
        self.of(wanted).first()
    }

    pub fn before(&self, wanted: &RequestedKey<'_>) -> Result<Option<Found>, StateError> {
        let Some(step) = self.first(wanted) else { return Ok(None) };
        before_step(wanted, &*self.steps, step, self.at.ledger)
    }
}

impl LedgerStates<'_> {
    pub(super) fn start(&self) -> TransactionPosition {
        TransactionPosition { ledger: self.ledger, application_order: 0 }
    }

    pub(super) fn end(&self) -> TransactionPosition {
        TransactionPosition { ledger: self.ledger, application_order: 0x00ff_ffff }
    }

    /// Returns whether all smart-contract transactions between this ledger and `ledger` are stored.
    pub(super) fn is_connected(&self, ledger: LedgerSeq) -> bool {
        self.reader.complete().is_some_and(|complete| complete.contains(ledger))
    }

    /// Returns whether all smart-contract transactions from genesis to this ledger are stored.
    pub(super) fn is_complete_from_genesis(&self) -> bool {
        self.reader.complete().is_some_and(|complete| complete.first <= FIRST)
    }

    /// Finds contract data, contract code or a TTL, which only smart-contract transactions and the
    /// passage of time change. Expects that the ledger itself does not change the entry.
    pub(super) fn find_contract_entry_nearby(
        &self,
        wanted: &RequestedKey<'_>,
        order: u32,
    ) -> Result<Option<Found>, StateError> {
        match self.reader.last_change(&wanted.key, self.start()).map_err(StateError::store)? {
            Some(at) if self.is_connected(at.ledger) => {
                if wanted.key.kind == EntryKind::Ttl {
                    return match self.ttl_left_by(wanted, at)? {
                        Some(found) => self.if_consistent(wanted, found),
                        None => self.value_found_next(wanted, order),
                    };
                }
                let Some(changer) = self.changer(wanted, at)? else { return Ok(None) };
                let Some(step) = changer.of(wanted).last() else { return Ok(None) };
                // The entry's TTL decides whether it lived until the ledger in question.
                let found = after_step(step, false);
                self.if_consistent(wanted, found)
            }
            None if self.is_complete_from_genesis()
                || self.contract_created_in_complete_range(wanted)? =>
            {
                self.if_consistent(wanted, Found::Absent)
            }
            Some(_) | None => self.value_found_next(wanted, order),
        }
    }

    /// Returns `left`, the value that the previous change left, if it agrees with what the next
    /// transaction that changes the entry found. A disagreement means that a row of the index is
    /// missing.
    fn if_consistent(
        &self,
        wanted: &RequestedKey<'_>,
        left: Found,
    ) -> Result<Option<Found>, StateError> {
        let next = self.reader.next_change(&wanted.key, self.end()).map_err(StateError::store)?;
        let Some(next) = next.filter(|next| self.is_connected(next.ledger)) else {
            return Ok(Some(left));
        };
        let Some(next) = self.changer(wanted, next)? else { return Ok(None) };
        let agrees = match (&left, next.first(wanted).map(|step| &step.before)) {
            (Found::Present { entry, .. }, Some(ValueBefore::Present(found))) => entry == found,
            // It was evicted or expired in between.
            (Found::Present { .. }, Some(ValueBefore::Absent)) => {
                wanted.temporary || wanted.key.kind == EntryKind::Ttl
            }
            (Found::Absent, Some(ValueBefore::Present(_) | ValueBefore::Restored(_))) => {
                wanted.key.kind == EntryKind::Ttl
            }
            _ => true,
        };
        if !agrees {
            tracing::warn!(
                ledger = %self.ledger, key = hex::encode(wanted.xdr),
                "the index of ledger entries lacks a transaction that changed an entry: check the data \
                 directory with orrery verify"
            );
        }
        Ok(Some(left).filter(|_| agrees))
    }

    /// Returns the TTL left by the transaction at `at`, the last of its ledger that changed it.
    /// Returns `None` if an earlier transaction of that ledger, which ran in parallel and whose
    /// result no later one found, left a different value: the result is then unknown.
    fn ttl_left_by(
        &self,
        wanted: &RequestedKey<'_>,
        at: TransactionPosition,
    ) -> Result<Option<Found>, StateError> {
        let Some(last) = self.changer(wanted, at)? else { return Ok(None) };
        let Some(step) = last.of(wanted).last() else { return Ok(None) };
        let mut later = last.first(wanted).map(|step| step.before.clone());
        let mut next = at;
        for _ in 0..MAX_CHANGES_PER_LEDGER {
            let earlier = self.reader.last_change(&wanted.key, next).map_err(StateError::store)?;
            let Some(earlier) = earlier.filter(|earlier| earlier.ledger == at.ledger) else {
                return Ok(Some(after_step(step, false)));
            };
            let Some(changer) = self.changer(wanted, earlier)? else { return Ok(None) };
            let left = changer.of(wanted).last().and_then(|step| step.after.as_ref());
            let is_seen = match (&later, left) {
                (Some(ValueBefore::Present(found)), Some(left)) => found == left,
                (Some(ValueBefore::Absent | ValueBefore::Restored(_)), None) => true,
                _ => false,
            };
            if !is_seen && left != step.after.as_ref() {
                return Ok(None);
            }
            later = changer.first(wanted).map(|step| step.before.clone());
            next = earlier;
        }
        Ok(None)
    }

    /// Returns whether the contract that owns the entry was created in a stored ledger, with all
    /// ledgers since then stored. A contract is created once, and only it writes its data, so an
    /// entry without a change since the creation never existed.
    fn contract_created_in_complete_range(
        &self,
        wanted: &RequestedKey<'_>,
    ) -> Result<bool, StateError> {
        let limits = Limits { depth: DEEPEST_VALUE, len: wanted.xdr.len() };
        let Some(complete) = self.reader.complete() else { return Ok(false) };
        let Ok(LedgerKey::ContractData(data)) = LedgerKey::from_xdr(wanted.xdr, limits) else {
            return Ok(false);
        };
        let instance = instance_key_at(data.contract);
        let xdr = instance.to_xdr(Limits::none()).map_err(|_| StateError::Key)?;
        let Some(key) = EntryKey::from_ledger_key(&xdr) else { return Ok(false) };
        let instance = RequestedKey { key, xdr: &xdr, temporary: false };
        let first = TransactionPosition { ledger: complete.first, application_order: 0 };
        let Some(creation) =
            self.reader.next_change(&instance.key, first).map_err(StateError::store)?
        else {
            return Ok(false);
        };
        if !self.is_connected(creation.ledger) {
            return Ok(false);
        }
        let Some(creator) = self.changer(&instance, creation)? else { return Ok(false) };
        Ok(creator.first(&instance).is_some_and(|step| matches!(step.before, ValueBefore::Absent)))
    }

    /// Returns the value that the next transaction that changes the entry found.
    fn value_found_next(
        &self,
        wanted: &RequestedKey<'_>,
        order: u32,
    ) -> Result<Option<Found>, StateError> {
        if self.transaction_steps(order)?.steps_of_entry(wanted.xdr)?.first().is_some() {
            // The next transaction finds what this ledger left, not what it found.
            return Ok(None);
        }
        let Some(changer) = self.next_changer(wanted)? else { return Ok(None) };
        let Some(step) = changer.first(wanted) else { return Ok(None) };
        let connected = self.is_connected(changer.at.ledger);
        match step.before {
            ValueBefore::Absent if connected && wanted.temporary => {
                // It may have existed and been evicted since.
                let evicted =
                    self.states.raw.is_evicted(wanted.xdr, self.ledger, changer.at.ledger)?;
                Ok(Some(Found::Absent).filter(|_| evicted == Some(false)))
            }
            // The metadata of a restored entry does not state its previous TTL.
            ValueBefore::Restored(_) if wanted.key.kind == EntryKind::Ttl => Ok(None),
            _ if connected || is_older(step, self.ledger) => changer.before(wanted),
            _ => Ok(None),
        }
    }

    /// Returns whether a temporary entry was certainly live, because a later transaction found it
    /// live and unchanged: a temporary entry that has expired is never revived.
    pub(super) fn is_live_later(
        &self,
        wanted: &RequestedKey<'_>,
        order: u32,
    ) -> Result<bool, StateError> {
        Ok(matches!(self.value_found_next(wanted, order)?, Some(Found::Present { live: true, .. })))
    }

    /// Finds an account or a trustline, which any transaction may change.
    pub(super) fn find_account_nearby(
        &self,
        wanted: &RequestedKey<'_>,
    ) -> Result<Option<Found>, StateError> {
        if let Some(changer) = self.next_changer(wanted)?
            && changer.first(wanted).is_some_and(|step| is_older(step, self.ledger))
        {
            return changer.before(wanted);
        }
        // Only the raw ledger shows whether this ledger changed the entry.
        let Some(raw) = self.states.raw.get(self.ledger)? else { return Ok(None) };
        let is_changed = raw.steps.of(wanted.xdr).first().is_some();
        let mut ledger = self.ledger;
        for _ in 0..MAX_DISTANCE {
            let Some(previous) = ledger.previous() else { break };
            let Some(raw) = self.states.raw.get(previous)? else { break };
            if let Some(step) = raw.steps.of(wanted.xdr).last() {
                return Ok(Some(after_step(step, true)));
            }
            ledger = previous;
        }
        let mut ledger = self.ledger;
        for _ in 0..if is_changed { 0 } else { MAX_DISTANCE } {
            let Some(next) = ledger.next() else { break };
            let Some(raw) = self.states.raw.get(next)? else { break };
            if let Some(step) = raw.steps.of(wanted.xdr).first() {
                return before_step(wanted, &raw.steps, step, next);
            }
            ledger = next;
        }
        Ok(None)
    }

    /// Derives from another server's answer what the entry was in this ledger.
    pub(super) fn evaluate_evidence(
        &self,
        key: &LedgerKey,
        xdr: &[u8],
        evidence: Evidence,
    ) -> Result<EntryState, StateError> {
        let entry_key = EntryKey::from_ledger_key(xdr);
        let wanted =
            entry_key.map(|key_of| RequestedKey { key: key_of, xdr, temporary: is_temporary(key) });
        let known = match evidence {
            Evidence::ChangedSince => return Ok(EntryState::Unknown),
            Evidence::Present { entry, from, to, live_until } => {
                if let Some(wanted) = &wanted
                    && self.is_changed_between(wanted, from, to)?
                {
                    tracing::warn!(
                        ledger = %self.ledger, key = hex::encode(xdr),
                        "a server says that a ledger entry did not change while stored transactions changed it"
                    );
                    return Ok(EntryState::Unknown);
                }
                let gone =
                    is_temporary(key) && live_until.is_some_and(|until| until < self.ledger.0);
                if gone {
                    EntryState::Absent
                } else {
                    EntryState::Present(Rc::new(upstream::entry(&entry, self.ledger)?), None)
                }
            }
            Evidence::AbsentAt(to) => match &wanted {
                Some(wanted) if self.is_absent_until(wanted, to)? => EntryState::Absent,
                _ => EntryState::Unknown,
            },
        };
        Ok(known)
    }

    /// Returns whether a stored transaction changed the entry after `from` and no later than `to`.
    fn is_changed_between(
        &self,
        wanted: &RequestedKey<'_>,
        from: LedgerSeq,
        to: LedgerSeq,
    ) -> Result<bool, StateError> {
        let last = self.reader.last_change(&wanted.key, self.start()).map_err(StateError::store)?;
        let next = self.reader.next_change(&wanted.key, self.end()).map_err(StateError::store)?;
        for at in [last.filter(|at| at.ledger > from), next.filter(|at| at.ledger <= to)] {
            if let Some(at) = at
                && self.changer(wanted, at)?.is_some()
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether an entry that is absent as of the later ledger `to` was absent in this
    /// ledger too.
    fn is_absent_until(
        &self,
        wanted: &RequestedKey<'_>,
        to: LedgerSeq,
    ) -> Result<bool, StateError> {
        let unchanged = wanted.is_of_contract()
            && self.is_connected(to)
            && self
                .reader
                .next_change(&wanted.key, self.end())
                .map_err(StateError::store)?
                .is_none_or(|at| at.ledger > to);
        if !unchanged || !wanted.temporary {
            return Ok(unchanged);
        }
        let end = LedgerSeq(to.0.saturating_add(1));
        Ok(self.states.raw.is_evicted(wanted.xdr, self.ledger, end)? == Some(false))
    }

    pub(super) fn next_changer(
        &self,
        wanted: &RequestedKey<'_>,
    ) -> Result<Option<Changer>, StateError> {
        match self.reader.next_change(&wanted.key, self.end()).map_err(StateError::store)? {
            Some(at) => self.changer(wanted, at),
            None => Ok(None),
        }
    }

    /// Returns the transaction at `at`, to which the index leads, if it did change the entry. If it
    /// did not, two entries share a tag or the index is damaged, and the index is not used for this
    /// entry.
    pub(super) fn changer(
        &self,
        wanted: &RequestedKey<'_>,
        at: TransactionPosition,
    ) -> Result<Option<Changer>, StateError> {
        let steps = self.steps_of(at)?;
        if steps.of(wanted.xdr).first().is_some() {
            return Ok(Some(Changer { at, steps }));
        }
        tracing::warn!(
            ledger = %at.ledger, application_order = at.application_order, key = hex::encode(wanted.xdr),
            "the index of ledger entries names a transaction that did not change the entry: check the data \
             directory with orrery verify"
        );
        Ok(None)
    }

    /// Returns what one stored transaction changed, from the cache where possible.
    pub(super) fn steps_of(&self, at: TransactionPosition) -> Result<Rc<Steps>, StateError> {
        if let Some(steps) = self.steps_cache.borrow().get(&at) {
            return Ok(Rc::clone(steps));
        }
        let mut steps = Some(Steps::default());
        self.reader
            .transaction(at, |record| match transaction_changes(record.meta) {
                Ok(changes) => {
                    steps
                        .iter_mut()
                        .for_each(|steps| steps.add_transaction(Clock::ALONE, 0, &changes));
                }
                Err(_) => steps = None,
            })
            .map_err(StateError::store)?;
        let steps = Rc::new(steps.ok_or(StateError::Damaged(at.ledger))?);
        let mut cache = self.steps_cache.borrow_mut();
        if cache.len() >= MAX_CACHED_TRANSACTIONS {
            cache.clear();
        }
        cache.insert(at, Rc::clone(&steps));
        Ok(steps)
    }
}
