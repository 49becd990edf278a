//! `/rest/passkey-indexer`: looks up passkey wallets by credential and by address, returns one
//! wallet, and returns totals. Responses have the form that passkey-kit's indexer client expects.

use serde::Serialize;
use serde_json::{Map, Value, json};
use stellar_strkey::ed25519;
use stellar_xdr::{ContractDataDurability, ScAddress};

use super::{
    Accounts, Entries, EntryRecord, Extent, IndexView, address, contract, credential,
    error_response,
};
use crate::accounts::evictions::{self, Entry};
use crate::accounts::passkey::CONSUMER;
use crate::accounts::passkey::event::{
    Expiration, Generation, Key, Kind, LONGEST_CREDENTIAL, Limits, Storage,
};
use crate::accounts::passkey::lookup::{self, ListedSigner, Stats, Summary};
use crate::api::access::Access;
use crate::api::answer::Answer;
use crate::api::call::CurrentCall;
use crate::api::cors::AllowedHeaders;
use crate::api::route::{CurrentHandler, Route, Work};
use crate::api::{ApiError, Deps};
use crate::domain::ContractId;

const fn indexed(template: &'static str, handler: CurrentHandler) -> Route {
    served(template, Work::current_cached(Access::Public, &[CONSUMER], handler))
}

const fn served(template: &'static str, work: Work) -> Route {
    let route = super::route(template, work, AllowedHeaders::Any);
    Route { failure: |error| error_response(error, "Internal error"), ..route }
}

/// Routes of this area.
pub(in crate::api) static ROUTES: [Route; 5] = [
    served("/rest/passkey-indexer", Work::memory(Access::Public, health)),
    indexed("/rest/passkey-indexer/api/lookup/{credential_id}", by_credential),
    indexed("/rest/passkey-indexer/api/lookup/address/{address}", by_address),
    served(
        "/rest/passkey-indexer/api/wallet/{contract_id}",
        Work::current(Access::Public, &[CONSUMER, evictions::CONSUMER], detail),
    ),
    indexed("/rest/passkey-indexer/api/stats", stats),
];

/// Catch-all for other paths under the prefix.
pub(in crate::api) static CATCH_ALL: [Route; 1] =
    [served("/rest/passkey-indexer/{*rest}", Work::memory(Access::Public, super::not_found))];

fn health(_: &Deps) -> Result<Answer, ApiError> {
    Ok(Answer::json(br#"{"status":"ok","service":"passkey-indexer"}"#.to_vec()))
}

#[derive(Serialize)]
struct SummaryRecord {
    contract_id: String,
    generation: &'static str,
    signer_count: u32,
    first_seen_ledger: u32,
    last_seen_ledger: u32,
}

fn by_credential(deps: &Deps, call: &CurrentCall<'_>) -> Result<Answer, ApiError> {
    let (looked_up, credential) = credential(call.path, 2 * LONGEST_CREDENTIAL)?;
    let index = IndexView::of(deps, call, CONSUMER)?;
    let mut list = Accounts::new(deps, "credentialId", &looked_up, "wallets");
    lookup::by_credential(&index.rows, &credential, |contract, summary| {
        push(&mut list, &index, &contract, summary)
    })?;
    Ok(list.finish(&index))
}

fn by_address(deps: &Deps, call: &CurrentCall<'_>) -> Result<Answer, ApiError> {
    let (looked_up, address) = address(call.path)?;
    if !matches!(address, ScAddress::Account(_) | ScAddress::Contract(_)) {
        return Err(ApiError::InvalidValue("Invalid address"));
    }
    let index = IndexView::of(deps, call, CONSUMER)?;
    let mut list = Accounts::new(deps, "signerAddress", &looked_up, "wallets");
    lookup::by_address(&index.rows, &address, |contract, summary| {
        push(&mut list, &index, &contract, summary)
    })?;
    Ok(list.finish(&index))
}

fn push(
    list: &mut Accounts,
    index: &IndexView<'_>,
    contract: &ContractId,
    summary: Summary,
) -> bool {
    let Summary { generation, signers, first_seen, last_seen } = summary;
    let record = SummaryRecord {
        contract_id: contract.to_string(),
        generation: generation.name(),
        signer_count: signers,
        first_seen_ledger: first_seen,
        last_seen_ledger: last_seen,
    };
    list.push(&record, index.is_complete_for(contract, first_seen))
}

#[derive(Serialize)]
struct Detail {
    #[serde(rename = "contractId")]
    contract_id: String,
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
            seconds: deps.settings.fixed_clock.unwrap_or_else(|| (deps.clock)()),
            ledger: deps.settings.fixed_network_ledger.unwrap_or(newest.0),
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

fn detail(deps: &Deps, call: &CurrentCall<'_>) -> Result<Answer, ApiError> {
    const NOT_THERE: ApiError = ApiError::NotFound("Wallet not found");
    let contract = contract(call.path).ok_or(NOT_THERE)?;
    let index = IndexView::of(deps, call, CONSUMER)?;
    let wallet = lookup::wallet(&index.rows, &contract)?.ok_or(NOT_THERE)?;
    let now = Now::of(deps, &index);
    let entries = Entries::of(deps, &contract)?;
    let most = call.allowance.limits.index_rows;
    let (signers, mut is_all) = lookup::signers(&index.rows, &contract, most)?;
    let (mut records, mut bytes) = (Vec::with_capacity(signers.len()), 0);
    for signer in signers {
        bytes += signer_bytes(&signer);
        if call.allowance.may_continue(bytes).is_break() {
            is_all = false;
            break;
        }
        let entry = entries.signer(&contract, &signer);
        records.push(signer_record(signer, wallet.generation, now, entry));
    }
    let is_complete = is_all && index.is_complete_for(&contract, wallet.first_seen);
    let answer = Answer::of(&Detail {
        contract_id: contract.to_string(),
        generation: wallet.generation.name(),
        first_seen_ledger: wallet.first_seen,
        last_seen_ledger: wallet.last_seen,
        signers: records,
        instance: entries.instance(&contract),
        extent: index.extent(is_complete),
    });
    Ok(Answer { is_complete: is_all, ..answer })
}

impl Entries {
    /// Returns the status of a signer's entry since its last write; `None` for a removed signer.
    fn signer(&self, contract: &ContractId, signer: &ListedSigner) -> Option<EntryRecord> {
        if self.0.is_empty() || signer.is_removed {
            return None;
        }
        let durability = match signer.signer.storage {
            Storage::Persistent => ContractDataDurability::Persistent,
            Storage::Temporary => ContractDataDurability::Temporary,
        };
        let entry = Entry::data(contract, signer.key.to_value()?, durability);
        self.record(entry, signer.last_put)
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

#[derive(Serialize)]
struct StatsAnswer {
    stats: StatsRecord,
    #[serde(flatten)]
    extent: Extent,
}

#[derive(Serialize)]
struct StatsRecord {
    total_events: u64,
    unique_contracts: u64,
    unique_credentials: u64,
    total_signers: u64,
    active_signers: u64,
    first_ledger: Option<u64>,
    last_ledger: Option<u64>,
    #[serde(rename = "eventTypes")]
    event_types: Vec<KindRecord>,
}

#[derive(Serialize)]
struct KindRecord {
    generation: &'static str,
    event_type: &'static str,
    count: u64,
}

fn stats(deps: &Deps, call: &CurrentCall<'_>) -> Result<Answer, ApiError> {
    let index = IndexView::of(deps, call, CONSUMER)?;
    let stats = Stats::read(&index.rows)?;
    let kinds = Kind::ALL.iter().zip(stats.kinds).filter(|(_, count)| *count > 0);
    let record = |(kind, count): (&Kind, u64)| KindRecord {
        generation: kind.generation().name(),
        event_type: kind.name(),
        count,
    };
    Ok(Answer::of(&StatsAnswer {
        stats: StatsRecord {
            total_events: stats.events,
            unique_contracts: stats.wallets,
            unique_credentials: stats.credentials,
            total_signers: stats.signers,
            active_signers: stats.active,
            first_ledger: Some(stats.first_ledger).filter(|ledger| *ledger > 0),
            last_ledger: Some(stats.last_ledger).filter(|ledger| *ledger > 0),
            event_types: kinds.map(record).collect(),
        },
        extent: index.extent(index.is_complete_since_oldest()),
    }))
}
