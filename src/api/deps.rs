//! Dependencies of the API: what its caller provides, complete before the first request.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use stellar_xdr::ScAddress;
use tokio::sync::watch;

use super::ApiSettings;
use super::exported::ExportedTables;
use orrery_auth::Tokens;
use orrery_executables::Interfaces;
use orrery_ledger::domain::{Funding, Network, NotFunded};
use orrery_pipeline::attestation::Attestation;
use orrery_programs::Programs;
use orrery_rpc::Rpc;
use orrery_runtime::budget::Usage;
use orrery_runtime::observe::health::Health;
use orrery_store::{ContractSizes, Store};
use orrery_webhooks::manage::Webhooks;

/// Dependencies of the API.
#[derive(Clone)]
pub struct Deps {
    /// Store of events and transactions.
    pub store: Arc<Store>,
    /// Verifier of tokens.
    pub tokens: Arc<Tokens>,
    /// Health of the components.
    pub health: Arc<Health>,
    /// Whose word counts for the stored ledgers.
    pub attestation: Arc<Attestation>,
    /// Network whose ledgers are served.
    pub network: Network,
    /// Settings of the operator.
    pub settings: ApiSettings,
    /// Returns the current UNIX time in seconds.
    pub clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// Custom indexing programs.
    pub programs: Arc<Programs>,
    /// Interfaces of contracts, which name events and their values.
    pub interfaces: Arc<Interfaces>,
    /// JSON-RPC service.
    pub rpc: Arc<Rpc>,
    /// Friendbot of a network that this service runs itself; without one, its routes do not exist.
    pub friendbot: Option<Friendbot>,
    /// Token that the documents show to clients on this machine, for their examples; `None` but in a
    /// demo.
    pub example_token: Option<Arc<str>>,
    /// Tables that the service exports; `None` when it exports none.
    pub exported: Option<ExportedTables>,
    /// Webhooks.
    pub webhooks: Arc<Webhooks>,
    /// Latest estimate of the disk space of each contract; `None` before the first estimate.
    pub contract_sizes: watch::Receiver<Option<Arc<ContractSizes>>>,
    /// Produces the text of `/metrics` from the usage of the budgets.
    pub metrics: MetricsText,
    /// Called for every answered request.
    pub on_request: RequestObserver,
}

/// Creates an account with coins, or sends coins to a contract. Completes when the transaction was
/// applied.
pub type Friendbot =
    Arc<dyn Fn(ScAddress) -> BoxFuture<'static, Result<Funding, NotFunded>> + Send + Sync>;

/// Function that produces the text of `/metrics`.
pub type MetricsText = Arc<dyn Fn(&[Usage]) -> String + Send + Sync>;

/// Function that is called for every answered request.
pub type RequestObserver = Arc<dyn Fn(&RequestSummary) + Send + Sync>;

/// Summary of one request, for metrics.
#[derive(Debug, Clone, Copy)]
pub struct RequestSummary {
    /// Template of the route, as in the API description; `unmatched` when no route matched.
    pub route: &'static str,
    /// HTTP status of the response.
    pub status: u16,
    /// Seconds from the request's head to the finished response, without the time to send it.
    pub seconds: f64,
    /// Whether the response came from the cache; `None` for routes that are not cached and for
    /// failed requests.
    pub from_cache: Option<bool>,
}
