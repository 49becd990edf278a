//! Definition of a route: the requests that it matches, who may call it, how its response is
//! produced, and how its failures are formatted. Areas declare routes, the router finds them, and
//! the gate runs them.

use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::allowance::Allowance;
use super::answer::Answer;
use super::client::Waiting;
use super::cors::AllowedHeaders;
use super::flow::StreamedBody;
use super::reading::Reading;
use super::streams::{Opening, Streams};
use super::{ApiError, Deps, error};
use crate::auth::Right;
use crate::domain::{LedgerSeq, Owner};
use crate::store::Store;

/// A method of a resource.
pub(super) struct Route {
    /// Path as in the API description; a segment in braces matches any value.
    pub template: &'static str,
    /// Name of the HTTP method. GET includes HEAD, and every resource answers OPTIONS.
    pub method: &'static str,
    /// Maximum size of the body in bytes; `None` when the route takes no body.
    pub body: Option<usize>,
    pub access: Access,
    pub work: Work,
    /// Formats failures, including those before and after the handler.
    pub failure: fn(&ApiError) -> Answer,
    /// Request headers that web pages may send.
    pub allowed_headers: AllowedHeaders,
    /// Whether the response depends on the time of the request and must not be cached by clients
    /// and proxies.
    pub no_store: bool,
    /// Additional headers of every response.
    pub headers: &'static [(&'static str, &'static str)],
}

impl Route {
    /// Creates a route without a body, whose failures have the REST format.
    pub(super) const fn new(
        method: &'static str,
        template: &'static str,
        access: Access,
        work: Work,
    ) -> Self {
        Self {
            template,
            method,
            body: None,
            access,
            work,
            failure: error::rest,
            allowed_headers: AllowedHeaders::Standard,
            no_store: false,
            headers: &[],
        }
    }

    /// Returns the route with a body of at most `largest` bytes.
    pub(super) const fn with_body(mut self, largest: usize) -> Self {
        self.body = Some(largest);
        self
    }
}

/// Who may call a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Everyone, within the rate limit of the client address.
    Public,
    /// Everyone, without a rate limit, because probes must always succeed.
    Probe,
    /// Clients that may read the metrics, without a rate limit; not open to web pages of any
    /// origin.
    Operator,
    /// Owners of a token with this right, within the rate limit of the token.
    Token(Right),
}

impl Access {
    /// Whether web pages of any origin may read the responses.
    pub(super) fn any_origin(self) -> bool {
        matches!(self, Self::Public | Self::Probe)
    }
}

/// How a response is produced: how long the handler may occupy a thread, which slot it needs, and
/// what it may access.
#[derive(Debug, Clone, Copy)]
pub(super) enum Work {
    /// Answers from memory.
    Memory(Handler<Deps>),
    /// Asynchronous handler that may wait for other services. It blocks its thread only while it
    /// reads the store ([`Call::reading`]).
    Waiting(AsyncHandler),
    /// The metrics text, which is cached for a short time.
    Metrics,
    /// Reads the store, or computes longer than an async task should; needs a readers slot.
    Blocking(Handler<Deps>),
    /// Queries tables, which may take seconds; needs a queries slot.
    Query(Handler<Deps>),
    /// Makes changes, and may wait for other threads and processes; needs a changes slot.
    Change(Handler<Deps>),
    /// Like `Change`, with a module in its body that is checked and compiled.
    Upload(Handler<Deps>),
    /// Opens a stream. An open stream does not count as a request in flight, and never blocks its
    /// thread for long.
    Stream(StreamHandler),
    /// Like `Blocking`, for rows of these consumers of the feed. Runs once they have processed all
    /// ledgers that were stored when the request arrived ([`super::current`]).
    Current(&'static [&'static str], Handler<Deps>),
    /// Like `Current`, for a response that depends only on the store, the call and the settings. It
    /// is cached like that of `Cached`.
    CurrentCached(&'static [&'static str], Handler<Deps>),
    /// Like `Blocking`, for a response that depends only on the store and the call. The finished
    /// response is cached until the store changes ([`super::answers`]).
    Cached(Handler<Store>),
}

/// Produces the response to one request. Its [`Work`] variant determines whether it may block.
pub(super) type Handler<Source> = fn(&Source, &Call<'_>) -> Result<Answer, ApiError>;

/// Produces the response to one request asynchronously. It must reserve the bytes of the response
/// ([`Reading::reserve`]).
pub(super) type AsyncHandler =
    for<'a> fn(&'a Deps, &'a Call<'a>) -> BoxFuture<'a, Result<Answer, ApiError>>;

/// Opens a stream.
pub(super) type StreamHandler = fn(&Streams, &Call<'_>, Opening) -> Result<StreamedBody, ApiError>;

/// The parts of a request that a handler receives.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    /// Values of the template's segments in braces.
    pub path: PathValues<'a>,
    /// Raw query string.
    pub query: &'a str,
    /// Body; empty unless the route takes one.
    pub body: &'a Bytes,
    /// Value of the `Content-Type` header.
    pub content_type: Option<&'a str>,
    /// Value of the `Last-Event-ID` header: the last message of a stream that the client received.
    pub last_event_id: Option<&'a str>,
    /// Owner of the token; `None` on public routes.
    pub owner: Option<&'a Owner>,
    /// Cost limits of store queries; `None` where the cost is limited otherwise.
    pub allowance: Option<&'a Allowance<'a>>,
    /// The client that waits for the response.
    pub waiting: Option<Waiting<'a>>,
    /// Access to the store for asynchronous handlers; `None` for others.
    pub reading: Option<&'a Reading<'a>>,
    /// Newest ledger that was stored when the request arrived, which the route's consumers have
    /// processed; `None` when the route has no consumers or the store has no ledger.
    pub as_of: Option<LedgerSeq>,
}

impl Default for Call<'_> {
    /// Returns a call without any content.
    fn default() -> Self {
        static EMPTY: Bytes = Bytes::new();
        let path = PathValues::default();
        Self {
            path,
            query: "",
            body: &EMPTY,
            content_type: None,
            last_event_id: None,
            owner: None,
            allowance: None,
            waiting: None,
            reading: None,
            as_of: None,
        }
    }
}

impl<'a> Call<'a> {
    /// Whether the client is likely not to wait for the response any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.waiting.is_some_and(|waiting| waiting.is_abandoned())
    }

    /// Returns the owner of the token, or [`ApiError::NoToken`] on a route without one.
    pub(super) fn owner(&self) -> Result<&'a Owner, ApiError> {
        self.owner.ok_or(ApiError::NoToken)
    }
}

/// A path and the template that it matches, segment by segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PathValues<'a> {
    pub template: &'static str,
    /// Path as sent, without a trailing slash.
    pub path: &'a str,
}

impl<'a> PathValues<'a> {
    /// Returns the segment where the template has this name in braces, still percent-encoded; empty
    /// when there is none.
    pub(super) fn get(&self, name: &str) -> &'a str {
        // The text before the first brace is usually identical in both and need not be split.
        let literal = self.template.find('{').unwrap_or(self.template.len());
        let (before, template) = self.template.split_at(literal);
        let (template, path) = match self.path.strip_prefix(before) {
            Some(path) => (template, path),
            None => (self.template, self.path),
        };
        let mut segments = template.split('/').zip(path.split('/'));
        segments.find(|(expected, _)| in_braces(expected) == Some(name)).map_or("", |(_, it)| it)
    }
}

/// Returns the name of a template's segment that matches any value.
pub(super) fn in_braces(segment: &str) -> Option<&str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}
