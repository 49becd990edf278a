//! What happens to every request before and after its handler: request id, size, route, rate limit,
//! token, what it may cost, and body on the way in; compression, headers, log and metrics on the way out.
//!
//! Nothing but an answer ever leaves here: every failure, a panic included, becomes a JSON error.

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
use super::answers::{Answers, Question};
use super::blocking::Watch;
use super::budgets::{Budgets, Holding, place, refused};
use super::client::{Client, Waiting};
use super::compression::finish;
use super::current::Progress;
use super::flow::Flow;
use super::identity::{self, Identity};
use super::intake::Intake;
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

/// The one way in.
pub(super) struct Gate {
    deps: Deps,
    router: Router,
    limits: Limits,
    budgets: Arc<Budgets>,
    watch: Arc<Watch>,
    streams: Streams,
    answers: Answers,
    progress: Progress,
    metrics: metrics::Kept,
}

/// What a request that may be answered comes to.
struct Outcome {
    answer: Finished,
    /// Whether it had been kept; none when its route keeps none.
    was_kept: Option<bool>,
    /// What is sent in place of the answer's body.
    flow: Option<Flow>,
}

/// A request that may reach its handler.
struct Admitted<'a> {
    route: &'static Route,
    path: PathValues<'a>,
    identity: Identity,
}

/// What came of a request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    /// Absent, or read to its end: the connection is ready for the next request.
    Consumed,
    /// Given up in the middle: the connection must be closed.
    Abandoned,
}

impl Outcome {
    fn of(answer: Finished, was_kept: Option<bool>) -> Self {
        Self { answer, was_kept, flow: None }
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
            answers: Answers::new(),
            metrics: metrics::Kept::default(),
        })
    }

    /// Has those answers end that otherwise have no end.
    pub(super) fn stop(&self) {
        self.streams.stop();
    }

    /// Keeps sockets attended while requests read the store.
    pub(super) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// What requests and connections share.
    pub(super) fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    /// Answers a request.
    pub(super) async fn answer<B: Buf>(
        &self,
        head: Head,
        body: impl Stream<Item = Result<B, warp::Error>>,
    ) -> Response {
        let started = Instant::now();
        let found = self.router.find(&head.method, &head.path);
        let mut body_state = Body::Consumed;
        let mut holding = Holding { unfinished: head.client.begin(), request: None, bytes: None };
        let work = self.outcome(&head, found, body, &mut holding, &mut body_state);
        let outcome = AssertUnwindSafe(work).catch_unwind().await.unwrap_or(Err(ApiError::Panic));
        let id = request_id(&head.headers);
        if let Err(error) = &outcome {
            log_failure(&head, &id, error);
        }
        let mut outcome = outcome;
        let made = outcome.as_mut().ok().and_then(Option::as_mut);
        let (was_kept, flow) = made.map_or((None, None), |made| (made.was_kept, made.flow.take()));
        let mut response = self.response(&head, found, outcome, id, body_state);
        self.report(&head, found, &response, was_kept, started);
        if let Some(flow) = flow {
            flow.flows_in(&mut response);
        }
        response.map(|body| holding.until_sent(body).into())
    }

    async fn outcome<B: Buf>(
        &self,
        head: &Head,
        found: Match<'_>,
        body: impl Stream<Item = Result<B, warp::Error>>,
        holding: &mut Holding,
        body_state: &mut Body,
    ) -> Result<Option<Outcome>, ApiError> {
        let admitted = self.admit(head, found, holding);
        let wanted = match &admitted {
            Ok(Some(admitted)) => self.reserve(head, admitted, holding),
            _ => Ok(None),
        };
        let has_body = intake::has_body(&head.headers);
        let limit = self.deps.settings.body_timeout;
        let read = match (&wanted, &mut holding.bytes) {
            _ if !has_body => Ok(Bytes::new()),
            (Ok(Some(Intake { largest, .. })), Some(share)) => {
                intake::read(body, *largest, share, limit).await
            }
            // A body that nobody wants is read all the same, so that the connection can go on.
            _ => intake::pass_over(&head.headers, body, limit).await.map(|()| Bytes::new()),
        };
        if read.is_err() {
            *body_state = Body::Abandoned;
        }
        // Who has no right is told so, whatever the body is.
        let Some(admitted) = admitted? else { return Ok(None) };
        let _upload = wanted?;
        let body = read?;
        self.work(head, &admitted, &body, holding).await.map(Some)
    }

    /// Takes what a request's body costs before it is read; none when the route wants no body.
    fn reserve(
        &self,
        head: &Head,
        admitted: &Admitted<'_>,
        holding: &mut Holding,
    ) -> Result<Option<Intake>, ApiError> {
        let Some(largest) = admitted.route.body else { return Ok(None) };
        let largest = match admitted.route.work {
            // The same module takes less room in a form than in JSON.
            Work::Upload(_) if intake::is_form(&head.headers) => largest.min(super::LARGEST_FORM),
            _ => largest,
        };
        if !intake::has_body(&head.headers) {
            return Ok(Some(Intake { largest, _place: None }));
        }
        let bytes = intake::reserved(&head.headers, largest)?;
        let holder = admitted.identity.holder;
        let place = match admitted.route.work {
            Work::Upload(_) => {
                let place = self.budgets.uploads.take_now(holder, 1);
                Some(place.map_err(|refusal| refused(refusal, "uploads"))?)
            }
            _ => None,
        };
        self.take_bytes(holding, holder, bytes as u64)?;
        Ok(Some(Intake { largest, _place: place }))
    }

    /// Makes the request's share of bytes larger.
    fn take_bytes<'h>(
        &self,
        holding: &'h mut Holding,
        holder: Holder,
        more: u64,
    ) -> Result<&'h mut Share, ApiError> {
        let taken = match holding.bytes.take() {
            Some(mut share) => {
                let grown = share.grow_to(share.amount() + more);
                holding.bytes = Some(share);
                grown
            }
            None => self.budgets.bytes.take_now(holder, more).map(|share| {
                holding.bytes = Some(share);
            }),
        };
        taken.map_err(|refusal| refused(refusal, "bytes"))?;
        // It was put there above.
        holding.bytes.as_mut().ok_or(ApiError::Panic)
    }

    /// What the handler of a route makes of a request.
    async fn work(
        &self,
        head: &Head,
        admitted: &Admitted<'_>,
        body: &Bytes,
        holding: &mut Holding,
    ) -> Result<Outcome, ApiError> {
        let Admitted { route, path, identity } = admitted;
        let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let owner = identity.owner.as_ref();
        let (path, query) = (*path, head.query.as_str());
        let waiting = Some(Waiting::of(&head.client));
        let last_event_id = head.headers.get(LAST_EVENT_ID);
        // One that is no text is refused as one that is no number.
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
                self.take_answer(holding, identity, outcome)
            }
            Work::Waiting(handler) => {
                self.take_bytes(holding, identity.holder, allowance::STEP)?;
                let share = Mutex::new(holding.bytes.take().ok_or(ApiError::Panic)?);
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
                holding.bytes = Some(share.into_inner());
                outcome
            }
            Work::Metrics => {
                let made = self.metrics.get(&self.deps, &self.budgets, wants_gzip);
                made.map(|answer| Outcome::of(answer, None))
            }
            Work::Blocking(handler) | Work::Current(_, handler) => {
                let as_of = match route.work {
                    Work::Current(consumers, _) => {
                        self.progress.reached(&self.deps, consumers).await?
                    }
                    _ => None,
                };
                let _place = self.reader(head, identity).await?;
                let share = self.take_bytes(holding, identity.holder, allowance::STEP)?;
                let allowance = Allowance::new(&self.deps.settings.scan, &head.client, share);
                let call = Call { allowance: Some(&allowance), as_of, ..call };
                self.watch.during(|| handler(&self.deps, &call).map(finished))
            }
            Work::Stream(handler) => {
                let opening = self.opening(head, identity)?;
                let flow = handler(&self.streams, &call, opening)?;
                holding.request = None;
                Ok(Outcome { flow: Some(flow), ..finished(Answer::stream()) })
            }
            Work::Kept(handler) => {
                let generation = self.deps.store.generation();
                let work = |call: &Call<'_>| handler(&self.deps.store, call);
                let call = Call { path, query, ..Call::default() };
                self.kept(generation, work, call, head, identity, holding).await
            }
            Work::CurrentKept(consumers, handler) => {
                // Before the wait: what is stored meanwhile may not be in what is read.
                let generation = self.deps.store.generation();
                let as_of = self.progress.reached(&self.deps, consumers).await?;
                let work = |call: &Call<'_>| handler(&self.deps, call);
                let call = Call { path, query, as_of, ..Call::default() };
                self.kept(generation, work, call, head, identity, holding).await
            }
            Work::Query(handler) | Work::Change(handler) | Work::Upload(handler) => {
                let _place = self.slow_place(head, identity, route.work).await?;
                let bytes = match route.work {
                    Work::Change(_) => allowance::STEP,
                    _ => self.deps.settings.largest_answer,
                };
                self.take_bytes(holding, identity.holder, bytes)?;
                // It may wait for other processes; the reactor's work goes to another thread.
                tokio::task::block_in_place(|| handler(&self.deps, &call).map(finished))
            }
        }
    }

    /// Takes the bytes of an answer for which none were reserved.
    fn take_answer(
        &self,
        holding: &mut Holding,
        identity: &Identity,
        outcome: Outcome,
    ) -> Result<Outcome, ApiError> {
        if !identity.is_exempt {
            self.take_bytes(holding, identity.holder, outcome.answer.body.len() as u64)?;
        }
        Ok(outcome)
    }

    async fn reader(&self, head: &Head, identity: &Identity) -> Result<Share, ApiError> {
        place(&self.budgets.readers, identity.holder, &head.client, "reads").await
    }

    /// What a stream takes for as long as it lasts.
    fn opening(&self, head: &Head, identity: &Identity) -> Result<Opening, ApiError> {
        let (client, holder) = (Arc::clone(&head.client), identity.holder);
        let place = self.budgets.streams.take_now(holder, 1);
        let place = place.map_err(|refusal| refused(refusal, "streams"))?;
        let room = self.budgets.bytes.take_now(holder, streams::ROOM);
        let room = room.map_err(|refusal| refused(refusal, "bytes"))?;
        let token = identity::bearer_token(&head.headers).ok_or(ApiError::NoToken)?.into();
        Ok(Opening { client, holder, token, _place: place, room })
    }

    /// A place for what may take seconds. It counts for the owner, whatever the token.
    async fn slow_place(
        &self,
        head: &Head,
        identity: &Identity,
        work: Work,
    ) -> Result<Share, ApiError> {
        let holder = identity.owner.as_ref().map_or(identity.holder, Holder::of);
        match work {
            Work::Query(_) => place(&self.budgets.queries, holder, &head.client, "queries").await,
            _ => place(&self.budgets.changes, holder, &head.client, "changes").await,
        }
    }

    /// The answer of a route whose answers are kept: from memory when it was given in this generation of the store,
    /// which was noted before anything was read.
    async fn kept(
        &self,
        generation: Option<Generation>,
        work: impl FnOnce(&Call<'_>) -> Result<Answer, ApiError>,
        call: Call<'_>,
        head: &Head,
        identity: &Identity,
        holding: &mut Holding,
    ) -> Result<Outcome, ApiError> {
        let wants_gzip = compression::wants_gzip(&head.headers);
        let question = Question { path: call.path.path, query: call.query, wants_gzip };
        let kept = generation.and_then(|now| self.answers.get(&question, now));
        if let Some(answer) = kept {
            self.take_bytes(holding, identity.holder, answer.body.len() as u64)?;
            return Ok(Outcome::of(answer, Some(true)));
        }
        let _place = self.reader(head, identity).await?;
        let share = self.take_bytes(holding, identity.holder, allowance::STEP)?;
        let allowance = Allowance::new(&self.deps.settings.scan, &head.client, share);
        self.watch.during(|| {
            let answer = work(&Call { allowance: Some(&allowance), ..call })?;
            let is_complete = answer.is_complete;
            let answer = finish(answer, wants_gzip);
            // How far an incomplete one got is an accident.
            if let Some(generation) = generation.filter(|_| is_complete) {
                self.answers.keep(&question, generation, &answer);
            }
            Ok(Outcome::of(answer, Some(false)))
        })
    }

    /// Whether the request may reach a handler, and which; `None` when it only asks for options.
    fn admit<'a>(
        &self,
        head: &Head,
        found: Match<'a>,
        holding: &mut Holding,
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
                    holding.request = Some(share.map_err(|refusal| refused(refusal, "requests"))?);
                }
                return Ok(Some(Admitted { route, path, identity }));
            }
        };
        identity::count_stray(&self.deps, &self.limits, head)?;
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
            if route.of_the_moment {
                headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            }
            if let Match::Options(resource) = found {
                cors::preflight(headers, &resource.allow, route.sendable, &head.headers);
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
        was_kept: Option<bool>,
        started: Instant,
    ) {
        let route = found.route().map_or("unmatched", |route| route.template);
        let (status, seconds) = (response.status().as_u16(), started.elapsed().as_secs_f64());
        let id = response.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok());
        tracing::debug!(id, method = %head.method, path = %head.path, status, seconds, "request");
        if let Some(on_request) = &self.deps.on_request {
            on_request(&RequestSummary { route, status, seconds, was_kept });
        }
    }
}
