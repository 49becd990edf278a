//! Processing of every request, in steps: who may send it ([`admit`]), its body ([`reserve`]), what
//! its handler needs ([`slot`]), the handler ([`handle`]), and the response ([`respond`]). Before
//! the third, it waits for the consumers that its route names, and a cached response ends it.
//! Every failure is a JSON response. A request that is answered from the answers of other routes takes
//! these steps, from the third on, once for each of them ([`relay`]).

mod admit;
mod handle;
mod relay;
mod reserve;
mod resources;
mod respond;
mod slot;

use std::panic::AssertUnwindSafe;
use std::time::Instant;

use futures_util::{FutureExt, Stream};
use warp::Buf;
use warp::http::header::CONTENT_TYPE;
use warp::reply::Response;

use self::admit::{Admitted, BoundHandler, admit};
use self::handle::{Outcome, Ready, handle};
use self::reserve::{receive, reserve};
use self::resources::Resources;
use self::respond::{BodyState, Exchange, respond};
use super::blocking::Watch;
use super::body_parameters;
use super::budgets::{Budgets, RequestShares};
use super::call::Body;
use super::client::Waiting;
use super::head::Head;
use super::names_wait::Patience;
use super::params::Query;
use super::reach::Reach;
use super::response_cache::CacheKey;
use super::router::{Match, Router};
use super::{ApiError, Deps};

/// Entry point of all requests.
pub(super) struct Gate {
    router: Router,
    resources: Resources,
}

impl Gate {
    pub(super) fn new(deps: Deps, router: Router, reach: Reach) -> Result<Self, ApiError> {
        Ok(Self { router, resources: Resources::new(deps, reach)? })
    }

    /// Ends all open streams.
    pub(super) fn stop(&self) {
        self.resources.streams.stop();
    }

    /// Returns the watch that keeps sockets polled while requests read the store.
    pub(super) fn watch(&self) -> &Watch {
        &self.resources.watch
    }

    /// Returns the budgets that requests and connections share.
    pub(super) fn budgets(&self) -> &Budgets {
        &self.resources.budgets
    }

    /// Processes a request and returns its response.
    pub(super) async fn answer<B: Buf>(
        &self,
        head: Head,
        body: impl Stream<Item = Result<B, warp::Error>>,
    ) -> Response {
        let started = Instant::now();
        let found = self.router.find(&head.method, &head.path);
        let mut shares = RequestShares::begin(&head.client);
        let mut body_state = BodyState::Consumed;
        let work = self.outcome(&head, found, body, &mut shares, &mut body_state);
        let outcome = AssertUnwindSafe(work).catch_unwind().await.unwrap_or(Err(ApiError::Panic));
        let exchange = Exchange { head: &head, found, body: body_state, started };
        respond(&self.resources, &exchange, outcome, shares)
    }

    /// Returns the outcome of a request; `None` for an OPTIONS request.
    async fn outcome<B: Buf>(
        &self,
        head: &Head,
        found: Match<'_>,
        body: impl Stream<Item = Result<B, warp::Error>>,
        shares: &mut RequestShares,
        body_state: &mut BodyState,
    ) -> Result<Option<Outcome>, ApiError> {
        let resources = &self.resources;
        let admitted = admit(&self.router, resources, head, found, shares);
        let reserved = match &admitted {
            Ok(Some(request)) => reserve(resources, request, shares),
            _ => Ok(None),
        };
        let limit = resources.deps.settings.tunables.body_timeout;
        let received = receive(&head.headers, body, &reserved, shares, limit).await;
        if received.is_err() {
            *body_state = BodyState::Abandoned;
        }
        // An authorisation failure takes precedence over a failure of the body.
        let Some(request) = admitted? else { return Ok(None) };
        let _upload = reserved?;
        let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let unknown = resources.deps.settings.http.unknown_parameters;
        let body = Body { bytes: &received?, content_type, unknown };
        let outcome = match &request.handler {
            BoundHandler::Relay(handler, bearer) => {
                self.relay(&request, *handler, bearer, body, shares).await
            }
            _ => self.work(&request, body, shares).await,
        };
        outcome.map(Some)
    }

    /// Returns the outcome of an admitted request.
    async fn work(
        &self,
        request: &Admitted<'_>,
        body: Body<'_>,
        shares: &mut RequestShares,
    ) -> Result<Outcome, ApiError> {
        let Resources { deps, budgets, cache, consumer_wait, .. } = &self.resources;
        let &Admitted { head, route, path, wants_gzip, .. } = request;
        let mut query = Query::parse(&head.query, route.parameters, body.unknown)?;
        if route.has_parameters_in_body {
            body_parameters::add(&mut query, body, route.parameters)?;
        }
        let query = &query;
        let waiting = Waiting::of(&head.client);
        // The generation is read before the wait and before any row, so that a response that lacks
        // what is stored meanwhile is not cached under the generation that has it.
        let entry = route.work.is_cached.then(|| {
            let key = CacheKey { path: path.path, query: head.query.as_str(), wants_gzip };
            cache.entry(key, deps.store.generation())
        });
        let consumers = route.waits_for(query);
        let processed = match route.work.may_lack_older {
            true => consumer_wait.wait_for_newest(deps, consumers).await?,
            false => consumer_wait.wait_until_current(deps, consumers).await?,
        };
        if let Some(answer) = entry.as_ref().and_then(|entry| entry.get()) {
            let length = answer.body.len() as u64;
            shares.take_bytes(budgets, &request.identity, length)?;
            return Ok(Outcome { from_cache: Some(true), ..answer.into() });
        }
        let ready = Ready { request, query, body, waiting, processed };
        let outcome = self.with_names(&ready, shares).await?;
        // What consumers do later with the same ledgers begins no new generation.
        if let Some(entry) = entry.as_ref().filter(|_| processed.is_final) {
            entry.keep(&outcome.answer);
        }
        Ok(Outcome { from_cache: entry.map(|_| false), ..outcome })
    }

    /// Runs the handler of a request; again, if its names lacked something that has come meanwhile. It
    /// holds nothing while it waits for that.
    async fn with_names(
        &self,
        ready: &Ready<'_>,
        shares: &mut RequestShares,
    ) -> Result<Outcome, ApiError> {
        let resources = &self.resources;
        let (held, mut patience) = (shares.bytes(), Patience::default());
        loop {
            let outcome = {
                let _slot = slot::acquire(resources, ready.request).await?;
                handle(resources, ready, shares).await?
            };
            if !resources.names_wait.wait_for_page(&outcome.lacking, &mut patience).await {
                return Ok(outcome);
            }
            drop(outcome);
            shares.keep_bytes(held);
        }
    }
}
