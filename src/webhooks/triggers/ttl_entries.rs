//! The entries of a contract that may be about to expire in a ledger, and whether they are.

use std::sync::Arc;

use super::body::{self, Expiring, Scene};
use super::{Sources, Told, decoded, with_stack};
use crate::number::{Number, TriggerKind};
use crate::subscription::Subscription;
use crate::trigger::{Durability, Entries, Keys};
use orrery_contract_data::{
    CodeLives, DataKey, Given, Key, KeyTag, LAST_ORDER, Lookup, hash_of, hash_of_code,
    hash_of_data_key, key_of_data,
};
use orrery_executables::{DataForms, Executable};
use orrery_ledger::domain::{ContractId, Hash32, LedgerSeq};
use orrery_store::{RowBounds, StoreError, TransactionPosition};
use stellar_xdr::ScVal;

/// An entry that a contract lives by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vital {
    /// Its instance.
    Instance(Key),
    /// A module.
    Module(Hash32),
    /// The entry by which it refers to a module (CAP-85), which belongs to another contract.
    Tag(Key),
}

/// What is known at the end of a ledger and of the one before.
pub(super) struct Moment<'s> {
    pub ledger: LedgerSeq,
    now: Lookup<'s>,
    before: Option<Lookup<'s>>,
}

impl<'s> Moment<'s> {
    /// Looks at the end of a stored ledger.
    pub fn of(sources: &Sources<'s>, ledger: LedgerSeq) -> Result<Self, StoreError> {
        let open = |ledger| {
            Ok::<_, StoreError>(
                Lookup::new(sources.store, ledger, RowBounds::none())?.without_updated(),
            )
        };
        let before = ledger.previous().filter(|it| sources.store.place_of(*it).is_some());
        Ok(Self { ledger, now: open(ledger)?, before: before.map(open).transpose()? })
    }

    /// Returns the lookups at the end of the ledger.
    pub fn now(&self) -> &Lookup<'s> {
        &self.now
    }
}

/// One subscription in one ledger.
pub(super) struct Looking<'m, 's> {
    pub sources: &'m Sources<'s>,
    pub moment: &'m Moment<'s>,
    pub subscription: &'m Arc<Subscription>,
    pub within: u32,
    /// The first ledger in which the subscription could be told.
    pub first: LedgerSeq,
    /// Whether the contract belongs to the subscription's project, if it has one.
    pub is_sure: bool,
}

/// An entry by which a contract lives: its tag, until when it lives, and whether it is the contract's own.
pub(super) type VitalLife = (KeyTag, Option<LedgerSeq>, bool);

impl<'m, 's> Looking<'m, 's> {
    /// Looks for a subscription to one contract.
    pub fn of_one(
        (sources, moment): (&'m Sources<'s>, &'m Moment<'s>),
        subscription: &'m Arc<Subscription>,
        (within, first): (u32, LedgerSeq),
    ) -> Self {
        Self { sources, moment, subscription, within, first, is_sure: true }
    }

    /// Returns until when an entry with these times to live is live, if it is told of in this ledger: it is near
    /// its end, and was not in the ledger before, with the same time to live, when the subscription could
    /// be told.
    fn is_due(&self, now: Option<Given>, before: Option<Given>) -> Option<LedgerSeq> {
        let ledger = self.moment.ledger.0;
        let near = |until: LedgerSeq, at: u32| until.0.saturating_sub(at) < self.within;
        let until = now?.live_until;
        let was_near =
            before.is_some_and(|before| before.live_until == until && near(until, ledger - 1));
        (near(until, ledger) && !was_near).then_some(until)
    }

    /// Returns the lookups of the ledger before, if the subscription could be told in it.
    fn before(&self) -> Option<&'m Lookup<'s>> {
        self.moment.before.as_ref().filter(|before| before.ledger() >= self.first)
    }

    /// Returns what is to be told of the entries by which a contract lives. Adds these to `found`.
    pub fn vital(
        &self,
        contract: &ContractId,
        entries: Entries,
        lives: &mut CodeLives,
        found: &mut Vec<VitalLife>,
    ) -> Result<Vec<Told>, StoreError> {
        let now = self.vitals(contract, entries, self.moment.ledger)?;
        let before = match self.before() {
            Some(lookup) => self.vitals(contract, entries, lookup.ledger())?,
            None => Vec::new(),
        };
        let mut told = Vec::new();
        for (vital, key_hash) in now {
            let given = given(&self.moment.now, vital, lives)?;
            let is_own = matches!(vital, Vital::Instance(_));
            found.push((KeyTag::of(&key_hash), given.map(|given| given.live_until), is_own));
            let was_given = match self.before().filter(|_| before.contains(&(vital, key_hash))) {
                Some(lookup) => self::given(lookup, vital, lives)?,
                None => None,
            };
            if let Some(until) = self.is_due(given, was_given) {
                let key = match vital {
                    Vital::Module(_) => None,
                    Vital::Instance(key) | Vital::Tag(key) => self.moment.now.key_of(key)?,
                };
                let entry = if is_own { "instance" } else { "code" };
                told.push(self.told(contract, (key_hash, key.as_ref()), entry, until)?);
            }
        }
        Ok(told)
    }

    /// Returns the entries by which a contract lives at the end of a ledger, with the hashes of their keys.
    fn vitals(
        &self,
        contract: &ContractId,
        entries: Entries,
        ledger: LedgerSeq,
    ) -> Result<Vec<(Vital, Hash32)>, StoreError> {
        let mut vitals = Vec::new();
        let instance = ScVal::LedgerKeyContractInstance;
        let durability = orrery_contract_data::Durability::Persistent;
        if entries.instance
            && let Some(hash) = hash_of_data_key(contract, instance, durability)
        {
            vitals.push((Vital::Instance((*contract, KeyTag::of(&hash))), hash));
        }
        let Some(names) = self.sources.names.filter(|_| entries.code) else { return Ok(vitals) };
        let at = TransactionPosition { ledger, application_order: u32::MAX };
        let module = |hash: Hash32| hash_of_code(&hash).map(|of| (Vital::Module(hash), of));
        match names.executable_after(contract, at)?.flatten() {
            Some(Executable::Code(hash)) => vitals.extend(module(hash)),
            Some(Executable::Reference(key)) => {
                vitals.extend(key_of_data(&key).map(|(key, hash)| (Vital::Tag(key), hash)));
                vitals.extend(names.named_code(&key, at)?.and_then(module));
            }
            Some(Executable::Asset | Executable::Other) | None => {}
        }
        Ok(vitals)
    }

    /// Returns what is to be told of other data of a contract.
    pub fn data(&self, of: Key, keys: &Keys) -> Result<Option<Told>, StoreError> {
        let now = self.moment.now.given(of)?;
        let before = match self.before() {
            Some(lookup) => lookup.given(of)?,
            None => None,
        };
        let Some(until) = self.is_due(now, before) else { return Ok(None) };
        let Some(key) = self.moment.now.key_of(of)?.filter(|key| !key.is_instance()) else {
            return Ok(None);
        };
        let durability = match key.durability() {
            orrery_contract_data::Durability::Temporary => Durability::Temporary,
            orrery_contract_data::Durability::Persistent => Durability::Persistent,
        };
        if !keys.has(key.scval(), durability) {
            return Ok(None);
        }
        let hash = hash_of(&key.entry_key());
        self.told(&of.0, (hash, Some(&key)), "data", until).map(Some)
    }

    fn told(
        &self,
        contract: &ContractId,
        (key_hash, key): (Hash32, Option<&DataKey<'_>>),
        entry: &'static str,
        live_until: LedgerSeq,
    ) -> Result<Told, StoreError> {
        let ledger = self.moment.ledger;
        let at = TransactionPosition { ledger, application_order: LAST_ORDER };
        let form = self.sources.names.map(|names| DataForms::new(names).of(contract, at));
        let form = form.unwrap_or_default();
        let scene = Scene {
            contract: Some(*contract),
            ledger,
            closed_at: self.sources.closed_at(ledger)?,
            transaction: None,
        };
        let body = with_stack(|| {
            let key = key.and_then(|key| decoded(key.scval()));
            // One that cannot be written is not known.
            let key = key.and_then(|key| form.plain().key(&key).ok());
            let ledgers_left = live_until.0.saturating_sub(ledger.0);
            let members = Expiring { key_hash, key, entry, live_until, ledgers_left };
            body::body(&self.subscription.definition.trigger, &scene, members)
        });
        let first = |bytes: &[u8; 32]| bytes.first_chunk().copied().map_or(0, u64::from_be_bytes);
        let number = [first(&key_hash.0), first(&contract.0)];
        Ok(Told {
            subscription: Arc::clone(self.subscription),
            number: Number::of_trigger(ledger, None, TriggerKind::Ttl, number),
            ledger,
            body: body.map_err(|error| {
                StoreError::Database(format!("numbers cannot be written as JSON: {error}"))
            })?,
            is_sure: self.is_sure,
        })
    }
}

fn given(
    lookup: &Lookup<'_>,
    vital: Vital,
    lives: &mut CodeLives,
) -> Result<Option<Given>, StoreError> {
    match vital {
        Vital::Instance(key) | Vital::Tag(key) => lookup.given(key),
        Vital::Module(hash) => lookup.code_given(&hash, lives),
    }
}
