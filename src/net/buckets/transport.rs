//! HTTP transport of all stores on the network: sends the requests of `object_store` with the
//! client of this crate once, limits responses in size and time, and interprets error responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError as RequestError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpService,
};
use reqwest::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderMap, HeaderValue, LOCATION, RANGE};
use reqwest::{Body, Client, Method, Response, StatusCode};
use tokio::time::timeout;

use crate::http::{HttpError, read_capped, redacted, retry_after};

/// Maximum size of a downloaded object, in bytes as stored. A file of the public network's lake has
/// 180 kB, one with 64 ledgers 12 MB.
pub const MAX_DOWNLOADED: u64 = 128 << 20;
/// Minimum rate of a body, in bytes per second, after the grace period.
const MIN_BODY_RATE: u64 = 16 << 10;
/// Grace period for a body, in addition to the time at the minimum rate.
const GRACE_PERIOD: Duration = Duration::from_secs(8);
/// Assumed length of a body that does not announce its own, in bytes.
const USUAL_LENGTH: u64 = 1 << 20;
/// Number of bytes at the beginning of a body that are searched for the reason of an error, or for
/// the root element of a listing.
const ERROR_BODY_BYTES: usize = 4 << 10;
/// Timeout for an error body.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(2);
/// Error code of any status for a request that the server does not support.
const NOT_IMPLEMENTED: &str = "NotImplemented";
/// Error codes of a 409 that says nothing of the object: another request is at work on it, and the
/// same one may be sent again (S3's REST API, "Conditional requests").
const CONFLICTS: [&str; 2] = ["ConditionalRequestConflict", "OperationAborted"];
/// Error code of a 400 for a body that did not arrive in time.
const REQUEST_TIMEOUT: &str = "RequestTimeout";
/// Error code of a 403 for a key that is missing or may not be read. Other codes of a 403 concern
/// the credentials.
const ACCESS_DENIED: &str = "AccessDenied";
/// Query parameters of a listing: of S3 and Google, and of Azure.
const LISTINGS: [&str; 2] = ["list-type=2", "comp=list"];
/// Root elements of a listing's document.
const LISTS: [&str; 2] = ["<ListBucketResult", "<EnumerationResults"];
/// Range of the `GET` that replaces `HEAD` where the server does not support it.
static FIRST_BYTE: HeaderValue = HeaderValue::from_static("bytes=0-0");

/// Why a request failed, as [`Refusal::of`] extracts it from an error of `object_store`.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Refusal {
    /// The object does not exist.
    #[error("it is not there")]
    Missing,
    /// Reading is refused, or the object does not exist.
    #[error("{0}")]
    Forbidden(String),
    /// The credentials are refused.
    #[error("{0}")]
    Credentials(String),
    /// The server does not support the request.
    #[error("{0}")]
    NoSuchMethod(String),
    /// A conditional write failed because the object was changed (RFC 9110 section 15.5.13), or is
    /// being written by another client.
    #[error("{0}")]
    Changed(String),
    /// The bucket lies in another region: in `right`, if the server names it.
    #[error("{words}")]
    OtherRegion {
        /// The server's answer.
        words: String,
        /// The bucket's region.
        right: Option<String>,
    },
    /// The body is longer than this many bytes.
    #[error("it is longer than {0} bytes")]
    TooLong(u64),
    /// Any other failure, with the minimum delay that the server asks for, if any.
    #[error("{words}")]
    Failed {
        /// The server's answer, or the reason that the client gives.
        words: String,
        /// Minimum delay before the next request.
        delay: Option<Duration>,
        /// Whether the same request may succeed a moment later.
        passes: Passes,
    },
}

/// Whether a failure may be over a moment later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passes {
    /// It stays, as far as is known.
    No,
    /// The server answers that it is busy or has failed.
    Server,
    /// There was no answer, or not a whole one.
    Connection,
}

impl Refusal {
    /// Returns the refusal in an error; `None` when the error is about a response that cannot be
    /// parsed.
    pub fn of(error: &object_store::Error) -> Option<Self> {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(inner) = cause {
            if let Some(refusal) = inner.downcast_ref() {
                return Some(Self::clone(refusal));
            }
            cause = inner.source();
        }
        None
    }

    /// Creates a failure without a retry delay.
    pub fn failed(words: impl ToString) -> Self {
        Self::Failed { words: words.to_string(), delay: None, passes: Passes::No }
    }

    /// Creates the failure of a request without a whole answer.
    fn unanswered(words: impl ToString) -> Self {
        Self::Failed { words: words.to_string(), delay: None, passes: Passes::Connection }
    }
}

/// Returns why a request failed.
pub fn refusal(error: &object_store::Error) -> Refusal {
    Refusal::of(error).unwrap_or_else(|| {
        Refusal::failed(format!("the answer is not understood: {}", innermost(error)))
    })
}

/// Returns the innermost cause, which is the most specific: a parser's message with parts of the
/// server's response, at most 200 characters and without control characters.
pub fn innermost(error: &object_store::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string().chars().filter(|c| !c.is_control()).take(200).collect()
}

/// Sends requests. Clones share their state.
#[derive(Debug, Clone)]
pub(super) struct Transport {
    client: Client,
    /// Whether the server does not support `HEAD`.
    head_refused: Arc<AtomicBool>,
}

impl Transport {
    /// Creates a transport that sends with `client`.
    pub fn new(client: Client) -> Self {
        Self { client, head_refused: Arc::default() }
    }

    /// Requests an object without its bytes: with `HEAD`, or with a `GET` of the first byte where
    /// the server does not support `HEAD`. Called for unsigned requests only.
    async fn head(&self, mut request: HttpRequest) -> Result<HttpResponse, Refusal> {
        if !self.head_refused.load(Ordering::Relaxed) {
            match self.send(request.clone()).await {
                Err(Refusal::NoSuchMethod(_)) => self.head_refused.store(true, Ordering::Relaxed),
                answer => return answer,
            }
        }
        *request.method_mut() = Method::GET;
        request.headers_mut().insert(RANGE, FIRST_BYTE.clone());
        self.send(request).await
    }

    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, Refusal> {
        let (parts, body) = request.into_parts();
        let head_only =
            parts.method == Method::HEAD || parts.headers.get(RANGE) == Some(&FIRST_BYTE);
        let query = parts.uri.query().unwrap_or_default();
        let lists = query.split('&').any(|word| LISTINGS.contains(&word));
        let mut request_builder =
            self.client.request(parts.method, parts.uri.to_string()).headers(parts.headers);
        // `is_empty` is not used, because it returns the opposite for uploads.
        if body.content_length() > 0 {
            request_builder = request_builder.body(Body::wrap(body));
        }
        let sent = request_builder.send().await;
        let response = sent.map_err(|error| Refusal::unanswered(HttpError::from(error)))?;
        let status = response.status();
        // The object exists and is empty.
        let is_empty = head_only && status == StatusCode::RANGE_NOT_SATISFIABLE;
        if !(status.is_success() || is_empty) {
            return Err(interpret_error(response).await);
        }
        let mut headers = response.headers().clone();
        let body = if head_only {
            headers.entry(CONTENT_LENGTH).or_insert(HeaderValue::from(0));
            Bytes::new()
        } else {
            let body = whole_body(response).await?;
            headers.insert(CONTENT_LENGTH, body.len().into());
            body
        };
        if lists && !is_listing(&body) {
            return Err(Refusal::failed("the listing is not understood: it is something else"));
        }
        let mut answer = HttpResponse::new(body.into());
        if !head_only {
            *answer.status_mut() = status;
        }
        *answer.headers_mut() = headers;
        Ok(answer)
    }
}

#[async_trait]
impl HttpService for Transport {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, RequestError> {
        let head_only = request.method() == Method::HEAD;
        let signed = request.headers().contains_key(AUTHORIZATION);
        let answer =
            if head_only && !signed { self.head(request).await } else { self.send(request).await };
        // `object_store` does not retry errors of this kind: the caller decides when to retry.
        answer.map_err(|refusal| RequestError::new(HttpErrorKind::Unknown, refusal))
    }
}

impl HttpConnector for Transport {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

/// Reads the whole body; gives up when it arrives too slowly.
async fn whole_body(response: Response) -> Result<Bytes, Refusal> {
    let length = response.content_length().unwrap_or(USUAL_LENGTH);
    let within = GRACE_PERIOD.saturating_add(Duration::from_secs(length / MIN_BODY_RATE));
    match timeout(within, read_capped(response, MAX_DOWNLOADED)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(HttpError::TooLong(most))) => Err(Refusal::TooLong(most)),
        Ok(Err(error)) => Err(Refusal::unanswered(error)),
        Err(_) => {
            let seconds = within.as_secs();
            Err(Refusal::unanswered(format!("{length} bytes did not come within {seconds} s")))
        }
    }
}

/// Returns whether the body is a listing. Any other document would be parsed as an empty listing.
fn is_listing(body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(&body[..body.len().min(ERROR_BODY_BYTES)]);
    LISTS.iter().any(|root| text.contains(root))
}

async fn interpret_error(response: Response) -> Refusal {
    let (status, headers) = (response.status(), response.headers().clone());
    let target = response.url().clone();
    let error_body = ErrorBody::read(response).await;
    let words = error_body.words(status);
    if let Some(right) = error_body.other_region(status, &headers) {
        return Refusal::OtherRegion { words, right };
    }
    match status {
        StatusCode::NOT_FOUND
            if error_body.is("NoSuchBucket") || error_body.is("ContainerNotFound") =>
        {
            Refusal::failed(format!("there is no such bucket ({words})"))
        }
        StatusCode::NOT_FOUND | StatusCode::GONE => Refusal::Missing,
        StatusCode::FORBIDDEN if error_body.code.is_none() || error_body.is(ACCESS_DENIED) => {
            Refusal::Forbidden(words)
        }
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => Refusal::Credentials(words),
        StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => {
            Refusal::NoSuchMethod(words)
        }
        _ if error_body.is(NOT_IMPLEMENTED) => Refusal::NoSuchMethod(words),
        StatusCode::CONFLICT if CONFLICTS.into_iter().any(|code| error_body.is(code)) => {
            Refusal::Failed { words, delay: retry_after(&headers), passes: Passes::Server }
        }
        StatusCode::PRECONDITION_FAILED | StatusCode::CONFLICT => Refusal::Changed(words),
        _ if status.is_redirection() => {
            let location = headers.get(LOCATION).and_then(|value| value.to_str().ok());
            let there = location.and_then(|location| target.join(location).ok());
            let advice = there.map_or_else(String::new, |there| {
                let there = redacted(&there);
                format!(
                    " and points to {there}: if that is right, give the address of the lake there"
                )
            });
            Refusal::failed(format!("{words}{advice}"))
        }
        _ => {
            let passes = match status {
                StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => Passes::Server,
                _ if status.is_server_error() || error_body.is(REQUEST_TIMEOUT) => Passes::Server,
                _ => Passes::No,
            };
            Refusal::Failed { words, delay: retry_after(&headers), passes }
        }
    }
}

/// Content of an error body, if it is that of a store (S3's REST API, "Error responses", which
/// Google and Azure follow in this).
#[derive(Default)]
struct ErrorBody {
    code: Option<String>,
    region: Option<String>,
}

impl ErrorBody {
    /// Reads the beginning of the body. Failures to read it are ignored, because there is an error
    /// already.
    async fn read(mut response: Response) -> Self {
        let mut body = Vec::new();
        let reading = async {
            while let Ok(Some(piece)) = response.chunk().await
                && body.len() < ERROR_BODY_BYTES
            {
                body.extend_from_slice(&piece);
            }
        };
        // At the timeout, the bytes received so far are used.
        let _ = timeout(ERROR_BODY_TIMEOUT, reading).await;
        body.truncate(ERROR_BODY_BYTES);
        let text = String::from_utf8_lossy(&body);
        let element = |name: &str| {
            let (_, after) = text.split_once(&format!("<{name}>"))?;
            let (value, _) = after.split_once('<')?;
            Some(plain_word(value)).filter(|value| !value.is_empty())
        };
        Self { code: element("Code"), region: element("Region") }
    }

    fn is(&self, code: &str) -> bool {
        self.code.as_deref() == Some(code)
    }

    /// Returns whether the bucket lies in another region, and which one if the server names it: S3
    /// answers 301, or 400 where the signature names another region.
    fn other_region(&self, status: StatusCode, headers: &HeaderMap) -> Option<Option<String>> {
        let named = headers.get("x-amz-bucket-region").and_then(|region| region.to_str().ok());
        let right = named.map(plain_word).or_else(|| self.region.clone());
        let malformed = ["AuthorizationHeaderMalformed", "AuthorizationQueryParametersError"];
        let other = match status {
            StatusCode::MOVED_PERMANENTLY => right.is_some() || self.is("PermanentRedirect"),
            // Without a region, a 400 has another cause.
            StatusCode::BAD_REQUEST => {
                right.is_some() && malformed.into_iter().any(|code| self.is(code))
            }
            _ => false,
        };
        other.then_some(right)
    }

    /// Formats the response as the end of a sentence. The message beside the code is left out,
    /// because it may contain signing data.
    fn words(&self, status: StatusCode) -> String {
        let reason = status.canonical_reason().unwrap_or("an unknown status");
        let number = status.as_u16();
        match &self.code {
            Some(code) => format!("the server answers {number} {reason} ({code})"),
            None => format!("the server answers {number} {reason}"),
        }
    }
}

/// Keeps the letters, digits, hyphens, dots and underscores of an untrusted text, at most 64
/// characters.
fn plain_word(text: &str) -> String {
    let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    text.chars().filter(plain).take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_server_is_sanitised() {
        assert_eq!(plain_word("us-east-2"), "us-east-2");
        assert_eq!(plain_word("a\n\u{1b}[31m<b>&#x41;"), "a31mbx41");
    }
}
