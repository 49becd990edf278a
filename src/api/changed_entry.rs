//! A ledger entry, or the key of one, as JSON: values of contracts typed, of other entries the facts
//! that people look for.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Value as Json, json};
use stellar_xdr::{
    AccountEntry, Asset, ContractDataDurability, LedgerEntry, LedgerEntryData, LedgerKey,
    LedgerKeyContractData, Limits, ReadXdr, ScVal, TrustLineAsset, TrustLineEntry, TrustLineFlags,
};

use orrery_interfaces::Typed;
use orrery_ledger::decode::{DEEPEST, EntryKey, EntryKind};
use orrery_ledger::domain::asset_text;

/// Limits for decoding entries: the depth that stored values may have, with some levels around it, and
/// 16 MiB.
const LIMITS: Limits = Limits { depth: DEEPEST + 20, len: 16 << 20 };
/// Stack for decoding and writing values of that depth, in bytes.
const STACK: usize = 32 << 20;

/// Runs `work` with a stack on which entries of any depth are decoded.
pub(super) fn with_stack<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(STACK / 2, STACK, work)
}

/// Returns the name of a kind of entry.
pub(super) fn kind_name(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Account => "account",
        EntryKind::Trustline => "trustline",
        EntryKind::ContractData => "contract_data",
        EntryKind::ContractCode => "contract_code",
        EntryKind::Ttl => "ttl",
    }
}

/// An entry, or the key of one.
pub(super) enum Entry {
    Key(Box<LedgerKey>),
    Whole(Box<LedgerEntryData>),
    /// XDR that the crate cannot decode, although it has been walked before.
    Opaque(Vec<u8>),
}

/// What is shown of an entry or key.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Shown<'a> {
    Value(Typed<'a>),
    Facts(Json),
}

impl Entry {
    /// Decodes the key of an entry.
    pub(super) fn of_key(key: &EntryKey<'_>) -> Self {
        let xdr = key.to_ledger_key();
        match LedgerKey::from_xdr(&xdr, LIMITS) {
            Ok(key) => Self::Key(Box::new(key)),
            Err(_) => Self::Opaque(xdr),
        }
    }

    /// Decodes an XDR `LedgerEntry`.
    pub(super) fn of_entry(xdr: &[u8]) -> Self {
        match LedgerEntry::from_xdr(xdr, LIMITS) {
            Ok(entry) => Self::Whole(Box::new(entry.data)),
            Err(_) => Self::Opaque(xdr.to_vec()),
        }
    }

    fn data_key(&self) -> Option<&LedgerKeyContractData> {
        match self {
            Self::Key(key) => match &**key {
                LedgerKey::ContractData(key) => Some(key),
                _ => None,
            },
            Self::Whole(_) | Self::Opaque(_) => None,
        }
    }

    /// Returns the contract to which the key of contract data belongs.
    pub(super) fn contract(&self) -> Option<String> {
        self.data_key().map(|key| key.contract.to_string())
    }

    /// Returns the durability in the key of contract data.
    pub(super) fn durability(&self) -> Option<&'static str> {
        self.data_key().map(|key| match key.durability {
            ContractDataDurability::Temporary => "temporary",
            ContractDataDurability::Persistent => "persistent",
        })
    }

    /// Returns what is shown.
    pub(super) fn shown(&self) -> Shown<'_> {
        match self {
            Self::Key(key) => of_key(key),
            Self::Whole(entry) => of_entry(entry),
            Self::Opaque(xdr) => Shown::Facts(json!({ "xdr": STANDARD.encode(xdr) })),
        }
    }
}

fn value(value: &ScVal) -> Shown<'_> {
    Shown::Value(Typed(value))
}

fn of_key(key: &LedgerKey) -> Shown<'_> {
    Shown::Facts(match key {
        LedgerKey::ContractData(key) => return value(&key.key),
        LedgerKey::Account(key) => json!({ "account": key.account_id.to_string() }),
        LedgerKey::Trustline(key) => {
            json!({ "account": key.account_id.to_string(), "asset": asset(&key.asset) })
        }
        LedgerKey::ContractCode(key) => json!({ "hash": key.hash.to_string() }),
        LedgerKey::Ttl(key) => json!({ "key_hash": key.key_hash.to_string() }),
        _ => json!({}),
    })
}

fn of_entry(entry: &LedgerEntryData) -> Shown<'_> {
    Shown::Facts(match entry {
        LedgerEntryData::ContractData(data) => return value(&data.val),
        LedgerEntryData::Account(account) => of_account(account),
        LedgerEntryData::Trustline(line) => of_trustline(line),
        LedgerEntryData::ContractCode(code) => {
            json!({ "hash": code.hash.to_string(), "bytes": code.code.len() })
        }
        LedgerEntryData::Ttl(ttl) => json!({ "live_until": ttl.live_until_ledger_seq }),
        _ => json!({}),
    })
}

/// Amounts have seven decimals. They are texts, because they may be larger than what JSON readers keep
/// exactly.
fn of_account(account: &AccountEntry) -> Json {
    json!({
        "account": account.account_id.to_string(),
        "balance": account.balance.to_string(),
        "sequence": account.seq_num.0.to_string(),
        "subentries": account.num_sub_entries,
    })
}

fn of_trustline(line: &TrustLineEntry) -> Json {
    json!({
        "account": line.account_id.to_string(),
        "asset": asset(&line.asset),
        "balance": line.balance.to_string(),
        "limit": line.limit.to_string(),
        "authorized": line.flags & TrustLineFlags::AuthorizedFlag as u32 != 0,
    })
}

/// Returns an asset as `code:issuer` or `native`, and the share of a pool as `pool:` and its id.
fn asset(asset: &TrustLineAsset) -> String {
    match asset {
        TrustLineAsset::Native => asset_text(&Asset::Native),
        TrustLineAsset::CreditAlphanum4(asset) => {
            asset_text(&Asset::CreditAlphanum4(asset.clone()))
        }
        TrustLineAsset::CreditAlphanum12(asset) => {
            asset_text(&Asset::CreditAlphanum12(asset.clone()))
        }
        TrustLineAsset::PoolShare(pool) => format!("pool:{}", pool.0),
    }
}
