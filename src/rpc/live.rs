//! Networks that are reachable from this process, and `sendTransaction`, which one in process answers.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stellar_xdr::{
    LedgerKey, Limits, ReadXdr, TransactionEnvelope, TransactionV1Envelope, WriteXdr,
};

use super::params::XdrFormat;
use super::{CallLimits, Method, Outcome, Params, Rpc, RpcError, result};
use orrery_ledger::domain::{AuthMode, LedgerSeq, LiveEntries, LiveState, Simulation, Submission};

/// Maximum size of a transaction in bytes.
const LARGEST_TRANSACTION: usize = 1_000_000;
/// Maximum nesting depth of XDR in requests. The ledger that holds a transaction nests some levels
/// more, and is read with a limit of 500.
const MAX_XDR_DEPTH: u32 = 400;

/// Methods of this module.
pub(super) const METHODS: &[(&str, Method)] = &[("sendTransaction", Rpc::send_transaction)];

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
    xdr_format: Option<String>,
}

impl Rpc {
    pub(super) fn live(&self) -> Result<&Arc<dyn LiveNetwork>, RpcError> {
        self.live.as_ref().ok_or_else(|| RpcError::internal("no network is at hand"))
    }

    pub(super) fn send_transaction(&self, params: Params<'_>, _: CallLimits<'_>) -> Outcome {
        let (envelope, format) = read_transaction(params)?;
        let submitted = self.live()?.send(envelope).map_err(RpcError::internal)?;
        submission_response(&submitted, format)
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

/// Adds values like [`put`].
pub(super) fn put_all<T: WriteXdr + Serialize>(
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
