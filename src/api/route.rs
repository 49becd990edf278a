//! What a route is: the requests that it is for, who may make them, what is done for an answer, and how a
//! failure is spelled. Areas declare routes, the router finds them, the gate runs them.

use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::allowance::Allowance;
use super::answer::Answer;
use super::client::Waiting;
use super::cors::Sendable;
use super::flow::Flow;
use super::reading::Reading;
use super::streams::{Opening, Streams};
use super::{ApiError, Deps, error};
use crate::auth::Right;
use crate::domain::{LedgerSeq, Owner};
use crate::store::Store;

/// One thing that can be done with a resource.
pub(super) struct Route {
    /// Path as the API description writes it; a segment in braces takes any value.
    pub template: &'static str,
    /// Its name; HEAD comes with GET, OPTIONS with every method.
    pub method: &'static str,
    /// Most bytes of its body; none when it takes no body.
    pub body: Option<usize>,
    pub access: Access,
    pub work: Work,
    /// How failures are spelled, those before and after its handler included.
    pub failure: fn(&ApiError) -> Answer,
    /// What pages of a browser may send with a request.
    pub sendable: Sendable,
    /// Whether nothing of it may be kept by others: it depends on the time at which it is read.
    pub of_the_moment: bool,
    /// Headers of every answer.
    pub headers: &'static [(&'static str, &'static str)],
}

impl Route {
    /// A route without a body, whose failures are spelled as REST does.
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
            sendable: Sendable::Useful,
            of_the_moment: false,
            headers: &[],
        }
    }

    /// The route with a body of at most `largest` bytes.
    pub(super) const fn with_body(mut self, largest: usize) -> Self {
        self.body = Some(largest);
        self
    }
}

/// Who may call a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Everybody, within the rate limit of an address.
    Public,
    /// Everybody, at any rate: probes must not be turned away.
    Probe,
    /// The operator's machines, at any rate; not for pages of a browser.
    Operator,
    /// Owners of a token with this right, within the rate limit of the token.
    Token(Right),
}

impl Access {
    /// Whether pages of any origin may read the answers.
    pub(super) fn any_origin(self) -> bool {
        matches!(self, Self::Public | Self::Probe)
    }
}

/// What is done for an answer: how long its handler may keep a thread, and what it may look at.
#[derive(Debug, Clone, Copy)]
pub(super) enum Work {
    /// It answers from memory.
    Memory(Handler<Deps>),
    /// It waits for others, and never blocks its thread but where it reads the store ([`Call::reading`]).
    Waiting(AsyncHandler),
    /// The metrics, which are kept for a moment.
    Metrics,
    /// It may wait for storage, or works longer than a reactor should.
    Blocking(Handler<Deps>),
    /// It asks tables, which may take seconds.
    Query(Handler<Deps>),
    /// It changes programs, and may wait for what others do with them.
    Change(Handler<Deps>),
    /// Like `Change`, with a module in its body that is checked and compiled.
    Upload(Handler<Deps>),
    /// It opens a stream, which is no request in flight any more and never blocks its thread for long.
    Stream(StreamHandler),
    /// Like `Blocking`, of what these consumers of the feed keep, once they have done their work with all that
    /// was stored when the request came ([`super::current`]).
    Current(&'static [&'static str], Handler<Deps>),
    /// Like `Current`, and the answer depends on nothing but the store, the call and the settings: it is kept as that
    /// of `Kept` is.
    CurrentKept(&'static [&'static str], Handler<Deps>),
    /// Like `Blocking`, and the answer depends on nothing but the store and the call: it is kept, finished,
    /// until the store changes ([`super::answers`]).
    Kept(Handler<Store>),
}

/// Answers one request from what it is given; runs on a reader's thread when it reads the store.
pub(super) type Handler<Source> = fn(&Source, &Call<'_>) -> Result<Answer, ApiError>;

/// Answers one request when what it waits for is there. It has its share of bytes cover the answer ([`Reading::hold`]).
pub(super) type AsyncHandler =
    for<'a> fn(&'a Deps, &'a Call<'a>) -> BoxFuture<'a, Result<Answer, ApiError>>;

/// Opens a stream.
pub(super) type StreamHandler = fn(&Streams, &Call<'_>, Opening) -> Result<Flow, ApiError>;

/// What a handler is given of a request.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    /// The segments in braces.
    pub path: PathValues<'a>,
    /// The raw query.
    pub query: &'a str,
    /// The body; empty unless the route takes one.
    pub body: &'a Bytes,
    /// What the client says that the body is.
    pub content_type: Option<&'a str>,
    /// The last message of a stream that the client has seen.
    pub last_event_id: Option<&'a str>,
    /// Whose token it is; none on public routes.
    pub owner: Option<&'a Owner>,
    /// What a question to the store may cost; none where that is bounded otherwise.
    pub allowance: Option<&'a Allowance<'a>>,
    /// The client that waits for the answer.
    pub waiting: Option<Waiting<'a>>,
    /// The way to the store of a handler that waits for others; none elsewhere.
    pub reading: Option<&'a Reading<'a>>,
    /// The last ledger with which the route's consumers have done their work; none where it has none, or the
    /// store has no ledger.
    pub as_of: Option<LedgerSeq>,
}

impl Default for Call<'_> {
    /// A call that brings nothing.
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
    /// Whether nobody is likely to wait for the answer any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.waiting.is_some_and(|waiting| waiting.has_ended())
    }

    /// Whose token it is, on a route that asks for one.
    pub(super) fn owner(&self) -> Result<&'a Owner, ApiError> {
        self.owner.ok_or(ApiError::NoToken)
    }
}

/// A path with the template that it fits, segment by segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PathValues<'a> {
    pub template: &'static str,
    /// As it came, without a slash at its end.
    pub path: &'a str,
}

impl<'a> PathValues<'a> {
    /// The segment where the template has this name in braces, not yet decoded; empty when there is none.
    pub(super) fn get(&self, name: &str) -> &'a str {
        // What comes before the first braces is mostly spelled alike, and need not be taken apart.
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

/// The name of a template's segment that takes any value.
pub(super) fn in_braces(segment: &str) -> Option<&str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}
