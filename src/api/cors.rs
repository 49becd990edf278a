//! CORS headers: which browser origins may read a response (the Fetch standard, "CORS protocol").

use warp::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, ORIGIN,
    VARY,
};
use warp::http::{HeaderMap, HeaderValue};

use super::host::{is_near, is_same_host};
use orrery_settings::CorsOrigin;

const ANY: HeaderValue = HeaderValue::from_static("*");

/// Web pages that may read a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origins {
    /// All.
    Any,
    /// Those of this machine, those of the host that was asked, and configured ones.
    Near,
    /// Configured ones.
    Listed,
}

/// Adds the headers that let a web page read the response, if its origin is allowed.
pub(super) fn allow(
    answer: &mut HeaderMap,
    origins: Origins,
    configured: &[CorsOrigin],
    request: &HeaderMap,
) {
    let depends = match origins {
        Origins::Any => false,
        Origins::Near => true,
        Origins::Listed => !configured.is_empty(),
    };
    if depends {
        answer.append(VARY, HeaderValue::from_static("Origin"));
    }
    if let Some(origin) = allowed(origins, configured, request) {
        answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        let readable = HeaderValue::from_static(
            "X-Request-Id, Retry-After, X-Result-Truncated, Orrery-As-Of-Ledger, Orrery-Tables-Ledger",
        );
        answer.insert(ACCESS_CONTROL_EXPOSE_HEADERS, readable);
    }
}

/// Returns the origin that the response allows; `None` when the request's origin may not read it.
pub(super) fn allowed(
    origins: Origins,
    configured: &[CorsOrigin],
    request: &HeaderMap,
) -> Option<HeaderValue> {
    if origins == Origins::Any {
        return Some(ANY);
    }
    let Some(origin) = request.get(ORIGIN) else {
        // No page that could read the response; other clients look for the header all the same.
        return (origins == Origins::Near).then_some(ANY);
    };
    let text = origin.to_str().ok()?;
    let is_near = || origins == Origins::Near && (is_near(text) || is_same_host(text, request));
    let is_listed = configured.iter().any(|allowed| is_origin(allowed.as_str(), text.as_bytes()));
    (is_listed || is_near()).then(|| origin.clone())
}

/// Request headers that a preflight allows a web page to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AllowedHeaders {
    /// All headers that the preflight asks for, because clients send headers of their own. Without any,
    /// those that this API uses.
    Requested,
    /// The wildcard `*`, which does not cover `Authorization`.
    Any,
}

/// Adds the headers that answer a preflight, if the origin is allowed.
pub(super) fn preflight(
    answer: &mut HeaderMap,
    allow: &str,
    allowed_headers: AllowedHeaders,
    request: &HeaderMap,
) {
    if !answer.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) {
        return;
    }
    // Replacements of a browser's EventSource send Accept and Cache-Control themselves.
    let standard = HeaderValue::from_static(
        "Accept, Authorization, Cache-Control, Content-Type, Last-Event-ID, X-Request-Id",
    );
    let allowed_headers = match allowed_headers {
        AllowedHeaders::Requested => {
            request.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned().unwrap_or(standard)
        }
        AllowedHeaders::Any => ANY,
    };
    if let Ok(methods) = HeaderValue::from_str(allow) {
        answer.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
    }
    answer.insert(ACCESS_CONTROL_ALLOW_HEADERS, allowed_headers);
    answer.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400"));
}

/// Whether this is the allowed origin, or one of its ports where it ends in `:*`.
fn is_origin(allowed: &str, origin: &[u8]) -> bool {
    let Some(host) = allowed.strip_suffix(":*") else { return allowed.as_bytes() == origin };
    match origin.strip_prefix(host.as_bytes()) {
        Some([b':', port @ ..]) => !port.is_empty() && port.iter().all(u8::is_ascii_digit),
        Some([]) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_port_of_a_host_can_be_allowed() {
        for (allowed, origin, is_allowed) in [
            ("http://localhost:*", "http://localhost:5173", true),
            ("http://localhost:*", "http://localhost", true),
            ("http://localhost:*", "https://localhost:5173", false),
            ("http://localhost:*", "http://localhost.example:80", false),
            ("http://localhost:*", "http://localhost:80.example", false),
            ("http://localhost:*", "http://localhost:", false),
            ("http://localhost", "http://localhost:5173", false),
            ("https://a.example", "https://a.example", true),
        ] {
            assert_eq!(is_origin(allowed, origin.as_bytes()), is_allowed, "{allowed} {origin}");
        }
    }
}
