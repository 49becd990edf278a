//! Logging of requests: their ids, and failures that the operator has to see.

use warp::http::{HeaderMap, HeaderName, HeaderValue};

use super::ApiError;
use super::head::Head;
use orrery_auth::TokenError;

/// The header that carries a request's id.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const LONGEST_REQUEST_ID: usize = 128;

/// Logs a failure whose cause is for the operator; other failures are not logged.
pub(super) fn log_failure(head: &Head, id: &HeaderValue, error: &ApiError) {
    let (id, path) = (id.to_str().ok(), head.path.as_str());
    match error {
        ApiError::Store(cause) => tracing::error!(id, path, %cause, "the store failed"),
        ApiError::Program(cause) if cause.is_internal() => {
            tracing::error!(id, path, %cause, "a request to programs failed");
        }
        ApiError::Webhook(cause) if cause.is_internal() => {
            tracing::error!(id, path, %cause, "a request to webhooks failed");
        }
        ApiError::Token(TokenError::Unverifiable(cause)) => {
            tracing::error!(id, path, %cause, "revocations cannot be read");
        }
        ApiError::Panic => tracing::error!(id, path, "a handler panicked"),
        ApiError::Encoding => tracing::error!(id, path, "a response cannot be encoded"),
        _ => {}
    }
}

/// Returns the client's request id if it is safe to log as it is, or else a random one.
pub(super) fn request_id(headers: &HeaderMap) -> HeaderValue {
    let loggable = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(byte);
    let usable = |value: &&HeaderValue| {
        (1..=LONGEST_REQUEST_ID).contains(&value.len()) && value.as_bytes().iter().all(loggable)
    };
    if let Some(given) = headers.get(REQUEST_ID).filter(usable) {
        return given.clone();
    }
    let mut digits = [0; 16];
    let fresh = rand::random::<u64>().to_be_bytes();
    let spelled = hex::encode_to_slice(fresh, &mut digits).ok();
    let value = spelled.and_then(|()| HeaderValue::from_bytes(&digits).ok());
    value.unwrap_or(HeaderValue::from_static("none"))
}
