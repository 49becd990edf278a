//! Sends one request to a JSON-RPC 2.0 server over HTTP, reads its response, and words each way in
//! which that fails. Does not depend on the methods of the server; keeps its credentials out of
//! every message.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use orrery_ledger::domain::{SourceError, excerpt};
use orrery_net::http::{self, HttpError};
use orrery_net::reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use orrery_net::reqwest::{Client, Response, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::settings::{RpcError, RpcSettings};

/// JSON-RPC error code for a method that the server does not have.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// Error codes with which stellar-rpc rejects parameters.
pub const REFUSED_PARAMETERS: [i64; 2] = [-32600, -32602];
/// Error code with which stellar-rpc aborts a request that takes too long.
const PROCESSING_LIMIT: i64 = -32001;
/// Error code with which stellar-rpc reports that it is not ready.
pub const INTERNAL: i64 = -32603;

/// Minimum length in bytes of a credential to redact: a shorter one could occur in a message by
/// chance.
const SHORTEST_SECRET: usize = 6;

/// Response to a forwarded call.
#[derive(Debug)]
pub enum Relayed {
    /// The `result` member.
    Result(Box<RawValue>),
    /// The `error` member, with code, message and data.
    Error(Box<RawValue>),
}

/// Why a call failed. Each message is a whole sentence that names the server.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The HTTP request failed without a complete response.
    #[error("{} cannot be asked for {}: {failure}", call.server, call.method)]
    Http {
        /// The request.
        call: CallInfo,
        /// The HTTP failure.
        failure: HttpError,
    },
    /// The response has an HTTP status other than 200.
    #[error("{} answers {} with HTTP {}: {}", call.server, call.method, status.as_u16(), meaning(*status))]
    Status {
        /// The request.
        call: CallInfo,
        /// Status of the response.
        status: StatusCode,
        /// Delay from `Retry-After`, when the server sent one.
        retry_after: Option<Duration>,
    },
    /// The server redirects to an address that is not followed.
    #[error("{} redirects to {to}: if that server is to be trusted, give its address", call.server)]
    Redirect {
        /// The request.
        call: CallInfo,
        /// Target of the redirect, without secrets.
        to: String,
    },
    /// The body is not a valid response to the request.
    #[error("{} answers {} with {found}: check that its address is that of a Stellar RPC server", call.server, call.method)]
    NotUnderstood {
        /// The request.
        call: CallInfo,
        /// Description of what was received instead.
        found: String,
    },
    /// The server returned a JSON-RPC error.
    #[error("{}", refusal(call, *code, message))]
    Refused {
        /// The request.
        call: CallInfo,
        /// Error code of JSON-RPC or of stellar-rpc.
        code: i64,
        /// The server's error message, shortened and without credentials.
        message: String,
    },
}

impl CallError {
    /// Returns whether a request for less may succeed.
    pub fn may_succeed_with_less(&self) -> bool {
        match self {
            Self::Http { failure, .. } => matches!(
                failure,
                HttpError::TimedOut | HttpError::Broken(_) | HttpError::TooLong(_)
            ),
            Self::Status { status, .. } => matches!(
                *status,
                StatusCode::SERVICE_UNAVAILABLE
                    | StatusCode::GATEWAY_TIMEOUT
                    | StatusCode::PAYLOAD_TOO_LARGE
            ),
            Self::Refused { code, .. } => *code == PROCESSING_LIMIT,
            Self::Redirect { .. } | Self::NotUnderstood { .. } => false,
        }
    }
}

/// Makes every failure retryable: the server may be repaired, or another may take over its address.
impl From<CallError> for SourceError {
    fn from(error: CallError) -> Self {
        let reason = error.to_string();
        match error {
            CallError::Status { retry_after: Some(delay), .. } => {
                Self::RetryAfter { reason, delay }
            }
            _ => Self::Retryable(reason),
        }
    }
}

fn meaning(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 | 403 | 407 => "it does not accept the credentials in its address or headers",
        404 | 405 => "no RPC server is there, check the path of its address",
        408 | 504 => "it took too long",
        413 => "the request is too large for it",
        429 => "it receives more requests than it allows",
        500 => "it had an internal error",
        502 => "the server behind it does not answer",
        503 => "it is overloaded or under maintenance",
        _ if status.is_client_error() => "it does not accept the request",
        _ if status.is_server_error() => "it failed",
        _ => "this is not a response to an RPC request",
    }
}

fn refusal(call: &CallInfo, code: i64, message: &str) -> String {
    let CallInfo { server, method, .. } = call;
    match code {
        INTERNAL => format!("{server} is not ready to answer {method}: {message}"),
        METHOD_NOT_FOUND => {
            format!("{server} does not know {method}: follow a newer RPC server or a ledger lake")
        }
        _ => format!("{server} refuses {method}: {message} (code {code})"),
    }
}

/// Identifies a request in messages: server, method and id.
#[derive(Debug, Clone)]
pub struct CallInfo {
    server: Arc<str>,
    method: &'static str,
    id: u64,
    secrets: Arc<[String]>,
}

/// A complete response that is not parsed yet.
pub struct Answer {
    call: CallInfo,
    kind: String,
    body: Bytes,
}

/// Client of one RPC server.
pub struct Server {
    client: Client,
    url: Url,
    headers: HeaderMap,
    name: Arc<str>,
    secrets: Arc<[String]>,
    last_id: AtomicU64,
}

impl Server {
    /// Creates a client for the server of `settings`, without contacting it.
    pub fn new(settings: &RpcSettings) -> Result<Self, RpcError> {
        let url = parse_address(&settings.url)?;
        let mut headers = HeaderMap::new();
        for (name, value) in &settings.headers {
            let wrong = || {
                RpcError(format!(
                    "the header '{}' for the RPC server is wrong: its name may hold letters, digits \
                     and '-', and its value must be one line of ASCII",
                    excerpt(name)
                ))
            };
            let name = HeaderName::try_from(name).map_err(|_| wrong())?;
            let mut value = HeaderValue::try_from(value).map_err(|_| wrong())?;
            value.set_sensitive(true);
            headers.append(name, value);
        }
        let name = format!("the RPC server {}", http::redacted(&url)).into();
        let secrets = secrets(&url, settings).into();
        let client =
            http::client(settings.timeouts).map_err(|error| RpcError(error.to_string()))?;
        Ok(Self { client, url, headers, name, secrets, last_id: AtomicU64::new(0) })
    }

    /// Returns the server's name for messages, without secrets.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the server's address without secrets.
    pub fn address(&self) -> String {
        http::redacted(&self.url)
    }

    /// Sends a request without parameters and parses the result as `T`. The response may have at
    /// most `cap` bytes after decompression.
    pub async fn request<T: DeserializeOwned>(
        &self,
        method: &'static str,
        cap: u64,
    ) -> Result<T, CallError> {
        let answer = self.send(method, None::<()>, cap).await?;
        answer.read()
    }

    /// Sends a request and returns the response, of at most `cap` bytes after decompression.
    pub async fn send<P: Serialize>(
        &self,
        method: &'static str,
        params: Option<P>,
        cap: u64,
    ) -> Result<Answer, CallError> {
        self.send_within(method, params, cap, &|_| true).await
    }

    /// Like [`Self::send`], for a response that grows only as far as `has_room` permits.
    pub async fn send_within<P: Serialize>(
        &self,
        method: &'static str,
        params: Option<P>,
        cap: u64,
        has_room: &(dyn Fn(u64) -> bool + Sync),
    ) -> Result<Answer, CallError> {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let (server, secrets) = (Arc::clone(&self.name), Arc::clone(&self.secrets));
        let call = CallInfo { server, method, id, secrets };
        let rpc_request = JsonRpcRequest { jsonrpc: "2.0", id: call.id, method, params };
        let request = self.client.post(self.url.clone()).headers(self.headers.clone());
        let failed = |failure| CallError::Http { call: call.clone(), failure };
        let response = request.json(&rpc_request).send().await.map_err(|e| failed(e.into()))?;
        if response.status() != StatusCode::OK {
            return Err(not_ok(call, &response));
        }
        let kind = kind_of(&response);
        let body = http::read_within(response, cap, has_room).await.map_err(failed)?;
        Ok(Answer { call, kind, body })
    }
}

impl Answer {
    /// Parses the result as `T`, which may borrow from the response.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, CallError> {
        let Self { call, kind, body } = self;
        let not_understood = |found: String| CallError::NotUnderstood { call: call.clone(), found };
        let envelope: Envelope<'_> = serde_json::from_slice(body).map_err(|error| {
            not_understood(if error.is_eof() {
                "JSON that is cut off".to_owned()
            } else {
                format!("{kind} that is not a JSON-RPC response")
            })
        })?;
        if let Some(Refusal { code, message }) = envelope.error {
            let message = call.without_secrets(&message);
            return Err(CallError::Refused { call: call.clone(), code, message });
        }
        if envelope.id.map(RawValue::get) != Some(call.id.to_string().as_str()) {
            return Err(not_understood("the answer to another question".to_owned()));
        }
        let Some(result) = envelope.result else {
            return Err(not_understood("neither a result nor an error".to_owned()));
        };
        serde_json::from_str(result.get()).map_err(|error| {
            not_understood(format!("a result of another form ({})", excerpt(&error.to_string())))
        })
    }

    /// Returns the result or the error, unchanged.
    pub fn relayed(&self) -> Result<Relayed, CallError> {
        let Self { call, kind, body } = self;
        let not_understood = |found: String| CallError::NotUnderstood { call: call.clone(), found };
        let envelope: RelayedEnvelope<'_> = serde_json::from_slice(body)
            .map_err(|_| not_understood(format!("{kind} that is not a JSON-RPC response")))?;
        match (envelope.error, envelope.result) {
            (Some(error), _) => Ok(Relayed::Error(error.to_owned())),
            (None, Some(result)) => Ok(Relayed::Result(result.to_owned())),
            (None, None) => Err(not_understood("neither a result nor an error".to_owned())),
        }
    }

    /// Returns the request that this responds to.
    pub fn call(&self) -> &CallInfo {
        &self.call
    }

    /// Returns the length of the body in bytes after decompression.
    pub fn bytes(&self) -> u64 {
        self.body.len() as u64
    }
}

impl CallInfo {
    /// Reduces a message of the server to one short line, with its credentials redacted.
    fn without_secrets(&self, message: &str) -> String {
        let mut shown = message.split_whitespace().collect::<Vec<_>>().join(" ");
        for secret in self.secrets.iter() {
            shown = shown.replace(secret, "…");
        }
        const LONGEST: usize = 300;
        match shown.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{}…", &shown[..end]),
            None => shown,
        }
    }
}

fn not_ok(call: CallInfo, response: &Response) -> CallError {
    let (status, headers) = (response.status(), response.headers());
    if status.is_redirection()
        && let Some(to) = headers.get(LOCATION).and_then(|to| to.to_str().ok())
    {
        let to = response.url().join(to);
        let to = to.map_or_else(|_| "an invalid address".to_owned(), |to| http::redacted(&to));
        return CallError::Redirect { call, to };
    }
    CallError::Status { call, status, retry_after: http::retry_after(headers) }
}

/// Returns the media type of a response, without parameters.
fn kind_of(response: &Response) -> String {
    let named = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = named.and_then(|named| named.split(';').next()).map(str::trim);
    kind.filter(|kind| !kind.is_empty()).map_or_else(|| "something".to_owned(), excerpt)
}

fn parse_address(text: &str) -> Result<Url, RpcError> {
    let wrong = |reason: String| {
        RpcError(format!(
            "the address of the RPC server is wrong ({reason}): write it as https://HOST/PATH"
        ))
    };
    let url = Url::parse(text.trim()).map_err(|error| wrong(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong(format!("its scheme is {}", excerpt(url.scheme()))));
    }
    Ok(url)
}

/// Returns the strings to redact in messages, longest first because one may contain another.
fn secrets(url: &Url, settings: &RpcSettings) -> Vec<String> {
    let mut found: Vec<String> = settings.headers.iter().map(|(_, value)| value.clone()).collect();
    found.extend([url.password().unwrap_or_default(), url.username()].map(str::to_owned));
    found.extend(url.query().map(str::to_owned));
    found.extend(url.query_pairs().map(|(_, value)| value.into_owned()));
    let shown = http::redacted(url);
    let hidden = url.path_segments().into_iter().flatten().filter(|word| !shown.contains(word));
    found.extend(hidden.map(str::to_owned));
    found.retain(|secret| secret.len() >= SHORTEST_SECRET);
    found.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    found
}

#[derive(Serialize)]
struct JsonRpcRequest<P> {
    jsonrpc: &'static str,
    id: u64,
    method: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<P>,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<Refusal>,
}

#[derive(Deserialize)]
struct RelayedEnvelope<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Refusal {
    code: i64,
    message: String,
}

#[cfg(test)]
impl CallInfo {
    pub fn for_tests() -> Self {
        let server = "the RPC server http://t".into();
        Self { server, method: "getLedgers", id: 1, secrets: Arc::new([]) }
    }
}
