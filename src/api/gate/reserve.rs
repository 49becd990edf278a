//! Second step: reserves what the body of a request costs, and receives it.

use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use warp::Buf;
use warp::http::HeaderMap;

use super::admit::Admitted;
use super::resources::Resources;
use crate::ApiError;
use crate::budgets::{RequestShares, refused};
use crate::request_body::{
    BodyReservation, LARGEST_FORM, check_length, discard, has_body, is_form, read,
};
use crate::route::Class;

/// Prepares the share and the slot of a request's body before it is read; `None` when the route
/// takes no body. The share grows with what arrives, because announcing a body costs a client nothing.
pub(super) fn reserve(
    resources: &Resources,
    request: &Admitted<'_>,
    shares: &mut RequestShares,
) -> Result<Option<BodyReservation>, ApiError> {
    let Some(largest) = request.route.body else { return Ok(None) };
    let (budgets, identity) = (&resources.budgets, &request.identity);
    let headers = &request.head.headers;
    let is_upload = request.route.work.class == Class::Upload;
    // The same module is smaller in a form than in JSON.
    let largest = if is_upload && is_form(headers) { largest.min(LARGEST_FORM) } else { largest };
    if !has_body(headers) {
        return Ok(Some(BodyReservation { largest, _slot: None }));
    }
    check_length(headers, largest)?;
    let slot = is_upload.then(|| budgets.uploads.take_now(identity.holder, 1));
    let slot = slot.transpose().map_err(|refusal| refused(refusal, "uploads"))?;
    shares.take_bytes(budgets, identity, 0)?;
    Ok(Some(BodyReservation { largest, _slot: slot }))
}

/// Receives the body of a request within `limit`, and returns it when it is needed.
pub(super) async fn receive<B: Buf>(
    headers: &HeaderMap,
    body: impl Stream<Item = Result<B, warp::Error>>,
    reserved: &Result<Option<BodyReservation>, ApiError>,
    shares: &mut RequestShares,
    limit: Duration,
) -> Result<Bytes, ApiError> {
    match (reserved, &mut shares.bytes) {
        _ if !has_body(headers) => Ok(Bytes::new()),
        (Ok(Some(BodyReservation { largest, .. })), Some(share)) => {
            read(body, *largest, share, limit).await
        }
        // An unneeded body is read and discarded, so that the connection can be reused.
        _ => discard(headers, body, limit).await.map(|()| Bytes::new()),
    }
}
