//! The HTTP under all stores behind a network: sends what `object_store` asks with the client that every
//! source has, bounds what comes back in size and time, and says what an answer means that is no success.

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

use super::MOST_DOWNLOADED;
use crate::source::http::{HttpError, read_capped, redacted, retry_after};

/// A body may come as slowly as this, in bytes a second, after a first grace.
const SLOWEST: u64 = 16 << 10;
/// Time that a body has beside that.
const GRACE: Duration = Duration::from_secs(8);
/// Length that is assumed of a body that does not announce its own.
const USUAL_LENGTH: u64 = 1 << 20;
/// Bytes of an error's body in which its reason is looked for.
const ERROR_BODY: usize = 4 << 10;
/// Time that it has to come.
const ERROR_BODY_PATIENCE: Duration = Duration::from_secs(2);
/// What stores answer with 403 for a key that is missing or may not be read. Their other words for 403
/// speak of the credentials.
const ACCESS_DENIED: &str = "AccessDenied";
/// What the query of a listing holds: with S3 and Google, and with Azure.
const LISTINGS: [&str; 2] = ["list-type=2", "comp=list"];
/// The root of a listing's document.
const LISTS: [&str; 2] = ["<ListBucketResult", "<EnumerationResults"];
/// Stands for a question without the object's bytes where `HEAD` is not known.
static FIRST_BYTE: HeaderValue = HeaderValue::from_static("bytes=0-0");

/// Why there is no answer, as [`Refusal::of`] finds it in what `object_store` makes of it.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum Refusal {
    /// It is not there.
    #[error("it is not there")]
    Missing,
    /// Reading is refused, or it is not there.
    #[error("{0}")]
    Forbidden(String),
    /// The credentials are refused.
    #[error("{0}")]
    Credentials(String),
    /// The server does not know how to do this.
    #[error("{0}")]
    NoSuchMethod(String),
    /// It is not what it was to be when it is replaced (RFC 9110 section 15.5.13), or others replace it now.
    #[error("{0}")]
    Changed(String),
    /// The bucket lies in another region, if that is named in this one.
    #[error("{words}")]
    OtherRegion { words: String, right: Option<String> },
    /// The body is longer than so many bytes.
    #[error("it is longer than {0} bytes")]
    TooLong(u64),
    /// Anything else, with the shortest wait that the server asks for, when it does.
    #[error("{words}")]
    Failed { words: String, delay: Option<Duration> },
}

impl Refusal {
    /// The refusal in an error, or none when it is about an answer that is not understood.
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

    /// A failure that says nothing about how long to wait.
    pub fn failed(words: impl ToString) -> Self {
        Self::Failed { words: words.to_string(), delay: None }
    }
}

/// Sends requests. A clone is the same.
#[derive(Debug, Clone)]
pub(super) struct Transport {
    client: Client,
    /// Whether the server does not know `HEAD`.
    head_refused: Arc<AtomicBool>,
}

impl Transport {
    /// Sends with `client`.
    pub fn new(client: Client) -> Self {
        Self { client, head_refused: Arc::default() }
    }

    /// Asks for an object without its bytes: by `HEAD`, or by its first byte where a server without
    /// signatures does not know `HEAD`.
    async fn look(&self, mut request: HttpRequest) -> Result<HttpResponse, Refusal> {
        if !self.head_refused.load(Ordering::Relaxed) {
            match self.ask(request.clone()).await {
                Err(Refusal::NoSuchMethod(_)) => self.head_refused.store(true, Ordering::Relaxed),
                answer => return answer,
            }
        }
        *request.method_mut() = Method::GET;
        request.headers_mut().insert(RANGE, FIRST_BYTE.clone());
        self.ask(request).await
    }

    async fn ask(&self, request: HttpRequest) -> Result<HttpResponse, Refusal> {
        let (parts, body) = request.into_parts();
        let looks = parts.method == Method::HEAD || parts.headers.get(RANGE) == Some(&FIRST_BYTE);
        let query = parts.uri.query().unwrap_or_default();
        let lists = query.split('&').any(|word| LISTINGS.contains(&word));
        let mut asked =
            self.client.request(parts.method, parts.uri.to_string()).headers(parts.headers);
        // Not `is_empty`, which says of what is uploaded the opposite.
        if body.content_length() > 0 {
            asked = asked.body(Body::wrap(body));
        }
        let sent = asked.send().await;
        let response = sent.map_err(|error| Refusal::failed(HttpError::from(error)))?;
        let status = response.status();
        // It is there, and empty.
        let is_empty = looks && status == StatusCode::RANGE_NOT_SATISFIABLE;
        if !(status.is_success() || is_empty) {
            return Err(judge(response).await);
        }
        let mut headers = response.headers().clone();
        let body = if looks {
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
        if !looks {
            *answer.status_mut() = status;
        }
        *answer.headers_mut() = headers;
        Ok(answer)
    }
}

#[async_trait]
impl HttpService for Transport {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, RequestError> {
        let looks = request.method() == Method::HEAD;
        let signed = request.headers().contains_key(AUTHORIZATION);
        let answer =
            if looks && !signed { self.look(request).await } else { self.ask(request).await };
        // Of a kind that is not tried again at once: whoever follows the lake knows when to.
        answer.map_err(|refusal| RequestError::new(HttpErrorKind::Unknown, refusal))
    }
}

impl HttpConnector for Transport {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

/// The whole body; one that comes too slowly is given up.
async fn whole_body(response: Response) -> Result<Bytes, Refusal> {
    let length = response.content_length().unwrap_or(USUAL_LENGTH);
    let within = GRACE.saturating_add(Duration::from_secs(length / SLOWEST));
    match timeout(within, read_capped(response, MOST_DOWNLOADED)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(HttpError::TooLong(most))) => Err(Refusal::TooLong(most)),
        Ok(Err(error)) => Err(Refusal::failed(error)),
        Err(_) => {
            let seconds = within.as_secs();
            Err(Refusal::failed(format!("{length} bytes did not come within {seconds} s")))
        }
    }
}

/// A document of another kind would be read as a listing of nothing.
fn is_listing(body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(&body[..body.len().min(ERROR_BODY)]);
    LISTS.iter().any(|root| text.contains(root))
}

async fn judge(response: Response) -> Refusal {
    let (status, headers) = (response.status(), response.headers().clone());
    let target = response.url().clone();
    let told = Told::read(response).await;
    let words = told.words(status);
    if let Some(right) = told.other_region(status, &headers) {
        return Refusal::OtherRegion { words, right };
    }
    match status {
        StatusCode::NOT_FOUND if told.is("NoSuchBucket") || told.is("ContainerNotFound") => {
            Refusal::failed(format!("there is no such bucket ({words})"))
        }
        StatusCode::NOT_FOUND | StatusCode::GONE => Refusal::Missing,
        StatusCode::FORBIDDEN if told.code.is_none() || told.is(ACCESS_DENIED) => {
            Refusal::Forbidden(words)
        }
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => Refusal::Credentials(words),
        StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => {
            Refusal::NoSuchMethod(words)
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
        _ => Refusal::Failed { words, delay: retry_after(&headers) },
    }
}

/// What the body of an error says, where it is that of a store (S3's REST API, "Error responses", which
/// Google and Azure follow in this).
#[derive(Default)]
struct Told {
    code: Option<String>,
    region: Option<String>,
}

impl Told {
    /// Reads the beginning of the body. That a body cannot be read changes nothing: there is an error
    /// already.
    async fn read(mut response: Response) -> Self {
        let mut body = Vec::new();
        let reading = async {
            while let Ok(Some(piece)) = response.chunk().await
                && body.len() < ERROR_BODY
            {
                body.extend_from_slice(&piece);
            }
        };
        // What has come when time is up is enough or not.
        let _ = timeout(ERROR_BODY_PATIENCE, reading).await;
        body.truncate(ERROR_BODY);
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

    /// Whether the bucket lies in another region, and in which when that is told: S3 answers 301 then,
    /// or 400 where the signature names another.
    fn other_region(&self, status: StatusCode, headers: &HeaderMap) -> Option<Option<String>> {
        let named = headers.get("x-amz-bucket-region").and_then(|region| region.to_str().ok());
        let right = named.map(plain_word).or_else(|| self.region.clone());
        let malformed = ["AuthorizationHeaderMalformed", "AuthorizationQueryParametersError"];
        let other = match status {
            StatusCode::MOVED_PERMANENTLY => right.is_some() || self.is("PermanentRedirect"),
            // Without a region, a 400 is about something else.
            StatusCode::BAD_REQUEST => {
                right.is_some() && malformed.into_iter().any(|code| self.is(code))
            }
            _ => false,
        };
        other.then_some(right)
    }

    /// The answer as the end of a sentence. The message beside the code is left out: it may hold
    /// what a secret was signed with.
    fn words(&self, status: StatusCode) -> String {
        let reason = status.canonical_reason().unwrap_or("an unknown status");
        let number = status.as_u16();
        match &self.code {
            Some(code) => format!("the server answers {number} {reason} ({code})"),
            None => format!("the server answers {number} {reason}"),
        }
    }
}

/// Letters, digits and hyphens of what may be anything.
fn plain_word(text: &str) -> String {
    let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    text.chars().filter(plain).take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_server_are_cleaned() {
        assert_eq!(plain_word("us-east-2"), "us-east-2");
        assert_eq!(plain_word("a\n\u{1b}[31m<b>&#x41;"), "a31mbx41");
    }
}
