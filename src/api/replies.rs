//! HTTP responses: status, headers and body of answers and failures.

use bytes::Bytes;
use warp::http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER, VARY, WWW_AUTHENTICATE,
};
use warp::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::ApiError;
use super::answer::{Answer, EVENT_STREAM, Finished, JSON};
use super::router::Match;

/// Header of a response that was cut short by the cost limits of a request.
const RESULT_TRUNCATED: HeaderName = HeaderName::from_static("x-result-truncated");

/// A response whose body does not hold any shares of the budgets yet.
pub(super) type Reply = warp::http::Response<Bytes>;

/// Builds the response of a successful request.
pub(super) fn success(finished: Finished) -> Reply {
    let Finished { status, media_type, body, gzipped, is_complete, headers: own } = finished;
    let mut response = Reply::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    if media_type == EVENT_STREAM {
        // Caches must not store the stream, and proxies must not buffer it. The second header is
        // the one for nginx (nginx.org/en/docs/http/ngx_http_proxy_module.html, proxy_buffering).
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    }
    if !is_complete && media_type == JSON {
        headers.insert(RESULT_TRUNCATED, HeaderValue::from_static("true"));
    }
    if gzipped {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    for (name, value) in own {
        // A handler gives visible ASCII.
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    response
}

/// Builds the response to an OPTIONS request, with the methods of the resource in `Allow`.
pub(super) fn options(found: Match<'_>) -> Reply {
    let mut response = Reply::default();
    *response.status_mut() = StatusCode::NO_CONTENT;
    if let Match::Options(resource) = found {
        insert_allow(response.headers_mut(), &resource.allow);
    }
    response
}

fn insert_allow(headers: &mut HeaderMap, methods: &str) {
    // Never fails: names of methods are visible ASCII.
    if let Ok(methods) = HeaderValue::from_str(methods) {
        headers.insert(ALLOW, methods);
    }
}

/// Builds the response of a failed request: the body as its route formats it, with the headers that
/// HTTP requires.
pub(super) fn failure(error: &ApiError, spelled: Answer) -> Reply {
    let mut response = Reply::new(spelled.body.into());
    *response.status_mut() = spelled.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(spelled.media_type));
    if let Some(seconds) = error.retry_after() {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if let ApiError::Method { allow, .. } = error {
        insert_allow(headers, allow);
    }
    if spelled.status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}
