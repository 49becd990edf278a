//! Entries of the ledger as the stellar-core that this process runs holds them now, asked at its query
//! port (stellar-core, `docs/software/commands.md`, "Query Commands", and `src/main/QueryServer.cpp`).
//! Knows nothing of what follows for the past.

mod answers;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::header::{CONNECTION, CONTENT_TYPE};
use reqwest::{Client, StatusCode};
use stellar_xdr::{LedgerKey, Limits, WriteXdr};
use tokio::time::{Instant, sleep};

use super::NAME;
use crate::domain::{LedgerSeq, excerpt};
use crate::source::entries::HeldEntries;
use crate::source::http::{self, HttpError, Timeouts};

/// The first protocol whose programs have a query port.
const QUERY_PROTOCOL: u32 = 22;
/// The first one whose programs say there what is live, archived or absent (CAP-66).
const STATES_PROTOCOL: u32 = 23;

/// More than the largest entries under as many keys as are asked for at a time.
const MOST_BYTES: u64 = 64 << 20;
/// Bytes of a refusal that are read.
const LONGEST_REFUSAL: u64 = 16 << 10;
/// Core streams a ledger a moment before it answers for it.
const CLOSES_WITHIN: Duration = Duration::from_secs(2);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Why a core did not say what it holds.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// It is not there, or only just being started.
    #[error(
        "the stellar-core that knows entries of the ledger does not run: it is asked once it does"
    )]
    NotRunning,
    /// Its program is too old.
    #[error(
        "a stellar-core of protocol {0} cannot be asked for entries of the ledger: install one of \
         protocol 22 or newer, or name an RPC server in programs.rpc"
    )]
    TooOld(u32),
    /// The operator has turned it off.
    #[error(
        "stellar-core cannot be asked for entries of the ledger: remove HTTP_QUERY_PORT from the file \
         of core.config, or name an RPC server in programs.rpc"
    )]
    Off,
    /// A key is too deep or too long.
    #[error("a ledger key cannot be written as XDR ({0})")]
    Key(stellar_xdr::Error),
    /// No answer came.
    #[error("{NAME} cannot be asked for {method} at port {port}: {failure}")]
    Http {
        /// What was asked for.
        method: &'static str,
        /// Where.
        port: u16,
        /// Why not.
        failure: HttpError,
    },
    /// It says no, which it does while it starts as well.
    #[error("{NAME} answers {method} at port {port} with HTTP {}: {said}", status.as_u16())]
    Refused {
        /// What was asked for.
        method: &'static str,
        /// Where.
        port: u16,
        /// Its answer.
        status: StatusCode,
        /// What it says, shortened.
        said: String,
    },
    /// The answer is not what was asked for.
    #[error("{NAME} answers {method} with {found}: it may be newer than this program understands")]
    NotUnderstood {
        /// What was asked for.
        method: &'static str,
        /// What came instead.
        found: String,
    },
}

/// Where the core that a process runs can be asked now. Who runs core keeps it up to date; clones are
/// the same.
#[derive(Debug, Clone, Default)]
pub struct QueryPort(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    reach: Reach,
    /// Port of its HTTP interface, where it is on.
    http: Option<u16>,
    /// The newest ledger that it has streamed.
    streamed: Option<LedgerSeq>,
}

/// How a core can be asked.
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

/// What core is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    /// `getledgerentry`: what is there, whether it is live, and how long.
    Stated,
    /// `getledgerentryraw`: what lies under each key, times to live under keys of their own.
    Raw,
}

/// Core can be asked until this is dropped.
pub(super) struct Asked(QueryPort);

impl Reach {
    /// How a running core of a protocol can be asked whose query port is this; 0 when it is off.
    pub fn of(port: u16, protocol: u32) -> Self {
        match port {
            _ if Self::is_too_old(protocol) => Self::TooOld(protocol),
            0 => Self::Off,
            port if protocol < STATES_PROTOCOL => Self::Open { port, method: Method::Raw },
            port => Self::Open { port, method: Method::Stated },
        }
    }

    /// Whether a program of a protocol has no query port.
    pub fn is_too_old(protocol: u32) -> bool {
        protocol < QUERY_PROTOCOL
    }
}

impl Method {
    /// Its name in a question.
    fn name(self) -> &'static str {
        match self {
            Self::Stated => "getledgerentry",
            Self::Raw => "getledgerentryraw",
        }
    }
}

impl QueryPort {
    /// Core is about to run, and can be asked like this. Its HTTP interface is at the port `http`; 0 when it is off.
    pub(super) fn ask_at(&self, reach: Reach, http: u16) -> Asked {
        let http = (http != 0).then_some(http);
        *self.0.lock() = State { reach, http, streamed: None };
        Asked(self.clone())
    }

    /// Core has streamed a ledger.
    pub(super) fn streamed(&self, ledger: LedgerSeq) {
        let mut state = self.0.lock();
        state.streamed = state.streamed.max(Some(ledger));
    }

    fn open(&self) -> Result<(u16, Method), QueryError> {
        match self.0.lock().reach {
            Reach::NotRunning => Err(QueryError::NotRunning),
            Reach::TooOld(protocol) => Err(QueryError::TooOld(protocol)),
            Reach::Off => Err(QueryError::Off),
            Reach::Open { port, method } => Ok((port, method)),
        }
    }

    /// Port of its HTTP interface; none while it does not run, and when it is off.
    pub(super) fn http(&self) -> Option<u16> {
        self.0.lock().http
    }

    fn newest(&self) -> Option<LedgerSeq> {
        self.0.lock().streamed
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        *self.0.0.lock() = State::default();
    }
}

/// Asks a core for entries of the ledger.
pub struct CoreEntries {
    client: Client,
    port: QueryPort,
}

impl CoreEntries {
    /// Will ask the core that `port` tells of, with these timeouts. Asks it nothing yet.
    ///
    /// # Errors
    /// When no HTTP client can be set up.
    pub fn new(port: QueryPort, timeouts: Timeouts) -> Result<Self, HttpError> {
        Ok(Self { client: http::local_client(timeouts)?, port })
    }

    /// What core holds under some different keys, of which none is of a time to live. All of it is of
    /// one ledger, not before the newest one that core had streamed when it was asked, where core comes
    /// to answer for that one soon.
    ///
    /// # Errors
    /// When it does not run, cannot be asked, refuses, or its answer is not understood.
    pub async fn look_up(&self, keys: &[LedgerKey]) -> Result<HeldEntries, QueryError> {
        let (newest, until) = (self.port.newest(), Instant::now() + CLOSES_WITHIN);
        loop {
            let held = self.ask(keys).await?;
            if Some(held.as_of) >= newest || Instant::now() >= until {
                return Ok(held);
            }
            sleep(ASK_AGAIN_AFTER).await;
        }
    }

    async fn ask(&self, keys: &[LedgerKey]) -> Result<HeldEntries, QueryError> {
        let (port, method) = self.port.open()?;
        let (question, name) = (question(keys, method)?, method.name());
        let failed = |failure| QueryError::Http { method: name, port, failure };
        let request = self
            .client
            .post(format!("http://127.0.0.1:{port}/{name}"))
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(CONNECTION, "close")
            .body(question);
        let response = request.send().await.map_err(|error| failed(error.into()))?;
        let status = response.status();
        if status != StatusCode::OK {
            let said = http::read_capped(response, LONGEST_REFUSAL).await.unwrap_or_default();
            let said = excerpt(String::from_utf8_lossy(&said).trim());
            return Err(QueryError::Refused { method: name, port, status, said });
        }
        let body = http::read_capped(response, MOST_BYTES).await.map_err(failed)?;
        let read = match method {
            Method::Stated => answers::stated(&body, keys),
            Method::Raw => answers::raw(&body, keys),
        };
        read.map_err(|found| QueryError::NotUnderstood { method: name, found })
    }
}

/// `key=BASE64&key=…`: the keys, and with [`Method::Raw`] those of their times to live.
fn question(keys: &[LedgerKey], method: Method) -> Result<String, QueryError> {
    let times = keys.iter().filter(|_| method == Method::Raw).filter_map(answers::time_to_live);
    let mut question = form_urlencoded::Serializer::new(String::new());
    for key in keys.iter().cloned().chain(times) {
        let key = key.to_xdr_base64(Limits::none()).map_err(QueryError::Key)?;
        question.append_pair("key", &key);
    }
    Ok(question.finish())
}

#[cfg(test)]
mod tests;
