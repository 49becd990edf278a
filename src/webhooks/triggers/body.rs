//! Bodies of deliveries that are not about events. `schema/webhook-delivery.schema.json` describes them.

use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::trigger::Trigger;
use orrery_executables::{CallArgs, CallError};
use orrery_interfaces::Difference;
use orrery_ledger::domain::{CloseTime, ContractId, Hash32, LedgerSeq};

/// Where something happened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scene {
    /// The contract; `None` where it is about several.
    pub contract: Option<ContractId>,
    /// The ledger.
    pub ledger: LedgerSeq,
    /// When it closed.
    pub closed_at: Option<CloseTime>,
    /// The transaction: its application order and hash.
    pub transaction: Option<(u32, Hash32)>,
}

#[derive(Serialize)]
struct Body<T> {
    trigger: Members<T>,
    tx_hash: Option<Hash32>,
}

#[derive(Serialize)]
struct Members<T> {
    on: &'static str,
    contract_id: Option<String>,
    ledger: LedgerSeq,
    ledger_closed_at: Option<String>,
    application_order: Option<u32>,
    #[serde(flatten)]
    of_kind: T,
}

/// Members of `upgrade`.
#[derive(Debug, Serialize)]
pub(super) struct Upgraded<'a> {
    /// What the contract ran; `None` when that is not known.
    pub old: Option<Runs>,
    /// What it runs.
    pub new: Option<Runs>,
    /// What its interface declares otherwise; `None` when one of both is not known.
    pub interface: Option<&'a Difference>,
    /// Whether more of it is about to be known.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub names_pending: bool,
}

/// What a contract runs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Runs {
    /// The module with this hash.
    Wasm(Hash32),
    /// The contract of an asset.
    StellarAsset(bool),
}

/// Members of `storage`.
#[derive(Debug, Serialize)]
pub(super) struct DataChanged {
    pub key_hash: Hash32,
    pub key: Box<RawValue>,
    pub key_name: Option<String>,
    pub key_args: Option<Vec<Box<RawValue>>>,
    pub durability: &'static str,
    pub change: &'static str,
    pub value: Option<Box<RawValue>>,
    pub previous: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub names_pending: bool,
}

/// Members of `ttl`.
#[derive(Debug, Serialize)]
pub(super) struct Expiring {
    pub key_hash: Hash32,
    pub key: Option<Box<RawValue>>,
    pub entry: &'static str,
    pub live_until: LedgerSeq,
    pub ledgers_left: u32,
}

/// Members of `failed_call`.
#[derive(Serialize)]
pub(super) struct FailedCall<'a> {
    pub function: String,
    pub args: CallArgs<'a>,
    pub error: Option<CallError>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub names_pending: bool,
}

/// Members of `silence`.
#[derive(Debug, Serialize)]
pub(super) struct Silent {
    /// The ledger of the last event, or after which the counting began.
    pub since_ledger: LedgerSeq,
}

/// Returns a body.
///
/// # Errors
/// When a value cannot be written as JSON.
pub(super) fn body(
    trigger: &Trigger,
    scene: &Scene,
    of_kind: impl Serialize,
) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&Body {
        trigger: Members {
            on: trigger.name(),
            contract_id: scene.contract.map(|contract| contract.to_string()),
            ledger: scene.ledger,
            ledger_closed_at: scene.closed_at.map(|time| time.to_string()),
            application_order: scene.transaction.map(|(order, _)| order),
            of_kind,
        },
        tx_hash: scene.transaction.map(|(_, hash)| hash),
    })
}

/// Returns the body of a test delivery: something invented of the subscription's contract, in the newest
/// ledger.
pub(crate) fn of_test(
    trigger: &Trigger,
    contract: Option<&ContractId>,
    ledger: u32,
    closed_at: &str,
) -> Vec<u8> {
    let hash = "0".repeat(64);
    let mut members = json!({
        "on": trigger.name(),
        "contract_id": contract.map(ToString::to_string),
        "ledger": ledger,
        "ledger_closed_at": closed_at,
        "application_order": null,
    });
    let of_kind = match trigger {
        Trigger::Event => json!({}),
        Trigger::Upgrade => json!({ "old": null, "new": { "wasm": &hash }, "interface": null }),
        Trigger::Storage { .. } => json!({
            "key_hash": &hash, "key": "test", "key_name": "test", "key_args": [],
            "durability": "persistent", "change": "updated", "value": "test", "previous": null,
        }),
        Trigger::Ttl { within, .. } => json!({
            "key_hash": &hash, "key": "instance", "entry": "instance",
            "live_until": ledger.saturating_add(within - 1), "ledgers_left": within - 1,
        }),
        Trigger::FailedCall { functions } => json!({
            "function": functions.first().map_or("test", String::as_str), "args": [], "error": null,
        }),
        Trigger::Silence { within } => json!({ "since_ledger": ledger.saturating_sub(*within) }),
    };
    if let (Some(members), serde_json::Value::Object(more)) = (members.as_object_mut(), of_kind) {
        members.extend(more);
    }
    let of_transaction = trigger.is_of_transactions();
    let body = json!({
        "trigger": members,
        "tx_hash": of_transaction.then_some(hash),
        "test": true,
    });
    body.to_string().into_bytes()
}
