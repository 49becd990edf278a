//! Processing of every request. Before its handler: request id, size, route, rate limit, token,
//! cost, body; after it: compression, headers, log, metrics. Every failure is a JSON response.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::{FutureExt, Stream};
use parking_lot::Mutex;
use warp::Buf;
use warp::http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE};
use warp::http::{HeaderMap, HeaderName, HeaderValue, Method};
use warp::reply::Response;

use super::allowance::{self, Allowance};
use super::answer::{Answer, Finished};
use super::answers::{CacheKey, ResponseCache};
use super::blocking::Watch;
use super::budgets::{Budgets, RequestShares, acquire_slot, refused};
use super::client::{Client, Waiting};
use super::compression::finish;
use super::current::Progress;
use super::flow::StreamedBody;
use super::identity::{self, Identity};
use super::intake::BodyReservation;
use super::limits::Limits;
use super::reading::Reading;
use super::record::{REQUEST_ID, log_failure, request_id};
use super::replies::{Reply, failure, not_modified, options, success};
use super::route::{Call, PathValues, Route, Work};
use super::router::{Match, Router};
use super::streams::{self, Opening, Streams};
use super::{
    ApiError, Deps, LONGEST_URI, RequestSummary, compression, cors, error, intake, metrics,
};
use crate::budget::{Holder, Share};
use crate::store::Generation;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The head of a request.
pub(super) struct Head {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub client: Arc<Client>,
}

/// Entry point of all requests.
pub(super) struct Gate {
    deps: Deps,
    router: Router,
    limits: Limits,
    budgets: Arc<Budgets>,
    watch: Arc<Watch>,
    streams: Streams,
    cache: ResponseCache,
    progress: Progress,
    metrics: metrics::MetricsCache,
}

/// Result of an admitted request.
struct Outcome {
    answer: Finished,
    /// Whether the response came from the cache; `None` when the route is not cached.
    from_cache: Option<bool>,
    /// Stream that is sent in place of the response's body.
    stream: Option<StreamedBody>,
}

/// A request that may reach its handler.
struct Admitted<'a> {
    route: &'static Route,
    path: PathValues<'a>,
    identity: Identity,
}

/// State of a request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    /// Absent, or read to its end: the connection is ready for the next request.
    Consumed,
    /// Abandoned before its end: the connection must be closed.
    Abandoned,
}

impl Outcome {
    fn of(answer: Finished, from_cache: Option<bool>) -> Self {
        Self { answer, from_cache, stream: None }
    }
}

impl Gate {
    pub(super) fn new(deps: Deps, router: Router) -> Result<Self, ApiError> {
        let (budgets, watch) = (Arc::new(Budgets::new(&deps.settings)), Arc::default());
        Ok(Self {
            router,
            limits: Limits::new(deps.settings.rate_limit),
            progress: Progress::of(&deps.store),
            streams: Streams::new(&deps, &budgets, &watch)?,
            budgets,
            deps,
            watch,
            cache: ResponseCache::new(),
            metrics: metrics::MetricsCache::default(),
        })
    }

    /// Ends all open streams.
    pub(super) fn stop(&self) {
        self.streams.stop();
    }

    /// Returns the watch that keeps sockets polled while requests read the store.
    pub(super) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Returns the budgets that requests and connections share.
    pub(super) fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    /// Processes a request and returns its response.
    pub(super) async fn answer<B: Buf>(
        &self,
        head: Head,
        body: impl Stream<Item = Result<B, warp::Error>>,
    ) -> Response {
        let started = Instant::now();
        let found = self.router.find(&head.method, &head.path);
        let mut body_state = Body::Consumed;
        let mut shares =
            RequestShares { in_flight: head.client.begin(), request: None, bytes: None };
        let work = self.outcome(&head, found, body, &mut shares, &mut body_state);
        let outcome = AssertUnwindSafe(work).catch_unwind().await.unwrap_or(Err(ApiError::Panic));
        let id = request_id(&head.headers);
        if let Err(error) = &outcome {
            log_failure(&head, &id, error);
        }
        let mut outcome = outcome;
        let made = outcome.as_mut().ok().and_then(Option::as_mut);
        let (from_cache, stream) =
            made.map_or((None, None), |made| (made.from_cache, made.stream.take()));
        let mut response = self.response(&head, found, outcome, id, body_state);
        self.report(&head, found, &response, from_cache, started);
        if let Some(stream) = stream {
            stream.attach_to(&mut response);
        }
        response.map(|body| shares.hold_until_sent(body).into())
    }

    async fn outcome<B: Buf>(
        &self,
        head: &Head,
        found: Match<'_>,
        body: impl Stream<Item = Result<B, warp::Error>>,
        shares: &mut RequestShares,
        body_state: &mut Body,
    ) -> Result<Option<Outcome>, ApiError> {
        let admitted = self.admit(head, found, shares);
        let wanted = match &admitted {
            Ok(Some(admitted)) => self.reserve(head, admitted, shares),
            _ => Ok(None),
        };
        let has_body = intake::has_body(&head.headers);
        let limit = self.deps.settings.body_timeout;
        let read = match (&wanted, &mut shares.bytes) {
            _ if !has_body => Ok(Bytes::new()),
            (Ok(Some(BodyReservation { largest, .. })), Some(share)) => {
                intake::read(body, *largest, share, limit).await
            }
            // An unneeded body is read and discarded, so that the connection can be reused.
            _ => intake::discard(&head.headers, body, limit).await.map(|()| Bytes::new()),
        };
        if read.is_err() {
            *body_state = Body::Abandoned;
        }
        // An authorisation failure takes precedence over a failure of the body.
        let Some(admitted) = admitted? else { return Ok(None) };
        let _upload = wanted?;
        let body = read?;
        self.work(head, &admitted, &body, shares).await.map(Some)
    }

    /// Reserves what a request's body costs before it is read; `None` when the route takes no body.
    fn reserve(
        &self,
        head: &Head,
        admitted: &Admitted<'_>,
        shares: &mut RequestShares,
    ) -> Result<Option<BodyReservation>, ApiError> {
        let Some(largest) = admitted.route.body else { return Ok(None) };
        let largest = match admitted.route.work {
            // The same module is smaller in a form than in JSON.
            Work::Upload(_) if intake::is_form(&head.headers) => largest.min(super::LARGEST_FORM),
            _ => largest,
        };
        if !intake::has_body(&head.headers) {
            return Ok(Some(BodyReservation { largest, _slot: None }));
        }
        let bytes = intake::bytes_to_reserve(&head.headers, largest)?;
        let holder = admitted.identity.holder;
        let slot = match admitted.route.work {
            Work::Upload(_) => {
                let slot = self.budgets.uploads.take_now(holder, 1);
                Some(slot.map_err(|refusal| refused(refusal, "uploads"))?)
            }
            _ => None,
        };
        self.take_bytes(shares, holder, bytes as u64)?;
        Ok(Some(BodyReservation { largest, _slot: slot }))
    }

    /// Enlarges the request's share of bytes by `more`.
    fn take_bytes<'h>(
        &self,
        shares: &'h mut RequestShares,
        holder: Holder,
        more: u64,
    ) -> Result<&'h mut Share, ApiError> {
        let taken = match shares.bytes.take() {
            Some(mut share) => {
                let grown = share.grow_to(share.amount() + more);
                shares.bytes = Some(share);
                grown
            }
            None => self.budgets.bytes.take_now(holder, more).map(|share| {
                shares.bytes = Some(share);
            }),
        };
        taken.map_err(|refusal| refused(refusal, "bytes"))?;
        shares.bytes.as_mut().ok_or(ApiError::Panic)
    }

    /// Runs the handler of a route on a request.
    async fn work(
        &self,
        head: &Head,
        admitted: &Admitted<'_>,
        body: &Bytes,
        shares: &mut RequestShares,
    ) -> Result<Outcome, ApiError> {
        let Admitted { route, path, identity } = admitted;
        let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let owner = identity.owner.as_ref();
        let (path, query) = (*path, head.query.as_str());
        let waiting = Some(Waiting::of(&head.client));
        let last_event_id = head.headers.get(LAST_EVENT_ID);
        // A header value that is not text becomes U+FFFD, which is refused as not a number.
        let last_event_id = last_event_id.map(|value| value.to_str().unwrap_or("\u{fffd}"));
        let (allowance, reading, as_of) = (None, None, None);
        let call = Call {
            path,
            query,
            body,
            content_type,
            last_event_id,
            owner,
            allowance,
            waiting,
            reading,
            as_of,
        };
        let wants_gzip = compression::wants_gzip(&head.headers);
        let finished = |answer| Outcome::of(finish(answer, wants_gzip), None);
        match route.work {
            Work::Memory(handler) => {
                let outcome = handler(&self.deps, &call).map(finished)?;
                self.take_answer(shares, identity, outcome)
            }
            Work::Waiting(handler) => {
                self.take_bytes(shares, identity.holder, allowance::GROWTH_STEP)?;
                let share = Mutex::new(shares.bytes.take().ok_or(ApiError::Panic)?);
                let (deps, limits) = (&self.deps, &self.limits);
                let reading = Reading {
                    budgets: &self.budgets,
                    watch: &self.watch,
                    limits: &deps.settings.scan,
                    client: &head.client,
                    holder: identity.holder,
                    share: &share,
                    count: &|| identity::authorize(deps, limits, head, route).map(drop),
                };
                let call = Call { reading: Some(&reading), ..call };
                let outcome = handler(deps, &call).await.map(finished);
                shares.bytes = Some(share.into_inner());
                outcome
            }
            Work::Metrics => {
                let made = self.metrics.get(&self.deps, &self.budgets, wants_gzip);
                made.map(|answer| Outcome::of(answer, None))
            }
            Work::Blocking(handler) | Work::Current(_, handler) => {
                let as_of = match route.work {
                    Work::Current(consumers, _) => {
                        self.progress.wait_until_current(&self.deps, consumers).await?
                    }
                    _ => None,
                };
                let _slot = self.reader(head, identity).await?;
                let share = self.take_bytes(shares, identity.holder, allowance::GROWTH_STEP)?;
                let allowance = Allowance::new(&self.deps.settings.scan, &head.client, share);
                let call = Call { allowance: Some(&allowance), as_of, ..call };
                self.watch.run_read(|| handler(&self.deps, &call).map(finished))
            }
            Work::Stream(handler) => {
                let opening = self.opening(head, identity)?;
                let stream = handler(&self.streams, &call, opening)?;
                shares.request = None;
                Ok(Outcome { stream: Some(stream), ..finished(Answer::stream()) })
            }
            Work::Cached(handler) => {
                let generation = self.deps.store.generation();
                let work = |call: &Call<'_>| handler(&self.deps.store, call);
                let call = Call { path, query, ..Call::default() };
                self.cached_response(generation, work, call, head, identity, shares).await
            }
            Work::CurrentCached(consumers, handler) => {
                // Read first: rows that are read later may lack what is stored meanwhile.
                let generation = self.deps.store.generation();
                let as_of = self.progress.wait_until_current(&self.deps, consumers).await?;
                let work = |call: &Call<'_>| handler(&self.deps, call);
                let call = Call { path, query, as_of, ..Call::default() };
                self.cached_response(generation, work, call, head, identity, shares).await
            }
            Work::Query(handler) | Work::Change(handler) | Work::Upload(handler) => {
                let _slot = self.acquire_slow_slot(head, identity, route.work).await?;
                let bytes = match route.work {
                    Work::Change(_) => allowance::GROWTH_STEP,
                    _ => self.deps.settings.largest_answer,
                };
                self.take_bytes(shares, identity.holder, bytes)?;
                // May wait for child processes: this thread's other tasks move to another thread.
                tokio::task::block_in_place(|| handler(&self.deps, &call).map(finished))
            }
        }
    }

    /// Charges the bytes of a response for which none were reserved.
    fn take_answer(
        &self,
        shares: &mut RequestShares,
        identity: &Identity,
        outcome: Outcome,
    ) -> Result<Outcome, ApiError> {
        if !identity.is_exempt {
            self.take_bytes(shares, identity.holder, outcome.answer.body.len() as u64)?;
        }
        Ok(outcome)
    }

    async fn reader(&self, head: &Head, identity: &Identity) -> Result<Share, ApiError> {
        acquire_slot(&self.budgets.readers, identity.holder, &head.client, "reads").await
    }

    /// Takes what a stream holds for its whole duration.
    fn opening(&self, head: &Head, identity: &Identity) -> Result<Opening, ApiError> {
        let (client, holder) = (Arc::clone(&head.client), identity.holder);
        let slot = self.budgets.streams.take_now(holder, 1);
        let slot = slot.map_err(|refusal| refused(refusal, "streams"))?;
        let bytes = self.budgets.bytes.take_now(holder, streams::RESERVED_BYTES);
        let bytes = bytes.map_err(|refusal| refused(refusal, "bytes"))?;
        let token = identity::bearer_token(&head.headers).ok_or(ApiError::NoToken)?.into();
        Ok(Opening { client, holder, token, _slot: slot, bytes })
    }

    /// Takes a slot for work that may take seconds, charged to the owner of the token.
    async fn acquire_slow_slot(
        &self,
        head: &Head,
        identity: &Identity,
        work: Work,
    ) -> Result<Share, ApiError> {
        let holder = identity.owner.as_ref().map_or(identity.holder, Holder::of);
        match work {
            Work::Query(_) => {
                acquire_slot(&self.budgets.queries, holder, &head.client, "queries").await
            }
            _ => acquire_slot(&self.budgets.changes, holder, &head.client, "changes").await,
        }
    }

    /// Returns a cached route's response. The `generation` was obtained before anything was read.
    async fn cached_response(
        &self,
        generation: Option<Generation>,
        work: impl FnOnce(&Call<'_>) -> Result<Answer, ApiError>,
        call: Call<'_>,
        head: &Head,
        identity: &Identity,
        shares: &mut RequestShares,
    ) -> Result<Outcome, ApiError> {
        let wants_gzip = compression::wants_gzip(&head.headers);
        let key = CacheKey { path: call.path.path, query: call.query, wants_gzip };
        let cached = generation.and_then(|now| self.cache.get(&key, now));
        if let Some(answer) = cached {
            self.take_bytes(shares, identity.holder, answer.body.len() as u64)?;
            return Ok(Outcome::of(answer, Some(true)));
        }
        let _slot = self.reader(head, identity).await?;
        let share = self.take_bytes(shares, identity.holder, allowance::GROWTH_STEP)?;
        let allowance = Allowance::new(&self.deps.settings.scan, &head.client, share);
        self.watch.run_read(|| {
            let answer = work(&Call { allowance: Some(&allowance), ..call })?;
            let is_complete = answer.is_complete;
            let answer = finish(answer, wants_gzip);
            // An incomplete response is not cached: where it ended depends on timing and load.
            if let Some(generation) = generation.filter(|_| is_complete) {
                self.cache.keep(&key, generation, &answer);
            }
            Ok(Outcome::of(answer, Some(false)))
        })
    }

    /// Decides whether the request may reach a handler; `None` for an OPTIONS request.
    fn admit<'a>(
        &self,
        head: &Head,
        found: Match<'a>,
        shares: &mut RequestShares,
    ) -> Result<Option<Admitted<'a>>, ApiError> {
        let outcome = match found {
            _ if head.path.len() + head.query.len() > LONGEST_URI => {
                Err(ApiError::UriTooLong(LONGEST_URI))
            }
            Match::Unknown => Err(ApiError::unknown_route(&head.path)),
            Match::Options(_) => Ok(None),
            Match::WrongMethod(resource) => {
                let method = crate::domain::excerpt(head.method.as_str());
                Err(ApiError::Method { method, allow: resource.allow.clone() })
            }
            Match::Handle(route, path) => {
                let identity = identity::authorize(&self.deps, &self.limits, head, route)?;
                if !identity.is_exempt {
                    let share = self.budgets.requests.take_now(identity.holder, 1);
                    shares.request = Some(share.map_err(|refusal| refused(refusal, "requests"))?);
                }
                return Ok(Some(Admitted { route, path, identity }));
            }
        };
        identity::count_unrouted(&self.deps, &self.limits, head)?;
        outcome
    }

    fn response(
        &self,
        head: &Head,
        found: Match<'_>,
        outcome: Result<Option<Outcome>, ApiError>,
        id: HeaderValue,
        body_state: Body,
    ) -> Reply {
        let mut response = match outcome {
            Ok(Some(outcome)) => success(outcome.answer),
            Ok(None) => options(found),
            Err(error) => {
                let spelled = found.route().map_or(error::rest as fn(&_) -> _, |it| it.failure);
                failure(&error, spelled(&error))
            }
        };
        let headers = response.headers_mut();
        headers.insert(REQUEST_ID, id);
        if let Some(route) = found.route() {
            cors::allow(headers, route.access, &self.deps.settings.cors_origins, &head.headers);
            for (name, value) in route.headers {
                headers.insert(*name, HeaderValue::from_static(value));
            }
            if route.no_store {
                headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            }
            if let Match::Options(resource) = found {
                cors::preflight(headers, &resource.allow, route.allowed_headers, &head.headers);
            }
        }
        if body_state == Body::Abandoned {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        not_modified(response, &head.headers)
    }

    fn report(
        &self,
        head: &Head,
        found: Match<'_>,
        response: &Reply,
        from_cache: Option<bool>,
        started: Instant,
    ) {
        let route = found.route().map_or("unmatched", |route| route.template);
        let (status, seconds) = (response.status().as_u16(), started.elapsed().as_secs_f64());
        let id = response.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok());
        tracing::debug!(id, method = %head.method, path = %head.path, status, seconds, "request");
        if let Some(on_request) = &self.deps.on_request {
            on_request(&RequestSummary { route, status, seconds, from_cache });
        }
    }
}
