//! Networks that are reachable from this process, and the methods that one in process answers:
//! `sendTransaction` and `simulateTransaction`.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use stellar_xdr::{
    LedgerKey, Limits, OperationBody, ReadXdr, TransactionEnvelope, TransactionV1Envelope, WriteXdr,
};

use super::params::XdrFormat;
use super::{CallLimits, Method, Outcome, Params, Rpc, RpcError, result};
use orrery_ledger::domain::{
    AuthMode, LedgerSeq, LiveEntries, LiveState, Simulation, Submission, excerpt,
};

/// Maximum size of a transaction in bytes.
const LARGEST_TRANSACTION: usize = 1_000_000;
/// Maximum nesting depth of XDR in requests. The ledger that holds a transaction nests some levels
/// more, and is read with a limit of 500.
const MAX_XDR_DEPTH: u32 = 400;

/// Methods of this module.
pub(super) const METHODS: &[(&str, Method)] = &[
    ("sendTransaction", Rpc::send_transaction),
    ("simulateTransaction", Rpc::simulate_transaction),
];

/// A network whose current state is available in process. Errors are sentences.
///
/// Its methods compute, and may block for a while: they run like those that read the store, within the
/// limits of a call. A [`Node`] is waited for instead. Both are traits, so that this crate links neither the
/// sandbox nor the sources.
pub trait LiveNetwork: Send + Sync {
    /// Returns the entries under `keys`.
    ///
    /// # Errors
    /// The reason why the lookup failed.
    fn entries(&self, keys: &[LedgerKey]) -> Result<LiveEntries, String>;

    /// Submits a transaction.
    ///
    /// # Errors
    /// The reason why it could not be submitted.
    fn send(&self, transaction: TransactionEnvelope) -> Result<Submitted, String>;

    /// Simulates a transaction. `leeway` is the minimum margin of instructions to add to the
    /// estimate.
    ///
    /// # Errors
    /// The reason why it could not be simulated.
    fn simulate(
        &self,
        transaction: &TransactionV1Envelope,
        mode: AuthMode,
        leeway: u32,
    ) -> Result<Simulation, String>;
}

/// A node that this process runs and queries over a connection, which its methods wait for. Errors are
/// sentences.
pub trait Node: LiveState {
    /// Like [`LiveNetwork::send`].
    fn send(&self, transaction: TransactionEnvelope) -> BoxFuture<'_, Result<Submitted, String>>;
}

/// Outcome of submitting a transaction.
#[derive(Debug, Clone)]
pub struct Submitted {
    /// Hash of the transaction.
    pub hash: [u8; 32],
    /// Whether the transaction was accepted.
    pub status: Submission,
    /// The newest ledger.
    pub latest_ledger: LedgerSeq,
    /// Close time of the newest ledger, in UNIX seconds.
    pub latest_closed_at: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TransactionParams {
    transaction: Option<String>,
    resource_config: Option<ResourceConfig>,
    auth_mode: Option<String>,
    use_upgraded_auth: Option<bool>,
    xdr_format: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ResourceConfig {
    instruction_leeway: Option<u64>,
}

impl Rpc {
    fn live(&self) -> Result<&Arc<dyn LiveNetwork>, RpcError> {
        self.live.as_ref().ok_or_else(|| RpcError::internal("no network is at hand"))
    }

    pub(super) fn send_transaction(&self, params: Params<'_>, _: CallLimits<'_>) -> Outcome {
        let (envelope, format) = read_transaction(params)?;
        let submitted = self.live()?.send(envelope).map_err(RpcError::internal)?;
        submission_response(&submitted, format)
    }

    pub(super) fn simulate_transaction(&self, params: Params<'_>, _: CallLimits<'_>) -> Outcome {
        let given: TransactionParams = params.read()?;
        let format = format_of(given.xdr_format.as_deref())?;
        let live = self.live()?;
        let envelope: Option<TransactionEnvelope> = given.transaction.as_deref().and_then(read);
        let simulation = match envelope {
            None => Err("Could not unmarshal transaction"),
            Some(TransactionEnvelope::Tx(envelope)) => Ok(envelope),
            Some(_) => {
                Err("Transaction is of an unsupported type: send the inner one, of version 1")
            }
        };
        let simulation = match simulation {
            Ok(envelope) => {
                let upgraded = given.use_upgraded_auth.unwrap_or(false);
                let mode = authorisation(given.auth_mode.as_deref(), &envelope, upgraded)?;
                let leeway =
                    given.resource_config.and_then(|config| config.instruction_leeway).unwrap_or(0);
                let leeway = u32::try_from(leeway).unwrap_or(u32::MAX);
                live.simulate(&envelope, mode, leeway).map_err(RpcError::internal)?
            }
            Err(why) => {
                let latest = live.entries(&[]).map_err(RpcError::internal)?.as_of;
                Simulation::failed(latest, why.to_owned(), Vec::new())
            }
        };
        result(&simulation_response(&simulation, format)?)
    }
}

/// Reads the transaction that a call submits, and the format of the answer.
pub(super) fn read_transaction(
    params: Params<'_>,
) -> Result<(TransactionEnvelope, XdrFormat), RpcError> {
    let given: TransactionParams = params.read()?;
    let format = format_of(given.xdr_format.as_deref())?;
    let envelope = read(&given.transaction.unwrap_or_default()).filter(|envelope| {
        // Version 0 envelopes are the legacy form from before protocol 13.
        !matches!(envelope, TransactionEnvelope::TxV0(_))
    });
    Ok((envelope.ok_or_else(|| RpcError::invalid_params("invalid_xdr"))?, format))
}

/// Builds the answer to a submitted transaction.
pub(super) fn submission_response(submitted: &Submitted, format: XdrFormat) -> Outcome {
    let (status, refused) = match &submitted.status {
        Submission::Pending => ("PENDING", None),
        Submission::Duplicate => ("DUPLICATE", None),
        Submission::TryAgainLater => ("TRY_AGAIN_LATER", None),
        Submission::Invalid { result, events } => ("ERROR", Some((result, events))),
    };
    let mut response = Map::new();
    response.insert("status".into(), status.into());
    response.insert("hash".into(), hex::encode(submitted.hash).into());
    response.insert("latestLedger".into(), submitted.latest_ledger.0.into());
    response.insert("latestLedgerCloseTime".into(), submitted.latest_closed_at.to_string().into());
    if let Some((error, events)) = refused {
        put(&mut response, ("errorResultXdr", "errorResultJson"), error, format)?;
        if !events.is_empty() {
            let names = ("diagnosticEventsXdr", "diagnosticEventsJson");
            put_all(&mut response, names, events, format)?;
        }
    }
    result(&response)
}

fn simulation_response(
    simulation: &Simulation,
    format: XdrFormat,
) -> Result<Map<String, Value>, RpcError> {
    let mut response = Map::new();
    response.insert("latestLedger".into(), simulation.latest_ledger.0.into());
    if let Some(error) = &simulation.error {
        response.insert("error".into(), error.as_str().into());
    }
    if !simulation.events.is_empty() {
        put_all(&mut response, ("events", "eventsJson"), &simulation.events, format)?;
    }
    let Some(data) = &simulation.data else { return Ok(response) };
    response.insert("minResourceFee".into(), data.resource_fee.to_string().into());
    put(&mut response, ("transactionData", "transactionDataJson"), data, format)?;
    if let Some((value, auth)) = &simulation.result {
        let mut one = Map::new();
        put(&mut one, ("xdr", "returnValueJson"), value, format)?;
        put_all(&mut one, ("auth", "authJson"), auth, format)?;
        response.insert("results".into(), json!([one]));
    }
    let mut changes = Vec::new();
    for (before, after) in &simulation.changes {
        let Some(entry) = after.as_ref().or(before.as_ref()) else { continue };
        let kind = match (before, after) {
            (None, _) => "created",
            (Some(_), None) => "deleted",
            (Some(_), Some(_)) => "updated",
        };
        let mut change = Map::new();
        change.insert("type".into(), kind.into());
        put(&mut change, ("key", "keyJson"), &entry.to_key(), format)?;
        for (names, state) in [(("before", "beforeJson"), before), (("after", "afterJson"), after)]
        {
            match state {
                Some(state) => put(&mut change, names, state, format)?,
                None => drop(change.insert(names.0.into(), Value::Null)),
            }
        }
        changes.push(Value::Object(change));
    }
    if !changes.is_empty() {
        response.insert("stateChanges".into(), changes.into());
    }
    Ok(response)
}

/// Returns the requested mode. By default, the authorisations in the transaction are enforced, or
/// recorded if it has none.
fn authorisation(
    requested: Option<&str>,
    envelope: &TransactionV1Envelope,
    upgraded: bool,
) -> Result<AuthMode, RpcError> {
    let has_auth = envelope.tx.operations.iter().any(|operation| {
        matches!(&operation.body, OperationBody::InvokeHostFunction(call) if !call.auth.is_empty())
    });
    Ok(match requested {
        None | Some("") if has_auth => AuthMode::Enforce,
        Some("enforce") => AuthMode::Enforce,
        None | Some("" | "record") => AuthMode::Record { allow_nonroot: false, upgraded },
        Some("record_allow_nonroot") => AuthMode::Record { allow_nonroot: true, upgraded },
        Some(other) => {
            let other = excerpt(other);
            return Err(RpcError::invalid_params(format!(
                "got '{other}': expected enforce, record, record_allow_nonroot for optional 'authMode'"
            )));
        }
    })
}

pub(super) fn format_of(given: Option<&str>) -> Result<XdrFormat, RpcError> {
    XdrFormat::parse(given).map_err(RpcError::invalid_params)
}

/// Decodes a value from the base64 of its XDR.
pub(super) fn read<T: ReadXdr>(base64: &str) -> Option<T> {
    if base64.len() > LARGEST_TRANSACTION * 4 / 3 + 4 {
        return None;
    }
    let xdr = STANDARD.decode(base64).ok()?;
    T::from_xdr(&xdr, Limits { depth: MAX_XDR_DEPTH, len: xdr.len() }).ok()
}

/// Adds a value in the requested format, under one of two names.
pub(super) fn put<T: WriteXdr + Serialize>(
    object: &mut Map<String, Value>,
    (base64, json): (&str, &str),
    value: &T,
    format: XdrFormat,
) -> Result<(), RpcError> {
    let name = if format == XdrFormat::Json { json } else { base64 };
    object.insert(name.to_owned(), encode(value, format)?);
    Ok(())
}

fn put_all<T: WriteXdr + Serialize>(
    object: &mut Map<String, Value>,
    (base64, json): (&str, &str),
    values: &[T],
    format: XdrFormat,
) -> Result<(), RpcError> {
    let name = if format == XdrFormat::Json { json } else { base64 };
    let values = values.iter().map(|value| encode(value, format)).collect::<Result<Vec<_>, _>>()?;
    object.insert(name.to_owned(), values.into());
    Ok(())
}

fn encode<T: WriteXdr + Serialize>(value: &T, format: XdrFormat) -> Result<Value, RpcError> {
    match format {
        XdrFormat::Json => Ok(serde_json::to_value(value)?),
        XdrFormat::Base64 => {
            value.to_xdr_base64(Limits::none()).map(Value::String).map_err(|error| {
                tracing::error!(%error, "a value of the network cannot be written as XDR");
                RpcError::internal("a value of the network cannot be written as XDR")
            })
        }
    }
}
