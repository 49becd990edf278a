//! Last step: turns the outcome of a request into its response, and reports it.

use std::time::Instant;

use warp::http::HeaderValue;
use warp::http::header::{CACHE_CONTROL, CONNECTION};
use warp::reply::Response;

use super::handle::Outcome;
use super::resources::Resources;
use crate::budgets::RequestShares;
use crate::head::Head;
use crate::replies::{Reply, failure, options, success};
use crate::request_log::{REQUEST_ID, log_failure, request_id};
use crate::router::Match;
use crate::{ApiError, RequestSummary, cors, error, site};

/// Caching of responses that never change: a year, which clients take for ever (RFC 8246).
const LASTING: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// A request to which a response is due.
pub(super) struct Exchange<'a> {
    pub head: &'a Head,
    pub found: Match<'a>,
    pub body: BodyState,
    /// When the head of the request had arrived.
    pub started: Instant,
}

/// State of a request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyState {
    /// Absent, or read to its end: the connection is ready for the next request.
    Consumed,
    /// Abandoned before its end: the connection must be closed.
    Abandoned,
}

/// Builds the response to a request, logs and counts it; `Ok(None)` is the outcome of an OPTIONS
/// request. The shares are released when the response has been sent.
pub(super) fn respond(
    resources: &Resources,
    exchange: &Exchange<'_>,
    outcome: Result<Option<Outcome>, ApiError>,
    shares: RequestShares,
) -> Response {
    let Exchange { head, found, .. } = exchange;
    let id = request_id(&head.headers);
    let (reply, from_cache, stream) = match outcome {
        Ok(Some(Outcome { answer, from_cache, stream, .. })) => {
            (success(answer), from_cache, stream)
        }
        Ok(None) => (options(*found), None, None),
        Err(error) => {
            log_failure(head, &id, &error);
            let page = match &error {
                ApiError::UnknownRoute { .. } => site::missing_page(&resources.deps, head),
                _ => None,
            };
            let spelled = found.route().map_or(error::rest as fn(&_) -> _, |it| it.failure);
            (page.unwrap_or_else(|| failure(&error, spelled(&error))), None, None)
        }
    };
    let mut reply = with_headers(resources, exchange, reply, id);
    report(resources, exchange, &reply, from_cache);
    if let Some(stream) = stream {
        stream.attach_to(&mut reply);
    }
    reply.map(|body| shares.hold_until_sent(body).into())
}

/// Adds the headers that do not depend on the handler.
fn with_headers(
    resources: &Resources,
    exchange: &Exchange<'_>,
    mut reply: Reply,
    id: HeaderValue,
) -> Reply {
    let &Exchange { head, found, body, .. } = exchange;
    let is_success = reply.status().is_success();
    let headers = reply.headers_mut();
    headers.insert(REQUEST_ID, id);
    if let Some(route) = found.route() {
        let configured = &resources.deps.settings.http.cors_origins;
        let access = route.access_with(&resources.deps.settings.http);
        let origins = resources.reach.origins(&resources.deps, head, access);
        cors::allow(headers, origins, configured, &head.headers);
        for (name, value) in route.headers {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        let caching = match (route.no_store, route.is_lasting) {
            (false, true) if is_success => Some(LASTING),
            (false, false) => None,
            _ => Some(NO_STORE),
        };
        if let Some(caching) = caching {
            headers.insert(CACHE_CONTROL, caching);
        }
        if let Match::Options(resource) = found {
            cors::preflight(headers, &resource.allow, route.allowed_headers, &head.headers);
        }
    }
    if body == BodyState::Abandoned {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    reply
}

fn report(
    resources: &Resources,
    &Exchange { head, found, started, .. }: &Exchange<'_>,
    reply: &Reply,
    from_cache: Option<bool>,
) {
    let route = found.route().map_or("unmatched", |route| route.template);
    let (status, seconds) = (reply.status().as_u16(), started.elapsed().as_secs_f64());
    let id = reply.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok());
    tracing::debug!(id, method = %head.method, path = %head.path, status, seconds, "request");
    (resources.deps.on_request)(&RequestSummary { route, status, seconds, from_cache });
}
