//! Follows an upstream RPC server (stellar-rpc or a compatible one): decides which requests to
//! send, how many ledgers to request at once, and what the server's errors mean. Leaves HTTP and
//! JSON-RPC to `call`, and retries to the follower.

mod answers;
mod call;
mod entries;
mod oldest;
mod page_size;
mod relay;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use orrery_ledger::domain::{Fetched, LedgerRange, LedgerSeq, LedgerSource, SourceError, excerpt};
use orrery_ledger::verify::Link;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use self::answers::{
    HealthAnswer, LatestAnswer, LedgersParams, NetworkAnswer, Page, Pagination, limit_of,
    read_page, window_of,
};
pub use self::call::Relayed;
use self::call::{CallError, METHOD_NOT_FOUND, REFUSED_PARAMETERS, Server};
pub use self::entries::{MAX_KEYS, RpcEntries};
use self::page_size::PageSize;
pub use self::relay::RpcRelay;
use self::settings::{LEAST_ANSWER_BYTES, SHORT_ANSWER_BYTES};
pub use self::settings::{RpcError, RpcSettings};

/// The oldest `1 / EDGE_FRACTION` of the server's window: a follower in it risks that the server drops
/// ledgers before they are fetched.
const EDGE_FRACTION: u32 = 10;

/// Ledger source that follows one RPC server.
pub struct RpcSource {
    server: Server,
    /// The server's address without secrets, for the origins of ledgers.
    address: Arc<str>,
    most_bytes: u64,
    poll: Duration,
    may_be_behind: bool,
    page: PageSize,
    window: Window,
    /// Sequence of the next ledger and the cursor that leads to it, when the last page was
    /// complete.
    cursor: Option<(LedgerSeq, String)>,
    /// Link of the last ledger that was returned.
    last: Option<Link>,
    /// Whether a `getLedgers` request is in flight. Still set at the next fetch when the caller
    /// dropped the previous one.
    request_in_flight: bool,
    warned_of_edge: bool,
}

/// Range of ledgers that the server has, as last reported.
#[derive(Default)]
struct Window {
    oldest: Option<LedgerSeq>,
    latest: Option<LedgerSeq>,
    refreshed_at: Option<Instant>,
}

impl RpcSource {
    /// Creates a source for the server of `settings`, without contacting it.
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
            may_be_behind: settings.may_be_behind,
            page: PageSize::new(settings.most_ledgers),
            window: Window::default(),
            cursor: None,
            last: None,
            request_in_flight: false,
            warned_of_edge: false,
        })
    }

    /// Requests the server's range of ledgers: with `getHealth`, or with two other requests where
    /// an old server's health response contains no ledgers.
    async fn refresh_window(&mut self) -> Result<(), SourceError> {
        let health = self.server.request("getHealth", SHORT_ANSWER_BYTES).await;
        if !self.apply_health(health)? {
            let latest: LatestAnswer =
                self.server.request("getLatestLedger", self.most_bytes).await?;
            self.window.latest = Some(LedgerSeq(latest.sequence)).filter(|latest| latest.0 > 0);
            if let (None, Some(latest)) = (self.window.oldest, self.window.latest) {
                // Requesting the newest ledger is always valid, and the response contains the
                // oldest.
                self.window.oldest = self.request_page(latest, 1).await?.oldest;
            }
        }
        self.window.refreshed_at = Some(Instant::now());
        Ok(())
    }

    /// Takes over the range in the response to `getHealth`; returns false when the response
    /// contains none.
    fn apply_health(
        &mut self,
        health: Result<HealthAnswer, CallError>,
    ) -> Result<bool, SourceError> {
        let health = match health {
            Err(CallError::Refused { code: METHOD_NOT_FOUND, .. }) => return Ok(false),
            Err(CallError::Refused { .. }) if self.may_be_behind => return Ok(false),
            other => other?,
        };
        let ill = health.status.filter(|status| status != "healthy" && !self.may_be_behind);
        if let Some(status) = ill {
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
            if self
                .window
                .refreshed_at
                .is_some_and(|refreshed_at| refreshed_at.elapsed() < self.poll)
            {
                return Ok(Fetched::NotYet);
            }
            self.refresh_window().await?;
            // The server answers a request for a ledger after its newest with an error.
            if self.window.latest < Some(from) {
                return Ok(Fetched::NotYet);
            }
        }
        if self.request_in_flight {
            // The caller dropped the previous request, probably after a timeout.
            self.page.shrink();
        }
        loop {
            let limit = self.page.ledgers();
            match self.request_page(from, limit).await {
                Ok(page) => return self.accept_page(from, limit, page),
                Err(error) => {
                    self.cursor = None;
                    if let Some(fetched) = self.interpret_error(from, error)? {
                        return Ok(fetched);
                    }
                }
            }
        }
    }

    /// Requests at most `limit` ledgers from `from` on.
    async fn request_page(&mut self, from: LedgerSeq, limit: u32) -> Result<Page, CallError> {
        let cursor = self.cursor.as_ref().filter(|(next, _)| *next == from);
        let params = LedgersParams {
            start_ledger: cursor.is_none().then_some(from.0),
            pagination: Pagination { cursor: cursor.map(|(_, text)| text.as_str()), limit },
        };
        self.request_in_flight = true;
        let answer = self.server.send("getLedgers", Some(params), self.most_bytes).await;
        self.request_in_flight = false;
        let answer = answer?;
        let call = answer.call().clone();
        let before = self.last.filter(|last| last.sequence.next() == Some(from));
        let address = Arc::clone(&self.address);
        // Decoding takes tens of milliseconds, too long for a thread of the async runtime.
        let read = spawn_blocking(move || read_page(&answer, &address, before)).await;
        read.unwrap_or_else(|error| {
            let found = format!("something that crashed the parser ({error})");
            Err(CallError::NotUnderstood { call, found })
        })
    }

    /// Updates the state from a page and returns its ledgers.
    fn accept_page(
        &mut self,
        from: LedgerSeq,
        limit: u32,
        page: Page,
    ) -> Result<Fetched, SourceError> {
        self.page.record_response(limit, page.returned, page.bytes);
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
                Err(SourceError::Retryable(format!("{name} delivers invalid ledgers: {fault}")))
            }
            (fault, Some(last)) => {
                if let Some(fault) = fault {
                    // The faulty ledger is requested again as the first of the next page, and then
                    // returned as an error.
                    tracing::debug!("the rest of a page is left out: {fault}");
                }
                self.last = Some(last);
                self.warn_at_edge(last.sequence);
                Ok(Fetched::Ledgers(page.ledgers))
            }
        }
    }

    /// Interprets a failed request for ledgers from `from` on; `None` when it should be repeated at
    /// once with the changed page size.
    fn interpret_error(
        &mut self,
        from: LedgerSeq,
        error: CallError,
    ) -> Result<Option<Fetched>, SourceError> {
        if error.may_succeed_with_less() {
            self.page.shrink();
        }
        let CallError::Refused { code, message, .. } = &error else { return Err(error.into()) };
        if !REFUSED_PARAMETERS.contains(code) {
            return Err(error.into());
        }
        if limit_of(message).is_some_and(|limit| self.page.apply_limit(limit)) {
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

    /// Warns once that the server may drop ledgers before they are fetched.
    fn warn_at_edge(&mut self, ledger: LedgerSeq) {
        let (Some(oldest), Some(latest)) = (self.window.oldest, self.window.latest) else { return };
        let margin = latest.0.saturating_sub(oldest.0) / EDGE_FRACTION;
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
        // A server that does not report its oldest ledger is assumed to begin at the first.
        Some(LedgerRange { first: self.window.oldest.unwrap_or(LedgerSeq::FIRST), last })
    }
}

impl LedgerSource for RpcSource {
    fn name(&self) -> String {
        self.server.name().to_owned()
    }

    fn passphrase(&mut self) -> BoxFuture<'_, Result<Option<String>, SourceError>> {
        async {
            let network: NetworkAnswer =
                self.server.request("getNetwork", SHORT_ANSWER_BYTES).await?;
            Ok(Some(network.passphrase))
        }
        .boxed()
    }

    fn range(&mut self) -> BoxFuture<'_, Result<Option<LedgerRange>, SourceError>> {
        async {
            self.refresh_window().await?;
            Ok(self.known_range())
        }
        .boxed()
    }

    /// A server that is backed by a ledger lake may serve ledgers older than its reported range.
    fn may_reach_back(&self) -> bool {
        true
    }

    fn first_available(
        &mut self,
        reported: LedgerSeq,
    ) -> BoxFuture<'_, Result<LedgerSeq, SourceError>> {
        async move {
            let first = self.first_served(reported).await;
            // Whoever begins with the oldest ledger knows that it is the oldest.
            self.warned_of_edge = true;
            first
        }
        .boxed()
    }

    fn fetch(&mut self, from: LedgerSeq) -> BoxFuture<'_, Result<Fetched, SourceError>> {
        self.fetch_from(from).boxed()
    }
}

#[cfg(test)]
mod tests;
