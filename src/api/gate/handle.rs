//! Fourth step: runs the handler of a request, with what the kind of its route guarantees.

use parking_lot::Mutex;
use warp::http::HeaderName;

use super::admit::{Admitted, BoundHandler};
use super::resources::Resources;
use super::slot::{open_stream, reserve_response};
use crate::ApiError;
use crate::allowance::Allowance;
use crate::answer::{Answer, Finished};
use crate::budgets::RequestShares;
use crate::call::{AsyncCall, Body, CurrentCall, OwnerCall, ReadCall, StreamCall};
use crate::client::Waiting;
use crate::compression::finish;
use crate::consumer_wait::Processed;
use crate::identity::{self, Bearer};
use crate::params::Query;
use crate::reading::Reading;
use crate::route::{AsyncHandler, Class, OwnerHandler, ReadHandler, SharedHandler, StreamHandler};
use crate::stored::Stored;
use crate::streamed_body::StreamedBody;
use orrery_executables::Lacking;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// What is known of an admitted request when its handler runs.
pub(super) struct Ready<'a> {
    pub request: &'a Admitted<'a>,
    pub query: &'a Query<'a>,
    pub body: Body<'a>,
    /// The client, which has waited since the request was received.
    pub waiting: Waiting<'a>,
    /// What the consumers of the route have processed.
    pub processed: Processed,
}

/// Result of an admitted request.
pub(super) struct Outcome {
    pub answer: Finished,
    /// Whether the response came from the cache; `None` when the route is not cached.
    pub from_cache: Option<bool>,
    /// Stream that is sent in place of the response's body.
    pub stream: Option<StreamedBody>,
    /// What the names in the response lack although it is stored.
    pub lacking: Lacking,
}

impl From<Finished> for Outcome {
    fn from(answer: Finished) -> Self {
        Self { answer, from_cache: None, stream: None, lacking: Lacking::default() }
    }
}

/// Runs the handler of a request.
pub(super) async fn handle(
    resources: &Resources,
    ready: &Ready<'_>,
    shares: &mut RequestShares,
) -> Result<Outcome, ApiError> {
    let request = ready.request;
    let answer = match &request.handler {
        BoundHandler::Shared(SharedHandler::Memory(handler)) => {
            from_memory(resources, request, handler(&resources.deps)?, shares)?
        }
        BoundHandler::Shared(SharedHandler::Located(handler)) => {
            let answer = handler(&resources.deps, request.head)?;
            from_memory(resources, request, answer, shares)?
        }
        BoundHandler::Shared(SharedHandler::Metrics) => {
            resources.metrics.get(&resources.deps, &resources.budgets, request.wants_gzip)
        }
        BoundHandler::Shared(SharedHandler::Read(handler)) => {
            return answer_read(resources, ready, *handler, shares);
        }
        BoundHandler::Shared(SharedHandler::Async(handler)) => {
            answer_async(resources, ready, *handler, shares).await?
        }
        BoundHandler::Owner(handler, bearer) => {
            answer_owner(resources, ready, *handler, bearer, shares)?
        }
        // The gate runs relays itself, and a relay asks no other one.
        BoundHandler::Relay(..) => return Err(ApiError::unknown_route(&request.head.path)),
        BoundHandler::Ticket(handler, bearer) => {
            let now = (resources.deps.clock)();
            finish(handler(&resources.streams, &bearer.token, now)?, request.wants_gzip)
        }
        BoundHandler::Stream(handler, bearer) => {
            return answer_stream(resources, ready, *handler, bearer.as_ref(), shares);
        }
    };
    Ok(answer.into())
}

/// Returns an answer that exists already, and counts its bytes.
pub(super) fn from_memory(
    resources: &Resources,
    request: &Admitted<'_>,
    answer: Answer,
    shares: &mut RequestShares,
) -> Result<Finished, ApiError> {
    let answer = finish(answer, request.wants_gzip);
    if !request.identity.is_exempt {
        let length = answer.body.len() as u64;
        shares.take_bytes(&resources.budgets, &request.identity, length)?;
    }
    Ok(answer)
}

fn answer_read(
    resources: &Resources,
    &Ready { request, query, processed, .. }: &Ready<'_>,
    handler: ReadHandler,
    shares: &mut RequestShares,
) -> Result<Outcome, ApiError> {
    let (deps, head, path) = (&resources.deps, request.head, request.path);
    let share = reserve_response(resources, request, shares)?;
    let allowance = &Allowance::new(&deps.settings.limits, &head.client, share);
    let call = ReadCall { path, query, allowance };
    let answer = || match handler {
        ReadHandler::Store(handler) => {
            handler(&Stored { store: &deps.store, interfaces: &deps.interfaces }, &call)
        }
        ReadHandler::Deps(handler) => handler(deps, &call),
        ReadHandler::Current(handler) => {
            let Processed { as_of, lacks_older, .. } = processed;
            let call = CurrentCall { path, query, allowance, as_of, lacks_older };
            allowance.unless_abandoned(handler(deps, &call)?)
        }
    };
    resources.watch.run_read(|| {
        let mut answer = answer()?;
        let lacking = std::mem::take(&mut answer.lacking);
        Ok(Outcome { lacking, ..finish(answer, request.wants_gzip).into() })
    })
}

async fn answer_async(
    resources: &Resources,
    ready: &Ready<'_>,
    handler: AsyncHandler,
    shares: &mut RequestShares,
) -> Result<Finished, ApiError> {
    let Resources { deps, limits, budgets, watch, consumer_wait, .. } = resources;
    let request = ready.request;
    let head = request.head;
    let access = request.route.access_with(&deps.settings.http);
    let share = Mutex::new(reserve_response(resources, request, shares)?);
    let reading = Reading {
        budgets,
        watch,
        limits: &deps.settings.limits,
        client: &head.client,
        holder: request.identity.holder,
        share,
        forwarding: &resources.forwarding,
        count: &|| identity::authorize(deps, limits, head, access).map(drop),
    };
    let Ready { query, body, waiting, .. } = *ready;
    let call = AsyncCall { query, body, waiting, reading, consumer_wait };
    handler(deps, call).await.map(|answer| finish(answer, request.wants_gzip))
}

fn answer_owner(
    resources: &Resources,
    ready: &Ready<'_>,
    handler: OwnerHandler,
    bearer: &Bearer<'_>,
    shares: &mut RequestShares,
) -> Result<Finished, ApiError> {
    let request = ready.request;
    reserve_response(resources, request, shares)?;
    let call = OwnerCall {
        head: request.head,
        path: request.path,
        query: ready.query,
        body: ready.body,
        owner: &bearer.owner,
        claims: &bearer.claims,
        waiting: ready.waiting,
    };
    let answer = || {
        let answered = handler(&resources.deps, &call);
        answered.map(|answer| finish(answer, request.wants_gzip))
    };
    if request.route.work.class == Class::Read {
        return resources.watch.run_read(answer);
    }
    // May wait for child processes: this thread's other tasks move to another thread.
    tokio::task::block_in_place(answer)
}

fn answer_stream(
    resources: &Resources,
    ready: &Ready<'_>,
    handler: StreamHandler,
    bearer: Option<&Bearer<'_>>,
    shares: &mut RequestShares,
) -> Result<Outcome, ApiError> {
    let head = ready.request.head;
    let last_event_id = head.headers.get(LAST_EVENT_ID);
    let call = StreamCall {
        query: ready.query,
        // A header value that is not text becomes U+FFFD, which is refused as not a number.
        last_event_id: last_event_id.map(|value| value.to_str().unwrap_or("\u{fffd}")),
        claims: bearer.map(|bearer| &*bearer.claims),
        opening: open_stream(resources, ready.request, bearer.map(|it| &*it.token))?,
    };
    let stream = handler(&resources.streams, call)?;
    // An open stream does not count as a request in flight.
    shares.request = None;
    let answer = finish(Answer::stream(), ready.request.wants_gzip);
    Ok(Outcome { stream: Some(stream), ..answer.into() })
}
