//! Entries that a ledger says nothing of: what the transactions before and after it found or left, and
//! what another server says, as far as nothing can have happened in between.
//!
//! Two things make a neighbour's word exact. Either all ledgers in between are stored, with all that
//! could have changed the entry; or the entry says itself that it was last changed before.

use std::rc::Rc;

use stellar_xdr::{
    ContractDataDurability, LedgerKey, LedgerKeyContractData, Limits, ReadXdr, ScVal, WriteXdr,
};

use super::ledger::{Found, LedgerStates, Wanted, after_step, before_step, is_older, is_temporary};
use super::raw::NEAR;
use super::steps::{Clock, EntrySteps, Step, Steps, StepsByKey, Was};
use super::upstream::{self, Said};
use super::{Known, StateError};
use crate::decode::{EntryKey, EntryKind, transaction_changes};
use crate::domain::LedgerSeq;
use crate::store::TransactionPosition;

/// Other transactions whose steps are kept while a ledger is asked about.
const MOST_KEPT: usize = 256;

/// Transactions of one ledger that are looked at for what they left of a time to live.
const MOST_BESIDE: usize = 16;

/// The first ledger after genesis: what is not changed from here on was never there.
const FIRST: LedgerSeq = LedgerSeq(2);

/// A stored transaction that changed an entry.
struct Changer {
    at: TransactionPosition,
    steps: Rc<Steps>,
}

impl Changer {
    fn of(&self, wanted: &Wanted<'_>) -> &EntrySteps {
        self.steps.of(wanted.xdr)
    }

    fn first(&self, wanted: &Wanted<'_>) -> Option<&Step> {
        self.of(wanted).first()
    }

    fn before(&self, wanted: &Wanted<'_>) -> Result<Option<Found>, StateError> {
        let Some(step) = self.first(wanted) else { return Ok(None) };
        before_step(wanted, &*self.steps, step, self.at.ledger)
    }
}

impl LedgerStates<'_> {
    pub(super) fn start(&self) -> TransactionPosition {
        TransactionPosition { ledger: self.ledger, application_order: 0 }
    }

    fn end(&self) -> TransactionPosition {
        TransactionPosition { ledger: self.ledger, application_order: 0x00ff_ffff }
    }

    /// Whether all smart-contract transactions between this ledger and another are stored.
    fn is_connected(&self, ledger: LedgerSeq) -> bool {
        self.reader.complete().is_some_and(|complete| complete.contains(ledger))
    }

    /// Whether this ledger is connected to genesis.
    fn is_from_the_first(&self) -> bool {
        self.reader.complete().is_some_and(|complete| complete.first <= FIRST)
    }

    /// Of contract data, code and times to live, which nothing but smart-contract transactions and time
    /// change. The ledger itself does not change the entry.
    pub(super) fn near_contract(
        &self,
        wanted: &Wanted<'_>,
        order: u32,
    ) -> Result<Option<Found>, StateError> {
        match self.reader.last_change(&wanted.key, self.start())? {
            Some(at) if self.is_connected(at.ledger) => {
                if wanted.key.kind == EntryKind::Ttl {
                    return match self.time_left_by(wanted, at)? {
                        Some(found) => self.unless_contradicted(wanted, found),
                        None => self.after_contract(wanted, order),
                    };
                }
                let Some(changer) = self.changer(wanted, at)? else { return Ok(None) };
                let Some(step) = changer.of(wanted).last() else { return Ok(None) };
                // Whether it lived until the ledger in question its time to live says.
                let found = after_step(step, false);
                self.unless_contradicted(wanted, found)
            }
            None if self.is_from_the_first() || self.has_its_contract_from_the_first(wanted)? => {
                self.unless_contradicted(wanted, Found::Absent)
            }
            Some(_) | None => self.after_contract(wanted, order),
        }
    }

    /// What was left of an entry, if that is what the next transaction that changes it found. If it is
    /// not, a row of the index is missing.
    fn unless_contradicted(
        &self,
        wanted: &Wanted<'_>,
        left: Found,
    ) -> Result<Option<Found>, StateError> {
        let next = self.reader.next_change(&wanted.key, self.end())?;
        let Some(next) = next.filter(|next| self.is_connected(next.ledger)) else {
            return Ok(Some(left));
        };
        let Some(next) = self.changer(wanted, next)? else { return Ok(None) };
        let agrees = match (&left, next.first(wanted).map(|step| &step.was)) {
            (Found::There { entry, .. }, Some(Was::There(found))) => entry == found,
            // It was evicted in between, or its time had passed.
            (Found::There { .. }, Some(Was::Absent)) => {
                wanted.temporary || wanted.key.kind == EntryKind::Ttl
            }
            (Found::Absent, Some(Was::There(_) | Was::Restored(_))) => {
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

    /// The time to live that the transaction at `at` left, the last of its ledger that changed it. One
    /// that ran in parallel, which no later one has seen, may have left more: then it is not known.
    fn time_left_by(
        &self,
        wanted: &Wanted<'_>,
        at: TransactionPosition,
    ) -> Result<Option<Found>, StateError> {
        let Some(last) = self.changer(wanted, at)? else { return Ok(None) };
        let Some(step) = last.of(wanted).last() else { return Ok(None) };
        let mut later = last.first(wanted).map(|step| step.was.clone());
        let mut next = at;
        for _ in 0..MOST_BESIDE {
            let earlier = self.reader.last_change(&wanted.key, next)?;
            let Some(earlier) = earlier.filter(|earlier| earlier.ledger == at.ledger) else {
                return Ok(Some(after_step(step, false)));
            };
            let Some(changer) = self.changer(wanted, earlier)? else { return Ok(None) };
            let left = changer.of(wanted).last().and_then(|step| step.is.as_ref());
            let is_seen = match (&later, left) {
                (Some(Was::There(found)), Some(left)) => found == left,
                (Some(Was::Absent | Was::Restored(_)), None) => true,
                _ => false,
            };
            if !is_seen && left != step.is.as_ref() {
                return Ok(None);
            }
            later = changer.first(wanted).map(|step| step.was.clone());
            next = earlier;
        }
        Ok(None)
    }

    /// Whether the contract that an entry belongs to was created in a stored ledger from which on all is
    /// known. A contract is created once, and its data only by itself, so that what is not changed from
    /// there on was never there.
    fn has_its_contract_from_the_first(&self, wanted: &Wanted<'_>) -> Result<bool, StateError> {
        let limits = Limits { depth: 500, len: wanted.xdr.len() };
        let Some(complete) = self.reader.complete() else { return Ok(false) };
        let Ok(LedgerKey::ContractData(data)) = LedgerKey::from_xdr(wanted.xdr, limits) else {
            return Ok(false);
        };
        let instance = LedgerKey::ContractData(LedgerKeyContractData {
            contract: data.contract,
            key: ScVal::LedgerKeyContractInstance,
            durability: ContractDataDurability::Persistent,
        });
        let xdr = instance.to_xdr(Limits::none()).map_err(|_| StateError::Key)?;
        let Some(key) = EntryKey::from_ledger_key(&xdr) else { return Ok(false) };
        let instance = Wanted { key, xdr: &xdr, temporary: false };
        let first = TransactionPosition { ledger: complete.first, application_order: 0 };
        let Some(creation) = self.reader.next_change(&instance.key, first)? else {
            return Ok(false);
        };
        if !self.is_connected(creation.ledger) {
            return Ok(false);
        }
        let Some(creator) = self.changer(&instance, creation)? else { return Ok(false) };
        Ok(creator.first(&instance).is_some_and(|step| matches!(step.was, Was::Absent)))
    }

    /// What the next transaction that changes an entry found.
    fn after_contract(&self, wanted: &Wanted<'_>, order: u32) -> Result<Option<Found>, StateError> {
        if self.of_transaction(order)?.steps_of_entry(wanted.xdr)?.first().is_some() {
            // It finds what this ledger left.
            return Ok(None);
        }
        let Some(changer) = self.next_changer(wanted)? else { return Ok(None) };
        let Some(step) = changer.first(wanted) else { return Ok(None) };
        let connected = self.is_connected(changer.at.ledger);
        match step.was {
            Was::Absent if connected && wanted.temporary => {
                // It may have been there, and evicted since.
                let evicted =
                    self.states.raw.is_evicted(wanted.xdr, self.ledger, changer.at.ledger)?;
                Ok(Some(Found::Absent).filter(|_| evicted == Some(false)))
            }
            // What a restored entry's time was is not told.
            Was::Restored(_) if wanted.key.kind == EntryKind::Ttl => Ok(None),
            _ if connected || is_older(step, self.ledger) => changer.before(wanted),
            _ => Ok(None),
        }
    }

    /// Whether a temporary entry was certainly alive, because a later transaction found it so and
    /// unchanged: nothing makes one live again whose time has passed.
    pub(super) fn lives_later(&self, wanted: &Wanted<'_>, order: u32) -> Result<bool, StateError> {
        Ok(matches!(self.after_contract(wanted, order)?, Some(Found::There { live: true, .. })))
    }

    /// Of accounts and trustlines, which any transaction may change.
    pub(super) fn near_account(&self, wanted: &Wanted<'_>) -> Result<Option<Found>, StateError> {
        if let Some(changer) = self.next_changer(wanted)?
            && changer.first(wanted).is_some_and(|step| is_older(step, self.ledger))
        {
            return changer.before(wanted);
        }
        // Only with the ledger itself is it known that nothing happened in it.
        let Some(raw) = self.states.raw.get(self.ledger)? else { return Ok(None) };
        let is_changed = raw.steps.of(wanted.xdr).first().is_some();
        let mut ledger = self.ledger;
        for _ in 0..NEAR {
            let Some(previous) = ledger.previous() else { break };
            let Some(raw) = self.states.raw.get(previous)? else { break };
            if let Some(step) = raw.steps.of(wanted.xdr).last() {
                return Ok(Some(after_step(step, true)));
            }
            ledger = previous;
        }
        let mut ledger = self.ledger;
        for _ in 0..if is_changed { 0 } else { NEAR } {
            let Some(next) = ledger.next() else { break };
            let Some(raw) = self.states.raw.get(next)? else { break };
            if let Some(step) = raw.steps.of(wanted.xdr).first() {
                return before_step(wanted, &raw.steps, step, next);
            }
            ledger = next;
        }
        Ok(None)
    }

    /// What a server's word on an entry means for this ledger.
    pub(super) fn judge(
        &self,
        key: &LedgerKey,
        xdr: &[u8],
        said: Said,
    ) -> Result<Known, StateError> {
        let entry_key = EntryKey::from_ledger_key(xdr);
        let wanted =
            entry_key.map(|key_of| Wanted { key: key_of, xdr, temporary: is_temporary(key) });
        let known = match said {
            Said::ChangedSince => return Ok(Known::Unknown),
            Said::There { entry, from, to, live_until } => {
                if let Some(wanted) = &wanted
                    && self.is_changed_between(wanted, from, to)?
                {
                    tracing::warn!(
                        ledger = %self.ledger, key = hex::encode(xdr),
                        "a server says that a ledger entry did not change while stored transactions changed it"
                    );
                    return Ok(Known::Unknown);
                }
                let gone =
                    is_temporary(key) && live_until.is_some_and(|until| until < self.ledger.0);
                match gone {
                    true => Known::Absent,
                    false => Known::Present(Rc::new(upstream::entry(&entry, self.ledger)?), None),
                }
            }
            Said::AbsentAt(to) => match &wanted {
                Some(wanted) if self.is_absent_until(wanted, to)? => Known::Absent,
                _ => Known::Unknown,
            },
        };
        Ok(known)
    }

    /// Whether a stored transaction changed an entry after `from` and not after `to`.
    fn is_changed_between(
        &self,
        wanted: &Wanted<'_>,
        from: LedgerSeq,
        to: LedgerSeq,
    ) -> Result<bool, StateError> {
        let last = self.reader.last_change(&wanted.key, self.start())?;
        let next = self.reader.next_change(&wanted.key, self.end())?;
        for at in [last.filter(|at| at.ledger > from), next.filter(|at| at.ledger <= to)] {
            if let Some(at) = at
                && self.changer(wanted, at)?.is_some()
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether an entry that is absent as of a later ledger was so in this one.
    fn is_absent_until(&self, wanted: &Wanted<'_>, to: LedgerSeq) -> Result<bool, StateError> {
        let unchanged = wanted.is_of_contract()
            && self.is_connected(to)
            && self.reader.next_change(&wanted.key, self.end())?.is_none_or(|at| at.ledger > to);
        if !unchanged || !wanted.temporary {
            return Ok(unchanged);
        }
        let end = LedgerSeq(to.0.saturating_add(1));
        Ok(self.states.raw.is_evicted(wanted.xdr, self.ledger, end)? == Some(false))
    }

    fn next_changer(&self, wanted: &Wanted<'_>) -> Result<Option<Changer>, StateError> {
        match self.reader.next_change(&wanted.key, self.end())? {
            Some(at) => self.changer(wanted, at),
            None => Ok(None),
        }
    }

    /// The transaction to which the index leads, if it did change the entry. If it did not, two entries
    /// share a tag, or the index is damaged: then nothing that the index says of the entry is believed.
    fn changer(
        &self,
        wanted: &Wanted<'_>,
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

    /// What one stored transaction changed.
    pub(super) fn steps_of(&self, at: TransactionPosition) -> Result<Rc<Steps>, StateError> {
        if let Some(steps) = self.others.borrow().get(&at) {
            return Ok(Rc::clone(steps));
        }
        let mut steps = Some(Steps::default());
        self.reader.transaction(at, |record| match transaction_changes(record.meta) {
            Ok(changes) => {
                steps.iter_mut().for_each(|steps| steps.add_transaction(Clock::ALONE, 0, &changes));
            }
            Err(_) => steps = None,
        })?;
        let steps = Rc::new(steps.ok_or(StateError::Damaged(at.ledger))?);
        let mut others = self.others.borrow_mut();
        if others.len() >= MOST_KEPT {
            others.clear();
        }
        others.insert(at, Rc::clone(&steps));
        Ok(steps)
    }
}
