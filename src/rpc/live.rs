//! Methods about the present state of the ledger, where a network is at hand that can be asked without a connection:
//! `getLedgerEntries`, `sendTransaction` and `simulateTransaction`.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use stellar_xdr::{
    DiagnosticEvent, LedgerEntry, LedgerKey, Limits, OperationBody, ReadXdr, ScVal,
    SorobanAuthorizationEntry, SorobanTransactionData, TransactionEnvelope, TransactionResult,
    TransactionV1Envelope, WriteXdr,
};

use super::params::XdrFormat;
use super::{Allowed, Method, Outcome, Params, Rpc, RpcError, result};
use crate::domain::excerpt;

/// Keys of one call.
const MOST_KEYS: usize = 200;
/// Bytes of a transaction.
const LARGEST_TRANSACTION: usize = 1_000_000;
/// Deepest nesting of what is given. The ledger that holds a transaction nests some levels more, and is read with 500.
const DEEPEST: u32 = 400;

/// The methods.
pub(super) const METHODS: &[(&str, Method)] = &[
    ("getLedgerEntries", Rpc::get_ledger_entries),
    ("sendTransaction", Rpc::send_transaction),
    ("simulateTransaction", Rpc::simulate_transaction),
];

/// The ledger after which entries were looked up, and what was under each key.
pub type FoundEntries = (u32, Vec<Option<LiveEntry>>);

/// A network whose present state is at hand. Its methods may work for a while, and fail with a sentence.
pub trait LiveNetwork: Send + Sync {
    /// What is under some keys, each with the last ledger in which it is live (0: archived), and after which ledger.
    ///
    /// # Errors
    /// Why it cannot say.
    fn entries(&self, keys: &[LedgerKey]) -> Result<FoundEntries, String>;

    /// Takes a transaction.
    ///
    /// # Errors
    /// Why it cannot.
    fn send(&self, transaction: TransactionEnvelope) -> Result<Submitted, String>;

    /// What a transaction would do.
    ///
    /// # Errors
    /// Why it cannot say.
    fn simulate(
        &self,
        transaction: &TransactionV1Envelope,
        mode: Authorisation,
        leeway: u32,
    ) -> Result<Simulation, String>;
}

/// A node that this process runs, which is asked over a connection. What fails is said in a sentence.
pub trait Node: Send + Sync {
    /// As [`LiveNetwork::entries`].
    fn entries<'a>(&'a self, keys: &'a [LedgerKey]) -> BoxFuture<'a, Result<FoundEntries, String>>;

    /// As [`LiveNetwork::send`].
    fn send(&self, transaction: TransactionEnvelope) -> BoxFuture<'_, Result<Submitted, String>>;
}

/// An entry of the ledger.
#[derive(Debug, Clone)]
pub struct LiveEntry {
    /// The entry.
    pub entry: LedgerEntry,
    /// The last ledger in which it is live, of contract data and code; 0 when it is archived.
    pub live_until: Option<u32>,
}

/// What became of a transaction.
#[derive(Debug, Clone)]
pub struct Submitted {
    /// Its hash.
    pub hash: [u8; 32],
    /// Whether it was taken.
    pub status: SubmittedStatus,
    /// The newest ledger.
    pub latest_ledger: u32,
    /// When that closed, UNIX seconds.
    pub latest_closed_at: u64,
}

/// Whether a transaction was taken.
#[derive(Debug, Clone)]
pub enum SubmittedStatus {
    /// It waits for a ledger.
    Pending,
    /// It waited already.
    Duplicate,
    /// It may be sent again in a while.
    TryAgainLater,
    /// It is invalid.
    Error {
        /// Why.
        result: TransactionResult,
        /// What a contract host said of it.
        events: Vec<DiagnosticEvent>,
    },
}

/// How a simulation finds what has to be authorised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authorisation {
    /// It checks what the transaction brings.
    Enforce,
    /// It records what is needed.
    Record {
        /// Also of those who would not sign the transaction's own call.
        allow_nonroot: bool,
        /// In the form of protocol 27 (CAP-71).
        upgraded: bool,
    },
}

/// What a transaction would do.
#[derive(Debug, Default)]
pub struct Simulation {
    /// The newest ledger.
    pub latest_ledger: u32,
    /// Why it would fail.
    pub error: Option<String>,
    /// What to put into the transaction.
    pub data: Option<SorobanTransactionData>,
    /// What the call returns, and what has to be authorised.
    pub result: Option<(ScVal, Vec<SorobanAuthorizationEntry>)>,
    /// Events, those for finding mistakes included.
    pub events: Vec<DiagnosticEvent>,
    /// Entries before and after.
    pub changes: Vec<(Option<LedgerEntry>, Option<LedgerEntry>)>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EntriesParams {
    keys: Option<Vec<String>>,
    xdr_format: Option<String>,
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

    pub(super) fn get_ledger_entries(&self, params: Params<'_>, _: Allowed<'_>) -> Outcome {
        let asked = AskedEntries::read(params)?;
        asked.told(self.live()?.entries(&asked.keys).map_err(RpcError::internal)?)
    }

    pub(super) fn send_transaction(&self, params: Params<'_>, _: Allowed<'_>) -> Outcome {
        let (envelope, format) = sent(params)?;
        let submitted = self.live()?.send(envelope).map_err(RpcError::internal)?;
        told_of_submitted(&submitted, format)
    }

    pub(super) fn simulate_transaction(&self, params: Params<'_>, _: Allowed<'_>) -> Outcome {
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
                let (latest_ledger, _) = live.entries(&[]).map_err(RpcError::internal)?;
                let error = Some(why.to_owned());
                Simulation { latest_ledger, error, ..Simulation::default() }
            }
        };
        result(&told(&simulation, format)?)
    }
}

/// Which entries a call asks for.
pub(super) struct AskedEntries {
    /// Their keys, none of a time to live.
    pub keys: Vec<LedgerKey>,
    format: XdrFormat,
}

impl AskedEntries {
    pub(super) fn read(params: Params<'_>) -> Result<Self, RpcError> {
        let given: EntriesParams = params.read()?;
        let format = format_of(given.xdr_format.as_deref())?;
        let given = given.keys.unwrap_or_default();
        if given.len() > MOST_KEYS {
            let count = given.len();
            return Err(RpcError::invalid_params(format!(
                "key count ({count}) exceeds maximum supported ({MOST_KEYS})"
            )));
        }
        let mut keys = Vec::new();
        for (index, text) in given.iter().enumerate() {
            let key: LedgerKey = read(text).ok_or_else(|| {
                let text = excerpt(text);
                RpcError::invalid_params(format!(
                    "cannot unmarshal key value {text} at index {index}"
                ))
            })?;
            if matches!(key, LedgerKey::Ttl(_)) {
                let told = "ledger ttl entries cannot be queried directly";
                return Err(RpcError::invalid_params(told));
            }
            keys.push(key);
        }
        Ok(Self { keys, format })
    }

    /// The answer: what was found under each key, after which ledger.
    pub(super) fn told(&self, (latest, found): FoundEntries) -> Outcome {
        let mut entries = Vec::new();
        for (key, LiveEntry { entry, live_until }) in
            self.keys.iter().zip(found).filter_map(|(key, found)| Some((key, found?)))
        {
            let mut told = Map::new();
            put(&mut told, ("key", "keyJson"), key, self.format)?;
            put(&mut told, ("xdr", "dataJson"), &entry.data, self.format)?;
            told.insert("lastModifiedLedgerSeq".into(), entry.last_modified_ledger_seq.into());
            if let Some(ledger) = live_until {
                told.insert("liveUntilLedgerSeq".into(), ledger.into());
            }
            put(&mut told, ("extXdr", "extJson"), &entry.ext, self.format)?;
            entries.push(Value::Object(told));
        }
        result(&json!({ "entries": entries, "latestLedger": latest }))
    }
}

/// The transaction that a call sends, and how the answer is to be written.
pub(super) fn sent(params: Params<'_>) -> Result<(TransactionEnvelope, XdrFormat), RpcError> {
    let given: TransactionParams = params.read()?;
    let format = format_of(given.xdr_format.as_deref())?;
    let envelope = read(&given.transaction.unwrap_or_default()).filter(|envelope| {
        // Envelopes of version 0 have had no signer since protocol 13.
        !matches!(envelope, TransactionEnvelope::TxV0(_))
    });
    Ok((envelope.ok_or_else(|| RpcError::invalid_params("invalid_xdr"))?, format))
}

/// What is answered to whoever sent a transaction.
pub(super) fn told_of_submitted(submitted: &Submitted, format: XdrFormat) -> Outcome {
    let (status, refused) = match &submitted.status {
        SubmittedStatus::Pending => ("PENDING", None),
        SubmittedStatus::Duplicate => ("DUPLICATE", None),
        SubmittedStatus::TryAgainLater => ("TRY_AGAIN_LATER", None),
        SubmittedStatus::Error { result, events } => ("ERROR", Some((result, events))),
    };
    let mut told = Map::new();
    told.insert("status".into(), status.into());
    told.insert("hash".into(), hex::encode(submitted.hash).into());
    told.insert("latestLedger".into(), submitted.latest_ledger.into());
    told.insert("latestLedgerCloseTime".into(), submitted.latest_closed_at.to_string().into());
    if let Some((error, events)) = refused {
        put(&mut told, ("errorResultXdr", "errorResultJson"), error, format)?;
        if !events.is_empty() {
            let names = ("diagnosticEventsXdr", "diagnosticEventsJson");
            put_all(&mut told, names, events, format)?;
        }
    }
    result(&told)
}

fn told(simulation: &Simulation, format: XdrFormat) -> Result<Map<String, Value>, RpcError> {
    let mut told = Map::new();
    told.insert("latestLedger".into(), simulation.latest_ledger.into());
    if let Some(error) = &simulation.error {
        told.insert("error".into(), error.as_str().into());
    }
    if !simulation.events.is_empty() {
        put_all(&mut told, ("events", "eventsJson"), &simulation.events, format)?;
    }
    let Some(data) = &simulation.data else { return Ok(told) };
    told.insert("minResourceFee".into(), data.resource_fee.to_string().into());
    put(&mut told, ("transactionData", "transactionDataJson"), data, format)?;
    if let Some((value, auth)) = &simulation.result {
        let mut one = Map::new();
        put(&mut one, ("xdr", "returnValueJson"), value, format)?;
        put_all(&mut one, ("auth", "authJson"), auth, format)?;
        told.insert("results".into(), json!([one]));
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
        told.insert("stateChanges".into(), changes.into());
    }
    Ok(told)
}

/// How authorisations are found: by what is asked, otherwise those that the transaction brings are checked.
fn authorisation(
    asked: Option<&str>,
    envelope: &TransactionV1Envelope,
    upgraded: bool,
) -> Result<Authorisation, RpcError> {
    let brings = envelope.tx.operations.iter().any(|operation| {
        matches!(&operation.body, OperationBody::InvokeHostFunction(call) if !call.auth.is_empty())
    });
    Ok(match asked {
        None | Some("") if brings => Authorisation::Enforce,
        Some("enforce") => Authorisation::Enforce,
        None | Some("" | "record") => Authorisation::Record { allow_nonroot: false, upgraded },
        Some("record_allow_nonroot") => Authorisation::Record { allow_nonroot: true, upgraded },
        Some(other) => {
            let other = excerpt(other);
            return Err(RpcError::invalid_params(format!(
                "got '{other}': expected enforce, record, record_allow_nonroot for optional 'authMode'"
            )));
        }
    })
}

fn format_of(given: Option<&str>) -> Result<XdrFormat, RpcError> {
    XdrFormat::parse(given).map_err(RpcError::invalid_params)
}

/// A value from base64 of its XDR.
fn read<T: ReadXdr>(base64: &str) -> Option<T> {
    if base64.len() > LARGEST_TRANSACTION * 4 / 3 + 4 {
        return None;
    }
    let xdr = STANDARD.decode(base64).ok()?;
    T::from_xdr(&xdr, Limits { depth: DEEPEST, len: xdr.len() }).ok()
}

fn put<T: WriteXdr + Serialize>(
    object: &mut Map<String, Value>,
    (base64, json): (&str, &str),
    value: &T,
    format: XdrFormat,
) -> Result<(), RpcError> {
    let name = if format == XdrFormat::Json { json } else { base64 };
    object.insert(name.to_owned(), spelled(value, format)?);
    Ok(())
}

fn put_all<T: WriteXdr + Serialize>(
    object: &mut Map<String, Value>,
    (base64, json): (&str, &str),
    values: &[T],
    format: XdrFormat,
) -> Result<(), RpcError> {
    let name = if format == XdrFormat::Json { json } else { base64 };
    let values =
        values.iter().map(|value| spelled(value, format)).collect::<Result<Vec<_>, _>>()?;
    object.insert(name.to_owned(), values.into());
    Ok(())
}

fn spelled<T: WriteXdr + Serialize>(value: &T, format: XdrFormat) -> Result<Value, RpcError> {
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
