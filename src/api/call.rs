//! What a handler receives of a request: for each kind of handler, what its routes guarantee.

use bytes::Bytes;
use warp::http::HeaderMap;

use super::allowance::Allowance;
use super::client::Waiting;
use super::consumer_wait::ConsumerWait;
use super::head::Head;
use super::params::Query;
use super::reading::Reading;
use super::streams::context::Opening;
use orrery_auth::Claims;
use orrery_ledger::domain::{LedgerSeq, Owner};
use orrery_settings::UnknownParameters;

/// A request that is answered from the store.
pub(super) struct ReadCall<'a> {
    /// Values of the template's segments in braces.
    pub path: PathValues<'a>,
    /// Parameters of the query string.
    pub query: &'a Query<'a>,
    /// Cost limits of store queries.
    pub allowance: &'a Allowance<'a>,
}

/// A request that is answered from rows of consumers, once these have processed all ledgers that
/// were stored when it arrived, or the newest of them.
pub(super) struct CurrentCall<'a> {
    /// Values of the template's segments in braces.
    pub path: PathValues<'a>,
    /// Parameters of the query string.
    pub query: &'a Query<'a>,
    /// Cost limits of store queries.
    pub allowance: &'a Allowance<'a>,
    /// Newest of these ledgers; `None` when the store is empty.
    pub as_of: Option<LedgerSeq>,
    /// Whether older ones are not processed yet.
    pub lacks_older: bool,
}

/// A request of the owner of a token.
pub(super) struct OwnerCall<'a> {
    /// The head of the request, for handlers of another protocol.
    pub head: &'a Head,
    /// Values of the template's segments in braces.
    pub path: PathValues<'a>,
    /// Parameters of the query string.
    pub query: &'a Query<'a>,
    pub body: Body<'a>,
    /// Owner of the token.
    pub owner: &'a Owner,
    /// What the token says.
    pub claims: &'a Claims,
    /// The client that waits for the response.
    pub waiting: Waiting<'a>,
}

/// A request that is answered asynchronously.
pub(super) struct AsyncCall<'a> {
    /// Parameters of the query string.
    pub query: &'a Query<'a>,
    pub body: Body<'a>,
    /// The client that waits for the response.
    pub waiting: Waiting<'a>,
    /// Access to the store.
    pub reading: Reading<'a>,
    /// Waits for consumers of the feed.
    pub consumer_wait: &'a ConsumerWait,
}

/// A request that is answered from the answers of other routes.
pub(super) struct RelayCall<'a> {
    pub headers: &'a HeaderMap,
    pub body: Body<'a>,
}

/// A request that opens a stream.
pub(super) struct StreamCall<'a> {
    /// Parameters of the query string.
    pub query: &'a Query<'a>,
    /// Value of the `Last-Event-ID` header: the last message that the client received.
    pub last_event_id: Option<&'a str>,
    /// What the token says; `None` without one.
    pub claims: Option<&'a Claims>,
    /// What the stream holds for its whole duration.
    pub opening: Opening,
}

/// Body of a request.
#[derive(Clone, Copy)]
pub(super) struct Body<'a> {
    /// Content; empty unless the route takes a body.
    pub bytes: &'a Bytes,
    /// Value of the `Content-Type` header.
    pub content_type: Option<&'a str>,
    /// What becomes of members that the route does not have.
    pub unknown: UnknownParameters,
}

impl<'a> Body<'a> {
    /// Returns a body whose unknown members are refused.
    pub(super) const fn new(bytes: &'a Bytes, content_type: Option<&'a str>) -> Self {
        Self { bytes, content_type, unknown: UnknownParameters::Refuse }
    }
}

/// A path and the template that it matches, segment by segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
