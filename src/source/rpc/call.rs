//! One question to a JSON-RPC 2.0 server over HTTP and its answer, and a sentence for each way in which
//! that fails. Knows no method of the server; keeps its credentials out of every sentence.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Client, Response, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Relayed, RpcError, RpcSettings};
use crate::domain::excerpt;
use crate::source::follow::SourceError;
use crate::source::http::{self, HttpError};

/// Code of JSON-RPC for a method that the server does not have.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// Codes with which stellar-rpc refuses parameters.
pub const REFUSED_PARAMETERS: [i64; 2] = [-32600, -32602];
/// Code with which stellar-rpc gives up a request that takes too long.
const PROCESSING_LIMIT: i64 = -32001;
/// Code with which stellar-rpc says that it is not ready.
pub const INTERNAL: i64 = -32603;

/// A credential that is shorter could stand in a message by chance.
const SHORTEST_SECRET: usize = 6;

/// Why a call failed. Each is a whole sentence that names the server.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No answer came.
    #[error("{} cannot be asked for {}: {failure}", asked.server, asked.method)]
    Http {
        /// What was asked.
        asked: Asked,
        /// Why not.
        failure: HttpError,
    },
    /// An answer of HTTP, and not of the RPC server.
    #[error("{} answers {} with HTTP {}: {}", asked.server, asked.method, status.as_u16(), meaning(*status))]
    Status {
        /// What was asked.
        asked: Asked,
        /// The answer.
        status: StatusCode,
        /// How long the server asks to wait.
        retry_after: Option<Duration>,
    },
    /// It is elsewhere.
    #[error("{} redirects to {to}: if that server is to be trusted, give its address", asked.server)]
    Redirect {
        /// What was asked.
        asked: Asked,
        /// Where to, without secrets.
        to: String,
    },
    /// The answer is not what was asked for.
    #[error("{} answers {} with {found}: check that its address is that of a Stellar RPC server", asked.server, asked.method)]
    NotUnderstood {
        /// What was asked.
        asked: Asked,
        /// What came instead.
        found: String,
    },
    /// The server says no.
    #[error("{}", refusal(asked, *code, message))]
    Refused {
        /// What was asked.
        asked: Asked,
        /// Code of JSON-RPC or of stellar-rpc.
        code: i64,
        /// What the server says, shortened and without credentials.
        message: String,
    },
}

impl CallError {
    /// Whether a smaller question may succeed.
    pub fn asks_for_less(&self) -> bool {
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

/// Nothing that a server answers is final: it may be repaired, or its address be served by another.
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
        413 => "the question is too large for it",
        429 => "it is asked more often than it allows",
        500 => "it failed inside",
        502 => "the server behind it does not answer",
        503 => "it is overloaded or under maintenance",
        _ if status.is_client_error() => "it does not accept the question",
        _ if status.is_server_error() => "it failed",
        _ => "that is no answer to an RPC question",
    }
}

fn refusal(asked: &Asked, code: i64, message: &str) -> String {
    let Asked { server, method, .. } = asked;
    match code {
        INTERNAL => format!("{server} is not ready to answer {method}: {message}"),
        METHOD_NOT_FOUND => {
            format!("{server} does not know {method}: follow a newer RPC server or a ledger lake")
        }
        _ => format!("{server} refuses {method}: {message} (code {code})"),
    }
}

/// What was asked of whom.
#[derive(Debug, Clone)]
pub struct Asked {
    server: Arc<str>,
    method: &'static str,
    id: u64,
    secrets: Arc<[String]>,
}

/// An answer that came whole and is not read yet.
pub struct Answer {
    asked: Asked,
    kind: String,
    body: Bytes,
}

/// A server and how to speak to it.
pub struct Server {
    client: Client,
    url: Url,
    headers: HeaderMap,
    name: Arc<str>,
    secrets: Arc<[String]>,
    questions: AtomicU64,
}

impl Server {
    /// The server of `settings`. Asks it nothing yet.
    pub fn new(settings: &RpcSettings) -> Result<Self, RpcError> {
        let url = parse_address(&settings.url)?;
        let mut headers = HeaderMap::new();
        for (name, value) in &settings.headers {
            let wrong = || RpcError::Header(excerpt(name));
            let name = HeaderName::try_from(name).map_err(|_| wrong())?;
            let mut value = HeaderValue::try_from(value).map_err(|_| wrong())?;
            value.set_sensitive(true);
            headers.append(name, value);
        }
        let name = format!("the RPC server {}", http::redacted(&url)).into();
        let secrets = secrets(&url, settings).into();
        let client = http::client(settings.timeouts).map_err(RpcError::Client)?;
        Ok(Self { client, url, headers, name, secrets, questions: AtomicU64::new(0) })
    }

    /// How it is called in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address without secrets.
    pub fn address(&self) -> String {
        http::redacted(&self.url)
    }

    /// Asks, and reads an answer of at most `cap` bytes as `T`.
    pub async fn ask<T: DeserializeOwned>(
        &self,
        method: &'static str,
        cap: u64,
    ) -> Result<T, CallError> {
        let answer = self.send(method, None::<()>, cap).await?;
        answer.read()
    }

    /// Asks, and takes an answer of at most `cap` bytes after decompression.
    pub async fn send<P: Serialize>(
        &self,
        method: &'static str,
        params: Option<P>,
        cap: u64,
    ) -> Result<Answer, CallError> {
        let id = self.questions.fetch_add(1, Ordering::Relaxed) + 1;
        let (server, secrets) = (Arc::clone(&self.name), Arc::clone(&self.secrets));
        let asked = Asked { server, method, id, secrets };
        let question = Question { jsonrpc: "2.0", id: asked.id, method, params };
        let request = self.client.post(self.url.clone()).headers(self.headers.clone());
        let failed = |failure| CallError::Http { asked: asked.clone(), failure };
        let response = request.json(&question).send().await.map_err(|e| failed(e.into()))?;
        if response.status() != StatusCode::OK {
            return Err(not_ok(asked, &response));
        }
        let kind = kind_of(&response);
        let body = http::read_capped(response, cap).await.map_err(failed)?;
        Ok(Answer { asked, kind, body })
    }
}

impl Answer {
    /// The result as `T`, which may borrow from the answer.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, CallError> {
        let Self { asked, kind, body } = self;
        let not_understood =
            |found: String| CallError::NotUnderstood { asked: asked.clone(), found };
        let envelope: Envelope<'_> = serde_json::from_slice(body).map_err(|error| {
            not_understood(match error.is_eof() {
                true => "JSON that is cut off".to_owned(),
                false => format!("{kind} that is no answer of JSON-RPC"),
            })
        })?;
        if let Some(Refusal { code, message }) = envelope.error {
            let message = asked.without_secrets(&message);
            return Err(CallError::Refused { asked: asked.clone(), code, message });
        }
        if envelope.id.map(RawValue::get) != Some(asked.id.to_string().as_str()) {
            return Err(not_understood("the answer to another question".to_owned()));
        }
        let Some(result) = envelope.result else {
            return Err(not_understood("neither a result nor an error".to_owned()));
        };
        serde_json::from_str(result.get()).map_err(|error| {
            not_understood(format!("a result of another form ({})", excerpt(&error.to_string())))
        })
    }

    /// The result or the error, unchanged.
    pub fn relayed(&self) -> Result<Relayed, CallError> {
        let Self { asked, kind, body } = self;
        let not_understood =
            |found: String| CallError::NotUnderstood { asked: asked.clone(), found };
        let envelope: RelayedEnvelope<'_> = serde_json::from_slice(body)
            .map_err(|_| not_understood(format!("{kind} that is no answer of JSON-RPC")))?;
        match (envelope.error, envelope.result) {
            (Some(error), _) => Ok(Relayed::Error(error.to_owned())),
            (None, Some(result)) => Ok(Relayed::Result(result.to_owned())),
            (None, None) => Err(not_understood("neither a result nor an error".to_owned())),
        }
    }

    /// What it answers.
    pub fn asked(&self) -> &Asked {
        &self.asked
    }

    /// Its length after decompression.
    pub fn bytes(&self) -> u64 {
        self.body.len() as u64
    }
}

impl Asked {
    /// A message of the server on one line, short, and without credentials that it repeats.
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

fn not_ok(asked: Asked, response: &Response) -> CallError {
    let (status, headers) = (response.status(), response.headers());
    if status.is_redirection()
        && let Some(to) = headers.get(LOCATION).and_then(|to| to.to_str().ok())
    {
        let to = response.url().join(to);
        let to = to.map_or_else(|_| "an address that is none".to_owned(), |to| http::redacted(&to));
        return CallError::Redirect { asked, to };
    }
    CallError::Status { asked, status, retry_after: http::retry_after(headers) }
}

/// The type of a body as the server names it.
fn kind_of(response: &Response) -> String {
    let named = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = named.and_then(|named| named.split(';').next()).map(str::trim);
    kind.filter(|kind| !kind.is_empty()).map_or_else(|| "something".to_owned(), excerpt)
}

fn parse_address(text: &str) -> Result<Url, RpcError> {
    let url = Url::parse(text.trim()).map_err(|error| RpcError::Address(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(RpcError::Address(format!("its scheme is {}", excerpt(url.scheme()))));
    }
    Ok(url)
}

/// Everything that must not appear in a message, longest first: one may hold another.
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
struct Question<P> {
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
impl Asked {
    pub fn for_tests() -> Self {
        let server = "the RPC server http://t".into();
        Self { server, method: "getLedgers", id: 1, secrets: Arc::new([]) }
    }
}
