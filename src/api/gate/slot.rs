//! Third step: takes the slot of a request. The fourth takes the rest here, once it knows that
//! there is no cached response: bytes of the response, or what a stream holds.

use std::sync::Arc;

use super::admit::Admitted;
use super::resources::Resources;
use crate::ApiError;
use crate::allowance::GROWTH_STEP;
use crate::budgets::{RequestShares, acquire_slot, refused};
use crate::route::Class;
use crate::streams::context::{Opening, RESERVED_BYTES};
use orrery_runtime::budget::Share;

/// Bytes that an asynchronous request holds from the beginning. As many requests as a client may have
/// at a time fit into the bytes that it may have.
const FIRST_BYTES: u64 = 64 << 10;

/// Takes the slot that the work of a request needs, or waits for it; `None` when it needs none
/// before its handler runs.
pub(super) async fn acquire(
    resources: &Resources,
    request: &Admitted<'_>,
) -> Result<Option<Share>, ApiError> {
    let budgets = &resources.budgets;
    let (identity, client) = (&request.identity, &request.head.client);
    let (budget, what) = match request.route.work.class {
        Class::Memory | Class::Async | Class::Relay | Class::Stream => return Ok(None),
        Class::Read => return budgets.read_slot(identity, client).await.map(Some),
        Class::Query => (&budgets.queries, "queries"),
        Class::Change | Class::Upload => (&budgets.changes, "changes"),
    };
    acquire_slot(budget, identity.holder, client, what).await.map(Some)
}

/// Reserves bytes for the response of a request, in addition to those of its body.
pub(super) fn reserve_response<'s>(
    resources: &Resources,
    request: &Admitted<'_>,
    shares: &'s mut RequestShares,
) -> Result<&'s mut Share, ApiError> {
    let bytes = match request.route.work.class {
        Class::Query | Class::Upload => resources.deps.settings.queries.answer_mib.bytes(),
        // Reserved by the handler once it has the answer, for which it may wait long.
        Class::Async => FIRST_BYTES,
        // Enlarged while a scan or a JSON-RPC answer grows. The responses of changes, and those about
        // what belongs to an owner, are shorter than this.
        _ => GROWTH_STEP,
    };
    shares.take_bytes(&resources.budgets, &request.identity, bytes)
}

/// Takes what a stream holds for its whole duration. `token` is the one that it depends on.
pub(super) fn open_stream(
    resources: &Resources,
    request: &Admitted<'_>,
    token: Option<&str>,
) -> Result<Opening, ApiError> {
    let (budgets, identity) = (&resources.budgets, request.identity);
    let slot = budgets.stream_slot(&identity).map_err(|refusal| refused(refusal, "streams"))?;
    let bytes = budgets.take_bytes(&identity, RESERVED_BYTES);
    let bytes = bytes.map_err(|refusal| refused(refusal, "bytes"))?;
    let client = Arc::clone(&request.head.client);
    Ok(Opening { client, identity, token: token.map(Into::into), _slot: slot, bytes })
}
