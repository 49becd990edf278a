//! Which browser origins may read an answer (the Fetch standard, "CORS protocol").

use warp::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, ORIGIN,
    VARY,
};
use warp::http::{HeaderMap, HeaderValue};

use super::route::Access;

const ANY: HeaderValue = HeaderValue::from_static("*");

/// Adds the headers that let a browser's page read the answer, when it may.
pub(super) fn allow(
    answer: &mut HeaderMap,
    access: Access,
    configured: &[String],
    request: &HeaderMap,
) {
    let any_origin = access.any_origin() || configured.iter().any(|origin| origin == "*");
    if !any_origin {
        if configured.is_empty() {
            return;
        }
        answer.append(VARY, HeaderValue::from_static("Origin"));
    }
    let origin = if any_origin { Some(ANY) } else { listed(configured, request) };
    if let Some(origin) = origin {
        answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        let readable = HeaderValue::from_static("X-Request-Id, Retry-After, X-Result-Truncated");
        answer.insert(ACCESS_CONTROL_EXPOSE_HEADERS, readable);
    }
}

/// Headers that a page may send with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sendable {
    /// Those that requests here have a use for.
    Useful,
    /// Whichever it asks for: what clients of others send is no business of ours.
    Asked,
    /// All that `*` stands for, which `Authorization` is not among.
    Any,
}

/// Adds what a preflight asks for, when the origin is allowed.
pub(super) fn preflight(
    answer: &mut HeaderMap,
    allow: &str,
    sendable: Sendable,
    request: &HeaderMap,
) {
    if !answer.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) {
        return;
    }
    let useful =
        HeaderValue::from_static("Authorization, Content-Type, Last-Event-ID, X-Request-Id");
    let sendable = match sendable {
        Sendable::Useful => useful,
        Sendable::Asked => request.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned().unwrap_or(useful),
        Sendable::Any => ANY,
    };
    if let Ok(methods) = HeaderValue::from_str(allow) {
        answer.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
    }
    answer.insert(ACCESS_CONTROL_ALLOW_HEADERS, sendable);
    answer.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400"));
}

fn listed(configured: &[String], request: &HeaderMap) -> Option<HeaderValue> {
    let origin = request.get(ORIGIN)?;
    configured.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes()).then(|| origin.clone())
}
