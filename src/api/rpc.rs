//! The route of JSON-RPC: transport rules, one call after the other, and who answers each. What the methods answer is
//! `crate::rpc`'s.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use warp::http::StatusCode;

use super::answer::{Answer, JSON};
use super::cors::Sendable;
use super::reading::Reading;
use super::route::{Access, Call as HttpCall, Route, Work};
use super::{ApiError, Deps, error};
use crate::auth::{Area, Right, Scope};
use crate::rpc::envelope::{Call, Reply, Request, answer_to_nobody};
use crate::rpc::{Allowed, Forwarding, LONGEST_ANSWER, Params, Rpc, RpcError};
use crate::store::Bounds;

/// Bytes of the largest body, as in Stellar RPC.
const LARGEST_BODY: usize = 512 << 10;
/// Calls of a batch.
const MOST_CALLS: usize = 50;
/// All calls of a batch together may take so many times as long as one of them.
const BATCH_TIMES: u32 = 5;
/// How long the calls of a batch go on being handed to another server.
const HANDED_ON_FOR: Duration = Duration::from_secs(30);
/// Bytes of answers after which the other calls of a batch are refused.
const MOST_OF_BATCH: usize = 8 << 20;

const PLAIN_TEXT: &str = "text/plain; charset=utf-8";

/// For everybody.
pub(super) static ROUTES: [Route; 1] = [route(Access::Public)];
/// For owners of a token.
pub(super) static WITH_TOKEN: [Route; 1] =
    [route(Access::Token(Right { area: Area::Queries, scope: Scope::Read }))];

const fn route(access: Access) -> Route {
    Route {
        failure,
        sendable: Sendable::Asked,
        headers: &[("accept-post", JSON)],
        ..Route::new("POST", "/rpc", access, Work::Waiting(answer)).with_body(LARGEST_BODY)
    }
}

/// Failures outside of every call. Where the status says all, as with another method, there is no body.
fn failure(error: &ApiError) -> Answer {
    let (status, _) = error.status_and_code();
    let told = match error {
        ApiError::Method { .. } => {
            return Answer { status, media_type: PLAIN_TEXT, ..Answer::json(Vec::new()) };
        }
        _ if status.is_server_error() => RpcError::internal(error.to_string()),
        _ => RpcError::invalid_request(error.to_string()),
    };
    match answer_to_nobody(told) {
        Ok(body) => Answer { status, ..Answer::json(body) },
        Err(_) => error::rest(error),
    }
}

fn answer<'a>(deps: &'a Deps, call: &'a HttpCall<'a>) -> BoxFuture<'a, Result<Answer, ApiError>> {
    async move {
        if !is_json(call.content_type) {
            return Ok(Answer {
                status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
                media_type: PLAIN_TEXT,
                ..Answer::json(b"content-type must be application/json".to_vec())
            });
        }
        let rpc = deps.rpc.as_deref().ok_or(ApiError::NoRpc)?;
        let reading = call.reading.ok_or(ApiError::Panic)?;
        let request = match Request::read(call.body, MOST_CALLS) {
            Ok(request) => request,
            Err(error) => return Ok(Answer::json(answer_to_nobody(error).map_err(unspelled)?)),
        };
        let body = match request {
            Request::Single(one) => Calls::new(rpc, call, reading).answer(&one).await?,
            Request::Batch(calls) => {
                reading.count(calls.len().saturating_sub(1))?;
                let mut answering = Calls::new(rpc, call, reading);
                for one in &calls {
                    if let Some(answer) = answering.answer(one).await? {
                        let separator = if answering.answers.is_empty() { b'[' } else { b',' };
                        answering.answers.push(separator);
                        answering.answers.extend_from_slice(&answer);
                    }
                }
                let mut answers = answering.answers;
                (!answers.is_empty()).then(|| {
                    answers.push(b']');
                    answers
                })
            }
        };
        Ok(match body {
            Some(body) => Answer::json(body),
            None => Answer { status: StatusCode::NO_CONTENT, ..Answer::json(Vec::new()) },
        })
    }
    .boxed()
}

/// Whether a body is said to be JSON, in UTF-8 where that is said at all.
fn is_json(content_type: Option<&str>) -> bool {
    let mut parts = content_type.unwrap_or_default().split(';').map(str::trim);
    let is_json = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case(JSON));
    is_json
        && parts.all(|parameter| match parameter.split_once('=') {
            Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
                let value = value.trim().trim_matches('"');
                value.eq_ignore_ascii_case("utf-8") || value.eq_ignore_ascii_case("utf8")
            }
            _ => true,
        })
}

fn unspelled(error: RpcError) -> ApiError {
    tracing::error!(%error, "an answer of JSON-RPC cannot be spelled");
    ApiError::Panic
}

/// The calls of a request, answered in order.
struct Calls<'a> {
    rpc: &'a Rpc,
    http: &'a HttpCall<'a>,
    reading: &'a Reading<'a>,
    /// Answers of a batch so far.
    answers: Vec<u8>,
}

impl<'a> Calls<'a> {
    fn new(rpc: &'a Rpc, http: &'a HttpCall<'a>, reading: &'a Reading<'a>) -> Self {
        Self { rpc, http, reading, answers: Vec::new() }
    }

    /// The answer to a call; none when nobody waits for one.
    async fn answer(&self, call: &Call<'_>) -> Result<Option<Vec<u8>>, ApiError> {
        if self.http.is_abandoned() {
            return Err(ApiError::HungUp);
        }
        let reply = match &call.content {
            Err(error) => Reply::Error(error.clone()),
            Ok(_) if self.answers.len() > MOST_OF_BATCH => {
                Reply::Error(RpcError::internal("the answers before are long: send it by itself"))
            }
            Ok((method, params)) => match self.rpc.forwarded(method) {
                Some(forwarding) => self.handed_on(&forwarding, *params).await?,
                None => self.native(method, *params).await?,
            },
        };
        if call.is_notification() {
            return Ok(None);
        }
        let answer = call.answer(&reply).map_err(unspelled)?;
        self.reading.hold(self.answers.len() + answer.len())?;
        Ok(Some(answer))
    }

    /// What another server answers to a call. Its bytes are taken before it is asked: who waits for long answers of a
    /// slow server has few of them at a time.
    async fn handed_on(
        &self,
        forwarding: &Forwarding<'_>,
        params: Params<'_>,
    ) -> Result<Reply, ApiError> {
        if self.http.waiting.is_some_and(|waiting| waiting.elapsed() >= HANDED_ON_FOR) {
            return Ok(Reply::Error(RpcError::too_expensive()));
        }
        self.reading.hold(self.answers.len() + LONGEST_ANSWER)?;
        Ok(forwarding.forward(params).await)
    }

    /// Answers a call from the store.
    async fn native(&self, method: &str, params: Params<'_>) -> Result<Reply, ApiError> {
        let so_far = self.answers.len();
        let answered = self.reading.read(|allowance| {
            let begun = Instant::now();
            let limits = allowance.limits;
            let whole = limits.time.saturating_mul(BATCH_TIMES);
            let is_over = || {
                begun.elapsed() >= limits.time
                    || self.http.waiting.is_some_and(|it| it.elapsed() >= whole || it.has_ended())
            };
            let bounds = Bounds {
                records: limits.records,
                index_rows: limits.index_rows,
                interrupted: &is_over,
            };
            let goes_on = |bytes: usize| allowance.goes_on(so_far + bytes);
            let allowed = Allowed { bounds, goes_on: &goes_on };
            let called = AssertUnwindSafe(|| self.rpc.call(method, params, allowed));
            catch_unwind(called).unwrap_or_else(|_| Err(RpcError::panicked()))
        });
        Ok(match answered.await? {
            Ok(result) => Reply::Result(result),
            Err(error) => Reply::Error(error),
        })
    }
}
