//! State before the transactions of one ledger: from the ledger's own changes, then from
//! [`super::neighbours`] and [`super::upstream`].

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use stellar_xdr::LedgerKey;

use super::changes::{
    Clock, EntrySteps, EntryXdr, Moment, Step, Steps, StepsByKey, ValueBefore, last_modified,
    live_until,
};
use super::lookups::{LookupBudget, LookupLimits};
use super::raw::RawLedgers;
use super::upstream::{self, Upstream};
use super::{EntryState, PreState, StateError};
use orrery_ledger::decode::{EntryKey, EntryKind, transaction_changes};
use orrery_ledger::domain::{LedgerRange, LedgerSeq, is_temporary, ttl_hash};
use orrery_store::{EntryReader, Store, StoreError, TransactionPosition};

/// Maximum number of index lookups per ledger, of some microseconds each, that decide whether all
/// its transactions must be read (half a millisecond on the public network).
const MAX_LOOKUPS: usize = 48;

/// Protocol version from which smart-contract transactions are applied in parallel (CAP-63).
const PARALLEL_SINCE: u32 = 23;

/// Maximum number of keys that stellar-rpc accepts in one request.
const MAX_KEYS_PER_REQUEST: usize = 200;

/// Maximum length of a key's XDR in bytes. Networks store no entries under longer keys:
/// `contractDataKeySizeBytes` of the public network is 250.
const MAX_KEY_BYTES: usize = 4 << 10;

/// Source of entries as they were before stored transactions.
pub struct States<'s> {
    pub(super) store: &'s Store,
    pub(super) raw: RawLedgers<'s>,
    upstream: Option<&'s dyn Upstream>,
    limits: LookupLimits,
}

/// Source of entries for one ledger, on a snapshot of the store.
pub struct LedgerStates<'a> {
    pub(super) states: &'a States<'a>,
    pub(super) reader: EntryReader<'a>,
    pub(super) ledger: LedgerSeq,
    clock: Clock,
    /// Changes made by all stored transactions of the ledger, once they were read.
    all_steps: OnceCell<Steps>,
    /// Number of index lookups made so far to avoid reading all transactions.
    lookups: Cell<usize>,
    /// Cached changes made by single transactions, of this ledger or of others.
    pub(super) steps_cache: RefCell<HashMap<TransactionPosition, Rc<Steps>>>,
}

/// Entries as they were just before the operations of one transaction.
pub struct StateBefore<'a, 's> {
    of: &'a LedgerStates<'s>,
    order: u32,
    footprint: &'a [LedgerKey],
    lookup_budget: LookupBudget,
}

/// Certain knowledge about an entry at the moment in question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// The entry existed. `live` is true when it had certainly not expired.
    Present { entry: EntryXdr, live: bool },
    /// The entry did not exist.
    Absent,
}

/// The key of a requested entry, in the forms in which it is needed.
pub(super) struct RequestedKey<'k> {
    pub key: EntryKey<'k>,
    /// XDR `LedgerKey`.
    pub xdr: &'k [u8],
    pub temporary: bool,
}

impl<'s> States<'s> {
    /// Reads from the store, and from `upstream`, which holds the present state, if there is one.
    pub fn new(store: &'s Store, upstream: Option<&'s dyn Upstream>) -> Self {
        Self { store, raw: RawLedgers::new(store), upstream, limits: LookupLimits::NONE }
    }

    /// Sets limits for the requests to the upstream server, per transaction.
    pub fn within(self, limits: LookupLimits) -> Self {
        Self { limits, ..self }
    }

    /// Returns the states of a stored ledger, on a snapshot taken now.
    ///
    /// # Errors
    /// When the store fails or its data is damaged.
    pub fn at(&self, ledger: LedgerSeq) -> Result<LedgerStates<'_>, StateError> {
        let reader = self.store.entry_reader(ledger).map_err(StateError::store)?;
        let parallel = self.is_parallel(ledger)?;
        let clock = Clock { parallel_from: parallel.then_some(0) };
        Ok(LedgerStates {
            states: self,
            reader,
            ledger,
            clock,
            all_steps: OnceCell::new(),
            lookups: Cell::default(),
            steps_cache: RefCell::default(),
        })
    }

    /// Returns whether a ledger's contract transactions were applied in parallel; yes if unknown.
    fn is_parallel(&self, ledger: LedgerSeq) -> Result<bool, StateError> {
        let protocol = applied_protocol(self.store, ledger).map_err(StateError::store)?;
        Ok(protocol.is_none_or(|protocol| protocol >= PARALLEL_SINCE))
    }
}

/// Returns the protocol version under which the transactions of a ledger were applied; `None` when
/// neither it nor the one before is stored. An upgrade is applied last, so the header of a ledger
/// that upgrades the network has a newer version than its transactions.
pub fn applied_protocol(store: &Store, ledger: LedgerSeq) -> Result<Option<u32>, StoreError> {
    for sequence in [ledger.previous(), Some(ledger)].into_iter().flatten() {
        if let Some(row) = store.ledger(sequence)? {
            return Ok(Some(row.protocol));
        }
    }
    Ok(None)
}

impl<'a> LedgerStates<'a> {
    /// Returns the state just before the operations of a transaction. A request to the upstream
    /// server includes the entries of its `footprint` that need one too.
    pub fn before<'b>(
        &'b self,
        application_order: u32,
        footprint: &'b [LedgerKey],
    ) -> StateBefore<'b, 'a> {
        let lookup_budget = LookupBudget::new(self.states.limits);
        StateBefore { of: self, order: application_order, footprint, lookup_budget }
    }

    /// Returns the consecutive ledgers around this one of which every smart-contract transaction is
    /// stored; `None` when that is not so of this one.
    pub fn complete(&self) -> Option<LedgerRange> {
        self.reader.complete()
    }

    /// Returns whether every smart-contract transaction of the ledger is stored.
    pub(super) fn is_complete(&self) -> bool {
        self.reader.complete().is_some()
    }

    /// Returns the changes made by all stored transactions of the ledger.
    fn all_steps(&self) -> Result<&Steps, StateError> {
        if let Some(steps) = self.all_steps.get() {
            return Ok(steps);
        }
        let mut steps = Steps::default();
        let mut damaged = false;
        self.reader
            .transactions_of(self.ledger, |record| match transaction_changes(record.meta) {
                Ok(changes) => {
                    steps.add_transaction(self.clock, record.position.application_order, &changes);
                }
                Err(_) => damaged = true,
            })
            .map_err(StateError::store)?;
        if damaged {
            return Err(StateError::Damaged(self.ledger));
        }
        steps.sort();
        Ok(self.all_steps.get_or_init(|| steps))
    }

    /// Returns whether, by the index, another transaction of the ledger changed a contract's entry.
    /// True for others, which also change outside operations, and after [`MAX_LOOKUPS`].
    fn is_changed_by_another(&self, key: &EntryKey<'_>, own: u32) -> Result<bool, StateError> {
        let lookups = self.lookups.get();
        if !is_of_contract(key) || lookups == MAX_LOOKUPS {
            return Ok(true);
        }
        self.lookups.set(lookups + 1);
        let mut at = self.start();
        while let Some(next) = self.reader.next_change(key, at).map_err(StateError::store)? {
            if next.ledger != self.ledger || next.application_order != own {
                return Ok(next.ledger == self.ledger);
            }
            at = next;
        }
        Ok(false)
    }

    /// Returns the changes of the ledger for lookups on behalf of one of its transactions.
    pub(super) fn transaction_steps(
        &self,
        order: u32,
    ) -> Result<TransactionSteps<'_, 'a>, StateError> {
        let at = TransactionPosition { ledger: self.ledger, application_order: order };
        Ok(TransactionSteps { of: self, order, steps: self.steps_of(at)? })
    }

    /// Finds an entry in what is stored.
    fn find(&self, wanted: &RequestedKey<'_>, order: u32) -> Result<Option<Found>, StateError> {
        if let Some(found) = self.in_ledger(wanted, order)? {
            return Ok(Some(found));
        }
        if wanted.is_of_contract() {
            self.find_contract_entry_nearby(wanted, order)
        } else {
            self.find_account_nearby(wanted)
        }
    }

    /// Finds an entry in the changes of the ledger itself.
    fn in_ledger(
        &self,
        wanted: &RequestedKey<'_>,
        order: u32,
    ) -> Result<Option<Found>, StateError> {
        let own = self.transaction_steps(order)?;
        if let Some(step) = own.steps.of(wanted.xdr).at(Clock::ALONE.operations(0))
            && let Some(found) = before_step(wanted, &*own.steps, step, self.ledger)?
        {
            return Ok(Some(found));
        }
        let moment = self.clock.operations(order);
        // Classic transactions come first, so these changes are complete from there on.
        if self.is_complete() {
            let found = self.around(wanted, &own, moment)?;
            if found.is_some() || wanted.is_of_contract() {
                return Ok(found);
            }
        }
        if let Some(raw) = self.states.raw.get(self.ledger)? {
            return self.around(wanted, &raw.steps, raw.clock.operations(order));
        }
        let steps = own.steps_of_entry(wanted.xdr)?;
        match steps.first_after(moment).filter(|step| is_older(step, self.ledger)) {
            Some(step) => before_step(wanted, &own, step, self.ledger),
            None => Ok(None),
        }
    }

    /// Returns the entry as the last step before a moment left it, or else the next step found it.
    fn around(
        &self,
        wanted: &RequestedKey<'_>,
        by_key: &dyn StepsByKey,
        moment: Moment,
    ) -> Result<Option<Found>, StateError> {
        let steps = by_key.steps_of_entry(wanted.xdr)?;
        if let Some(step) = steps.last_before(moment) {
            // An entry that was written in this ledger is live in it.
            return Ok(Some(after_step(step, true)));
        }
        let Some(step) = steps.first_after(moment) else { return Ok(None) };
        let of_ttl = wanted.key.kind == EntryKind::Ttl;
        // The metadata does not contain the TTL that a restored entry had.
        if of_ttl && matches!(step.before, ValueBefore::Restored(_)) {
            return Ok(None);
        }
        before_step(wanted, by_key, step, self.ledger)
    }

    /// Returns the last ledger in which an entry is live, if known, and whether it surely was live.
    fn ttl(
        &self,
        wanted: &RequestedKey<'_>,
        order: u32,
    ) -> Result<(Option<u32>, bool), StateError> {
        let ttl_xdr = ttl_key(wanted.xdr);
        let Some(key) = EntryKey::from_ledger_key(&ttl_xdr) else { return Ok((None, false)) };
        if let Some(lives) = self.uncertain_ttl(wanted, &ttl_xdr, order)? {
            return Ok((None, lives));
        }
        let found = self.find(&RequestedKey { key, xdr: &ttl_xdr, temporary: false }, order)?;
        let until = match found {
            Some(Found::Present { entry, .. }) => live_until(&entry),
            Some(Found::Absent) | None => None,
        };
        Ok((until, until.is_some_and(|until| until >= self.ledger.0)))
    }

    /// Returns whether the entry was live when its TTL is uncertain, `None` when it is not: an
    /// earlier transaction of the same parallel phase extended it, visibly to this one or not.
    fn uncertain_ttl(
        &self,
        wanted: &RequestedKey<'_>,
        ttl_xdr: &[u8],
        order: u32,
    ) -> Result<Option<bool>, StateError> {
        let doubt = |by_key: &dyn StepsByKey, clock: Clock| {
            let (steps, moment) = (by_key.steps_of_entry(ttl_xdr)?, clock.operations(order));
            let step = steps.last_before(moment).filter(|_| clock.is_parallel(order));
            let Some(step) = step else { return Ok(None) };
            let only_read = by_key.steps_of_entry(wanted.xdr)?.at(step.at).is_none();
            let is_own = steps.at(moment).is_some();
            Ok((only_read && !is_own).then_some(step.after.is_some()))
        };
        if self.is_complete() {
            return doubt(&self.transaction_steps(order)?, self.clock);
        }
        match self.states.raw.get(self.ledger)? {
            Some(raw) => doubt(&raw.steps, raw.clock),
            None => Ok(None),
        }
    }

    /// Finds a contract's entry together with its TTL.
    fn contract_entry(
        &self,
        wanted: &RequestedKey<'_>,
        order: u32,
    ) -> Result<EntryState, StateError> {
        let (entry, live) = match self.find(wanted, order)? {
            None => return Ok(EntryState::Unknown),
            Some(Found::Absent) => return Ok(EntryState::Absent),
            Some(Found::Present { entry, live }) => (entry, live),
        };
        let (until, lives) = self.ttl(wanted, order)?;
        if wanted.temporary {
            if until.is_some_and(|until| until < self.ledger.0) {
                return Ok(EntryState::Absent);
            }
            // It is unknown whether a temporary entry that may have expired still existed.
            if !live && !lives && !self.is_live_later(wanted, order)? {
                return Ok(EntryState::Unknown);
            }
        }
        Ok(EntryState::Present(Rc::new(upstream::entry(&entry, self.ledger)?), until))
    }
}

/// Changes to entries in a ledger, looked up on behalf of one of its transactions.
pub(super) struct TransactionSteps<'a, 's> {
    of: &'a LedgerStates<'s>,
    order: u32,
    /// Changes made by the transaction itself.
    steps: Rc<Steps>,
}

impl StepsByKey for TransactionSteps<'_, '_> {
    fn steps_of_entry(&self, ledger_key: &[u8]) -> Result<EntrySteps, StateError> {
        let Self { of, order, steps } = self;
        if of.all_steps.get().is_none()
            && let Some(key) = EntryKey::from_ledger_key(ledger_key)
            && !of.is_changed_by_another(&key, *order)?
        {
            return Ok(steps.of(ledger_key).of_order(of.clock, *order));
        }
        Ok(of.all_steps()?.of(ledger_key).clone())
    }
}

impl StateBefore<'_, '_> {
    fn stored_state(&self, key: &LedgerKey, xdr: &[u8]) -> Result<EntryState, StateError> {
        let Some(entry_key) = EntryKey::from_ledger_key(xdr) else {
            return Ok(EntryState::Unknown);
        };
        let wanted = RequestedKey { key: entry_key, xdr, temporary: is_temporary(key) };
        match entry_key.kind {
            EntryKind::ContractData | EntryKind::ContractCode => {
                self.of.contract_entry(&wanted, self.order)
            }
            EntryKind::Account | EntryKind::Trustline | EntryKind::Ttl => {
                Ok(match self.of.find(&wanted, self.order)? {
                    None => EntryState::Unknown,
                    Some(Found::Absent) => EntryState::Absent,
                    Some(Found::Present { entry, .. }) => {
                        EntryState::Present(Rc::new(upstream::entry(&entry, self.of.ledger)?), None)
                    }
                })
            }
        }
    }

    /// Returns an entry from a remembered answer of the upstream server, or by a request to it.
    fn upstream_state(&self, key: &LedgerKey, xdr: &[u8]) -> Result<EntryState, StateError> {
        let States { store, upstream, .. } = self.of.states;
        let ledger = self.of.ledger;
        let mut evidence = upstream::stored_evidence(store, xdr, ledger)?;
        if evidence.is_none()
            && let Some(upstream) = upstream
            && is_queryable(key)
            && xdr.len() <= MAX_KEY_BYTES
        {
            if !self.footprint.contains(key) && !matches!(key, LedgerKey::ConfigSetting(_)) {
                self.lookup_budget.count_entry()?;
            }
            let keys = self.unknown_with(key)?;
            let request =
                |timeout| upstream::request_evidence(*upstream, store, &keys, ledger, timeout);
            evidence = self.lookup_budget.request(request)??;
        }
        match evidence {
            Some(evidence) => self.of.evaluate_evidence(key, xdr, evidence),
            None => Ok(EntryState::Unknown),
        }
    }

    /// Returns the key, followed by keys of the footprint that must be requested from upstream too.
    fn unknown_with(&self, key: &LedgerKey) -> Result<Vec<LedgerKey>, StateError> {
        let mut keys = vec![key.clone()];
        for other in self.footprint {
            if keys.len() == MAX_KEYS_PER_REQUEST {
                break;
            }
            let xdr = upstream::xdr(other)?;
            if is_queryable(other)
                && xdr.len() <= MAX_KEY_BYTES
                && !keys.contains(other)
                && self.stored_state(other, &xdr)? == EntryState::Unknown
                && upstream::stored_evidence(self.of.states.store, &xdr, self.of.ledger)?.is_none()
            {
                keys.push(other.clone());
            }
        }
        Ok(keys)
    }
}

impl PreState for StateBefore<'_, '_> {
    fn entry(&self, key: &LedgerKey) -> Result<EntryState, StateError> {
        let xdr = upstream::xdr(key)?;
        match self.stored_state(key, &xdr)? {
            EntryState::Unknown => self.upstream_state(key, &xdr),
            known => Ok(known),
        }
    }
}

impl RequestedKey<'_> {
    /// Returns whether the entry changes only through smart-contract transactions and expiry.
    pub fn is_of_contract(&self) -> bool {
        is_of_contract(&self.key)
    }
}

fn is_of_contract(key: &EntryKey<'_>) -> bool {
    !matches!(key.kind, EntryKind::Account | EntryKind::Trustline)
}

/// Returns an entry as a step left it.
pub(super) fn after_step(step: &Step, live: bool) -> Found {
    match &step.after {
        Some(entry) => Found::Present { entry: Rc::clone(entry), live },
        None => Found::Absent,
    }
}

/// Returns an entry as a step in `ledger` found it; `None` when the metadata does not say.
pub(super) fn before_step(
    wanted: &RequestedKey<'_>,
    by_key: &dyn StepsByKey,
    step: &Step,
    ledger: LedgerSeq,
) -> Result<Option<Found>, StateError> {
    let (entry, live) = match &step.before {
        ValueBefore::Unknown => return Ok(None),
        ValueBefore::Absent => return Ok(Some(Found::Absent)),
        ValueBefore::Restored(entry) => (entry, true),
        // An expired entry gets a new TTL with its new value; one without a TTL change was live.
        ValueBefore::Present(entry) => {
            let ttl = by_key.steps_of_entry(&ttl_key(wanted.xdr))?;
            match ttl.at(step.at).map(|ttl| &ttl.before) {
                None => (entry, step.after.is_some()),
                Some(ValueBefore::Present(ttl)) => {
                    (entry, live_until(ttl).is_some_and(|until| until >= ledger.0))
                }
                Some(_) => (entry, false),
            }
        }
    };
    Ok(Some(Found::Present { entry: Rc::clone(entry), live }))
}

/// Returns whether the entry that a step found was last modified before `ledger`.
pub(super) fn is_older(step: &Step, ledger: LedgerSeq) -> bool {
    match &step.before {
        ValueBefore::Present(entry) => {
            last_modified(entry).is_some_and(|modified| modified < ledger.0)
        }
        ValueBefore::Unknown | ValueBefore::Absent | ValueBefore::Restored(_) => false,
    }
}

/// Returns the XDR `LedgerKey` of an entry's TTL.
pub(super) fn ttl_key(ledger_key: &[u8]) -> Vec<u8> {
    EntryKey { kind: EntryKind::Ttl, body: &ttl_hash(ledger_key).0 }.to_ledger_key()
}

/// Returns whether the upstream server accepts the key: it refuses TTL keys.
fn is_queryable(key: &LedgerKey) -> bool {
    !matches!(key, LedgerKey::Ttl(_))
}
