//! JSON-RPC as Stellar RPC speaks it: which methods there are, and what each answers from the store. Knows no HTTP; the
//! route that leads here is [`crate::api`]'s.
//!
//! Numbers that clients expect as text are sent as text, and the other way round: see each method.

pub mod envelope;
mod error;
mod events;
mod events_cursor;
mod events_v2;
mod fee_stats;
mod forward;
mod found;
mod info;
mod json;
mod ledgers;
mod live;
mod numbers;
mod outcomes;
mod params;
mod range;
mod transaction_hashes;
mod transactions;
mod xdr;

use std::ops::ControlFlow;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;

pub use error::{Code, RpcError};
pub use forward::{Forwarding, LONGEST_ANSWER, Upstream};
pub use json::Json;
pub use live::{
    Authorisation, FoundEntries, LiveEntry, LiveNetwork, Node, Simulation, Submitted,
    SubmittedStatus,
};
pub use params::Params;
pub use transaction_hashes::TransactionHashes;

use crate::decode::DecodeError;
use crate::domain::LedgerSeq;
use crate::store::{Bounds, IndexedAs, Store};
use outcomes::{Called, Outcomes};

/// Bytes after which a page of ledgers or transactions ends: Stellar's command line takes no longer answers than 10 MiB.
const MOST_ANSWERED: usize = 8 << 20;

/// Answers calls from a store.
pub struct Rpc {
    store: Arc<Store>,
    settings: Settings,
    /// UNIX seconds now.
    clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    upstream: Option<Arc<dyn Upstream>>,
    live: Option<Arc<dyn LiveNetwork>>,
    node: Option<Arc<dyn Node>>,
    fees: fee_stats::KnownFees,
    outcomes: Outcomes,
}

/// What the operator may choose.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Seconds since the newest ledger closed after which `getHealth` fails.
    pub max_ledger_latency: u64,
    /// Where accounts of a test network are funded.
    pub friendbot_url: Option<String>,
    /// Ledgers that are kept; 0 for all.
    pub retention_window: u32,
    /// Which events are stored of new ledgers.
    pub indexed_as: IndexedAs,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_ledger_latency: 30,
            friendbot_url: None,
            retention_window: 0,
            indexed_as: IndexedAs::default(),
        }
    }
}

/// What a call may cost.
#[derive(Clone, Copy)]
pub struct Allowed<'a> {
    /// What a walk through the store may cost.
    pub bounds: Bounds<'a>,
    /// Whether an answer of so many bytes may become longer.
    pub goes_on: &'a dyn Fn(usize) -> ControlFlow<()>,
}

impl Allowed<'_> {
    /// No bounds, for tests.
    pub const ANYTHING: Allowed<'static> =
        Allowed { bounds: Bounds::NONE, goes_on: &|_| ControlFlow::Continue(()) };
}

/// What comes of a call.
pub type Outcome = Result<Json, RpcError>;

type Method = fn(&Rpc, Params<'_>, Allowed<'_>) -> Outcome;

/// The methods that are answered from the store.
const METHODS: &[(&str, Method)] = &[
    ("getHealth", Rpc::get_health),
    ("getNetwork", Rpc::get_network),
    ("getVersionInfo", Rpc::get_version_info),
    ("getLatestLedger", Rpc::get_latest_ledger),
    ("getLedgers", Rpc::get_ledgers),
    ("getFeeStats", Rpc::get_fee_stats),
    ("getTransaction", Rpc::get_transaction),
    ("getTransactions", Rpc::get_transactions),
    ("getEvents", Rpc::get_events),
    ("getEventsV2", Rpc::get_events_v2),
    // Its name in the reference's archive node.
    ("queryEvents", Rpc::get_events_v2),
];

/// Those that see themselves to a stack for values that nest deeply, where they read any.
const WITHOUT_STACK: &[&str] = &["getEvents", "getEventsV2", "queryEvents", "getTransaction"];

impl Rpc {
    /// Answers from a store.
    pub fn new(
        store: Arc<Store>,
        settings: Settings,
        clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    ) -> Self {
        let (upstream, live, node) = (None, None, None);
        let fees = fee_stats::KnownFees::default();
        let outcomes = Outcomes::default();
        Self { store, settings, clock, upstream, live, node, fees, outcomes }
    }

    /// With a server to which calls are handed on that need the state of the ledger.
    #[must_use]
    pub fn with_upstream(self, upstream: Arc<dyn Upstream>) -> Self {
        Self { upstream: Some(upstream), ..self }
    }

    /// With a network whose state is at hand.
    #[must_use]
    pub fn with_live(self, live: Arc<dyn LiveNetwork>) -> Self {
        Self { live: Some(live), ..self }
    }

    /// With a node that is asked for entries, and takes transactions.
    #[must_use]
    pub fn with_node(self, node: Arc<dyn Node>) -> Self {
        Self { node: Some(node), ..self }
    }

    /// Answers a call. May read the disk.
    ///
    /// # Errors
    /// What the caller is told.
    pub fn call(&self, method: &str, params: Params<'_>, allowed: Allowed<'_>) -> Outcome {
        let live = live::METHODS.iter().filter(|_| self.live.is_some());
        let called = Called { method, params: params.0.map_or("", RawValue::get) };
        let now = self.store.generation();
        if let Some(kept) = now.and_then(|now| self.outcomes.get(called, now))
            && (allowed.goes_on)(kept.get().len()).is_continue()
        {
            return Ok(kept);
        }
        let outcome = match METHODS.iter().chain(live).find(|(name, _)| *name == method) {
            Some((_, answer)) if WITHOUT_STACK.contains(&method) => answer(self, params, allowed),
            // One for the whole call: a new one for each value would cost more than reading it.
            Some((_, answer)) => xdr::with_stack(|| answer(self, params, allowed)),
            None => Err(RpcError::method_not_found(method)),
        };
        if let (Some(generation), Ok(result)) = (now, &outcome)
            && result.lasts()
        {
            self.outcomes.keep(called, generation, result);
        }
        outcome
    }
}

/// What is said of a stored ledger that cannot be read.
fn not_readable(ledger: LedgerSeq, error: &DecodeError) -> RpcError {
    tracing::error!(%ledger, %error, "a stored ledger cannot be decoded");
    RpcError::internal(format!("the stored ledger {ledger} cannot be read: run orrery verify"))
}

/// A result as it is sent.
fn result(of: &impl Serialize) -> Outcome {
    Json::of(of)
}
