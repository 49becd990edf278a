//! States that are made at random: the history of a network, of which each bucket is a part.

use std::collections::BTreeMap;

use rand::Rng;
use rand::seq::IteratorRandom;
use rand_chacha::ChaCha8Rng;
use stellar_xdr::{
    AccountEntry, AccountEntryExt, AccountId, BucketEntry, ConfigSettingEntry, ContractCodeEntry,
    ContractCodeEntryExt, ContractDataDurability, ContractDataEntry, ContractId, ExtensionPoint,
    Hash, HotArchiveBucketEntry, LedgerEntry, LedgerEntryData, LedgerEntryExt, LedgerKey,
    LedgerKeyTtl, PublicKey, ScAddress, ScNonceKey, ScVal, SequenceNumber, Thresholds, TtlEntry,
    Uint256,
};

use super::naive::key_hash;
use super::{BUCKETS, RawState, hot_bucket, live_bucket};
use crate::random_values::{Template, value};
use crate::values::{list, symbol};

/// Contracts of a made state.
pub const CONTRACTS: u8 = 5;

/// A network whose entries change at random.
struct Network<'a> {
    random: &'a mut ChaCha8Rng,
    protocol: u32,
    /// Entries that are live, and those that were evicted.
    live: BTreeMap<LedgerKey, LedgerEntry>,
    evicted: BTreeMap<LedgerKey, LedgerEntry>,
    ledger: u32,
}

/// Changes that one bucket of each list holds.
#[derive(Default)]
struct Changes {
    live: BTreeMap<LedgerKey, BucketEntry>,
    hot: BTreeMap<LedgerKey, HotArchiveBucketEntry>,
}

/// The id of a contract of made states.
pub fn contract(number: u8) -> [u8; 32] {
    [number.wrapping_mul(37); 32]
}

/// Makes a state with up to `most` changes in each bucket. Some buckets are empty.
pub fn state(random: &mut ChaCha8Rng, protocol: u32, most: u32) -> RawState {
    let ledger = 64 * random.random_range(10..1000_u32) - 1;
    let mut raw = RawState::empty(ledger, protocol);
    let (live, evicted) = (BTreeMap::new(), BTreeMap::new());
    let mut network = Network { random, protocol, live, evicted, ledger: 3 };
    for age in (0..BUCKETS).rev() {
        let count = if network.random.random_bool(0.15) {
            0
        } else {
            network.random.random_range(0..=most)
        };
        let mut changes = Changes::default();
        for _ in 0..count {
            network.ledger += 1;
            network.change(&mut changes);
        }
        raw.live[age] = live_bucket(protocol, changes.live.into_values());
        if let Some(hot) = &mut raw.hot_archive {
            hot[age] = hot_bucket(protocol, changes.hot.into_values());
        }
    }
    raw
}

impl Network<'_> {
    /// Changes one entry whose key no other change of the same bucket has.
    fn change(&mut self, changes: &mut Changes) {
        let is_free =
            |key: &LedgerKey| !changes.live.contains_key(key) && !changes.hot.contains_key(key);
        let kind = self.random.random_range(0..10);
        let old = self.live.keys().filter(|key| is_free(key) && !matches!(key, LedgerKey::Ttl(_)));
        let old = old.choose(self.random).cloned();
        match (kind, old) {
            (0..=3, _) | (_, None) => {
                let entry = self.new_entry();
                if is_free(&entry.to_key()) && !self.evicted.contains_key(&entry.to_key()) {
                    self.write(entry, changes);
                }
            }
            (4 | 5, Some(key)) => {
                let mut entry = self.live[&key].clone();
                entry.last_modified_ledger_seq = self.ledger;
                if let LedgerEntryData::ContractData(data) = &mut entry.data {
                    data.val = value(self.random, &Template::Text);
                }
                self.write(entry, changes);
            }
            (6, Some(key)) => self.remove(&key, changes),
            (7, Some(key)) => {
                // A lifetime alone.
                if has_lifetime(&key) {
                    self.extend(&key, changes);
                }
            }
            (8, Some(key)) if self.protocol >= 23 && is_persistent(&key) => {
                let entry = self.live[&key].clone();
                self.remove(&key, changes);
                changes.hot.insert(key.clone(), HotArchiveBucketEntry::Archived(entry.clone()));
                self.evicted.insert(key, entry);
            }
            _ => {
                let evicted = self.evicted.keys().filter(|key| is_free(key));
                let Some(key) = evicted.choose(self.random).cloned() else { return };
                let mut entry = self.evicted.remove(&key).unwrap();
                entry.last_modified_ledger_seq = self.ledger;
                changes.hot.insert(key.clone(), HotArchiveBucketEntry::Live(key));
                self.write(entry, changes);
            }
        }
    }

    /// Writes an entry, mostly with its lifetime.
    fn write(&mut self, entry: LedgerEntry, changes: &mut Changes) {
        let key = entry.to_key();
        let existed = self.live.insert(key.clone(), entry.clone()).is_some();
        // Where an older bucket would not name it, the newest record may be of either kind.
        let record = if !existed && self.random.random_bool(0.8) {
            BucketEntry::Initentry(entry)
        } else {
            BucketEntry::Liveentry(entry)
        };
        changes.live.insert(key.clone(), record);
        if has_lifetime(&key) && (!existed || self.random.random_bool(0.3)) {
            self.extend(&key, changes);
        }
    }

    fn extend(&mut self, key: &LedgerKey, changes: &mut Changes) {
        let live_until_ledger_seq = self.ledger + self.random.random_range(0..100_000);
        let key_hash = Hash(key_hash(key));
        let data = LedgerEntryData::Ttl(TtlEntry { key_hash, live_until_ledger_seq });
        let entry = self.entry(data);
        self.live.insert(entry.to_key(), entry.clone());
        changes.live.insert(entry.to_key(), BucketEntry::Liveentry(entry));
    }

    fn remove(&mut self, key: &LedgerKey, changes: &mut Changes) {
        let ttl = LedgerKey::Ttl(LedgerKeyTtl { key_hash: Hash(key_hash(key)) });
        for key in [key, &ttl] {
            if self.live.remove(key).is_some() {
                changes.live.insert(key.clone(), BucketEntry::Deadentry(key.clone()));
            }
        }
    }

    fn entry(&self, data: LedgerEntryData) -> LedgerEntry {
        LedgerEntry { last_modified_ledger_seq: self.ledger, data, ext: LedgerEntryExt::V0 }
    }

    fn new_entry(&mut self) -> LedgerEntry {
        let data = match self.random.random_range(0..12) {
            0 => LedgerEntryData::ContractCode(ContractCodeEntry {
                ext: ContractCodeEntryExt::V0,
                hash: Hash(self.random.random()),
                code: vec![7; self.random.random_range(0..40)].try_into().unwrap(),
            }),
            1 => LedgerEntryData::ConfigSetting(match self.random.random_range(0..3) {
                0 => ConfigSettingEntry::ContractMaxSizeBytes(self.random.random()),
                1 => ConfigSettingEntry::ContractDataKeySizeBytes(self.random.random()),
                _ => ConfigSettingEntry::ContractDataEntrySizeBytes(self.random.random()),
            }),
            2 => LedgerEntryData::Account(account(self.random.random())),
            3 => {
                // The nonce of an account or of a contract.
                let of_account = self.random.random();
                let key = ScVal::LedgerKeyNonce(ScNonceKey { nonce: self.random.random() });
                let owner = if of_account {
                    ScAddress::Account(account_id(self.random.random()))
                } else {
                    self.contract()
                };
                data(owner, key, ContractDataDurability::Temporary, ScVal::Void)
            }
            4 => {
                let (key, durability) =
                    (ScVal::LedgerKeyContractInstance, ContractDataDurability::Persistent);
                data(self.contract(), key, durability, value(self.random, &Template::Text))
            }
            _ => {
                let name =
                    ["Balance", "Position", "Price"].into_iter().choose(self.random).unwrap();
                let number = ScVal::U32(self.random.random_range(0..500));
                let durability = if self.random.random_bool(0.3) {
                    ContractDataDurability::Temporary
                } else {
                    ContractDataDurability::Persistent
                };
                let val = value(self.random, &Template::List(Box::new(Template::Text)));
                data(self.contract(), list([symbol(name), number]), durability, val)
            }
        };
        self.entry(data)
    }

    fn contract(&mut self) -> ScAddress {
        let number = self.random.random_range(0..CONTRACTS);
        ScAddress::Contract(ContractId(Hash(contract(number))))
    }
}

/// An entry of contract data.
pub fn data(
    contract: ScAddress,
    key: ScVal,
    durability: ContractDataDurability,
    val: ScVal,
) -> LedgerEntryData {
    let ext = ExtensionPoint::V0;
    LedgerEntryData::ContractData(ContractDataEntry { ext, contract, key, durability, val })
}

fn has_lifetime(key: &LedgerKey) -> bool {
    matches!(key, LedgerKey::ContractData(_) | LedgerKey::ContractCode(_))
}

fn is_persistent(key: &LedgerKey) -> bool {
    match key {
        LedgerKey::ContractData(data) => data.durability == ContractDataDurability::Persistent,
        LedgerKey::ContractCode(_) => true,
        _ => false,
    }
}

fn account_id(key: [u8; 32]) -> AccountId {
    AccountId(PublicKey::PublicKeyTypeEd25519(Uint256(key)))
}

fn account(key: [u8; 32]) -> AccountEntry {
    AccountEntry {
        account_id: account_id(key),
        balance: 1,
        seq_num: SequenceNumber(1),
        num_sub_entries: 0,
        inflation_dest: None,
        flags: 0,
        home_domain: Default::default(),
        thresholds: Thresholds([1, 0, 0, 0]),
        signers: Default::default(),
        ext: AccountEntryExt::V0,
    }
}
