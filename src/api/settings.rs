//! Settings of the API, with their defaults. Where they come from is not known here.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

use super::{RateLimit, ScanLimits, UnknownParameters};
use crate::store::IndexedAs;

/// Default maximum number of accounts in a list response.
const MAX_ACCOUNTS: u32 = 3000;

/// Settings of the API that the operator may change.
#[derive(Debug, Clone)]
pub struct ApiSettings {
    /// Rate limit per owner of tokens, and per client address on public routes; `None` turns it off.
    pub rate_limit: Option<RateLimit>,
    /// Rate limit of the JSON-RPC calls of all clients together that are forwarded to another server,
    /// of which each has an equal part; `None` turns it off.
    pub forwarding_limit: Option<RateLimit>,
    /// Origins that may read responses of routes that need a token; `*` allows any.
    pub cors_origins: Vec<String>,
    /// What becomes of a request with a parameter that its route does not have.
    pub unknown_parameters: UnknownParameters,
    /// Proxies whose `X-Forwarded-For` is trusted for the client's address.
    pub trusted_proxies: Vec<IpNet>,
    /// Clients that may read `/metrics`.
    pub metrics_for: MetricsFor,
    /// Maximum number of open connections. When it is reached, the connection that has been idle
    /// longest is closed.
    pub connections: usize,
    /// Maximum number of open connections per address, or per /64 network for IPv6. Trusted proxies
    /// are exempt.
    pub connections_per_address: u64,
    /// Maximum number of concurrent requests of one owner, or of one address without a token.
    pub requests_in_flight: u64,
    /// Maximum bytes of bodies and responses in memory, of all requests together.
    pub bytes_in_flight: u64,
    /// Maximum bytes of bodies and responses in memory, of the requests of one owner, or of one
    /// address without a token.
    pub bytes_in_flight_per_client: u64,
    /// Bytes that are reserved for the response to a SQL query or to a request with a module.
    pub largest_answer: u64,
    /// Cost limits of a store query.
    pub scan: ScanLimits,
    /// Maximum number of requests that read the store at a time; one client may have half of them.
    pub readers: usize,
    /// Maximum number of requests that wait for a slot of one kind; further ones get 503. Of those
    /// that wait to read the store, one client may have a quarter.
    pub waiting_readers: usize,
    /// Maximum number of concurrent SQL queries, and separately of program changes and of module
    /// uploads. One owner may have at most a quarter of the queries and of the changes, and one upload.
    pub slow_requests: usize,
    /// Maximum number of open event streams, each of which occupies a connection.
    pub streams: u64,
    /// Maximum number of open event streams of one owner.
    pub streams_per_owner: u64,
    /// Interval after which an idle stream sends a heartbeat.
    pub stream_heartbeat: Duration,
    /// Maximum time for a client to send the head of its first request.
    pub first_request_timeout: Duration,
    /// Maximum time for a client to send the head of a request that it has begun.
    pub header_timeout: Duration,
    /// How long a connection stays open between two requests. Load balancers keep connections for a
    /// minute, and answer with 502 when a connection ends just as they use it.
    pub idle_timeout: Duration,
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
    /// Fixed UNIX time in seconds against which expirations of signers are compared; `None` uses
    /// the current time.
    pub fixed_clock: Option<u64>,
    /// Fixed ledger sequence against which expirations of signers are compared; `None` uses the
    /// newest known ledger.
    pub fixed_network_ledger: Option<u32>,
}

impl ApiSettings {
    /// Whether an address, in its canonical form, belongs to a trusted proxy.
    pub(super) fn is_trusted_proxy(&self, address: IpAddr) -> bool {
        // The operator may have written an IPv4 address as an IPv6 socket shows it.
        let mapped = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().into(),
            address => address,
        };
        let has = |proxies: &IpNet| proxies.contains(&address) || proxies.contains(&mapped);
        self.trusted_proxies.iter().any(has)
    }
}

impl Default for ApiSettings {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            rate_limit: Some(RateLimit::default()),
            forwarding_limit: Some(RateLimit::default()),
            cors_origins: Vec::new(),
            unknown_parameters: UnknownParameters::default(),
            trusted_proxies: Vec::new(),
            metrics_for: MetricsFor::default(),
            connections: 1024,
            connections_per_address: 64,
            requests_in_flight: 32,
            bytes_in_flight: 256 << 20,
            bytes_in_flight_per_client: 64 << 20,
            largest_answer: 16 << 20,
            scan: ScanLimits::default(),
            readers: 2 * cores,
            waiting_readers: 256,
            slow_requests: 16,
            streams: 512,
            streams_per_owner: 64,
            stream_heartbeat: Duration::from_secs(15),
            first_request_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(90),
            body_timeout: Duration::from_secs(15),
            write_timeout: Duration::from_secs(30),
            answer_timeout: Duration::from_secs(10),
            answer_bytes_per_second: 64 << 10,
            stop_timeout: Duration::from_secs(10),
            indexed_as: IndexedAs::default(),
            most_accounts: MAX_ACCOUNTS,
            rpc_needs_token: false,
            fixed_clock: None,
            fixed_network_ledger: None,
        }
    }
}

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
