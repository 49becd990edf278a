//! The HTTP interface: events, transactions and health, as REST. Knows the questions that may be
//! asked of [`crate::store`], never how it keeps its answers.
//!
//! A request passes, in this order: [`server`] (connections and their limits), [`gate`] (request
//! id, route, rate limit, token, body), a handler of its area ([`events`], [`transactions`],
//! [`completeness`], [`health`], [`description`], [`metrics`]) unless the answer is still known
//! ([`answers`]), and [`gate`] again (compression, headers, log). Each area has a table of its routes; a
//! handler is a plain function from parameters to an answer.

mod answer;
mod answers;
mod blocking;
mod completeness;
mod compression;
mod cors;
mod description;
mod error;
mod events;
mod gate;
mod health;
mod json;
mod limits;
mod metrics;
mod page;
mod params;
mod retroshade;
mod router;
mod server;
mod transactions;
mod wire;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

pub use error::ApiError;
pub use json::List as EventList;
pub use limits::RateLimit;
pub use server::serve;

use crate::auth::Tokens;
use crate::domain::Network;
use crate::observe::health::Health;
use crate::programs::Programs;
use crate::store::{IndexedAs, Store};

/// Largest request body, in bytes, of every route that does not say otherwise.
pub const LARGEST_BODY: usize = 256 * 1024;

/// Longest path and query, in bytes: room for 200 contracts and for 16 long topics.
pub const LONGEST_URI: usize = 32 * 1024;

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
    /// Text of `/metrics`; without it the route does not exist.
    pub metrics: Option<Arc<dyn Fn() -> String + Send + Sync>>,
    /// Told of every answered request.
    pub on_request: Option<RequestObserver>,
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
    /// Connections at a time; further ones wait to be accepted.
    pub connections: usize,
    /// Requests that read the store at a time.
    pub readers: usize,
    /// Requests that may wait for a reader; further ones are answered 503.
    pub waiting_readers: usize,
    /// Requests at a time that take long, such as queries over tables.
    pub slow_requests: usize,
    /// How long a client may take to send a request's head, and how long an idle connection stays
    /// open.
    pub header_timeout: Duration,
    /// How long a client may take to send a request's body.
    pub body_timeout: Duration,
    /// How long a client may leave an answer unread.
    pub write_timeout: Duration,
    /// How long requests in flight may take once the server is told to stop.
    pub stop_timeout: Duration,
    /// What of each ledger is indexed.
    pub indexed_as: IndexedAs,
}

impl Default for ApiSettings {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            rate_limit: Some(RateLimit::default()),
            cors_origins: Vec::new(),
            trusted_proxies: Vec::new(),
            connections: 1024,
            readers: 2 * cores,
            waiting_readers: 256,
            slow_requests: 16,
            header_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(15),
            write_timeout: Duration::from_secs(30),
            stop_timeout: Duration::from_secs(10),
            indexed_as: IndexedAs::default(),
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
