//! An upstream RPC server (stellar-rpc, or what speaks like it) as a source to follow: which questions
//! to ask, how many ledgers at once, and what its refusals mean. Leaves HTTP and JSON-RPC to `call`, and
//! retries to the follower.

mod answers;
mod call;
mod entries;
mod oldest;
mod page_size;
mod relay;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use reqwest::Url;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use self::answers::{
    HealthAnswer, LatestAnswer, LedgersQuestion, NetworkAnswer, Page, Pagination, limit_of,
    read_page, window_of,
};
use self::call::{CallError, METHOD_NOT_FOUND, REFUSED_PARAMETERS, Server};
pub use self::entries::{MOST_KEYS, RpcEntries};
use self::page_size::PageSize;
pub use self::relay::{Relayed, RpcRelay};
use super::follow::{Fetched, LedgerSource, SourceError};
use super::http::{self, HttpError, Timeouts};
use crate::domain::{LedgerRange, LedgerSeq, excerpt};
use crate::verify::Link;

/// No answer is refused for its length below this, whatever the settings say: one ledger of the public
/// network may have tens of megabytes in base64.
const LEAST_ANSWER_BYTES: u64 = 64 << 20;
/// Longest answer to a question that is not about ledgers.
const SHORT_ANSWER_BYTES: u64 = 1 << 20;
/// A follower in the oldest tenth of what the server keeps may soon be left behind.
const EDGE: u32 = 10;

/// How to follow an RPC server. Shows neither passwords nor values of headers.
#[derive(Clone)]
pub struct RpcSettings {
    /// `http` or `https` address; may hold a user and a password, or a key in its query or path.
    pub url: String,
    /// Names and values of headers to send, for example `Authorization`.
    pub headers: Vec<(String, String)>,
    /// 5 seconds to connect and 8 seconds of silence unless set.
    pub timeouts: Timeouts,
    /// Most ledgers of one page: 200 unless set. The server may allow fewer, which is learned.
    pub most_ledgers: u32,
    /// Longest answer that is read, bytes after decompression: 128 MiB unless set, never below 64 MiB.
    pub most_bytes: u64,
    /// Between two questions for a ledger that is not closed yet: 1 second unless set.
    pub poll: Duration,
}

impl RpcSettings {
    /// The server at `url`, with everything else as usual.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            headers: Vec::new(),
            timeouts: Timeouts::default(),
            most_ledgers: 200,
            most_bytes: 128 << 20,
            poll: Duration::from_secs(1),
        }
    }
}

impl fmt::Debug for RpcSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = Url::parse(&self.url).map_or_else(|_| "…".to_owned(), |url| http::redacted(&url));
        let headers: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("RpcSettings")
            .field("url", &url)
            .field("headers", &headers)
            .field("timeouts", &self.timeouts)
            .field("most_ledgers", &self.most_ledgers)
            .field("most_bytes", &self.most_bytes)
            .field("poll", &self.poll)
            .finish()
    }
}

/// Why settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RpcError {
    /// No address. It is not quoted, because it may hold a password.
    #[error("the address of the RPC server is wrong ({0}): write it as https://HOST/PATH")]
    Address(String),
    /// No header. Its value is not quoted, because it may be a secret.
    #[error(
        "the header '{0}' for the RPC server is wrong: its name may hold letters, digits and '-', and \
         its value must be one line of ASCII"
    )]
    Header(String),
    /// No client.
    #[error(transparent)]
    Client(HttpError),
}

/// Follows one RPC server.
pub struct RpcSource {
    server: Server,
    /// The server's address for origins, without secrets.
    address: Arc<str>,
    most_bytes: u64,
    poll: Duration,
    page: PageSize,
    window: Window,
    /// Where the page after the last one begins, when that one came whole.
    cursor: Option<(LedgerSeq, String)>,
    /// The last ledger that was handed on.
    last: Option<Link>,
    /// A page is asked for. Still set at the next question when the caller lost patience.
    asking: bool,
    warned_of_edge: bool,
}

/// What the server has, as far as it said.
#[derive(Default)]
struct Window {
    oldest: Option<LedgerSeq>,
    latest: Option<LedgerSeq>,
    looked: Option<Instant>,
}

impl RpcSource {
    /// Will follow the server of `settings`. Asks it nothing yet.
    ///
    /// # Errors
    /// When address or headers are malformed, or no HTTP client can be set up.
    pub fn new(settings: &RpcSettings) -> Result<Self, RpcError> {
        let server = Server::new(settings)?;
        Ok(Self {
            address: server.address().into(),
            server,
            most_bytes: settings.most_bytes.max(LEAST_ANSWER_BYTES),
            poll: settings.poll,
            page: PageSize::new(settings.most_ledgers),
            window: Window::default(),
            cursor: None,
            last: None,
            asking: false,
            warned_of_edge: false,
        })
    }

    /// Asks what the server has: cheaply where `getHealth` names ledgers, which old servers do not.
    async fn look(&mut self) -> Result<(), SourceError> {
        let health = self.server.ask("getHealth", SHORT_ANSWER_BYTES).await;
        if !self.take_health(health)? {
            let latest: LatestAnswer = self.server.ask("getLatestLedger", self.most_bytes).await?;
            self.window.latest = Some(LedgerSeq(latest.sequence)).filter(|latest| latest.0 > 0);
            if let (None, Some(latest)) = (self.window.oldest, self.window.latest) {
                // Its answer to a question that is certainly allowed says where it begins.
                self.window.oldest = self.ask_for(latest, 1).await?.oldest;
            }
        }
        self.window.looked = Some(Instant::now());
        Ok(())
    }

    /// Takes over what `getHealth` says; false when it names no ledgers.
    fn take_health(
        &mut self,
        health: Result<HealthAnswer, CallError>,
    ) -> Result<bool, SourceError> {
        let health = match health {
            Err(CallError::Refused { code: METHOD_NOT_FOUND, .. }) => return Ok(false),
            other => other?,
        };
        if let Some(status) = health.status.filter(|status| status != "healthy") {
            let (name, status) = (self.server.name(), excerpt(&status));
            return Err(SourceError::Retryable(format!("{name} is not ready: it is '{status}'")));
        }
        let (Some(oldest), Some(latest)) = (health.oldest_ledger, health.latest_ledger) else {
            return Ok(false);
        };
        self.window.oldest = Some(LedgerSeq(oldest)).filter(|oldest| oldest.0 > 0);
        self.window.latest = Some(LedgerSeq(latest)).filter(|latest| latest.0 > 0);
        Ok(true)
    }

    async fn fetch_from(&mut self, from: LedgerSeq) -> Result<Fetched, SourceError> {
        if self.window.latest < Some(from) {
            if self.window.looked.is_some_and(|looked| looked.elapsed() < self.poll) {
                return Ok(Fetched::NotYet);
            }
            self.look().await?;
            // The ledger after the newest must not be asked for: that is an error.
            if self.window.latest < Some(from) {
                return Ok(Fetched::NotYet);
            }
        }
        if self.asking {
            // The caller lost patience with the page before.
            self.page.shrink();
        }
        loop {
            let limit = self.page.ledgers();
            match self.ask_for(from, limit).await {
                Ok(page) => return self.hand_on(from, limit, page),
                Err(error) => {
                    self.cursor = None;
                    if let Some(fetched) = self.judge(from, error)? {
                        return Ok(fetched);
                    }
                }
            }
        }
    }

    /// Asks for at most `limit` ledgers from `from` on.
    async fn ask_for(&mut self, from: LedgerSeq, limit: u32) -> Result<Page, CallError> {
        let cursor = self.cursor.as_ref().filter(|(next, _)| *next == from);
        let question = LedgersQuestion {
            start_ledger: cursor.is_none().then_some(from.0),
            pagination: Pagination { cursor: cursor.map(|(_, text)| text.as_str()), limit },
        };
        self.asking = true;
        let answer = self.server.send("getLedgers", Some(question), self.most_bytes).await;
        self.asking = false;
        let answer = answer?;
        let asked = answer.asked().clone();
        let before = self.last.filter(|last| last.sequence.next() == Some(from));
        let address = Arc::clone(&self.address);
        // Decoding takes tens of milliseconds, too long for a thread that others wait for.
        let read = spawn_blocking(move || read_page(&answer, &address, before)).await;
        read.unwrap_or_else(|error| {
            let found = format!("what its reader breaks down at ({error})");
            Err(CallError::NotUnderstood { asked, found })
        })
    }

    /// Keeps what a page says about the server, and hands on its ledgers.
    fn hand_on(&mut self, from: LedgerSeq, limit: u32, page: Page) -> Result<Fetched, SourceError> {
        self.page.answered(limit, page.answered, page.bytes);
        self.window.oldest = page.oldest.or(self.window.oldest);
        self.window.latest = page.latest.or(self.window.latest);
        self.cursor = match (&page.last, page.cursor, &page.fault) {
            (Some(last), Some(cursor), None) if cursor == last.sequence.to_string() => {
                last.sequence.next().map(|next| (next, cursor))
            }
            _ => None,
        };
        let lacks_it = page.ledgers.first().is_none_or(|ledger| ledger.sequence > from);
        if page.fault.is_none() && lacks_it && self.window.oldest > Some(from) {
            return Err(self.gone(from));
        }
        match (page.fault, page.last) {
            (None, None) => Ok(Fetched::NotYet),
            (Some(fault), None) => {
                let name = self.server.name();
                Err(SourceError::Retryable(format!("{name} yields what cannot be right: {fault}")))
            }
            (fault, Some(last)) => {
                if let Some(fault) = fault {
                    // It is met again, as the first ledger of a page.
                    tracing::debug!("the rest of a page is left out: {fault}");
                }
                self.last = Some(last);
                self.warn_at_edge(last.sequence);
                Ok(Fetched::Ledgers(page.ledgers))
            }
        }
    }

    /// What a failed question for ledgers from `from` on means; none when it should be asked again at
    /// once in another way.
    fn judge(&mut self, from: LedgerSeq, error: CallError) -> Result<Option<Fetched>, SourceError> {
        if error.asks_for_less() {
            self.page.shrink();
        }
        let CallError::Refused { code, message, .. } = &error else { return Err(error.into()) };
        if !REFUSED_PARAMETERS.contains(code) {
            return Err(error.into());
        }
        if limit_of(message).is_some_and(|limit| self.page.limit_is(limit)) {
            return Ok(None);
        }
        if let Some((oldest, latest)) = window_of(message) {
            self.window.oldest = Some(oldest);
            self.window.latest = Some(latest);
        }
        if self.window.oldest > Some(from) {
            return Err(self.gone(from));
        }
        if self.window.latest < Some(from) {
            return Ok(Some(Fetched::NotYet));
        }
        Err(error.into())
    }

    fn gone(&self, from: LedgerSeq) -> SourceError {
        let name = self.server.name();
        let oldest = self.window.oldest.unwrap_or(from);
        let before = oldest.previous().unwrap_or(oldest);
        SourceError::Gone(format!(
            "{name} begins at ledger {oldest} and does not have ledger {from}, which is needed next: \
             import ledgers {from} to {before} from a ledger lake, or follow an RPC server that \
             reaches further back"
        ))
    }

    /// Says once that the server may drop ledgers before they are fetched.
    fn warn_at_edge(&mut self, ledger: LedgerSeq) {
        let (Some(oldest), Some(latest)) = (self.window.oldest, self.window.latest) else { return };
        let margin = latest.0.saturating_sub(oldest.0) / EDGE;
        let near = ledger.0 < oldest.0.saturating_add(margin);
        if near && !self.warned_of_edge {
            tracing::warn!(
                "ledger {ledger} is among the oldest that {} keeps ({oldest} to {latest}): if it \
                 drops ledgers faster than they are fetched, they must come from a ledger lake",
                self.server.name()
            );
        }
        self.warned_of_edge = near;
    }

    fn known_range(&self) -> Option<LedgerRange> {
        let last = self.window.latest?;
        // A server that does not say where it begins is asked from the first ledger on.
        Some(LedgerRange { first: self.window.oldest.unwrap_or(LedgerSeq::FIRST), last })
    }
}

impl LedgerSource for RpcSource {
    fn name(&self) -> String {
        self.server.name().to_owned()
    }

    fn passphrase(&mut self) -> BoxFuture<'_, Result<Option<String>, SourceError>> {
        async {
            let network: NetworkAnswer = self.server.ask("getNetwork", SHORT_ANSWER_BYTES).await?;
            Ok(Some(network.passphrase))
        }
        .boxed()
    }

    fn range(&mut self) -> BoxFuture<'_, Result<Option<LedgerRange>, SourceError>> {
        async {
            self.look().await?;
            Ok(self.known_range())
        }
        .boxed()
    }

    /// A server with a ledger lake behind it reaches further back than it says.
    fn may_reach_back(&self) -> bool {
        true
    }

    fn first_there(&mut self, said: LedgerSeq) -> BoxFuture<'_, Result<LedgerSeq, SourceError>> {
        self.first_yielded(said).boxed()
    }

    fn fetch(&mut self, from: LedgerSeq) -> BoxFuture<'_, Result<Fetched, SourceError>> {
        self.fetch_from(from).boxed()
    }
}

#[cfg(test)]
mod tests;
