//! CORS headers: which browser origins may read a response (the Fetch standard, "CORS protocol").

use warp::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, ORIGIN,
    VARY,
};
use warp::http::{HeaderMap, HeaderValue};

use super::access::Access;

const ANY: HeaderValue = HeaderValue::from_static("*");

/// Adds the headers that let a web page read the response, if its origin is allowed.
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

/// Request headers that a preflight allows a web page to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AllowedHeaders {
    /// The headers that this API uses.
    Standard,
    /// All headers that the preflight asks for, because third-party clients may send headers of
    /// their own.
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
        AllowedHeaders::Standard => standard,
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

fn listed(configured: &[String], request: &HeaderMap) -> Option<HeaderValue> {
    let origin = request.get(ORIGIN)?;
    configured.iter().any(|allowed| is_origin(allowed, origin.as_bytes())).then(|| origin.clone())
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
