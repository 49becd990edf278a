//! Present ledger entries of the stellar-core that this process runs, requested at its query port
//! (stellar-core, `docs/software/commands.md`, "Query Commands", and `src/main/QueryServer.cpp`).
//! Does not depend on how past states are derived from them.

mod answers;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use orrery_ledger::domain::{LedgerSeq, LiveEntries, LiveState, excerpt};
use orrery_net::http::{self, HttpError, Timeouts};
use orrery_net::reqwest::header::{CONNECTION, CONTENT_TYPE};
use orrery_net::reqwest::{Client, StatusCode};
use parking_lot::Mutex;
use stellar_xdr::{LedgerKey, Limits, WriteXdr};
use tokio::time::{Instant, sleep};

use super::error::NAME;

/// The first protocol whose programs have a query port.
const QUERY_PROTOCOL: u32 = 22;
/// The first protocol whose programs report there whether an entry is live, archived or absent
/// (CAP-66).
const STATES_PROTOCOL: u32 = 23;

/// Maximum size of an answer in bytes: more than the largest entries for as many keys as are
/// requested at a time.
const MAX_BYTES: u64 = 64 << 20;
/// Maximum number of bytes of an error response that are read.
const LONGEST_REFUSAL: u64 = 16 << 10;
/// Maximum time for core to answer as of a ledger that it has streamed: it streams a ledger shortly
/// before.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// Ports at which the core of this process can be asked now. The session that runs core keeps them
/// up to date; clones share them.
#[derive(Debug, Clone, Default)]
pub struct QueryPort(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    reach: Reach,
    /// Port of core's HTTP interface, if it is on.
    http: Option<u16>,
    /// The newest ledger that core has streamed.
    streamed: Option<LedgerSeq>,
}

/// How core's query port can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Reach {
    #[default]
    NotRunning,
    TooOld(u32),
    Off,
    Open {
        port: u16,
        method: Method,
    },
}

/// Command of the query port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    /// `getledgerentry`: returns entries with their state and their time to live.
    WithState,
    /// `getledgerentryraw`: returns the entry under each key; times to live have keys of their own.
    Raw,
}

/// Keeps the ports open to clients until this is dropped.
pub(super) struct PublishedPorts(QueryPort);

impl Reach {
    /// Returns how a running core of a protocol can be reached whose query port is `port`; 0 when
    /// it is off.
    pub fn of(port: u16, protocol: u32) -> Self {
        match port {
            _ if Self::is_too_old(protocol) => Self::TooOld(protocol),
            0 => Self::Off,
            port if protocol < STATES_PROTOCOL => Self::Open { port, method: Method::Raw },
            port => Self::Open { port, method: Method::WithState },
        }
    }

    /// Returns whether programs of a protocol have no query port.
    pub fn is_too_old(protocol: u32) -> bool {
        protocol < QUERY_PROTOCOL
    }
}

impl Method {
    /// Returns the name of the command.
    fn name(self) -> &'static str {
        match self {
            Self::WithState => "getledgerentry",
            Self::Raw => "getledgerentryraw",
        }
    }
}

impl QueryPort {
    /// Publishes how core, which is about to run, can be reached. `http` is the port of its HTTP
    /// interface; 0 when it is off.
    pub(super) fn publish(&self, reach: Reach, http: u16) -> PublishedPorts {
        let http = (http != 0).then_some(http);
        *self.0.lock() = State { reach, http, streamed: None };
        PublishedPorts(self.clone())
    }

    /// Records that core has streamed a ledger.
    pub(super) fn streamed(&self, ledger: LedgerSeq) {
        let mut state = self.0.lock();
        state.streamed = state.streamed.max(Some(ledger));
    }

    fn open(&self) -> Result<(u16, Method), String> {
        match self.0.lock().reach {
            Reach::NotRunning => Err("the stellar-core that is asked for ledger entries does not \
                                      run: the request is repeated once it does"
                .to_owned()),
            Reach::TooOld(protocol) => Err(format!(
                "a stellar-core of protocol {protocol} cannot be asked for ledger entries: install \
                 one of protocol 22 or newer, or name an RPC server in programs.rpc"
            )),
            Reach::Off => Err("stellar-core cannot be asked for ledger entries: remove \
                               HTTP_QUERY_PORT from the file of core.config, or name an RPC server \
                               in programs.rpc"
                .to_owned()),
            Reach::Open { port, method } => Ok((port, method)),
        }
    }

    /// Returns the port of core's HTTP interface; `None` while core does not run, and when it is
    /// off.
    pub(super) fn http(&self) -> Option<u16> {
        self.0.lock().http
    }

    fn newest(&self) -> Option<LedgerSeq> {
        self.0.lock().streamed
    }
}

impl Drop for PublishedPorts {
    fn drop(&mut self) {
        *self.0.0.lock() = State::default();
    }
}

/// Client for the ledger entries of a core.
pub struct CoreEntries {
    client: Client,
    port: QueryPort,
}

impl CoreEntries {
    /// Creates a client for the core at `port`. Sends no request yet.
    ///
    /// # Errors
    /// When no HTTP client can be set up.
    pub fn new(port: QueryPort, timeouts: Timeouts) -> Result<Self, HttpError> {
        Ok(Self { client: http::local_client(timeouts)?, port })
    }

    /// Returns the entries that core holds under `keys`, which must be distinct and contain no key
    /// of a time to live. All are as of one ledger: the newest one that core had streamed before
    /// the call, or a later one. An older one is returned only when core does not reach it within
    /// two seconds.
    ///
    /// # Errors
    /// When core does not run, has no query port, returns an error, or its answer is invalid.
    pub async fn look_up(&self, keys: &[LedgerKey]) -> Result<LiveEntries, String> {
        let (newest, until) = (self.port.newest(), Instant::now() + CATCH_UP_TIMEOUT);
        loop {
            let held = self.request(keys).await?;
            if Some(held.as_of) >= newest || Instant::now() >= until {
                return Ok(held);
            }
            sleep(RETRY_DELAY).await;
        }
    }

    async fn request(&self, keys: &[LedgerKey]) -> Result<LiveEntries, String> {
        let (port, method) = self.port.open()?;
        let (request_body, name) = (request_body(keys, method)?, method.name());
        let failed = |failure: HttpError| {
            format!("{NAME} cannot be asked for {name} at port {port}: {failure}")
        };
        let request = self
            .client
            .post(format!("http://127.0.0.1:{port}/{name}"))
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(CONNECTION, "close")
            .body(request_body);
        let response = request.send().await.map_err(|error| failed(error.into()))?;
        let status = response.status();
        if status != StatusCode::OK {
            let message = http::read_capped(response, LONGEST_REFUSAL).await.unwrap_or_default();
            let (status, message) =
                (status.as_u16(), excerpt(String::from_utf8_lossy(&message).trim()));
            return Err(format!(
                "{NAME} answers {name} at port {port} with HTTP {status}: {message}"
            ));
        }
        let body = http::read_capped(response, MAX_BYTES).await.map_err(failed)?;
        let read = match method {
            Method::WithState => answers::parse_with_state(&body, keys),
            Method::Raw => answers::parse_raw(&body, keys),
        };
        read.map_err(|found| {
            format!(
                "{NAME} answers {name} with {found}: it may be newer than this version of Orrery \
                 supports"
            )
        })
    }
}

impl LiveState for CoreEntries {
    fn look_up<'a>(&'a self, keys: &'a [LedgerKey]) -> BoxFuture<'a, Result<LiveEntries, String>> {
        self.look_up(keys).boxed()
    }
}

/// Formats a request, `key=BASE64&key=…`: the keys, and with [`Method::Raw`] those of their times
/// to live.
fn request_body(keys: &[LedgerKey], method: Method) -> Result<String, String> {
    let times = keys.iter().filter(|_| method == Method::Raw).filter_map(answers::ttl_of);
    let mut request_body = form_urlencoded::Serializer::new(String::new());
    for key in keys.iter().cloned().chain(times) {
        let key = key.to_xdr_base64(Limits::none());
        let key =
            key.map_err(|error| format!("a ledger key cannot be written as XDR ({error})"))?;
        request_body.append_pair("key", &key);
    }
    Ok(request_body.finish())
}

#[cfg(test)]
mod tests;
