//! One attempt to deliver: a POST to an endpoint whose address is allowed now.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::redirect::Policy as Redirects;
use reqwest::{Client, Request, Response};
use tokio::time::{Instant, timeout, timeout_at};

use super::names::{AllowedNames, Lookup};
use super::{Endpoint, EndpointError, Policy};
use crate::domain::shortened;
use crate::source::http::{self, HttpError};

/// Bytes of an answer's body that are read at the most, so that its connection can be used again. What is
/// longer costs the connection.
const MOST_READ: usize = 16 << 10;

/// Characters of an answer's body that are kept.
const EXCERPT: usize = 200;

/// How long an idle connection is kept for the next delivery.
const KEPT_ALIVE: Duration = Duration::from_secs(60);

/// How long an endpoint is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// From looking its name up to the head of its answer.
    pub head: Duration,
    /// For the body after that, which decides nothing any more.
    pub body: Duration,
    /// For the addresses of a name at registration.
    pub lookup: Duration,
}

impl Default for Timeouts {
    /// 15 seconds for the head, 2 for the body, 5 for a name.
    fn default() -> Self {
        Self {
            head: Duration::from_secs(15),
            body: Duration::from_secs(2),
            lookup: Duration::from_secs(5),
        }
    }
}

/// What came of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempted {
    /// Status of the answer; none when none came.
    pub status: Option<u16>,
    /// From the start to the head of the answer, or to the failure.
    pub duration: Duration,
    /// The beginning of the answer's body as text in one line; empty when there is none.
    pub excerpt: String,
    /// How long the endpoint asks to wait.
    pub retry_after: Option<Duration>,
    /// Why there is no answer, in words for the subscription's owner.
    pub error: Option<String>,
}

impl Attempted {
    /// Whether the endpoint took the delivery: any status from 200 to 299.
    pub fn succeeded(&self) -> bool {
        self.status.is_some_and(|status| (200..300).contains(&status))
    }
}

/// Sends deliveries. It keeps connections alive, follows no redirect and asks no proxy.
#[derive(Clone)]
pub struct Sender {
    client: Client,
    lookup: Lookup,
    policy: Arc<Policy>,
    timeouts: Timeouts,
}

impl Sender {
    /// Sends to addresses that `policy` allows, which `lookup` finds for names.
    ///
    /// # Errors
    /// [`HttpError::Setup`]
    pub fn new(policy: Policy, lookup: Lookup, timeouts: Timeouts) -> Result<Self, HttpError> {
        let policy = Arc::new(policy);
        let names =
            Arc::new(AllowedNames { lookup: Arc::clone(&lookup), policy: Arc::clone(&policy) });
        let client = http::build(|| {
            Client::builder()
                .user_agent(concat!("orrery/", env!("CARGO_PKG_VERSION")))
                .dns_resolver(Arc::clone(&names))
                .redirect(Redirects::none())
                .no_proxy()
                .no_gzip()
                .referer(false)
                .http1_only()
                .pool_idle_timeout(KEPT_ALIVE)
        })?;
        Ok(Self { client, lookup, policy, timeouts })
    }

    /// Whether deliveries may go to an endpoint as far as can be told now. A name that has any address that
    /// is denied is refused; one that cannot be looked up is not: it is looked up again for each connection.
    ///
    /// # Errors
    /// [`EndpointError::Denied`]
    pub async fn check(&self, endpoint: &Endpoint) -> Result<(), EndpointError> {
        let found = match (endpoint.literal(), endpoint.name()) {
            (Some(address), _) => vec![address],
            (None, Some(name)) => {
                let found = timeout(self.timeouts.lookup, (self.lookup)(name.to_owned())).await;
                found.ok().and_then(Result::ok).unwrap_or_default()
            }
            (None, None) => Vec::new(),
        };
        let denied = found.into_iter().find_map(|address| self.policy.check(address).err());
        denied.map_or(Ok(()), |denied| Err(EndpointError::Denied(denied)))
    }

    /// Sends `body` as JSON with these headers, and waits for the answer. Whatever happens comes back as what
    /// came of the attempt.
    pub async fn send(
        &self,
        endpoint: &Endpoint,
        headers: &[(&'static str, String)],
        body: Bytes,
    ) -> Attempted {
        let started = Instant::now();
        let failed = |error: String| Attempted {
            status: None,
            duration: started.elapsed(),
            excerpt: String::new(),
            retry_after: None,
            error: Some(error),
        };
        // The client looks up names, and connects to literal addresses without asking anybody.
        if let Some(Err(denied)) = endpoint.literal().map(|address| self.policy.check(address)) {
            return failed(denied.to_string());
        }
        let request = match self.request(endpoint, headers, body) {
            Ok(request) => request,
            Err(error) => return failed(error),
        };
        let answer = match timeout(self.timeouts.head, self.client.execute(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return failed(HttpError::from(error).to_string()),
            Err(_) => {
                let seconds = self.timeouts.head.as_secs_f64();
                return failed(format!("no answer within {seconds} seconds"));
            }
        };
        let attempted = Attempted {
            status: Some(answer.status().as_u16()),
            duration: started.elapsed(),
            excerpt: String::new(),
            retry_after: http::retry_after(answer.headers()),
            error: None,
        };
        Attempted { excerpt: self.excerpt(answer).await, ..attempted }
    }

    fn request(
        &self,
        endpoint: &Endpoint,
        headers: &[(&'static str, String)],
        body: Bytes,
    ) -> Result<Request, String> {
        let post = self.client.post(endpoint.url().clone());
        let mut request =
            post.body(body).build().map_err(|error| HttpError::from(error).to_string())?;
        let of_request = request.headers_mut();
        of_request.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in headers {
            let value = HeaderValue::from_str(value)
                .map_err(|_| format!("the value of the header {name} cannot be sent"))?;
            of_request.insert(HeaderName::from_static(name), value);
        }
        Ok(request)
    }

    /// The beginning of an answer's body. Reads on to its end when that is near.
    async fn excerpt(&self, mut answer: Response) -> String {
        let until = Instant::now() + self.timeouts.body;
        let (mut kept, mut read) = (Vec::new(), 0);
        while let Ok(Ok(Some(piece))) = timeout_at(until, answer.chunk()).await {
            read += piece.len();
            // A character takes up to four bytes.
            let room = (4 * EXCERPT).saturating_sub(kept.len()).min(piece.len());
            kept.extend_from_slice(&piece[..room]);
            if read > MOST_READ {
                break;
            }
        }
        shortened(String::from_utf8_lossy(&kept).trim(), EXCERPT)
    }
}
