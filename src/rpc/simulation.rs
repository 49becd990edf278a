//! `simulateTransaction`: on the present state by the network in this process, or by the server to which
//! the call is forwarded; with `ledger`, on the state at the end of a stored ledger, which never mixes
//! with the present one.

use std::io::{self, Write};

use serde::Deserialize;
use serde_json::{Map, Value, json};
use stellar_xdr::{
    LedgerKey, Limited, Limits, OperationBody, TransactionEnvelope, TransactionV1Envelope, WriteXdr,
};

use super::live::{format_of, put, put_all, read};
use super::params::XdrFormat;
use super::{CallLimits, Outcome, Params, Rpc, RpcError, at_ledger, result};
use orrery_contract_data::CONSUMER;
use orrery_ledger::domain::{AuthMode, LedgerSeq, Simulation, excerpt};
use orrery_store::StoreError;

/// Name of the method.
pub(super) const METHOD: &str = "simulateTransaction";

/// Size in bytes of an answer, besides its XDR, and of each value in it.
const OVERHEAD: usize = 1024;

/// Simulates transactions on the state at the end of stored ledgers, from what is stored. A trait, so that
/// this crate links no contract host.
pub trait PastNetwork: Send + Sync {
    /// Simulates a transaction on the state at the end of a stored ledger. Computes, and reads the store,
    /// until `is_over`.
    ///
    /// # Errors
    /// [`NotSimulated`].
    fn simulate(
        &self,
        call: &PastCall<'_>,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Simulation, NotSimulated>;
}

/// What is simulated on the state at the end of a stored ledger.
#[derive(Debug, Clone, Copy)]
pub struct PastCall<'a> {
    /// The ledger.
    pub ledger: LedgerSeq,
    /// The transaction.
    pub transaction: &'a TransactionV1Envelope,
    /// How authorisation is treated.
    pub mode: AuthMode,
    /// How much the declared instructions exceed the measured ones at least.
    pub leeway: u32,
    /// Whether ledgers of another protocol than that of the host are run by its rules.
    pub any_protocol: bool,
}

/// Why a transaction was not simulated on the state at the end of a ledger.
#[derive(Debug)]
pub enum NotSimulated {
    /// The entry under this key, or its time to live, is not known.
    Unknown(Box<LedgerKey>),
    /// Something else is not known or not possible: a sentence.
    Refused(String),
    /// It takes more time, or more entries, than a call may.
    TooExpensive,
    /// The store failed.
    Store(StoreError),
}

impl From<StoreError> for NotSimulated {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SimulationParams {
    transaction: Option<String>,
    resource_config: Option<ResourceConfig>,
    auth_mode: Option<String>,
    use_upgraded_auth: Option<bool>,
    xdr_format: Option<String>,
    ledger: Option<u32>,
    allow_protocol: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ResourceConfig {
    instruction_leeway: Option<u64>,
}

impl SimulationParams {
    /// Returns the transaction; the error is that of a simulation.
    fn transaction(&self) -> Result<TransactionV1Envelope, &'static str> {
        match self.transaction.as_deref().and_then(read) {
            None => Err("Could not unmarshal transaction"),
            Some(TransactionEnvelope::Tx(envelope)) => Ok(envelope),
            Some(_) => {
                Err("Transaction is of an unsupported type: send the inner one, of version 1")
            }
        }
    }

    fn mode(&self, envelope: &TransactionV1Envelope) -> Result<AuthMode, RpcError> {
        let upgraded = self.use_upgraded_auth.unwrap_or(false);
        authorisation(self.auth_mode.as_deref(), envelope, upgraded)
    }

    fn leeway(&self) -> u32 {
        let leeway = self.resource_config.as_ref().and_then(|config| config.instruction_leeway);
        u32::try_from(leeway.unwrap_or(0)).unwrap_or(u32::MAX)
    }
}

impl Rpc {
    pub(super) fn simulate_transaction(
        &self,
        params: Params<'_>,
        limits: CallLimits<'_>,
    ) -> Outcome {
        let given: SimulationParams = params.read()?;
        let format = format_of(given.xdr_format.as_deref())?;
        if let Some(ledger) = given.ledger {
            return self.simulate_at(LedgerSeq(ledger), &given, format, limits);
        }
        if self.live.is_none() {
            return Err(RpcError::needs_network(METHOD));
        }
        let live = self.live()?;
        let simulation = match given.transaction() {
            Ok(envelope) => {
                let mode = given.mode(&envelope)?;
                live.simulate(&envelope, mode, given.leeway()).map_err(RpcError::internal)?
            }
            Err(why) => {
                let latest = live.entries(&[]).map_err(RpcError::internal)?.as_of;
                Simulation::failed(latest, why.to_owned(), Vec::new())
            }
        };
        result(&response(&simulation, format)?)
    }

    /// Whether transactions are simulated on the state of stored ledgers.
    pub(super) fn simulates_past(&self) -> bool {
        self.past.is_some() && self.store.consumer(CONSUMER).is_some()
    }

    /// Simulates on the state at the end of a ledger.
    ///
    /// # Errors
    /// −32602 when the ledger is not stored, or an entry is not known; −32603 when something else is not.
    fn simulate_at(
        &self,
        ledger: LedgerSeq,
        given: &SimulationParams,
        format: XdrFormat,
        limits: CallLimits<'_>,
    ) -> Outcome {
        let past = self.past.as_ref().filter(|_| self.simulates_past()).ok_or_else(|| {
            RpcError::internal("transactions are not simulated on the state of stored ledgers here")
        })?;
        let newest = self.newest_beside(ledger)?;
        let is_behind = self.is_behind();
        let simulation = match given.transaction() {
            Ok(transaction) => {
                let call = PastCall {
                    ledger,
                    mode: given.mode(&transaction)?,
                    transaction: &transaction,
                    leeway: given.leeway(),
                    any_protocol: given.allow_protocol.unwrap_or(false),
                };
                past.simulate(&call, limits.bounds.interrupted)
            }
            Err(why) => Ok(Simulation::failed(ledger, why.to_owned(), Vec::new())),
        };
        // Asked after what was read: of a ledger that is not removed now, it was complete.
        if self.is_removed(ledger)? {
            return Err(self.not_stored(ledger)?);
        }
        let simulation = simulation.map_err(|error| match error {
            // What is not known may be known once all that is stored has been processed.
            NotSimulated::Unknown(_) if is_behind => self.not_indexed(),
            NotSimulated::Unknown(key) => {
                at_ledger::unknown(ledger, &key).unwrap_or_else(|error| error)
            }
            NotSimulated::Refused(why) => RpcError::internal(why),
            NotSimulated::TooExpensive => RpcError::too_expensive(),
            NotSimulated::Store(error) => error.into(),
        })?;
        (limits.reserve_one)(size(&simulation))?;
        let mut response = response(&simulation, format)?;
        response.insert("newestLedger".into(), newest.0.into());
        result(&response)
    }
}

/// Returns about how many bytes an answer takes.
fn size(simulation: &Simulation) -> usize {
    let Simulation { result, events, changes, data, error, .. } = simulation;
    let events = events.iter().map(length);
    let entries = changes.iter().flat_map(|(before, after)| [before, after]);
    let entries = entries.map(|entry| entry.as_ref().map_or(0, |entry| 2 * length(entry)));
    let (value, auth) = result
        .as_ref()
        .map_or((0, 0), |(value, auth)| (length(value), auth.iter().map(length).sum()));
    let data = data.as_ref().map_or(0, length);
    let error = error.as_ref().map_or(0, String::len);
    OVERHEAD + events.chain(entries).sum::<usize>() + value + auth + data + error
}

/// Returns about how many bytes a value takes as base64.
fn length(value: &impl WriteXdr) -> usize {
    let mut counted = Limited::new(Counted::default(), Limits::none());
    // Nothing that was made or read with limits fails to be written.
    let _ = value.write_xdr(&mut counted);
    counted.inner.0 * 4 / 3 + OVERHEAD / 8
}

/// Counts what is written.
#[derive(Default)]
struct Counted(usize);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Builds the answer.
fn response(simulation: &Simulation, format: XdrFormat) -> Result<Map<String, Value>, RpcError> {
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
