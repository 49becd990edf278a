//! The states before the transactions of one ledger: what the ledger itself says of an entry, and then
//! what [`neighbours`](super::neighbours) and [`upstream`](super::upstream) know.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use sha2::{Digest, Sha256};
use stellar_xdr::{ContractDataDurability, LedgerKey};

use super::lookups::{Asked, LookupLimits};
use super::raw::RawLedgers;
use super::steps::{
    Clock, EntrySteps, EntryXdr, Moment, Step, Steps, StepsByKey, Was, last_modified, live_until,
};
use super::upstream::{self, Upstream};
use super::{Known, PreState, StateError};
use crate::decode::{EntryKey, EntryKind, transaction_changes};
use crate::domain::LedgerSeq;
use crate::store::{EntryReader, Store, StoreError, TransactionPosition};

/// Entries of one ledger for which the index is asked whether all its transactions have to be read. A lookup costs
/// some microseconds, to read a public ledger half a millisecond.
const MOST_LOOKUPS: usize = 48;

/// From this protocol on smart-contract transactions are applied in parallel (CAP-63).
const PARALLEL_SINCE: u32 = 23;

/// Keys that stellar-rpc takes in one question.
const MOST_ASKED: usize = 200;

/// Bytes of a key as XDR. Networks keep no entries under longer ones (`contractDataKeySizeBytes` of the
/// public one is 250), so nobody is asked for them.
const LONGEST_KEY: usize = 4 << 10;

/// Tells how entries were before stored transactions.
pub struct States<'s> {
    pub(super) store: &'s Store,
    pub(super) raw: RawLedgers<'s>,
    upstream: Option<&'s dyn Upstream>,
    limits: LookupLimits,
}

/// The same for one ledger, as far as is known at one moment.
pub struct LedgerStates<'a> {
    pub(super) states: &'a States<'a>,
    pub(super) reader: EntryReader<'a>,
    pub(super) ledger: LedgerSeq,
    clock: Clock,
    /// What the stored transactions of the ledger changed, once all of them were read.
    all_steps: OnceCell<Steps>,
    /// How often the index was asked whether that is necessary.
    lookups: Cell<usize>,
    /// What single transactions changed, of this ledger or of others.
    pub(super) others: RefCell<HashMap<TransactionPosition, Rc<Steps>>>,
}

/// How entries were just before the operations of one transaction.
pub struct StateBefore<'a, 's> {
    of: &'a LedgerStates<'s>,
    order: u32,
    also: &'a [LedgerKey],
    asked: Asked,
}

/// Something that is certain of an entry at the moment in question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// It was there. `live` when its time had certainly not passed.
    There { entry: EntryXdr, live: bool },
    /// It was not there.
    Absent,
}

/// A key in the forms in which it is needed.
pub(super) struct Wanted<'k> {
    pub key: EntryKey<'k>,
    /// XDR `LedgerKey`.
    pub xdr: &'k [u8],
    pub temporary: bool,
}

impl<'s> States<'s> {
    /// From what is stored, and if there is one from a server that knows the present.
    pub fn new(store: &'s Store, upstream: Option<&'s dyn Upstream>) -> Self {
        Self { store, raw: RawLedgers::new(store), upstream, limits: LookupLimits::NONE }
    }

    /// The same, with limits for what is asked of the server for each transaction.
    pub fn within(self, limits: LookupLimits) -> Self {
        Self { limits, ..self }
    }

    /// What is known about a stored ledger now.
    ///
    /// # Errors
    /// When the store fails or what it holds is damaged.
    pub fn at(&self, ledger: LedgerSeq) -> Result<LedgerStates<'_>, StateError> {
        let reader = self.store.entry_reader(ledger)?;
        let parallel = self.is_parallel(ledger)?;
        let clock = Clock { parallel_from: parallel.then_some(0) };
        Ok(LedgerStates {
            states: self,
            reader,
            ledger,
            clock,
            all_steps: OnceCell::new(),
            lookups: Cell::default(),
            others: RefCell::default(),
        })
    }

    /// Whether the smart-contract transactions of a ledger were applied in parallel.
    fn is_parallel(&self, ledger: LedgerSeq) -> Result<bool, StateError> {
        let protocol = applied_protocol(self.store, ledger)?;
        Ok(protocol.is_none_or(|protocol| protocol >= PARALLEL_SINCE))
    }
}

/// The protocol by whose rules the transactions of a ledger were applied; none when neither it nor the
/// ledger before is stored. The ledger in which the network comes to a protocol carries the new version in
/// its header, but upgrades are applied last: its transactions went by the rules of the one before.
///
/// # Errors
/// What the database says.
pub fn applied_protocol(store: &Store, ledger: LedgerSeq) -> Result<Option<u32>, StoreError> {
    for sequence in [ledger.previous(), Some(ledger)].into_iter().flatten() {
        if let Some(row) = store.ledger(sequence)? {
            return Ok(Some(row.protocol));
        }
    }
    Ok(None)
}

impl<'a> LedgerStates<'a> {
    /// The state just before the operations of a transaction. When an entry must be asked for elsewhere,
    /// those of `also` that must be too are asked for with it: give the transaction's footprint.
    pub fn before<'b>(
        &'b self,
        application_order: u32,
        also: &'b [LedgerKey],
    ) -> StateBefore<'b, 'a> {
        let asked = Asked::nothing(self.states.limits);
        StateBefore { of: self, order: application_order, also, asked }
    }

    /// Whether every smart-contract transaction of the ledger is stored.
    fn is_complete(&self) -> bool {
        self.reader.complete().is_some()
    }

    /// What the stored transactions of the ledger changed, all of them.
    fn all_steps(&self) -> Result<&Steps, StateError> {
        if let Some(steps) = self.all_steps.get() {
            return Ok(steps);
        }
        let mut steps = Steps::default();
        let mut damaged = false;
        self.reader.transactions_of(self.ledger, |record| {
            match transaction_changes(record.meta) {
                Ok(changes) => {
                    steps.add_transaction(self.clock, record.position.application_order, &changes);
                }
                Err(_) => damaged = true,
            }
        })?;
        if damaged {
            return Err(StateError::Damaged(self.ledger));
        }
        steps.sort();
        Ok(self.all_steps.get_or_init(|| steps))
    }

    /// Whether the index has another transaction of the ledger that changed an entry of a contract. It is not
    /// asked about accounts, since it does not have what precedes and follows operations; nor for ever.
    fn is_changed_by_another(&self, key: &EntryKey<'_>, own: u32) -> Result<bool, StateError> {
        let lookups = self.lookups.get();
        if !is_of_contract(key) || lookups == MOST_LOOKUPS {
            return Ok(true);
        }
        self.lookups.set(lookups + 1);
        let mut at = self.start();
        while let Some(next) = self.reader.next_change(key, at)? {
            if next.ledger != self.ledger || next.application_order != own {
                return Ok(next.ledger == self.ledger);
            }
            at = next;
        }
        Ok(false)
    }

    /// For questions of one of its transactions.
    pub(super) fn of_transaction(&self, order: u32) -> Result<OfTransaction<'_, 'a>, StateError> {
        let at = TransactionPosition { ledger: self.ledger, application_order: order };
        Ok(OfTransaction { of: self, order, steps: self.steps_of(at)? })
    }

    /// What is stored of an entry.
    fn find(&self, wanted: &Wanted<'_>, order: u32) -> Result<Option<Found>, StateError> {
        if let Some(found) = self.in_ledger(wanted, order)? {
            return Ok(Some(found));
        }
        if wanted.is_of_contract() {
            self.near_contract(wanted, order)
        } else {
            self.near_account(wanted)
        }
    }

    /// What the ledger itself says of an entry.
    fn in_ledger(&self, wanted: &Wanted<'_>, order: u32) -> Result<Option<Found>, StateError> {
        let own = self.of_transaction(order)?;
        if let Some(step) = own.steps.of(wanted.xdr).at(Clock::ALONE.operations(0))
            && let Some(found) = before_step(wanted, &*own.steps, step, self.ledger)?
        {
            return Ok(Some(found));
        }
        let moment = self.clock.operations(order);
        // Once the first smart-contract transaction is applied nothing else is, so these are all.
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

    /// What the step before a moment left, or else the step after it found; none when there are none.
    fn around(
        &self,
        wanted: &Wanted<'_>,
        by_key: &dyn StepsByKey,
        moment: Moment,
    ) -> Result<Option<Found>, StateError> {
        let steps = by_key.steps_of_entry(wanted.xdr)?;
        if let Some(step) = steps.last_before(moment) {
            // What was written in this ledger lives in it.
            return Ok(Some(after_step(step, true)));
        }
        let Some(step) = steps.first_after(moment) else { return Ok(None) };
        let of_ttl = wanted.key.kind == EntryKind::Ttl;
        // What a restored entry's time was is not told.
        if of_ttl && matches!(step.was, Was::Restored(_)) {
            return Ok(None);
        }
        before_step(wanted, by_key, step, self.ledger)
    }

    /// The last ledger in which an entry of a contract lives, and whether it was certainly alive.
    fn ttl(&self, wanted: &Wanted<'_>, order: u32) -> Result<(Option<u32>, bool), StateError> {
        let ttl_xdr = ttl_key(wanted.xdr);
        let Some(key) = EntryKey::from_ledger_key(&ttl_xdr) else { return Ok((None, false)) };
        if let Some(lives) = self.reads_in_parallel(wanted, &ttl_xdr, order)? {
            return Ok((None, lives));
        }
        let found = self.find(&Wanted { key, xdr: &ttl_xdr, temporary: false }, order)?;
        let until = match found {
            Some(Found::There { entry, .. }) => live_until(&entry),
            Some(Found::Absent) | None => None,
        };
        Ok((until, until.is_some_and(|until| until >= self.ledger.0)))
    }

    /// Whether an entry lived that was only made to live longer in this ledger, by transactions that read
    /// it. One that ran in parallel did not see that, and which did is not known; none when there is no
    /// such doubt.
    fn reads_in_parallel(
        &self,
        wanted: &Wanted<'_>,
        ttl_xdr: &[u8],
        order: u32,
    ) -> Result<Option<bool>, StateError> {
        let doubt = |by_key: &dyn StepsByKey, clock: Clock| {
            let (steps, moment) = (by_key.steps_of_entry(ttl_xdr)?, clock.operations(order));
            let step = steps.last_before(moment).filter(|_| clock.is_parallel(order));
            let Some(step) = step else { return Ok(None) };
            let only_read = by_key.steps_of_entry(wanted.xdr)?.at(step.at).is_none();
            let is_own = steps.at(moment).is_some();
            Ok((only_read && !is_own).then_some(step.is.is_some()))
        };
        if self.is_complete() {
            return doubt(&self.of_transaction(order)?, self.clock);
        }
        match self.states.raw.get(self.ledger)? {
            Some(raw) => doubt(&raw.steps, raw.clock),
            None => Ok(None),
        }
    }

    /// What is known of an entry of a contract: the entry together with its time to live.
    fn contract_entry(&self, wanted: &Wanted<'_>, order: u32) -> Result<Known, StateError> {
        let (entry, live) = match self.find(wanted, order)? {
            None => return Ok(Known::Unknown),
            Some(Found::Absent) => return Ok(Known::Absent),
            Some(Found::There { entry, live }) => (entry, live),
        };
        let (until, lives) = self.ttl(wanted, order)?;
        if wanted.temporary {
            if until.is_some_and(|until| until < self.ledger.0) {
                return Ok(Known::Absent);
            }
            // Of a temporary entry that may have lived too long, nobody can say whether it was there.
            if !live && !lives && !self.lives_later(wanted, order)? {
                return Ok(Known::Unknown);
            }
        }
        Ok(Known::Present(Rc::new(upstream::entry(&entry, self.ledger)?), until))
    }
}

/// What happened to entries in a ledger, as one of its transactions asks for it.
pub(super) struct OfTransaction<'a, 's> {
    of: &'a LedgerStates<'s>,
    order: u32,
    /// What the transaction itself changed.
    steps: Rc<Steps>,
}

impl StepsByKey for OfTransaction<'_, '_> {
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
    fn stored(&self, key: &LedgerKey, xdr: &[u8]) -> Result<Known, StateError> {
        let Some(entry_key) = EntryKey::from_ledger_key(xdr) else { return Ok(Known::Unknown) };
        let wanted = Wanted { key: entry_key, xdr, temporary: is_temporary(key) };
        match entry_key.kind {
            EntryKind::ContractData | EntryKind::ContractCode => {
                self.of.contract_entry(&wanted, self.order)
            }
            EntryKind::Account | EntryKind::Trustline | EntryKind::Ttl => {
                Ok(match self.of.find(&wanted, self.order)? {
                    None => Known::Unknown,
                    Some(Found::Absent) => Known::Absent,
                    Some(Found::There { entry, .. }) => {
                        Known::Present(Rc::new(upstream::entry(&entry, self.of.ledger)?), None)
                    }
                })
            }
        }
    }

    /// What a server says, remembered or asked for now.
    fn elsewhere(&self, key: &LedgerKey, xdr: &[u8]) -> Result<Known, StateError> {
        let States { store, upstream, .. } = self.of.states;
        let ledger = self.of.ledger;
        let mut said = upstream::remembered(store, xdr, ledger)?;
        if said.is_none()
            && let Some(upstream) = upstream
            && is_askable(key)
            && xdr.len() <= LONGEST_KEY
        {
            if !self.also.contains(key) && !matches!(key, LedgerKey::ConfigSetting(_)) {
                self.asked.count()?;
            }
            let keys = self.unknown_with(key)?;
            let ask = |within| upstream::ask(*upstream, store, &keys, ledger, within);
            said = self.asked.ask(ask)??;
        }
        match said {
            Some(said) => self.of.judge(key, xdr, said),
            None => Ok(Known::Unknown),
        }
    }

    /// The key, and with it others that will have to be asked for too.
    fn unknown_with(&self, key: &LedgerKey) -> Result<Vec<LedgerKey>, StateError> {
        let mut keys = vec![key.clone()];
        for other in self.also {
            if keys.len() == MOST_ASKED {
                break;
            }
            let xdr = upstream::xdr(other)?;
            if is_askable(other)
                && xdr.len() <= LONGEST_KEY
                && !keys.contains(other)
                && self.stored(other, &xdr)? == Known::Unknown
                && upstream::remembered(self.of.states.store, &xdr, self.of.ledger)?.is_none()
            {
                keys.push(other.clone());
            }
        }
        Ok(keys)
    }
}

impl PreState for StateBefore<'_, '_> {
    fn entry(&self, key: &LedgerKey) -> Result<Known, StateError> {
        let xdr = upstream::xdr(key)?;
        match self.stored(key, &xdr)? {
            Known::Unknown => self.elsewhere(key, &xdr),
            known => Ok(known),
        }
    }
}

impl Wanted<'_> {
    /// Whether only smart-contract transactions change the entry, and time.
    pub fn is_of_contract(&self) -> bool {
        is_of_contract(&self.key)
    }
}

fn is_of_contract(key: &EntryKey<'_>) -> bool {
    !matches!(key.kind, EntryKind::Account | EntryKind::Trustline)
}

/// How a step left an entry.
pub(super) fn after_step(step: &Step, live: bool) -> Found {
    match &step.is {
        Some(entry) => Found::There { entry: Rc::clone(entry), live },
        None => Found::Absent,
    }
}

/// How a step in `ledger` found an entry.
pub(super) fn before_step(
    wanted: &Wanted<'_>,
    by_key: &dyn StepsByKey,
    step: &Step,
    ledger: LedgerSeq,
) -> Result<Option<Found>, StateError> {
    let (entry, live) = match &step.was {
        Was::Untold => return Ok(None),
        Was::Absent => return Ok(Some(Found::Absent)),
        Was::Restored(entry) => (entry, true),
        // An entry whose time had passed gets more time with its new value: one that got none lived.
        Was::There(entry) => {
            let ttl = by_key.steps_of_entry(&ttl_key(wanted.xdr))?;
            match ttl.at(step.at).map(|ttl| &ttl.was) {
                None => (entry, step.is.is_some()),
                Some(Was::There(ttl)) => {
                    (entry, live_until(ttl).is_some_and(|until| until >= ledger.0))
                }
                Some(_) => (entry, false),
            }
        }
    };
    Ok(Some(Found::There { entry: Rc::clone(entry), live }))
}

/// Whether what a step found had not been changed since before a ledger.
pub(super) fn is_older(step: &Step, ledger: LedgerSeq) -> bool {
    match &step.was {
        Was::There(entry) => last_modified(entry).is_some_and(|modified| modified < ledger.0),
        Was::Untold | Was::Absent | Was::Restored(_) => false,
    }
}

/// XDR `LedgerKey` of the time to live of an entry: the SHA-256 of the entry's own.
pub(super) fn ttl_key(ledger_key: &[u8]) -> Vec<u8> {
    let hash = Sha256::digest(ledger_key);
    EntryKey { kind: EntryKind::Ttl, body: &hash }.to_ledger_key()
}

pub(super) fn is_temporary(key: &LedgerKey) -> bool {
    matches!(key, LedgerKey::ContractData(data) if data.durability == ContractDataDurability::Temporary)
}

/// Whether a server can be asked: it refuses keys of times to live.
fn is_askable(key: &LedgerKey) -> bool {
    !matches!(key, LedgerKey::Ttl(_))
}
