//! Objects behind HTTP: asks for one, and says what the answer means. Plain servers and S3 differ in
//! how a key becomes an address, which is left to [`Addressing`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{HeaderMap, LOCATION, RANGE};
use reqwest::{Client, Method, Response, StatusCode, Url};
use tokio::time::timeout;

use super::access::{Access, Meaning};
use super::{LakeError, MOST_DOWNLOADED};
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
/// What S3 answers with 403 for a key that is missing or may not be read. Its other words for 403
/// speak of the credentials.
const ACCESS_DENIED: &str = "AccessDenied";

/// How keys become addresses.
pub(super) trait Addressing: Send + Sync {
    /// The address of a key for `GET` or `HEAD`; it may be signed and is never shown.
    fn url(&self, method: &Method, key: &str) -> Url;

    /// The full name of a key, or of the whole store for an empty one, for messages.
    fn place(&self, key: &str) -> String;

    /// What to do when reading is refused, as the end of a sentence.
    fn when_refused(&self) -> &'static str;

    /// The bucket and the region that it is thought to be in.
    fn bucket_and_region(&self) -> Option<(&str, &str)>;
}

/// What the answer to a question about one key is.
pub(super) enum Answer {
    /// It is there.
    Found(Response),
    /// It is not there.
    Missing,
    /// Reading is refused, or it is not there; with the words of the store.
    Forbidden(String),
    /// This method is not known; with the words of the store.
    NoSuchMethod(String),
}

/// The objects of one store.
pub(super) struct Objects<A> {
    client: Client,
    pub addressing: A,
    pub access: Access,
    /// Whether the server does not know `HEAD`.
    head_refused: AtomicBool,
}

impl<A: Addressing> Objects<A> {
    /// Objects at the addresses that `addressing` gives.
    pub fn new(client: Client, addressing: A) -> Self {
        Self { client, addressing, access: Access::default(), head_refused: AtomicBool::new(false) }
    }

    /// The client, for another store.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The object's bytes, or none when there is no such key.
    pub async fn get(&self, key: &str) -> Result<Option<Bytes>, LakeError> {
        let url = self.addressing.url(&Method::GET, key);
        match self.ask(Method::GET, url, key, None).await? {
            Answer::Found(response) => {
                let body = self.body(response, key).await?;
                self.access.readable(key);
                Ok(Some(body))
            }
            Answer::Missing => Ok(None),
            Answer::Forbidden(words) => {
                self.missing_unless_refused(key, &words).await.map(|()| None)
            }
            Answer::NoSuchMethod(words) => Err(self.failed(key, words)),
        }
    }

    /// Whether the key exists.
    pub async fn exists(&self, key: &str) -> Result<bool, LakeError> {
        match self.look(key).await? {
            Answer::Found(_) => {
                self.access.readable(key);
                Ok(true)
            }
            Answer::Missing => Ok(false),
            Answer::Forbidden(words) => {
                self.missing_unless_refused(key, &words).await.map(|()| false)
            }
            Answer::NoSuchMethod(words) => Err(self.failed(key, words)),
        }
    }

    /// Asks for a key without its bytes: by `HEAD`, or by its first byte where the server does not
    /// know `HEAD`.
    async fn look(&self, key: &str) -> Result<Answer, LakeError> {
        if !self.head_refused.load(Ordering::Relaxed) {
            let url = self.addressing.url(&Method::HEAD, key);
            match self.ask(Method::HEAD, url, key, None).await? {
                Answer::NoSuchMethod(_) => self.head_refused.store(true, Ordering::Relaxed),
                answer => return Ok(answer),
            }
        }
        let url = self.addressing.url(&Method::GET, key);
        self.ask(Method::GET, url, key, Some("bytes=0-0")).await
    }

    /// A 403 for `key` means that it is missing, unless nothing can be read.
    ///
    /// # Errors
    /// [`LakeError::Refused`]
    pub async fn missing_unless_refused(&self, key: &str, words: &str) -> Result<(), LakeError> {
        match self.access.meaning_for(key) {
            Meaning::Missing => return Ok(()),
            Meaning::Refused => {}
            Meaning::Ask(witness) => {
                if matches!(self.look(&witness).await?, Answer::Found(_)) {
                    self.access.readable(&witness);
                    return Ok(());
                }
            }
        }
        Err(self.refused(key, words))
    }

    /// The error for a key that may not be read.
    pub fn refused(&self, key: &str, words: &str) -> LakeError {
        let reason = format!("{words}; {}", self.addressing.when_refused());
        LakeError::Refused { place: self.addressing.place(key), reason }
    }

    fn failed(&self, key: &str, reason: impl ToString) -> LakeError {
        LakeError::transport(self.addressing.place(key), reason)
    }

    /// Sends one question and judges the answer by its head.
    pub async fn ask(
        &self,
        method: Method,
        url: Url,
        key: &str,
        range: Option<&'static str>,
    ) -> Result<Answer, LakeError> {
        let mut request = self.client.request(method, url);
        if let Some(range) = range {
            request = request.header(RANGE, range);
        }
        let sent = request.send().await;
        let response = sent.map_err(|error| self.failed(key, HttpError::from(error)))?;
        let status = response.status();
        if status.is_success() || (range.is_some() && status == StatusCode::RANGE_NOT_SATISFIABLE) {
            return Ok(Answer::Found(response));
        }
        self.judge(response, key).await
    }

    async fn judge(&self, response: Response, key: &str) -> Result<Answer, LakeError> {
        let (status, headers) = (response.status(), response.headers().clone());
        let target = response.url().clone();
        let told = Told::read(response).await;
        let words = told.words(status);
        if let Some(error) = self.wrong_region(status, &headers, &told) {
            return Err(error);
        }
        match status {
            StatusCode::NOT_FOUND if told.code.as_deref() == Some("NoSuchBucket") => {
                Err(self.failed(key, format!("there is no such bucket ({words})")))
            }
            StatusCode::NOT_FOUND | StatusCode::GONE => Ok(Answer::Missing),
            StatusCode::FORBIDDEN
                if told.code.as_ref().is_none_or(|code| code == ACCESS_DENIED) =>
            {
                Ok(Answer::Forbidden(words))
            }
            StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => Err(self.refused(key, &words)),
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => {
                Ok(Answer::NoSuchMethod(words))
            }
            _ if status.is_redirection() => {
                let location = headers.get(LOCATION).and_then(|value| value.to_str().ok());
                let there = location.and_then(|location| target.join(location).ok());
                let advice = there.map_or_else(String::new, |there| {
                    let there = redacted(&there);
                    format!(" and points to {there}: if that is right, give the address of the lake there")
                });
                Err(self.failed(key, format!("{words}{advice}")))
            }
            _ => {
                let (place, delay) = (self.addressing.place(key), retry_after(&headers));
                Err(LakeError::Transport { place, reason: words, delay })
            }
        }
    }

    /// S3 answers 301 where a bucket lies in another region, or 400 where the signature names another.
    fn wrong_region(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        told: &Told,
    ) -> Option<LakeError> {
        let (bucket, given) = self.addressing.bucket_and_region()?;
        let malformed = ["AuthorizationHeaderMalformed", "AuthorizationQueryParametersError"];
        let signed_for_another = status == StatusCode::BAD_REQUEST
            && told.code.as_deref().is_some_and(|code| malformed.contains(&code));
        if status != StatusCode::MOVED_PERMANENTLY && !signed_for_another {
            return None;
        }
        let named = headers.get("x-amz-bucket-region").and_then(|region| region.to_str().ok());
        let right = named.map(plain_word).or_else(|| told.region.clone());
        // Without a region, a 400 is about something else.
        (right.is_some() || !signed_for_another).then(|| LakeError::WrongRegion {
            bucket: bucket.to_owned(),
            given: given.to_owned(),
            right,
        })
    }

    /// The whole body; one that comes too slowly is given up.
    pub async fn body(&self, response: Response, key: &str) -> Result<Bytes, LakeError> {
        let length = response.content_length().unwrap_or(USUAL_LENGTH);
        let within = GRACE.saturating_add(Duration::from_secs(length / SLOWEST));
        match timeout(within, read_capped(response, MOST_DOWNLOADED)).await {
            Ok(Ok(body)) => Ok(body),
            Ok(Err(HttpError::TooLong(most))) => {
                let place = self.addressing.place(key);
                Err(LakeError::TooLarge { place, verb: "is", most })
            }
            Ok(Err(error)) => Err(self.failed(key, error)),
            Err(_) => {
                let seconds = within.as_secs();
                Err(self.failed(key, format!("{length} bytes did not come within {seconds} s")))
            }
        }
    }
}

/// What the body of an error says, where it is that of S3 (its REST API, "Error responses").
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
