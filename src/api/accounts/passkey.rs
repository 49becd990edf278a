//! `/rest/passkey-indexer`: looks up passkey wallets by credential and by address, returns one
//! wallet, and returns totals. Responses have the form that passkey-kit's indexer client expects.

use std::ops::ControlFlow;

use serde::Serialize;
use serde_json::{Map, Value, json};
use stellar_strkey::ed25519;
use stellar_xdr::{ContractDataDurability, ScAddress};

use super::routes::{ServedIndex, routes};
use super::{Accounts, Entries, EntryRecord, Extent, IndexView, contract};
use crate::answer::Answer;
use crate::call::CurrentCall;
use crate::cors::AllowedHeaders;
use crate::route::Route;
use crate::{ApiError, Deps};
use orrery_accounts::evictions::Entry;
use orrery_accounts::passkey::event::{
    Expiration, Generation, Key, LONGEST_CREDENTIAL, Limits, Storage,
};
use orrery_accounts::passkey::lookup::{self, ListedSigner};
use orrery_accounts::passkey::{PasskeyWallets, Summary};
use orrery_accounts::{AccountIndex, Position};
use orrery_ledger::domain::ContractId;

/// Routes of this area.
pub(crate) static ROUTES: [Route; 6] = routes::<PasskeyWallets>([
    "/rest/passkey-indexer",
    "/rest/passkey-indexer/api/lookup/{credential_id}",
    "/rest/passkey-indexer/api/lookup/address/{address}",
    "/rest/passkey-indexer/api/wallet/{contract_id}",
    "/rest/passkey-indexer/api/stats",
    "/rest/passkey-indexer/{*rest}",
]);

impl ServedIndex for PasskeyWallets {
    const NAME: &'static str = "passkey-indexer";
    const FAILURE: &'static str = "Internal error";
    const ALLOWED_HEADERS: AllowedHeaders = AllowedHeaders::Any;
    const MAX_DIGITS: usize = 2 * LONGEST_CREDENTIAL;
    const LIST: &'static str = "wallets";
    const NO_LEDGER: Option<u64> = None;
    /// Signers expire.
    const IS_DETAIL_CACHED: bool = false;

    fn accepts(address: &ScAddress) -> bool {
        matches!(address, ScAddress::Account(_) | ScAddress::Contract(_))
    }

    fn push(
        list: &mut Accounts,
        index: &IndexView<'_>,
        position: Position,
        contract: &ContractId,
        summary: &Summary,
    ) -> ControlFlow<()> {
        let Summary { generation, signers, first_seen, last_seen } = *summary;
        let record = SummaryRecord {
            contract_id: *contract,
            generation: generation.name(),
            signer_count: signers,
            first_seen_ledger: first_seen,
            last_seen_ledger: last_seen,
        };
        list.push(position, &record, index.is_complete_for(contract, first_seen))
    }

    fn detail(deps: &Deps, call: &CurrentCall<'_>) -> Result<Answer, ApiError> {
        const NOT_THERE: ApiError = ApiError::NotFound("Wallet not found");
        let contract = contract(call.path).ok_or(NOT_THERE)?;
        let index = IndexView::of::<Self>(deps, call)?;
        let wallet = match Self::summary(&index.rows, &contract)? {
            Some(wallet) => wallet,
            None if index.lacks_older => {
                let reason = "events of older ledgers arrived, and are not indexed yet";
                return Err(ApiError::NotReady(reason.to_owned()));
            }
            None => return Err(NOT_THERE),
        };
        let now = Now::of(deps, &index);
        let entries = Entries::of(deps, call, &contract)?;
        let (mut records, mut bytes, mut failed) = (Vec::new(), 0, None);
        let mut is_all = true;
        lookup::signers(&index.rows, &contract, |signer| {
            bytes += signer_bytes(&signer);
            is_all = call.allowance.may_continue(bytes).is_continue();
            if !is_all {
                return ControlFlow::Break(());
            }
            match entries.signer(&signer) {
                Ok(entry) => records.push(signer_record(signer, wallet.generation, now, entry)),
                Err(error) => failed = Some(error),
            }
            if failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        failed.map_or(Ok(()), Err)?;
        is_all &= !index.rows.is_cut();
        let is_complete = is_all && index.is_complete_for(&contract, wallet.first_seen);
        let answer = Answer::of(&Detail {
            contract_id: contract,
            generation: wallet.generation.name(),
            first_seen_ledger: wallet.first_seen,
            last_seen_ledger: wallet.last_seen,
            signers: records,
            instance: entries.instance()?,
            extent: index.extent(is_complete),
        });
        Ok(Answer { is_complete: is_all, ..answer })
    }
}

#[derive(Serialize)]
struct SummaryRecord {
    contract_id: ContractId,
    generation: &'static str,
    signer_count: u32,
    first_seen_ledger: u32,
    last_seen_ledger: u32,
}

#[derive(Serialize)]
struct Detail {
    #[serde(rename = "contractId")]
    contract_id: ContractId,
    generation: &'static str,
    first_seen_ledger: u32,
    last_seen_ledger: u32,
    signers: Vec<SignerRecord>,
    #[serde(flatten)]
    instance: Option<EntryRecord>,
    #[serde(flatten)]
    extent: Extent,
}

#[derive(Serialize)]
struct SignerRecord {
    key: Value,
    #[serde(rename = "publicKey", skip_serializing_if = "Option::is_none")]
    public_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expiration: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expiration_unit: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<Value>,
    storage: &'static str,
    status: &'static str,
    #[serde(flatten)]
    entry: Option<EntryRecord>,
}

/// Time of a response, against which expirations of signers are compared.
#[derive(Clone, Copy)]
struct Now {
    /// Current time in UNIX seconds, or the fixed time of the settings.
    seconds: u64,
    /// Newest known ledger of the network, or the fixed one of the settings.
    ledger: u32,
}

impl Now {
    fn of(deps: &Deps, index: &IndexView<'_>) -> Self {
        let stored = index.as_of.unwrap_or_default();
        let newest = deps.health.network_latest().unwrap_or_default().max(stored);
        Self {
            seconds: deps.settings.indexers.clock().unwrap_or_else(|| (deps.clock)()),
            ledger: deps.settings.indexers.network_ledger().unwrap_or(newest.0),
        }
    }

    /// Whether the expiration has passed. A signer is still valid at the moment of its expiration.
    fn is_past(self, expiration: Expiration) -> bool {
        match expiration {
            Expiration::Ledger(last) => self.ledger > last,
            Expiration::Unix(last) => self.seconds > last,
        }
    }
}

impl Entries<'_> {
    /// Returns the status of a signer's entry since its last write; `None` for a removed signer.
    fn signer(&self, signer: &ListedSigner) -> Result<Option<EntryRecord>, ApiError> {
        if signer.is_removed {
            return Ok(None);
        }
        let durability = match signer.signer.storage {
            Storage::Persistent => ContractDataDurability::Persistent,
            Storage::Temporary => ContractDataDurability::Temporary,
        };
        let Some(key) = signer.key.to_value() else { return Ok(None) };
        self.record(Entry::data(self.contract, key, durability), signer.last_put)
    }
}

/// Estimates the size of a signer in the response, in bytes.
fn signer_bytes(ListedSigner { key, signer, .. }: &ListedSigner) -> usize {
    let of_key = |key: &Key| match key {
        Key::Secp256r1(credential) => 2 * credential.len() + 40,
        Key::Ed25519(_) | Key::Policy(_) => 100,
    };
    let limits = signer.limits.iter().flatten();
    let limits: usize =
        limits.map(|(_, keys)| 64 + keys.iter().flatten().map(of_key).sum::<usize>()).sum();
    of_key(key) + 300 + limits
}

fn signer_record(
    ListedSigner { key, signer, is_removed, .. }: ListedSigner,
    generation: Generation,
    now: Now,
    entry: Option<EntryRecord>,
) -> SignerRecord {
    let (expiration, expiration_unit) = match signer.expiration {
        None => (None, None),
        Some(Expiration::Ledger(last)) => (Some(u64::from(last)), Some("ledger")),
        Some(Expiration::Unix(last)) => (Some(last), Some("unix")),
    };
    let status = match signer.expiration {
        _ if is_removed => "removed",
        Some(expiration) if now.is_past(expiration) => "expired",
        _ => "live",
    };
    SignerRecord {
        key: key_record(&key),
        public_key: signer.public_key.map(hex::encode),
        expiration,
        expiration_unit,
        limits: signer.limits.and_then(|limits| limits_record(&limits, generation)),
        storage: signer.storage.name(),
        status,
        entry,
    }
}

/// Returns the limits as JSON, or `None` when the signer is unrestricted. Empty limits mean
/// unrestricted to legacy contracts and forbid everything to v1 contracts, so `generation` is that
/// of the wallet's current code.
fn limits_record(limits: &Limits, generation: Generation) -> Option<Value> {
    if limits.is_empty() && generation == Generation::Legacy {
        return None;
    }
    let member = |(address, keys): &(ScAddress, Option<Vec<Key>>)| {
        let keys = keys.as_ref().map(|keys| keys.iter().map(key_record).collect::<Vec<_>>());
        (address.to_string(), json!(keys))
    };
    Some(Value::Object(limits.iter().map(member).collect::<Map<_, _>>()))
}

fn key_record(key: &Key) -> Value {
    match key {
        Key::Secp256r1(credential) => {
            json!({ "type": "secp256r1", "value": hex::encode(credential) })
        }
        Key::Ed25519(key) => {
            let account = ed25519::PublicKey(*key).to_string();
            json!({ "type": "ed25519", "value": account.as_str() })
        }
        Key::Policy(address) => json!({ "type": "policy", "value": address.to_string() }),
    }
}
