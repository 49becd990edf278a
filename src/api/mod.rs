//! The HTTP interface: events, transactions and health, as REST. Knows the questions that may be
//! asked of [`crate::store`], never how it keeps its answers.
//!
//! A request passes, in this order: [`server`] (connections and their limits), [`gate`] (request
//! id, route, rate limit and token by [`identity`], its share of the [`budgets`], its body by [`intake`]), a handler of its area ([`events`], [`streams`], [`transactions`],
//! [`completeness`], [`accounts`], [`health`], [`status`], [`status_page`], [`description`], [`metrics`]) unless the answer is still known
//! ([`answers`]), and [`gate`] again (compression, headers, log). Each area has a table of its routes
//! ([`route`]), in which [`router`] finds the one for a request; a handler is a function from parameters
//! to an answer.

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
pub use friendbot::{Friendbot, Given, NotGiven};
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

/// Largest request body, in bytes, of every route that does not say otherwise.
pub const LARGEST_BODY: usize = 256 * 1024;

/// Largest body with a module of 2 MiB as base64 or in a form, in bytes.
const LARGEST_FORM: usize = 3 << 20;

/// Largest body with a module of 2 MiB as an array of numbers, in bytes.
const LARGEST_UPLOAD: usize = 9 << 20;

/// Longest path and query, in bytes: room for 200 contracts and for 16 long topics.
pub const LONGEST_URI: usize = 32 * 1024;

/// The routes of every area: the one place where an area is entered.
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
        &accounts::smart::ELSEWHERE,
        &accounts::passkey::ROUTES,
        &accounts::passkey::ELSEWHERE,
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

/// Everything the API works with.
#[derive(Clone)]
pub struct Deps {
    /// Where events and transactions are.
    pub store: Arc<Store>,
    /// Verifies tokens.
    pub tokens: Arc<Tokens>,
    /// State of the components.
    pub health: Arc<Health>,
    /// The network that is served.
    pub network: Network,
    /// What the operator may choose.
    pub settings: ApiSettings,
    /// UNIX seconds now.
    pub clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// Custom indexing programs; without them their routes answer 503.
    pub programs: Option<Arc<Programs>>,
    /// JSON-RPC; without it its route answers 503.
    pub rpc: Option<Arc<Rpc>>,
    /// Gives coins of a network that is made here.
    pub friendbot: Option<Arc<dyn Friendbot>>,
    /// Webhooks; without them their routes answer 503.
    pub webhooks: Option<Arc<Webhooks>>,
    /// The latest estimate of what contracts take on the disk, once there is one.
    pub contract_sizes: watch::Receiver<Option<Arc<ContractSizes>>>,
    /// Text of `/metrics`, given what is taken of the budgets; without it the route does not exist.
    pub metrics: Option<MetricsText>,
    /// Told of every answered request.
    pub on_request: Option<RequestObserver>,
}

/// Makes the text of `/metrics`.
pub type MetricsText = Arc<dyn Fn(&[Usage]) -> String + Send + Sync>;

/// Who may read `/metrics`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MetricsFor {
    /// Clients on the service's own machine.
    #[default]
    Loopback,
    /// Everybody.
    All,
    /// Nobody.
    Off,
}

/// Told of every answered request.
pub type RequestObserver = Arc<dyn Fn(&RequestSummary) + Send + Sync>;

/// What the operator may choose.
#[derive(Debug, Clone)]
pub struct ApiSettings {
    /// Limit per token, and per client address on public routes; none turns it off.
    pub rate_limit: Option<RateLimit>,
    /// Origins that may read the answers of routes that need a token; `*` is any.
    pub cors_origins: Vec<String>,
    /// Proxies whose `X-Forwarded-For` is believed when a client's address counts.
    pub trusted_proxies: Vec<IpAddr>,
    /// Who may read `/metrics`.
    pub metrics_for: MetricsFor,
    /// Connections at a time. When all are taken, the one that has been idle longest is closed.
    pub connections: usize,
    /// Connections of one address at a time; of an IPv6 address, of its /64 network. Trusted proxies may
    /// have any number.
    pub connections_per_address: u64,
    /// Requests of one token at a time, or of one address without a token.
    pub requests_in_flight: u64,
    /// Bytes of bodies and answers in memory, of all requests.
    pub bytes_in_flight: u64,
    /// Bytes of bodies and answers in memory, of the requests of one token, or of one address without.
    pub bytes_in_flight_per_token: u64,
    /// Bytes that are reserved for the answer to a query, and to what is sent with a module.
    pub largest_answer: u64,
    /// What a question to the store may cost.
    pub scan: ScanLimits,
    /// Requests that read the store at a time; half of them of one token.
    pub readers: usize,
    /// Requests that may wait for a place, of each kind; further ones are answered 503. A quarter of them
    /// of one token.
    pub waiting_readers: usize,
    /// Queries over tables at a time, and changes of programs at a time; a quarter of them of one owner.
    pub slow_requests: usize,
    /// Streams of events at a time. Each has a connection for itself.
    pub streams: u64,
    /// Streams of one token at a time.
    pub streams_per_token: u64,
    /// How long a stream may be silent.
    pub stream_heartbeat: Duration,
    /// How long a client may take to send the head of its first request.
    pub first_request_timeout: Duration,
    /// How long a client may take to send a request's head, and how long an idle connection stays
    /// open.
    pub header_timeout: Duration,
    /// How long a client may take to send a request's body.
    pub body_timeout: Duration,
    /// How long a client may leave an answer unread.
    pub write_timeout: Duration,
    /// How long a client may take to read a whole answer, beside what its length allows.
    pub answer_timeout: Duration,
    /// Bytes of an answer for which there is another second.
    pub answer_bytes_per_second: u64,
    /// How long requests in flight may take once the server is told to stop.
    pub stop_timeout: Duration,
    /// What of each ledger is indexed.
    pub indexed_as: IndexedAs,
    /// Accounts that a lookup of smart accounts or passkey wallets lists.
    pub most_accounts: u32,
    /// Whether JSON-RPC is for owners of a token alone.
    pub rpc_needs_token: bool,
    /// Whether coins can be asked for.
    pub has_friendbot: bool,
    /// UNIX seconds at which the time of every signer is read, instead of now.
    pub fixed_clock: Option<u64>,
    /// The network's newest ledger for the same, instead of what is known of it.
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
            most_accounts: accounts::MOST_ACCOUNTS,
            rpc_needs_token: false,
            has_friendbot: false,
            fixed_clock: None,
            fixed_network_ledger: None,
        }
    }
}

/// What happened to one request, for metrics.
#[derive(Debug, Clone, Copy)]
pub struct RequestSummary {
    /// Template of the route, as the API description writes it; `unmatched` when there is none.
    pub route: &'static str,
    /// Status of the answer.
    pub status: u16,
    /// Seconds from the request's head to the finished answer, without sending it.
    pub seconds: f64,
    /// Whether the answer had been kept from an earlier request; none where none is kept, and when
    /// the request failed.
    pub was_kept: Option<bool>,
}
