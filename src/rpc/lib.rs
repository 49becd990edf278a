//! JSON-RPC as Stellar RPC implements it: the methods, and their answers from the store. Does not
//! depend on HTTP; the route is in `orrery_api`.
//!
//! Each number is sent as a JSON string or a JSON number, whichever clients expect: see each
//! method.

mod at_ledger;
pub mod envelope;
mod error;
mod event_ids;
mod event_search;
mod events;
mod events_cursor;
mod events_v2;
mod fee_stats;
mod forward;
mod found_event;
mod info;
mod json;
mod ledger_entries;
mod ledgers;
mod live;
mod params;
mod range;
mod result_cache;
mod simulation;
mod transaction_hashes;
mod transaction_places;
mod transactions;
mod xdr;

use std::ops::ControlFlow;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;

pub use error::{Code, Otherwise, RpcError};
pub use forward::{Forwarding, HasRoom, LONGEST_ANSWER, Upstream};
pub use json::Json;
pub use live::{LiveNetwork, Node, Submitted};
pub use params::Params;
pub use simulation::{NotSimulated, PastCall, PastNetwork};
pub use transaction_hashes::TransactionHashes;

use orrery_ledger::decode::DecodeError;
use orrery_ledger::domain::LedgerSeq;
use orrery_store::{Bounds, IndexedAs, Store};
use result_cache::{CallKey, ResultCache};

/// Size in bytes after which a page of ledgers or transactions ends: Stellar's command line accepts
/// answers of up to 10 MiB.
const MAX_PAGE_BYTES: usize = 8 << 20;

/// Answers JSON-RPC calls from a store.
pub struct Rpc {
    store: Arc<Store>,
    settings: Settings,
    /// Returns the current UNIX time in seconds.
    clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    upstream: Option<Arc<dyn Upstream>>,
    live: Option<Arc<dyn LiveNetwork>>,
    node: Option<Arc<dyn Node>>,
    past: Option<Arc<dyn PastNetwork>>,
    fees: fee_stats::FeeCache,
    result_cache: ResultCache,
}

/// Settings that the operator may choose.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Age of the newest ledger, in seconds since its close time, above which `getHealth` fails.
    pub max_ledger_latency: u64,
    /// URL of the friendbot that funds accounts of a test network.
    pub friendbot_url: Option<String>,
    /// Number of ledgers that retention keeps; 0 for all.
    pub retention_window: u32,
    /// Which events of new ledgers are stored.
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

/// Limits on the cost of a call.
#[derive(Clone, Copy)]
pub struct CallLimits<'a> {
    /// Limits on a walk through the store.
    pub bounds: Bounds<'a>,
    /// Receives the size of the answer in bytes, and returns whether the answer may grow to it.
    pub may_grow_to: &'a dyn Fn(usize) -> ControlFlow<()>,
    /// Reserves memory for an answer of this size in bytes, before it is built. Fails when there is
    /// none.
    pub reserve: &'a dyn Fn(usize) -> Result<(), RpcError>,
    /// Like `reserve`, for an answer with a single record, without which a client would make no
    /// progress: of one that is larger than what a client can have, all of that is reserved.
    pub reserve_one: &'a dyn Fn(usize) -> Result<(), RpcError>,
}

impl CallLimits<'_> {
    /// No limits, for tests.
    pub const UNLIMITED: CallLimits<'static> = CallLimits {
        bounds: Bounds::NONE,
        may_grow_to: &|_| ControlFlow::Continue(()),
        reserve: &|_| Ok(()),
        reserve_one: &|_| Ok(()),
    };
}

/// Result of a call.
pub type Outcome = Result<Json, RpcError>;

type Method = fn(&Rpc, Params<'_>, CallLimits<'_>) -> Outcome;

/// Methods that are answered from the store, always or as far as it knows the answer.
const METHODS: &[(&str, Method)] = &[
    ("getHealth", Rpc::get_health),
    ("getNetwork", Rpc::get_network),
    ("getVersionInfo", Rpc::get_version_info),
    ("getLatestLedger", Rpc::get_latest_ledger),
    ("getLedgers", Rpc::get_ledgers),
    ("getFeeStats", Rpc::get_fee_stats),
    ("getTransaction", Rpc::get_transaction),
    ("getTransactions", Rpc::get_transactions),
    (ledger_entries::METHOD, Rpc::get_ledger_entries),
    (simulation::METHOD, Rpc::simulate_transaction),
    ("getEvents", Rpc::get_events),
    ("getEventsV2", Rpc::get_events_v2),
    // Name of the method in the reference's archive node.
    ("queryEvents", Rpc::get_events_v2),
];

/// Methods that run on a larger stack only where they decode deeply nested values.
const SMALL_STACK_METHODS: &[&str] = &["getEvents", "getEventsV2", "queryEvents", "getTransaction"];

impl Rpc {
    /// Creates the service on a store, without upstream, live network or node.
    pub fn new(
        store: Arc<Store>,
        settings: Settings,
        clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    ) -> Self {
        let (upstream, live, node, past) = (None, None, None, None);
        let fees = fee_stats::FeeCache::default();
        let result_cache = ResultCache::default();
        Self { store, settings, clock, upstream, live, node, past, fees, result_cache }
    }

    /// Sets the server to which calls that need the current ledger state are forwarded.
    #[must_use]
    pub fn with_upstream(self, upstream: Arc<dyn Upstream>) -> Self {
        Self { upstream: Some(upstream), ..self }
    }

    /// Sets the in-process network that answers calls about the current ledger state.
    #[must_use]
    pub fn with_live(self, live: Arc<dyn LiveNetwork>) -> Self {
        Self { live: Some(live), ..self }
    }

    /// Sets the node that looks up entries and accepts transactions.
    #[must_use]
    pub fn with_node(self, node: Arc<dyn Node>) -> Self {
        Self { node: Some(node), ..self }
    }

    /// Sets what simulates transactions on the state of stored ledgers.
    #[must_use]
    pub fn with_past(self, past: Arc<dyn PastNetwork>) -> Self {
        Self { past: Some(past), ..self }
    }

    /// Whether a call asks for a simulation on the state of a stored ledger.
    pub fn is_past_simulation(&self, method: &str, params: Params<'_>) -> bool {
        method == simulation::METHOD && at_ledger::is_given(params)
    }

    /// Answers a call. May read from disk.
    ///
    /// # Errors
    /// The error to send to the client.
    pub fn call(&self, method: &str, params: Params<'_>, limits: CallLimits<'_>) -> Outcome {
        let live = live::METHODS.iter().filter(|_| self.live.is_some());
        let key = CallKey { method, params: params.0.map_or("", RawValue::get) };
        let generation = self.store.generation();
        if let Some(cached) = generation.and_then(|it| self.result_cache.get(key, it))
            && (limits.may_grow_to)(cached.get().len()).is_continue()
        {
            return Ok(cached);
        }
        let outcome = match METHODS.iter().chain(live).find(|(name, _)| *name == method) {
            Some((_, answer)) if SMALL_STACK_METHODS.contains(&method) => {
                answer(self, params, limits)
            }
            // One large stack for the whole call: a new one per value would cost more than decoding
            // the value.
            Some((_, answer)) => xdr::with_stack(|| answer(self, params, limits)),
            None => Err(RpcError::method_not_found(method)),
        };
        if let (Some(generation), Ok(result)) = (generation, &outcome)
            && result.is_cacheable()
        {
            self.result_cache.insert(key, generation, result);
        }
        outcome
    }
}

/// Logs that a stored ledger cannot be decoded, and returns the error for the client.
fn not_readable(ledger: LedgerSeq, error: &DecodeError) -> RpcError {
    tracing::error!(%ledger, %error, "a stored ledger cannot be decoded");
    RpcError::internal(format!("the stored ledger {ledger} cannot be read: run orrery verify"))
}

/// Serialises a result.
fn result(of: &impl Serialize) -> Outcome {
    Json::of(of)
}
