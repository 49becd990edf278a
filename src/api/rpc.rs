//! Route of JSON-RPC: transport rules, processing of the calls in a batch one after the other, and
//! forwarding. The methods themselves are implemented in `orrery_rpc`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use warp::http::StatusCode;

use super::allowance::{GROWTH_STEP, ReserveError};
use super::answer::{Answer, JSON};
use super::budgets::refused;
use super::call::AsyncCall;
use super::identity::Access;
use super::route::{Route, Work};
use super::{ApiError, Deps, error};
use orrery_auth::{Area, Right, Scope};
use orrery_rpc::envelope::{Call, Reply, Request, error_without_id};
use orrery_rpc::{CallLimits, Forwarding, Otherwise, Params, RpcError};

/// Maximum size of a request body in bytes, as in Stellar RPC.
const LARGEST_BODY: usize = 512 << 10;
/// Maximum number of calls in a batch.
const MAX_CALLS: usize = 50;
/// Time limit of all calls of a batch together, as a multiple of the time limit of one call.
const BATCH_TIMES: u32 = 5;
/// Time after the start of a request's processing during which its calls are forwarded.
const FORWARD_TIME_LIMIT: Duration = Duration::from_secs(30);
/// Size in bytes of a batch's answers after which its remaining calls are refused.
const MAX_BATCH_BYTES: usize = 8 << 20;

const PLAIN_TEXT: &str = "text/plain; charset=utf-8";

/// The route when it is public.
pub(super) static ROUTES: [Route; 1] = [route(Access::Public)];
/// The route when it requires a token.
pub(super) static WITH_TOKEN: [Route; 1] =
    [route(Access::Token(Right { area: Area::Queries, scope: Scope::Read }))];

const fn route(access: Access) -> Route {
    Route {
        failure,
        headers: &[("accept-post", JSON)],
        ..Route::new("POST", "/rpc", Work::asynchronous(access, answer))
            .with_body(LARGEST_BODY)
            .ignoring_parameters()
    }
}

/// What a person sees who opens the address in a browser.
const FOR_PEOPLE: &str = "This is the JSON-RPC interface. Programs send calls to this address with POST and \
    Content-Type: application/json, such as {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"getHealth\"}.\n";

/// Formats failures outside of every call. Where the status suffices, as for a wrong method of a
/// program, the body is empty.
fn failure(error: &ApiError) -> Answer {
    let (status, _) = error.status_and_code();
    let error_object = match error {
        ApiError::Method { is_for_page, .. } => {
            let body = if *is_for_page { FOR_PEOPLE } else { "" };
            return Answer { status, media_type: PLAIN_TEXT, ..Answer::json(body.into()) };
        }
        _ if status.is_server_error() => RpcError::internal(error.to_string()),
        _ => RpcError::invalid_request(error.to_string()),
    };
    match error_without_id(error_object) {
        Ok(body) => Answer { status, ..Answer::json(body) },
        Err(_) => error::rest(error),
    }
}

fn answer<'a>(deps: &'a Deps, call: AsyncCall<'a>) -> BoxFuture<'a, Result<Answer, ApiError>> {
    async move {
        if !is_json(call.body.content_type) {
            return Ok(Answer {
                status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
                media_type: PLAIN_TEXT,
                ..Answer::json(b"content-type must be application/json".to_vec())
            });
        }
        let request = match Request::read(call.body.bytes, MAX_CALLS) {
            Ok(request) => request,
            Err(error) => {
                return Ok(Answer::json(error_without_id(error).map_err(serialization_failed)?));
            }
        };
        let mut answering = Calls { deps, http: call, answers: Vec::new() };
        let body = match request {
            Request::Single(one) => answering.answer(&one).await?,
            Request::Batch(calls) => {
                answering.http.reading.count(calls.len().saturating_sub(1))?;
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

/// Whether the content type is JSON, with the charset UTF-8 if one is given.
pub(super) fn is_json(content_type: Option<&str>) -> bool {
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

fn serialization_failed(error: RpcError) -> ApiError {
    tracing::error!(%error, "a JSON-RPC response cannot be serialised");
    ApiError::Encoding
}

/// Returns the error for a call whose response has no room in memory.
fn no_room(error: ReserveError) -> RpcError {
    RpcError::internal(match error {
        ReserveError::NotNow(_) => {
            "the responses in progress take all memory for responses: try again in a moment"
                .to_owned()
        }
        ReserveError::Never { bytes, most } => format!(
            "the response needs {bytes} bytes, and one client may have {most} \
             (limits.bytes_in_flight_per_token_mib, and half of limits.bytes_in_flight_mib without a \
             token): ask for less, or ask the operator to raise the limit"
        ),
    })
}

/// State of a request while its calls are answered in order.
struct Calls<'a> {
    deps: &'a Deps,
    http: AsyncCall<'a>,
    /// Answers of the batch so far, as the beginning of a JSON array.
    answers: Vec<u8>,
}

impl Calls<'_> {
    /// Answers a call; `None` for a notification.
    async fn answer(&self, call: &Call<'_>) -> Result<Option<Vec<u8>>, ApiError> {
        if self.http.waiting.is_abandoned() {
            return Err(ApiError::HungUp);
        }
        let reply = match &call.content {
            Err(error) => Reply::Error(error.clone()),
            Ok(_) if self.answers.len() > MAX_BATCH_BYTES => Reply::Error(RpcError::internal(
                "the batch's responses are too large: send this call by itself",
            )),
            Ok((method, params)) if self.deps.rpc.is_past_simulation(method, *params) => {
                let _slot = self.http.reading.begin_simulation().await?;
                self.stored(method, *params).await?
            }
            Ok((method, params)) => match self.deps.rpc.forwarded(method) {
                Some(forwarding) if forwarding.may_be_stored(*params) => {
                    match self.stored(method, *params).await? {
                        Reply::Error(RpcError {
                            otherwise: Some(Otherwise::Forwarding), ..
                        }) => self.forward_call(&forwarding, *params).await?,
                        reply => reply,
                    }
                }
                Some(forwarding) => self.forward_call(&forwarding, *params).await?,
                None => self.stored(method, *params).await?,
            },
        };
        if call.is_notification() {
            return Ok(None);
        }
        let mut answer = call.answer(&reply).map_err(serialization_failed)?;
        // A single answer has been made within what its method may reserve.
        let reserved = match self.answers.len() {
            0 => self.http.reading.reserve_one(answer.len()),
            so_far => self.http.reading.reserve(so_far + answer.len()),
        };
        match reserved {
            Ok(()) => {}
            Err(ReserveError::NotNow(refusal)) => return Err(refused(refusal, "bytes")),
            Err(error @ ReserveError::Never { .. }) => {
                answer =
                    call.answer(&Reply::Error(no_room(error))).map_err(serialization_failed)?;
            }
        }
        Ok(Some(answer))
    }

    /// Forwards a call to another server. Its answer is charged to a budget of its own while it
    /// arrives, so calls to a slow server take nothing from other requests, and then to the response.
    async fn forward_call(
        &self,
        forwarding: &Forwarding<'_>,
        params: Params<'_>,
    ) -> Result<Reply, ApiError> {
        if self.http.waiting.elapsed() >= FORWARD_TIME_LIMIT {
            return Ok(Reply::Error(RpcError::too_expensive()));
        }
        self.http.reading.count_forwarded()?;
        let share = Mutex::new(self.http.reading.begin_forwarding()?);
        let has_room = |bytes: u64| {
            let mut share = share.lock();
            bytes <= share.amount() || share.grow_to(bytes + GROWTH_STEP).is_ok()
        };
        Ok(forwarding.forward(params, &has_room).await)
    }

    /// Answers a call from the store; once a consumer is current, if that is necessary.
    async fn stored(&self, method: &str, params: Params<'_>) -> Result<Reply, ApiError> {
        match self.native(method, params).await? {
            // A batch waits for as long as a single call, whatever the number of its calls.
            Reply::Error(RpcError { otherwise: Some(Otherwise::Consumer(consumer)), .. })
                if self.http.waiting.elapsed() < self.deps.settings.limits.scan_ms.duration() =>
            {
                self.native_once_current(method, params, consumer).await
            }
            reply => Ok(reply),
        }
    }

    /// Answers a call from the store once a consumer has processed every ledger that is stored now.
    async fn native_once_current(
        &self,
        method: &str,
        params: Params<'_>,
        consumer: &'static str,
    ) -> Result<Reply, ApiError> {
        match self.http.consumer_wait.wait_until_current(self.deps, &[consumer]).await {
            Ok(_) => self.native(method, params).await,
            Err(error) => Ok(Reply::Error(RpcError::internal(error.to_string()))),
        }
    }

    /// Answers a call from the store.
    async fn native(&self, method: &str, params: Params<'_>) -> Result<Reply, ApiError> {
        let (so_far, waiting) = (self.answers.len(), self.http.waiting);
        let answered = self.http.reading.read(|allowance| {
            let begun = Instant::now();
            let time = allowance.limits.scan_ms.duration();
            let whole = time.saturating_mul(BATCH_TIMES);
            let is_over =
                || begun.elapsed() >= time || waiting.elapsed() >= whole || waiting.is_abandoned();
            let bounds = allowance.bounds(&is_over);
            let may_grow_to = |bytes: usize| allowance.may_continue(so_far + bytes);
            let reserve = |bytes: usize| allowance.reserve(so_far + bytes).map_err(no_room);
            let reserve_one = |bytes: usize| match so_far {
                0 => allowance.reserve_one(bytes).map_err(no_room),
                _ => reserve(bytes),
            };
            let (may_grow_to, reserve, reserve_one) = (&may_grow_to, &reserve, &reserve_one);
            let call_limits = CallLimits { bounds, may_grow_to, reserve, reserve_one };
            let called = AssertUnwindSafe(|| self.deps.rpc.call(method, params, call_limits));
            catch_unwind(called).unwrap_or_else(|_| Err(RpcError::panicked()))
        });
        Ok(match answered.await? {
            Ok(result) => Reply::Result(result),
            Err(error) => Reply::Error(error),
        })
    }
}
