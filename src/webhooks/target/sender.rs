//! A single attempt to deliver: a POST to an endpoint whose address is allowed at that moment.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Response};
use tokio::time::{Instant, timeout, timeout_at};

use super::connection::{Body, Connection, SendError};
use super::connections::Connections;
use super::resolver::{AllowedNames, Lookup, resolve};
use super::{Endpoint, EndpointError, Policy, chat};
use crate::message::format::Format;
use orrery_ledger::domain::shortened;
use orrery_net::http::{self, HttpError};

/// Maximum number of bytes that are read of a response body, so that its connection can be reused.
/// A longer body closes the connection.
const MAX_BODY_READ: usize = 16 << 10;

/// Number of characters of a response body that are kept.
const EXCERPT_CHARS: usize = 200;

const USER_AGENT_VALUE: &str = concat!("orrery/", env!("CARGO_PKG_VERSION"));

/// Timeouts for an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// From the start of name resolution to the response head.
    pub head: Duration,
    /// For the response body after the head; it does not affect the result.
    pub body: Duration,
    /// For resolving a name at registration.
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

/// Result of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptResult {
    /// Status of the response; `None` when there was none.
    pub status: Option<u16>,
    /// Time from the start to the response head, or to the failure.
    pub duration: Duration,
    /// The beginning of the response body as one line of text; empty when there is none.
    pub excerpt: String,
    /// Delay that the endpoint asks for (`Retry-After`).
    pub retry_after: Option<Duration>,
    /// Why there is no response, worded for the subscription's owner.
    pub error: Option<String>,
}

impl AttemptResult {
    /// Returns the result of an attempt that got no response for this reason.
    pub fn failed(duration: Duration, error: String) -> Self {
        let (excerpt, retry_after, error) = (String::new(), None, Some(error));
        Self { status: None, duration, excerpt, retry_after, error }
    }

    /// Whether the endpoint accepted the delivery: any status from 200 to 299.
    pub fn succeeded(&self) -> bool {
        self.status.is_some_and(|status| (200..300).contains(&status))
    }
}

/// Sends deliveries. Keeps connections alive, follows no redirects and uses no proxy.
#[derive(Clone)]
pub struct Sender {
    connections: Arc<Connections>,
    lookup: Lookup,
    policy: Arc<Policy>,
    timeouts: Timeouts,
}

impl Sender {
    /// Returns a sender to addresses that `policy` allows; `lookup` resolves names.
    pub fn new(policy: Policy, lookup: Lookup, timeouts: Timeouts) -> Self {
        let policy = Arc::new(policy);
        let names = AllowedNames { lookup: Arc::clone(&lookup), policy: Arc::clone(&policy) };
        Self { connections: Arc::new(Connections::new(names)), lookup, policy, timeouts }
    }

    /// Checks whether deliveries may go to an endpoint, as far as can be determined now. A name
    /// with any denied address is refused. A name that cannot be resolved is accepted: it is
    /// resolved again for each connection.
    ///
    /// # Errors
    /// [`EndpointError::Denied`]
    pub async fn check(&self, endpoint: &Endpoint) -> Result<(), EndpointError> {
        let found = match (endpoint.literal(), endpoint.name()) {
            (Some(address), _) => vec![address],
            (None, Some(name)) => {
                let lookup = resolve(&self.lookup, &self.policy, name);
                let found = timeout(self.timeouts.lookup, lookup).await;
                found.ok().and_then(Result::ok).unwrap_or_default()
            }
            (None, None) => Vec::new(),
        };
        let denied = found.into_iter().find_map(|address| self.policy.check(address).err());
        denied.map_or(Ok(()), |denied| {
            let is_name = endpoint.literal().is_none();
            Err(EndpointError::Denied(if is_name { denied.of_name() } else { denied }))
        })
    }

    /// Sends `body`, which has this form, with these headers, and waits for the response. Every failure
    /// is returned as the result of the attempt. Dropping the future stops the attempt: nothing more
    /// of it is sent.
    pub async fn send(
        &self,
        endpoint: &Endpoint,
        format: Format,
        headers: &[(&'static str, String)],
        body: Bytes,
    ) -> AttemptResult {
        let started = Instant::now();
        let failed = |error: String| AttemptResult::failed(started.elapsed(), error);
        // The address of an idle connection was allowed by the same policy when the connection was
        // made.
        if let Some(Err(denied)) = endpoint.literal().map(|address| self.policy.check(address)) {
            return failed(denied.to_string());
        }
        let request = match request(endpoint, format.content_type(), headers, body) {
            Ok(request) => request,
            Err(error) => return failed(error),
        };
        let server = endpoint.origin();
        let asked = timeout(self.timeouts.head, self.send_request(endpoint, server, request)).await;
        let (mut connection, mut answer) = match asked {
            Ok(Ok(answered)) => answered,
            Ok(Err(error)) => return failed(error.to_string()),
            Err(_) => {
                let seconds = self.timeouts.head.as_secs_f64();
                return failed(format!("no answer within {seconds} seconds"));
            }
        };
        let duration = started.elapsed();
        let (status, asked) = (answer.status().as_u16(), http::retry_after(answer.headers()));
        let beginning = self.beginning(&mut connection, &mut answer).await;
        self.connections.put_idle(server, connection);
        let text = String::from_utf8_lossy(&beginning);
        let (shown, retry_after) = match format.is_chat() {
            true => {
                let in_body = chat::asked_wait(&beginning);
                (chat::without_secrets(&text, endpoint).into(), asked.max(in_body))
            }
            false => (text, asked),
        };
        let excerpt = shortened(shown.trim(), EXCERPT_CHARS);
        AttemptResult { status: Some(status), duration, excerpt, retry_after, error: None }
    }

    /// Sends a request over an idle connection, or over a new one.
    async fn send_request(
        &self,
        endpoint: &Endpoint,
        server: &str,
        mut request: Request<Body>,
    ) -> Result<(Connection, Response<Incoming>), HttpError> {
        while let Some(mut kept) = self.connections.take_idle(server) {
            request = match kept.send_request(request).await {
                Ok(answer) => return Ok((kept, answer)),
                Err(SendError::Sent(error)) => return Err(error),
                Err(SendError::Unsent(request)) => *request,
            };
        }
        let mut connection = self.connections.connect(endpoint).await?;
        match connection.send_request(request).await {
            Ok(answer) => Ok((connection, answer)),
            Err(SendError::Sent(error)) => Err(error),
            Err(SendError::Unsent(_)) => Err(HttpError::Broken("it closed at once".to_owned())),
        }
    }

    /// Returns the beginning of a response body. Reads the body to its end if it is short enough.
    async fn beginning(
        &self,
        connection: &mut Connection,
        answer: &mut Response<Incoming>,
    ) -> Vec<u8> {
        let until = Instant::now() + self.timeouts.body;
        let (mut kept, mut read) = (Vec::new(), 0);
        let body = answer.body_mut();
        while let Ok(Some(chunk)) = timeout_at(until, connection.next_chunk(body)).await {
            read += chunk.len();
            // A character takes up to four bytes.
            let room = (4 * EXCERPT_CHARS).saturating_sub(kept.len()).min(chunk.len());
            kept.extend_from_slice(&chunk[..room]);
            if read > MAX_BODY_READ {
                break;
            }
        }
        kept
    }
}

fn request(
    endpoint: &Endpoint,
    content_type: &'static str,
    headers: &[(&'static str, String)],
    body: Bytes,
) -> Result<Request<Body>, String> {
    let cannot = |reason: &str| format!("the request cannot be built: {reason}");
    let (target, host) =
        endpoint.request().ok_or_else(|| cannot("HTTP cannot express its path or host"))?;
    let mut request = Request::new(Body::new(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = target;
    let map = request.headers_mut();
    map.reserve(headers.len() + 3);
    map.insert(HOST, host);
    map.insert(USER_AGENT, HeaderValue::from_static(USER_AGENT_VALUE));
    map.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    for (name, value) in headers {
        let value = HeaderValue::from_str(value).map_err(|error| cannot(&error.to_string()))?;
        map.insert(HeaderName::from_static(name), value);
    }
    Ok(request)
}
