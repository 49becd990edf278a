//! The table of routes and how a path finds its row. Knows methods and templates, not parameters.

use percent_encoding::percent_decode_str;
use warp::http::Method;

use super::answer::Answer;
use super::{ApiError, Deps, completeness, description, events, health, metrics, transactions};
use crate::auth::Right;
use crate::store::Store;

/// One resource. Each is read with GET; HEAD and OPTIONS follow from that.
pub(super) struct Route {
    /// Path as the API description writes it; a segment in braces takes any value.
    pub template: &'static str,
    pub access: Access,
    pub work: Work,
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
    /// It may wait for storage, or works longer than a reactor should.
    Blocking(Handler<Deps>),
    /// The same, and the answer depends on nothing but the store and the call: it is kept, finished,
    /// until the store changes ([`super::answers`]).
    Kept(Handler<Store>),
}

/// Answers one request from what it is given; runs on a reader's thread when it reads the store.
pub(super) type Handler<Source> = fn(&Source, &Call<'_>) -> Result<Answer, ApiError>;

/// What a handler is given of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    /// The segment in braces, not yet decoded; empty when the template has none.
    pub path_value: &'a str,
    /// The raw query.
    pub query: &'a str,
}

/// Methods that every route answers.
pub(super) const ALLOW: &str = "GET, HEAD, OPTIONS";

/// What is to be done with a request's path and method.
#[derive(Clone, Copy)]
pub(super) enum Match<'a> {
    /// Run the handler.
    Handle(&'static Route, &'a str),
    /// Say which methods there are.
    Options(&'static Route),
    /// The resource exists, the method does not.
    WrongMethod(&'static Route),
    /// No such resource.
    Unknown,
}

impl Match<'_> {
    /// The row of the table, when there is one.
    pub(super) fn route(&self) -> Option<&'static Route> {
        match self {
            Self::Handle(route, _) | Self::Options(route) | Self::WrongMethod(route) => Some(route),
            Self::Unknown => None,
        }
    }
}

/// All routes of the service.
fn table() -> impl Iterator<Item = &'static Route> {
    [
        events::ROUTES.as_slice(),
        transactions::ROUTES.as_slice(),
        completeness::ROUTES.as_slice(),
        health::ROUTES.as_slice(),
        description::ROUTES.as_slice(),
        metrics::ROUTES.as_slice(),
    ]
    .into_iter()
    .flatten()
}

/// Finds the row of the table for a path and method.
pub(super) fn find<'a>(method: &Method, path: &'a str) -> Match<'a> {
    // A trailing slash names the same resource.
    let path = path.strip_suffix('/').unwrap_or(path);
    let Some((route, value)) = spelled_as_template(path).or_else(|| percent_encoded(path)) else {
        return Match::Unknown;
    };
    match *method {
        Method::GET | Method::HEAD => Match::Handle(route, value),
        Method::OPTIONS => Match::Options(route),
        _ => Match::WrongMethod(route),
    }
}

/// The row whose template a path is, letter by letter, but for the last segment if that is in braces.
/// Every request comes by here, so templates are compared whole instead of segment by segment.
fn spelled_as_template(path: &str) -> Option<(&'static Route, &str)> {
    let (before_last, last) = path.split_at(path.rfind('/')? + 1);
    table().find_map(|route| match route.template.strip_prefix(before_last) {
        Some(expected) if expected.starts_with('{') => (!last.is_empty()).then_some((route, last)),
        Some(expected) if expected == last => Some((route, "")),
        _ => None,
    })
}

/// The row whose template a path is once it is decoded: `%65vents` is `events` (RFC 3986,
/// section 6.2.2.2).
fn percent_encoded(path: &str) -> Option<(&'static Route, &str)> {
    if !path.contains('%') {
        return None;
    }
    table().find_map(|route| Some((route, path_value(route.template, path)?)))
}

/// The value of the template's segment in braces, when the path fits the template.
fn path_value<'a>(template: &str, path: &'a str) -> Option<&'a str> {
    let mut value = "";
    let mut segments = path.split('/');
    for expected in template.split('/') {
        let segment = segments.next()?;
        if expected.starts_with('{') {
            if segment.is_empty() {
                return None;
            }
            value = segment;
        } else if expected != percent_decode_str(segment).decode_utf8_lossy() {
            return None;
        }
    }
    segments.next().is_none().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(method: Method, path: &str) -> (&'static str, &'static str, String) {
        match find(&method, path) {
            Match::Handle(route, value) => ("handle", route.template, value.to_owned()),
            Match::Options(route) => ("options", route.template, String::new()),
            Match::WrongMethod(route) => ("wrong method", route.template, String::new()),
            Match::Unknown => ("unknown", "", String::new()),
        }
    }

    #[test]
    fn paths_find_their_template() {
        for (path, template, value) in [
            ("/rest/events/by-ledger", "/rest/events/by-ledger", ""),
            ("/rest/events/by-ledger/", "/rest/events/by-ledger", ""),
            ("/rest/events/by-ledger/contracts", "/rest/events/by-ledger/contracts", ""),
            ("/rest/%65vents/by-ledger", "/rest/events/by-ledger", ""),
            ("/rest/events/by-tx/a%2Fb/", "/rest/events/by-tx/{tx_hex}", "a%2Fb"),
            ("/rest/events/by-tx/{tx_hex}", "/rest/events/by-tx/{tx_hex}", "{tx_hex}"),
            ("/rest/txs/%62y-hash/%78", "/rest/txs/by-hash/{tx_hex}", "%78"),
            ("/rest/txs/by-hash/x", "/rest/txs/by-hash/{tx_hex}", "x"),
            ("/rest/health", "/rest/health", ""),
            ("/rest/health/live", "/rest/health/live", ""),
        ] {
            for method in [Method::GET, Method::HEAD] {
                assert_eq!(outcome(method, path), ("handle", template, value.to_owned()));
            }
            assert_eq!(outcome(Method::OPTIONS, path).0, "options");
            for method in [Method::POST, Method::DELETE, Method::TRACE, Method::CONNECT] {
                assert_eq!(outcome(method, path).0, "wrong method");
            }
        }
    }

    /// What finding a template letter by letter relies on.
    #[test]
    fn only_the_last_segment_is_in_braces() {
        for route in table() {
            let braces = route.template.matches('{').count();
            let last = route.template.rsplit('/').next().unwrap();
            assert_eq!(braces, usize::from(last.starts_with('{')), "{}", route.template);
        }
    }

    #[test]
    fn other_paths_are_unknown() {
        for path in [
            "",
            "/",
            "*",
            "/rest",
            "/rest/",
            "/health",
            "/rest/health//",
            "//rest/health",
            "/rest//health",
            "/rest/Health",
            "/rest/events/by-tx",
            "/rest/events/by-tx/",
            "/rest/events/by-tx/a/b",
            "/rest/events%2Fby-ledger",
            "/rest/events/./by-ledger",
            "/rest/health/../health",
            "/rest/health/live/x",
        ] {
            assert_eq!(outcome(Method::GET, path).0, "unknown", "{path}");
        }
    }
}
