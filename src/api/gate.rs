//! What happens to every request before and after its handler: request id, size, route, rate limit,
//! token and body on the way in; compression, headers, log and metrics on the way out.
//!
//! Nothing but an answer ever leaves here: every failure, a panic included, becomes a JSON error.

use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::{FutureExt, Stream, StreamExt};
use tokio::time::{Instant as Deadline, timeout_at};
use warp::Buf;
use warp::http::header::{
    ALLOW, AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER,
    TRANSFER_ENCODING, VARY, WWW_AUTHENTICATE,
};
use warp::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use warp::reply::Response;

use super::answer::{Answer, Finished, JSON};
use super::answers::{Answers, Question};
use super::blocking::Readers;
use super::limits::{Caller, Limits};
use super::router::{self, Access, Call, Handler, Match, Route, Verb, Work};
use super::{ApiError, Deps, LARGEST_BODY, LONGEST_URI, RequestSummary, compression, cors, error};
use crate::auth::{Claims, TokenError, decide};
use crate::domain::Owner;
use crate::store::Store;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const LONGEST_REQUEST_ID: usize = 128;

/// The head of a request.
pub(super) struct Head {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub peer: SocketAddr,
}

/// The one way in.
pub(super) struct Gate {
    deps: Deps,
    limits: Limits,
    readers: Readers,
    /// Where requests wait for what takes long.
    patient: Readers,
    answers: Answers,
}

/// What a request that may be answered comes to.
struct Outcome {
    answer: Finished,
    /// Whether it had been kept; none when its route keeps none.
    was_kept: Option<bool>,
}

/// A request that may reach its handler.
struct Admitted<'a> {
    route: &'static Route,
    path_value: &'a str,
    owner: Option<Owner>,
}

/// What came of a request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    /// Absent, or read to its end: the connection is ready for the next request.
    Consumed,
    /// Given up in the middle: the connection must be closed.
    Abandoned,
}

impl Gate {
    pub(super) fn new(deps: Deps) -> Self {
        let limits = Limits::new(deps.settings.rate_limit);
        let readers = Readers::new(deps.settings.readers, deps.settings.waiting_readers);
        let patient = Readers::new(deps.settings.slow_requests, deps.settings.waiting_readers);
        Self { deps, limits, readers, patient, answers: Answers::new() }
    }

    /// Where requests read the store.
    pub(super) fn readers(&self) -> &Readers {
        &self.readers
    }

    /// Answers a request.
    pub(super) async fn answer<B: Buf>(
        &self,
        head: Head,
        body: impl Stream<Item = Result<B, warp::Error>>,
    ) -> Response {
        let started = Instant::now();
        let found = router::find(&head.method, &head.path);
        let mut body_state = Body::Consumed;
        let outcome = AssertUnwindSafe(self.outcome(&head, found, body, &mut body_state))
            .catch_unwind()
            .await
            .unwrap_or(Err(ApiError::Panic));
        let id = request_id(&head.headers);
        if let Err(error) = &outcome {
            log_failure(&head, &id, error);
        }
        let was_kept = outcome.as_ref().ok().and_then(|outcome| outcome.as_ref()?.was_kept);
        let response = self.response(&head, found, outcome, id, body_state);
        self.report(&head, found, &response, was_kept, started);
        response
    }

    async fn outcome<B: Buf>(
        &self,
        head: &Head,
        found: Match<'_>,
        body: impl Stream<Item = Result<B, warp::Error>>,
        body_state: &mut Body,
    ) -> Result<Option<Outcome>, ApiError> {
        let admitted = self.admit(head, found);
        // A body that nobody wants is read all the same, so that the connection can go on.
        let largest = match &admitted {
            Ok(Some(admitted)) => admitted.route.verb.largest_body(),
            _ => LARGEST_BODY,
        };
        let body = match has_body(&head.headers) {
            true => self.read(head, body, largest).await,
            false => Ok(Bytes::new()),
        };
        if body.is_err() {
            *body_state = Body::Abandoned;
        }
        // Who has no right is told so, whatever the body is.
        let Some(Admitted { route, path_value, owner }) = admitted? else { return Ok(None) };
        let body = match (body?, route.verb) {
            (body, Verb::Post { .. }) => body,
            _ => Bytes::new(),
        };
        let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let query = &head.query;
        let call = Call { path_value, query, body: &body, content_type, owner: owner.as_ref() };
        let wants_gzip = compression::wants_gzip(&head.headers);
        let finished = |answer| Outcome { answer: finish(answer, wants_gzip), was_kept: None };
        match route.work {
            Work::Memory(handler) => handler(&self.deps, &call).map(finished),
            Work::Blocking(handler) => {
                self.readers.run(|| handler(&self.deps, &call).map(finished)).await?
            }
            Work::Slow(handler) => {
                let work = || handler(&self.deps, &call).map(finished);
                // It may wait for other processes; the reactor's work goes to another thread.
                self.patient.run(|| tokio::task::block_in_place(work)).await?
            }
            Work::Kept(handler) => {
                let Call { path_value, query, .. } = call;
                let question = Question { route: route.template, path_value, query, wants_gzip };
                self.kept(&question, handler).await
            }
        }
        .map(Some)
    }

    /// The answer of a route whose answers are kept: from memory when the store has not changed.
    async fn kept(
        &self,
        question: &Question<&str>,
        handler: Handler<Store>,
    ) -> Result<Outcome, ApiError> {
        let store = &self.deps.store;
        let kept = store.generation().and_then(|now| self.answers.get(question, now));
        if let Some(answer) = kept {
            return Ok(Outcome { answer, was_kept: Some(true) });
        }
        let work = || {
            // Before the first row is read: whatever is written meanwhile makes this one the past.
            let generation = store.generation();
            let Question { path_value, query, wants_gzip, .. } = *question;
            let answer = finish(handler(store, &Call::reading(path_value, query))?, wants_gzip);
            if let Some(generation) = generation {
                self.answers.keep(question, generation, &answer);
            }
            Ok(Outcome { answer, was_kept: Some(false) })
        };
        self.readers.run(work).await?
    }

    /// Whether the request may reach a handler, and which; `None` when it only asks for options.
    fn admit<'a>(&self, head: &Head, found: Match<'a>) -> Result<Option<Admitted<'a>>, ApiError> {
        if head.path.len() + head.query.len() > LONGEST_URI {
            return Err(ApiError::UriTooLong(LONGEST_URI));
        }
        match found {
            Match::Unknown => Err(ApiError::unknown_route(&head.path)),
            Match::Options(_) => Ok(None),
            Match::WrongMethod(_) => {
                let method = crate::domain::excerpt(head.method.as_str());
                Err(ApiError::Method { method, allow: found.methods().allow() })
            }
            Match::Handle(route, path_value) => {
                let claims = self.authorize(head, route)?;
                let owner = claims.map(|claims| Owner(claims.sub.clone()));
                Ok(Some(Admitted { route, path_value, owner }))
            }
        }
    }

    fn authorize(&self, head: &Head, route: &Route) -> Result<Option<Arc<Claims>>, ApiError> {
        let by_address = || Caller::address(self.client_address(head));
        match route.access {
            Access::Probe | Access::Operator => Ok(None),
            Access::Public => self.limits.count(by_address).map(|()| None),
            Access::Token(right) => {
                let claims = match self.verify(&head.headers) {
                    Ok(claims) => claims,
                    Err(error) => {
                        // Guessing tokens is limited too.
                        self.limits.count(by_address)?;
                        return Err(error);
                    }
                };
                self.limits.count(|| Caller::Token(claims.jti.clone()))?;
                decide(&claims, right, &self.deps.network)?;
                Ok(Some(claims))
            }
        }
    }

    fn verify(&self, headers: &HeaderMap) -> Result<Arc<Claims>, ApiError> {
        let token = bearer_token(headers).ok_or(ApiError::NoToken)?;
        self.deps.tokens.verify_at(token, (self.deps.clock)()).map_err(ApiError::Token)
    }

    /// The address that a rate limit counts: the peer's, or, behind a trusted proxy, the last one
    /// in `X-Forwarded-For` that is not a trusted proxy's.
    fn client_address(&self, head: &Head) -> IpAddr {
        let trusted = &self.deps.settings.trusted_proxies;
        let peer = head.peer.ip().to_canonical();
        if !trusted.contains(&peer) {
            return peer;
        }
        let lists = head.headers.get_all(FORWARDED_FOR).iter().rev();
        let hops = lists.filter_map(|value| value.to_str().ok()).flat_map(|list| list.rsplit(','));
        hops.map_while(|hop| hop.trim().parse::<IpAddr>().ok())
            .find(|hop| !trusted.contains(hop))
            .unwrap_or(peer)
    }

    /// Reads a body of at most `largest` bytes to its end.
    async fn read<B: Buf>(
        &self,
        head: &Head,
        body: impl Stream<Item = Result<B, warp::Error>>,
        largest: usize,
    ) -> Result<Bytes, ApiError> {
        let too_large = ApiError::BodyTooLarge(largest);
        let announced = head.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        if announced
            .and_then(|text| text.parse().ok())
            .is_some_and(|length: usize| length > largest)
        {
            return Err(too_large);
        }
        let limit = self.deps.settings.body_timeout;
        let deadline = Deadline::now() + limit;
        let mut body = pin!(body);
        let mut received = BytesMut::new();
        loop {
            match timeout_at(deadline, body.next()).await {
                Err(_) => return Err(ApiError::BodyTooSlow(limit.as_secs())),
                Ok(None) => return Ok(received.freeze()),
                Ok(Some(Err(_))) => return Err(ApiError::BrokenBody),
                Ok(Some(Ok(chunk))) => received.put(chunk),
            }
            if received.len() > largest {
                return Err(too_large);
            }
        }
    }

    fn response(
        &self,
        head: &Head,
        found: Match<'_>,
        outcome: Result<Option<Outcome>, ApiError>,
        id: HeaderValue,
        body_state: Body,
    ) -> Response {
        let mut response = match outcome {
            Ok(Some(outcome)) => success(outcome.answer),
            Ok(None) => options(found),
            Err(error) => failure(&error),
        };
        let headers = response.headers_mut();
        headers.insert(REQUEST_ID, id);
        if let Some(route) = found.route() {
            cors::allow(headers, route.access, &self.deps.settings.cors_origins, &head.headers);
        }
        if head.method == Method::OPTIONS {
            cors::preflight(headers, found.methods());
        }
        if body_state == Body::Abandoned {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    fn report(
        &self,
        head: &Head,
        found: Match<'_>,
        response: &Response,
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

/// Compresses an answer when the client wants that and it pays.
fn finish(answer: Answer, wants_gzip: bool) -> Finished {
    // Whatever goes wrong with compressing, the answer itself is there.
    let compressed = wants_gzip.then(|| compression::gzip(&answer.body).ok().flatten());
    Finished::new(answer, compressed.flatten())
}

fn success(finished: Finished) -> Response {
    let Finished { status, media_type, body, gzipped } = finished;
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    if gzipped {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

fn options(found: Match<'_>) -> Response {
    let mut response = Response::default();
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(found.methods().allow()));
    response
}

fn failure(error: &ApiError) -> Response {
    let (status, code) = error.status_and_code();
    let mut response = Response::new(error::body(code, &error.to_string()).into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    if let Some(seconds) = error.retry_after() {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if let ApiError::Method { allow, .. } = error {
        headers.insert(ALLOW, HeaderValue::from_static(allow));
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

fn log_failure(head: &Head, id: &HeaderValue, error: &ApiError) {
    let (id, path) = (id.to_str().ok(), head.path.as_str());
    match error {
        ApiError::Store(cause) => tracing::error!(id, path, %cause, "the store failed"),
        ApiError::Program(cause) if cause.is_internal() => {
            tracing::error!(id, path, %cause, "what was asked of programs was not done");
        }
        ApiError::Token(TokenError::Unverifiable(cause)) => {
            tracing::error!(id, path, %cause, "revocations cannot be read");
        }
        ApiError::Panic => tracing::error!(id, path, "a handler panicked"),
        _ => {}
    }
}

fn has_body(headers: &HeaderMap) -> bool {
    headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING)
}

/// The token of the one `Authorization: Bearer …` header.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (given.next(), given.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The client's id of the request when it can be logged as it is, else a fresh one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
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
