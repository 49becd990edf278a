//! The table of routes and how a path finds its row. Knows methods and templates, not parameters.

use bytes::Bytes;
use percent_encoding::percent_decode_str;
use warp::http::Method;

use super::allowance::Allowance;
use super::answer::Answer;
use super::client::Waiting;
use super::{
    ApiError, Deps, completeness, description, events, health, metrics, retroshade, transactions,
};
use crate::auth::Right;
use crate::domain::Owner;
use crate::store::Store;

/// One thing that can be done with a resource.
pub(super) struct Route {
    /// Path as the API description writes it; a segment in braces takes any value.
    pub template: &'static str,
    pub verb: Verb,
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
    /// Like `Blocking`, and the answer depends on nothing but the store and the call: it is kept, finished,
    /// until the store changes ([`super::answers`]).
    Kept(Handler<Store>),
}

/// Answers one request from what it is given; runs on a reader's thread when it reads the store.
pub(super) type Handler<Source> = fn(&Source, &Call<'_>) -> Result<Answer, ApiError>;

/// What a handler is given of a request.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    /// The segment in braces, not yet decoded; empty when the template has none.
    pub path_value: &'a str,
    /// The raw query.
    pub query: &'a str,
    /// The body; empty unless the route takes one.
    pub body: &'a Bytes,
    /// What the client says that the body is.
    pub content_type: Option<&'a str>,
    /// Whose token it is; none on public routes.
    pub owner: Option<&'a Owner>,
    /// What a question to the store may cost; none where that is bounded otherwise.
    pub allowance: Option<&'a Allowance<'a>>,
    /// The client that waits for the answer.
    pub waiting: Option<Waiting<'a>>,
}

impl<'a> Call<'a> {
    /// A call that brings nothing but path and query.
    pub(super) fn reading(path_value: &'a str, query: &'a str) -> Self {
        static EMPTY: Bytes = Bytes::new();
        Self {
            path_value,
            query,
            body: &EMPTY,
            content_type: None,
            owner: None,
            allowance: None,
            waiting: None,
        }
    }

    /// Whether nobody is likely to wait for the answer any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.waiting.is_some_and(|waiting| waiting.has_ended())
    }

    /// Whose token it is, on a route that asks for one.
    pub(super) fn owner(&self) -> Result<&'a Owner, ApiError> {
        self.owner.ok_or(ApiError::NoToken)
    }
}

/// What a route does, and so the methods that reach it: HEAD comes with GET, OPTIONS with all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    /// Reads.
    Get,
    /// Does something with a body of at most so many bytes.
    Post { largest: usize },
    /// Removes.
    Delete,
}

impl Verb {
    fn is_for(self, method: &Method) -> bool {
        match self {
            Self::Get => matches!(*method, Method::GET | Method::HEAD),
            Self::Post { .. } => *method == Method::POST,
            Self::Delete => *method == Method::DELETE,
        }
    }
}

/// The methods of one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Methods {
    get: bool,
    post: bool,
    delete: bool,
}

impl Methods {
    /// The methods of the resource with this template.
    fn of(template: &str) -> Self {
        let mut methods = Self::default();
        for route in table().filter(|route| route.template == template) {
            match route.verb {
                Verb::Get => methods.get = true,
                Verb::Post { .. } => methods.post = true,
                Verb::Delete => methods.delete = true,
            }
        }
        methods
    }

    /// Value of the `Allow` header.
    pub(super) fn allow(self) -> &'static str {
        match (self.get, self.post, self.delete) {
            (true, false, false) => "GET, HEAD, OPTIONS",
            (false, true, false) => "POST, OPTIONS",
            (false, false, true) => "DELETE, OPTIONS",
            (true, true, false) => "GET, HEAD, POST, OPTIONS",
            (true, false, true) => "GET, HEAD, DELETE, OPTIONS",
            (false, true, true) => "POST, DELETE, OPTIONS",
            (true, true, true) => "GET, HEAD, POST, DELETE, OPTIONS",
            (false, false, false) => "OPTIONS",
        }
    }
}

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
    /// The row of the table, when there is one; one of the resource's rows when the method has none.
    pub(super) fn route(&self) -> Option<&'static Route> {
        match self {
            Self::Handle(route, _) | Self::Options(route) | Self::WrongMethod(route) => Some(route),
            Self::Unknown => None,
        }
    }

    /// The methods that the resource has.
    pub(super) fn methods(&self) -> Methods {
        self.route().map(|route| Methods::of(route.template)).unwrap_or_default()
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
        retroshade::ROUTES.as_slice(),
    ]
    .into_iter()
    .flatten()
}

/// Finds the row of the table for a path and method.
pub(super) fn find<'a>(method: &Method, path: &'a str) -> Match<'a> {
    // A trailing slash names the same resource.
    let path = path.strip_suffix('/').unwrap_or(path);
    let Some((first, value)) = resource(path, spelled_value) else {
        // `%65vents` is `events` (RFC 3986, section 6.2.2.2).
        return match path.contains('%').then(|| resource(path, decoded_value)).flatten() {
            Some((first, value)) => with_method(first, method, value),
            None => Match::Unknown,
        };
    };
    with_method(first, method, value)
}

/// The first row whose template a path fits.
fn resource<'a>(
    path: &'a str,
    value: impl Fn(&str, &'a str) -> Option<&'a str>,
) -> Option<(&'static Route, &'a str)> {
    table().find_map(|route| Some((route, value(route.template, path)?)))
}

/// The row of a resource that a method reaches.
fn with_method<'a>(first: &'static Route, method: &Method, value: &'a str) -> Match<'a> {
    if *method == Method::OPTIONS {
        return Match::Options(first);
    }
    let mut rows = table().filter(|route| route.template == first.template);
    match rows.find(|route| route.verb.is_for(method)) {
        Some(route) => Match::Handle(route, value),
        None => Match::WrongMethod(first),
    }
}

/// The value of the template's segment in braces, when the path is the template letter by letter.
/// Every request comes by here, so nothing is taken apart into segments.
fn spelled_value<'a>(template: &str, path: &'a str) -> Option<&'a str> {
    let Some((before, rest)) = template.split_once('{') else {
        return (path == template).then_some("");
    };
    let (_, after) = rest.split_once('}')?;
    let value = path.strip_prefix(before)?.strip_suffix(after)?;
    (!value.is_empty() && !value.contains('/')).then_some(value)
}

/// The same when the path is the template once it is decoded.
fn decoded_value<'a>(template: &str, path: &'a str) -> Option<&'a str> {
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
    fn templates_have_one_segment_in_braces_at_most() {
        for route in table() {
            let (template, braces) = (route.template, route.template.matches('{').count());
            let whole = template.split('/').filter(|segment| segment.starts_with('{')).count();
            assert!(braces <= 1 && whole == braces, "{template}");
        }
    }

    #[test]
    fn a_method_finds_its_row() {
        let id = |method, path| outcome(method, path);
        let program = ("handle", "/rest/retroshade/{id}", "7".to_owned());
        assert_eq!(id(Method::DELETE, "/rest/retroshade/7"), program);
        assert_eq!(id(Method::GET, "/rest/retroshade/7").0, "wrong method");
        assert_eq!(id(Method::GET, "/rest/retroshade/list").0, "handle");
        assert_eq!(id(Method::DELETE, "/rest/retroshade/list").0, "wrong method");
        let backfill = "/rest/retroshade/{id}/backfill";
        for method in [Method::GET, Method::POST, Method::DELETE] {
            let found = id(method, "/rest/retroshade/7/backfill");
            assert_eq!(found, ("handle", backfill, "7".to_owned()));
        }
        assert_eq!(Methods::of(backfill).allow(), "GET, HEAD, POST, DELETE, OPTIONS");
        assert_eq!(Methods::of("/rest/retroshade/deploy").allow(), "POST, OPTIONS");
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
