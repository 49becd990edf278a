//! What the operator may choose of the API, and what only tests choose.

use std::sync::Arc;
use std::time::Duration;

use super::labels::AddressNames;
use orrery_settings::{Http, Indexers, Limits, Queries, Rpc};
use orrery_store::IndexedAs;

/// The sections of the configuration that the API reads.
#[derive(Debug, Clone, Default)]
pub struct ApiSettings {
    /// The HTTP server.
    pub http: Http,
    /// Limits on clients' requests.
    pub limits: Limits,
    /// Limits of SQL queries.
    pub queries: Queries,
    /// JSON-RPC.
    pub rpc: Rpc,
    /// Smart account and passkey wallet lookups.
    pub indexers: Indexers,
    /// Current indexing settings, as reported by `/rest/completeness`.
    pub indexed_as: IndexedAs,
    /// Names that the operator gives to addresses (`[site] labels`).
    pub names: Arc<AddressNames>,
    /// Data directory as commands in the service's working directory name it, which pages put into
    /// commands; `None` for an absolute path, which is nobody else's business.
    pub data_dir: Option<String>,
    /// What no setting changes.
    pub tunables: Tunables,
}

/// Values that no setting changes, and tests do.
#[derive(Debug, Clone, Copy)]
pub struct Tunables {
    /// Maximum number of requests that read the store at a time; one client may have half of them.
    pub readers: usize,
    /// Maximum number of requests that wait for a slot of one kind; further ones get 503. Of those
    /// that wait to read the store, one client may have a quarter.
    pub waiting_readers: usize,
    /// Maximum number of concurrent SQL queries, and separately of program changes and of module
    /// uploads. One owner may have at most a quarter of the queries and of the changes, and one upload.
    pub slow_requests: usize,
    /// Seconds whose forwarded calls may come at once after a pause.
    pub forwarding_burst: u32,
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
    /// Maximum time for requests in flight to complete after the server was told to stop.
    pub stop_timeout: Duration,
}

impl Default for Tunables {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            readers: 2 * cores,
            waiting_readers: 256,
            slow_requests: 16,
            forwarding_burst: 4,
            stream_heartbeat: Duration::from_secs(15),
            first_request_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(90),
            body_timeout: Duration::from_secs(15),
            write_timeout: Duration::from_secs(30),
            stop_timeout: Duration::from_secs(10),
        }
    }
}
