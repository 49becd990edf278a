//! HTTP interface: events, transactions, health and the other areas as REST, and JSON-RPC. Queries
//! [`crate::store`], but does not depend on how it stores data.
//!
//! A request passes through these modules in order: [`server`] (connections and their limits);
//! [`gate`] (request id, route, rate limit and token by [`identity`], its share of the [`budgets`],
//! its body by [`intake`]); a handler of its area ([`events`], [`streams`], [`transactions`],
//! [`completeness`], [`accounts`], [`health`], [`status`], [`status_page`], [`description`],
//! [`metrics`]), unless the response is cached ([`answers`]); and [`gate`] again (compression,
//! headers, log). Each area has a table of its routes ([`route`]), in which [`router`] finds the
//! one for a request. A handler is a function from parameters to a response.

mod accounts;
mod allowance;
mod answer;
mod answers;
mod blocking;
mod budgets;
mod client;
mod completeness;
mod compression;
mod cors;
mod current;
mod description;
mod error;
mod events;
mod flow;
mod friendbot;
mod gate;
mod health;
mod identity;
mod intake;
mod json;
mod limits;
mod members;
mod metrics;
mod page;
mod params;
mod reading;
mod record;
mod replies;
mod retroshade;
mod route;
mod router;
mod rpc;
mod server;
mod status;
mod status_page;
mod streams;
mod transactions;
mod webhooks;
mod wire;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

pub use allowance::ScanLimits;
pub use error::ApiError;
pub use friendbot::{Friendbot, FundedTransaction, FundingError};
pub use json::List as EventList;
pub use limits::RateLimit;
#[doc(hidden)]
pub use retroshade::{read_deploy, read_trial};
pub use server::serve;

use self::route::Route;
use crate::auth::Tokens;
use crate::budget::Usage;
use crate::domain::Network;
use crate::observe::health::Health;
use crate::programs::Programs;
use crate::rpc::Rpc;
use crate::store::{ContractSizes, IndexedAs, Store};
use crate::webhooks::manage::Webhooks;

/// Maximum size of a request body, in bytes, for routes without a limit of their own.
pub const LARGEST_BODY: usize = 256 * 1024;

/// Maximum size of a body with a module of 2 MiB as base64 or in a form, in bytes.
const LARGEST_FORM: usize = 3 << 20;

/// Maximum size of a body with a module of 2 MiB as an array of numbers, in bytes.
const LARGEST_UPLOAD: usize = 9 << 20;

/// Maximum length of path and query, in bytes: enough for 200 contracts and for 16 long topics.
pub const LONGEST_URI: usize = 32 * 1024;

/// Returns the route tables of all areas. Every area is registered here and nowhere else.
fn areas(settings: &ApiSettings) -> [&'static [Route]; 17] {
    [
        &events::ROUTES,
        &streams::ROUTES,
        &transactions::ROUTES,
        &completeness::ROUTES,
        &health::ROUTES,
        &description::ROUTES,
        &metrics::ROUTES,
        &status::ROUTES,
        &status_page::ROUTES,
        &retroshade::ROUTES,
        &webhooks::ROUTES,
        &accounts::smart::ROUTES,
        &accounts::smart::CATCH_ALL,
        &accounts::passkey::ROUTES,
        &accounts::passkey::CATCH_ALL,
        match settings.rpc_needs_token {
            true => &rpc::WITH_TOKEN,
            false => &rpc::ROUTES,
        },
        match settings.has_friendbot {
            true => &friendbot::ROUTES,
            false => &[],
        },
    ]
}

/// Dependencies of the API.
#[derive(Clone)]
pub struct Deps {
    /// Store of events and transactions.
    pub store: Arc<Store>,
    /// Verifier of tokens.
    pub tokens: Arc<Tokens>,
    /// Health of the components.
    pub health: Arc<Health>,
    /// Network whose ledgers are served.
    pub network: Network,
    /// Settings of the operator.
    pub settings: ApiSettings,
    /// Returns the current UNIX time in seconds.
    pub clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// Custom indexing programs; when `None`, their routes return 503.
    pub programs: Option<Arc<Programs>>,
    /// JSON-RPC service; when `None`, its route returns 503.
    pub rpc: Option<Arc<Rpc>>,
    /// Friendbot of a network that this service runs itself; when `None`, its route returns 404.
    pub friendbot: Option<Arc<dyn Friendbot>>,
    /// Webhooks; when `None`, their routes return 503.
    pub webhooks: Option<Arc<Webhooks>>,
    /// Latest estimate of the disk space of each contract; `None` before the first estimate.
    pub contract_sizes: watch::Receiver<Option<Arc<ContractSizes>>>,
    /// Produces the text of `/metrics` from the usage of the budgets; when `None`, the route
    /// returns 404.
    pub metrics: Option<MetricsText>,
    /// Called for every answered request.
    pub on_request: Option<RequestObserver>,
}

/// Function that produces the text of `/metrics`.
pub type MetricsText = Arc<dyn Fn(&[Usage]) -> String + Send + Sync>;

/// Clients that may read `/metrics`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MetricsFor {
    /// Clients on the service's own machine.
    #[default]
    Loopback,
    /// All clients.
    All,
    /// No client; the route returns 404.
    Off,
}

/// Function that is called for every answered request.
pub type RequestObserver = Arc<dyn Fn(&RequestSummary) + Send + Sync>;

/// Settings of the API that the operator may change.
#[derive(Debug, Clone)]
pub struct ApiSettings {
    /// Rate limit per token, and per client address on public routes; `None` turns it off.
    pub rate_limit: Option<RateLimit>,
    /// Origins that may read responses of routes that need a token; `*` allows any.
    pub cors_origins: Vec<String>,
    /// Proxies whose `X-Forwarded-For` is trusted for the client's address.
    pub trusted_proxies: Vec<IpAddr>,
    /// Clients that may read `/metrics`.
    pub metrics_for: MetricsFor,
    /// Maximum number of open connections. When it is reached, the connection that has been idle
    /// longest is closed.
    pub connections: usize,
    /// Maximum number of open connections per address, or per /64 network for IPv6. Trusted proxies
    /// are exempt.
    pub connections_per_address: u64,
    /// Maximum number of concurrent requests of one token, or of one address without a token.
    pub requests_in_flight: u64,
    /// Maximum bytes of bodies and responses in memory, of all requests together.
    pub bytes_in_flight: u64,
    /// Maximum bytes of bodies and responses in memory, of the requests of one token, or of one
    /// address without a token.
    pub bytes_in_flight_per_token: u64,
    /// Bytes that are reserved for the response to a SQL query or to a request with a module.
    pub largest_answer: u64,
    /// Cost limits of a store query.
    pub scan: ScanLimits,
    /// Maximum number of requests that read the store at a time; one token may have half of them.
    pub readers: usize,
    /// Maximum number of requests that wait for a slot of one kind; further ones get 503. Of those
    /// that wait to read the store, one token may have a quarter.
    pub waiting_readers: usize,
    /// Maximum number of concurrent SQL queries, and separately of program changes and of module
    /// uploads. One owner may have at most a quarter of the queries and of the changes.
    pub slow_requests: usize,
    /// Maximum number of open event streams, each of which occupies a connection.
    pub streams: u64,
    /// Maximum number of open event streams of one token.
    pub streams_per_token: u64,
    /// Interval after which an idle stream sends a heartbeat.
    pub stream_heartbeat: Duration,
    /// Maximum time for a client to send the head of its first request.
    pub first_request_timeout: Duration,
    /// Maximum time for a client to send the head of a request, which is also how long an idle
    /// connection stays open.
    pub header_timeout: Duration,
    /// Maximum time for a client to send the body of a request.
    pub body_timeout: Duration,
    /// Maximum time for which a client may read nothing of a pending response.
    pub write_timeout: Duration,
    /// Time allowed to read a whole response, in addition to what its length allows.
    pub answer_timeout: Duration,
    /// Number of response bytes that add another second to the time allowed.
    pub answer_bytes_per_second: u64,
    /// Maximum time for requests in flight to complete after the server was told to stop.
    pub stop_timeout: Duration,
    /// Current indexing settings, as reported by `/rest/completeness`.
    pub indexed_as: IndexedAs,
    /// Maximum number of accounts in the response of a smart account or passkey wallet lookup.
    pub most_accounts: u32,
    /// Whether JSON-RPC requires a token.
    pub rpc_needs_token: bool,
    /// Whether `/friendbot` is served.
    pub has_friendbot: bool,
    /// Fixed UNIX time in seconds against which expirations of signers are compared; `None` uses
    /// the current time.
    pub fixed_clock: Option<u64>,
    /// Fixed ledger sequence against which expirations of signers are compared; `None` uses the
    /// newest known ledger.
    pub fixed_network_ledger: Option<u32>,
}

impl Default for ApiSettings {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            rate_limit: Some(RateLimit::default()),
            cors_origins: Vec::new(),
            trusted_proxies: Vec::new(),
            metrics_for: MetricsFor::default(),
            connections: 1024,
            connections_per_address: 64,
            requests_in_flight: 32,
            bytes_in_flight: 256 << 20,
            bytes_in_flight_per_token: 64 << 20,
            largest_answer: 16 << 20,
            scan: ScanLimits::default(),
            readers: 2 * cores,
            waiting_readers: 256,
            slow_requests: 16,
            streams: 512,
            streams_per_token: 64,
            stream_heartbeat: Duration::from_secs(15),
            first_request_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(15),
            write_timeout: Duration::from_secs(30),
            answer_timeout: Duration::from_secs(10),
            answer_bytes_per_second: 64 << 10,
            stop_timeout: Duration::from_secs(10),
            indexed_as: IndexedAs::default(),
            most_accounts: accounts::MAX_ACCOUNTS,
            rpc_needs_token: false,
            has_friendbot: false,
            fixed_clock: None,
            fixed_network_ledger: None,
        }
    }
}

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
