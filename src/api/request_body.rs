//! Request bodies: reads those that a route needs, within limits, and discards the others.

use std::pin::pin;
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_util::{Stream, StreamExt};
use tokio::time::{Instant, timeout_at};
use warp::http::HeaderMap;
use warp::http::header::{CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};

use super::ApiError;
use super::budgets::refused;
use orrery_runtime::budget::Share;

/// Maximum size of a request body, in bytes, for routes without a limit of their own.
pub const LARGEST_BODY: usize = 256 * 1024;

/// Maximum size of a body with a module of 2 MiB as base64 or in a form, in bytes.
pub(super) const LARGEST_FORM: usize = 3 << 20;

/// Maximum size of a body with a module of 2 MiB as an array of numbers, in bytes.
pub(super) const LARGEST_UPLOAD: usize = 9 << 20;

/// Speed in bytes per second that a body must have reached at any time after [`GRACE`].
const SLOWEST: u64 = 8 << 10;

/// Time that a body has before its speed counts.
const GRACE: Duration = Duration::from_secs(2);

/// Whether a request has a body.
pub(super) fn has_body(headers: &HeaderMap) -> bool {
    headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING)
}

/// Whether the body is a multipart form.
pub(super) fn is_form(headers: &HeaderMap) -> bool {
    let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    media_type.is_some_and(|value| multer::parse_boundary(value).is_ok())
}

/// Returns the body length that `Content-Length` declares.
fn declared_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Checks the declared length of a body of at most `largest` bytes.
///
/// # Errors
/// [`ApiError::BodyTooLarge`] when the declared length exceeds `largest`.
pub(super) fn check_length(headers: &HeaderMap, largest: usize) -> Result<(), ApiError> {
    match declared_length(headers) {
        Some(length) if length > largest => Err(ApiError::BodyTooLarge(largest)),
        _ => Ok(()),
    }
}

/// Reads a body of at most `largest` bytes to its end. Its memory never exceeds its share, which
/// grows as needed.
pub(super) async fn read<B: Buf>(
    body: impl Stream<Item = Result<B, warp::Error>>,
    largest: usize,
    share: &mut Share,
    limit: Duration,
) -> Result<Bytes, ApiError> {
    let mut received = Vec::new();
    let keep = |mut chunk: B| {
        let length = received.len() + chunk.remaining();
        if length > largest {
            return Err(ApiError::BodyTooLarge(largest));
        }
        if length > received.capacity() {
            let bytes = length.max(2 * received.capacity()).min(largest);
            share.grow_to(bytes as u64).map_err(|refusal| refused(refusal, "bytes"))?;
            received.reserve_exact(bytes - received.len());
        }
        while chunk.has_remaining() {
            let part = chunk.chunk();
            received.extend_from_slice(part);
            chunk.advance(part.len());
        }
        Ok(())
    };
    for_each_chunk(body, limit, keep).await?;
    Ok(received.into())
}

/// Reads and discards a body that is not needed, so that the connection can be reused.
pub(super) async fn discard<B: Buf>(
    headers: &HeaderMap,
    body: impl Stream<Item = Result<B, warp::Error>>,
    limit: Duration,
) -> Result<(), ApiError> {
    check_length(headers, LARGEST_BODY)?;
    let mut length = 0;
    let count = |chunk: B| {
        length += chunk.remaining();
        if length > LARGEST_BODY { Err(ApiError::BodyTooLarge(LARGEST_BODY)) } else { Ok(()) }
    };
    for_each_chunk(body, limit, count).await
}

async fn for_each_chunk<B: Buf>(
    body: impl Stream<Item = Result<B, warp::Error>>,
    limit: Duration,
    mut take: impl FnMut(B) -> Result<(), ApiError>,
) -> Result<(), ApiError> {
    let start = Instant::now();
    let mut body = pin!(body);
    let mut received = 0;
    loop {
        let due = GRACE + Duration::from_secs_f64(received as f64 / SLOWEST as f64);
        match timeout_at(start + due.min(limit), body.next()).await {
            Err(_) => return Err(ApiError::BodyTooSlow(limit.as_secs())),
            Ok(None) => return Ok(()),
            Ok(Some(Err(_))) => return Err(ApiError::BrokenBody),
            Ok(Some(Ok(chunk))) => {
                received += chunk.remaining();
                take(chunk)?;
            }
        }
    }
}

/// Reservation for a body, taken before it is read.
pub(super) struct BodyReservation {
    /// Maximum size of the body, in bytes.
    pub largest: usize,
    /// Upload slot, which keeps the owner from sending another module meanwhile; `None` for other
    /// bodies.
    pub _slot: Option<Share>,
}
