//! The true state, and what one transaction does to one key.

use std::collections::BTreeMap;

use rand::Rng;
use rand::rngs::StdRng;
use stellar_xdr::{
    ContractCodeEntry, ContractDataEntry, ExtensionPoint, Hash, LedgerEntry, LedgerEntryChange,
    LedgerEntryData, LedgerKey, LedgerKeyTtl, ScVal, TtlEntry,
};

use super::{TrueEntry, keys};
use crate::storage::{KeyHash, Kind, Value, instance_key, is_temporary, key_hash};

/// An entry that exists, as the network has it: also temporary data that is dead and not yet deleted.
#[derive(Debug, Clone)]
pub struct Slot {
    pub key: LedgerKey,
    pub value: Value,
    pub modified: u32,
    pub until: u32,
    /// `lastModifiedLedgerSeq` of the TTL entry.
    pub until_modified: u32,
    /// Whether it was evicted, and lies in the hot archive.
    pub hot: bool,
}

/// The state of everything.
#[derive(Debug, Clone)]
pub struct World {
    pub slots: BTreeMap<KeyHash, Slot>,
    /// All contracts, created or not.
    pub contracts: Vec<[u8; 32]>,
    /// The ledger that created a contract.
    pub created: BTreeMap<[u8; 32], u32>,
    pub keys: BTreeMap<KeyHash, LedgerKey>,
    pub nonces: BTreeMap<KeyHash, LedgerKey>,
}

/// What a transaction did to a key, in the order of the metadata: its entry, then its TTL.
#[derive(Debug, Clone, Default)]
pub struct Effect {
    pub entry: Vec<LedgerEntryChange>,
    pub ttl: Vec<LedgerEntryChange>,
    /// `None` if it was no change; else its kind, which an equal update has not, nor the erasing of
    /// dead temporary data.
    pub change: Option<Option<Kind>>,
    /// See [`super::TrueChange`].
    pub names_value: bool,
    pub names_before: bool,
}

impl World {
    pub fn new(rng: &mut StdRng, contracts: usize) -> Self {
        let contracts: Vec<[u8; 32]> = (0..contracts).map(|_| rng.random()).collect();
        let mut keys = BTreeMap::new();
        for contract in &contracts {
            let instance = instance_key(contract);
            keys.insert(key_hash(&instance), instance);
            let own = keys::of_contract(rng, contract);
            keys.extend(own.into_iter().map(|key| (key_hash(&key), key)));
        }
        let codes = keys::codes();
        keys.extend(codes.iter().map(|code| keys::code_key(code)).map(|key| (key_hash(&key), key)));
        let (slots, created, nonces) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { slots, contracts, created, keys, nonces }
    }

    /// What a reader may be told about the end of a ledger.
    pub fn state_at(&self, ledger: u32) -> BTreeMap<KeyHash, TrueEntry> {
        let all = self.slots.iter();
        let visible = all.filter(|(_, slot)| !slot.is_dead(ledger));
        visible.map(|(hash, slot)| (*hash, slot.at(ledger))).collect()
    }

    /// Dead temporary data at the end of a ledger.
    pub fn dead_at(&self, ledger: u32) -> BTreeMap<KeyHash, TrueEntry> {
        let dead = self.slots.iter().filter(|(_, slot)| slot.is_dead(ledger));
        dead.map(|(hash, slot)| (*hash, slot.at(ledger))).collect()
    }

    /// Creates an entry that does not exist.
    pub fn create(&mut self, key: &LedgerKey, value: Value, ledger: u32, until: u32) -> Effect {
        let slot = Slot {
            key: key.clone(),
            value,
            modified: ledger,
            until,
            until_modified: ledger,
            hot: false,
        };
        let effect = Effect {
            entry: vec![LedgerEntryChange::Created(slot.entry())],
            ttl: vec![LedgerEntryChange::Created(slot.ttl())],
            change: Some(Some(Kind::Created)),
            names_value: true,
            names_before: true,
        };
        self.slots.insert(key_hash(key), slot);
        effect
    }

    /// Writes temporary data that is dead and was not yet deleted, or erases it.
    pub fn revive(
        &mut self,
        hash: &KeyHash,
        value: Option<Value>,
        ledger: u32,
        until: u32,
    ) -> Effect {
        let old = self.slots[hash].clone();
        let Some(value) = value else {
            self.slots.remove(hash);
            return Effect { change: Some(None), ..removed(&old) };
        };
        let new = Slot { value, modified: ledger, until, until_modified: ledger, ..old.clone() };
        self.slots.insert(*hash, new.clone());
        Effect {
            entry: vec![
                LedgerEntryChange::State(old.entry()),
                LedgerEntryChange::Updated(new.entry()),
            ],
            ttl: vec![LedgerEntryChange::State(old.ttl()), LedgerEntryChange::Updated(new.ttl())],
            change: Some(Some(Kind::Created)),
            names_value: true,
            names_before: true,
        }
    }

    /// Writes a live entry, its TTL, or both: `None` leaves as it is.
    pub fn update(
        &mut self,
        hash: &KeyHash,
        value: Option<Value>,
        until: Option<u32>,
        ledger: u32,
    ) -> Effect {
        let old = self.slots[hash].clone();
        let mut new = old.clone();
        let mut effect = Effect::default();
        if let Some(until) = until {
            (new.until, new.until_modified) = (until, ledger);
            effect.ttl =
                vec![LedgerEntryChange::State(old.ttl()), LedgerEntryChange::Updated(new.ttl())];
            effect.change = Some(Some(Kind::Extended));
        }
        if let Some(value) = value {
            (new.value, new.modified) = (value, ledger);
            effect.entry = vec![
                LedgerEntryChange::State(old.entry()),
                LedgerEntryChange::Updated(new.entry()),
            ];
            (effect.names_value, effect.names_before) = (true, true);
            if old.value != new.value {
                effect.change = Some(Some(Kind::Updated));
            } else if effect.change.is_none() {
                effect.change = Some(None);
            }
        }
        self.slots.insert(*hash, new);
        effect
    }

    /// Removes a live entry.
    pub fn remove(&mut self, hash: &KeyHash) -> Effect {
        removed(&self.slots.remove(hash).unwrap())
    }

    /// Restores an archived entry by an invocation, from protocol 23 on (CAP-66), and writes or
    /// removes it. stellar-core names the entry as it was archived, with the present ledger's number.
    /// `later`: the invocation extends the TTL further.
    pub fn restore_itself(
        &mut self,
        hash: &KeyHash,
        then: Then,
        ledger: u32,
        until: u32,
        later: Option<u32>,
    ) -> Effect {
        let old = self.slots[hash].clone();
        let restored =
            Slot { modified: ledger, until, until_modified: ledger, hot: false, ..old.clone() };
        // The TTL record of an entry that was not yet evicted is the old one, if it is not the last.
        let first_ttl = Slot { until: if old.hot { until } else { old.until }, ..restored.clone() };
        let mut effect = Effect {
            entry: vec![LedgerEntryChange::Restored(restored.entry())],
            ttl: vec![LedgerEntryChange::Restored(restored.ttl())],
            change: Some(Some(Kind::Restored)),
            names_value: true,
            names_before: false,
        };
        let mut new = restored.clone();
        match then {
            Then::Nothing => {}
            Then::Write(value) => {
                if value != restored.value {
                    new.value = value;
                    effect.entry.push(LedgerEntryChange::Updated(new.entry()));
                }
            }
            Then::Remove => {
                effect.entry.push(LedgerEntryChange::Removed(old.key.clone()));
                effect.ttl = vec![
                    LedgerEntryChange::Restored(first_ttl.ttl()),
                    LedgerEntryChange::Removed(old.ttl_key()),
                ];
                effect.change = Some(Some(Kind::Removed));
                self.slots.remove(hash);
                return effect;
            }
        }
        if let Some(later) = later {
            new.until = later;
            effect.ttl = vec![
                LedgerEntryChange::Restored(first_ttl.ttl()),
                LedgerEntryChange::Updated(new.ttl()),
            ];
        }
        self.slots.insert(*hash, new);
        effect
    }

    /// Restores an archived entry by `RestoreFootprint`. Protocols 20 to 22 change its TTL alone,
    /// later ones name it RESTORED, as metadata does that was `regenerated`.
    pub fn restore_by_hand(
        &mut self,
        hash: &KeyHash,
        ledger: u32,
        until: u32,
        names_restored: bool,
    ) -> Effect {
        let old = self.slots[hash].clone();
        let modified = if old.hot { ledger } else { old.modified };
        let new = Slot { until, until_modified: ledger, hot: false, modified, ..old.clone() };
        self.slots.insert(*hash, new.clone());
        let mut effect = Effect { change: Some(Some(Kind::Restored)), ..Effect::default() };
        if names_restored {
            effect.entry = vec![LedgerEntryChange::Restored(new.entry())];
            effect.ttl = vec![LedgerEntryChange::Restored(new.ttl())];
            effect.names_value = true;
            effect.names_before = !old.hot;
        } else {
            effect.ttl =
                vec![LedgerEntryChange::State(old.ttl()), LedgerEntryChange::Updated(new.ttl())];
        }
        effect
    }
}

/// What follows a restoring in the same transaction.
#[derive(Debug, Clone)]
pub enum Then {
    Nothing,
    Write(Value),
    Remove,
}

fn removed(old: &Slot) -> Effect {
    Effect {
        entry: vec![
            LedgerEntryChange::State(old.entry()),
            LedgerEntryChange::Removed(old.key.clone()),
        ],
        ttl: vec![LedgerEntryChange::State(old.ttl()), LedgerEntryChange::Removed(old.ttl_key())],
        change: Some(Some(Kind::Removed)),
        names_value: true,
        names_before: true,
    }
}

impl Slot {
    /// Whether this is temporary data whose time is over at the end of a ledger.
    fn is_dead(&self, ledger: u32) -> bool {
        is_temporary(&self.key) && (self.hot || self.until < ledger)
    }

    fn at(&self, ledger: u32) -> TrueEntry {
        TrueEntry {
            value: self.value.clone(),
            modified_ledger: self.modified,
            live_until: self.until,
            archived: self.hot || self.until < ledger,
            evicted: self.hot,
        }
    }

    /// Its ledger entry.
    pub fn entry(&self) -> LedgerEntry {
        let data = match (&self.key, &self.value) {
            (LedgerKey::ContractData(key), Value::Data(value)) => {
                LedgerEntryData::ContractData(ContractDataEntry {
                    ext: ExtensionPoint::V0,
                    contract: key.contract.clone(),
                    key: key.key.clone(),
                    durability: key.durability,
                    val: value.clone(),
                })
            }
            (LedgerKey::ContractCode(key), _) => {
                let codes = keys::codes();
                let code = codes.iter().find(|code| keys::code_key(code) == self.key).unwrap();
                LedgerEntryData::ContractCode(ContractCodeEntry {
                    hash: key.hash.clone(),
                    code: code.as_slice().try_into().unwrap(),
                    ..Default::default()
                })
            }
            other => unreachable!("{other:?}"),
        };
        LedgerEntry { last_modified_ledger_seq: self.modified, data, ..Default::default() }
    }

    /// The entry of its TTL.
    pub fn ttl(&self) -> LedgerEntry {
        let data = LedgerEntryData::Ttl(TtlEntry {
            key_hash: Hash(key_hash(&self.key)),
            live_until_ledger_seq: self.until,
        });
        LedgerEntry { last_modified_ledger_seq: self.until_modified, data, ..Default::default() }
    }

    /// The key of its TTL.
    pub fn ttl_key(&self) -> LedgerKey {
        LedgerKey::Ttl(LedgerKeyTtl { key_hash: Hash(key_hash(&self.key)) })
    }
}

/// The value of contract data.
pub fn data(value: ScVal) -> Value {
    Value::Data(value)
}
