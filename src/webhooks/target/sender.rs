//! One attempt to deliver: a POST to an endpoint whose address is allowed now.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Request, Response};
use tokio::time::{Instant, timeout, timeout_at};

use super::connection::{Body, Connection, Failed};
use super::connections::Connections;
use super::names::{AllowedNames, Lookup};
use super::{Endpoint, EndpointError, Policy};
use crate::domain::shortened;
use crate::source::http::{self, HttpError};

/// Bytes of an answer's body that are read at the most, so that its connection can be used again. What is
/// longer costs the connection.
const MOST_READ: usize = 16 << 10;

/// Characters of an answer's body that are kept.
const EXCERPT: usize = 200;

const OWN_NAME: &str = concat!("orrery/", env!("CARGO_PKG_VERSION"));

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
    connections: Arc<Connections>,
    lookup: Lookup,
    policy: Arc<Policy>,
    timeouts: Timeouts,
}

impl Sender {
    /// Sends to addresses that `policy` allows, which `lookup` finds for names.
    pub fn new(policy: Policy, lookup: Lookup, timeouts: Timeouts) -> Self {
        let policy = Arc::new(policy);
        let names = AllowedNames { lookup: Arc::clone(&lookup), policy: Arc::clone(&policy) };
        Self { connections: Arc::new(Connections::new(names)), lookup, policy, timeouts }
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
    /// came of the attempt. When this is dropped before, nothing more of it is sent.
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
        // A connection that was kept was allowed when it was made, by the same policy.
        if let Some(Err(denied)) = endpoint.literal().map(|address| self.policy.check(address)) {
            return failed(denied.to_string());
        }
        let request = match request(endpoint, headers, body) {
            Ok(request) => request,
            Err(error) => return failed(error),
        };
        let server = endpoint.origin();
        let asked = timeout(self.timeouts.head, self.ask(endpoint, &server, request)).await;
        let (mut connection, mut answer) = match asked {
            Ok(Ok(answered)) => answered,
            Ok(Err(error)) => return failed(error.to_string()),
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
        let excerpt = self.excerpt(&mut connection, &mut answer).await;
        self.connections.keep(server, connection);
        Attempted { excerpt, ..attempted }
    }

    /// Sends a request over a connection that was kept, or over a new one.
    async fn ask(
        &self,
        endpoint: &Endpoint,
        server: &str,
        mut request: Request<Body>,
    ) -> Result<(Connection, Response<Incoming>), HttpError> {
        while let Some(mut kept) = self.connections.kept(server) {
            request = match kept.ask(request).await {
                Ok(answer) => return Ok((kept, answer)),
                Err(Failed::Sent(error)) => return Err(error),
                Err(Failed::Unsent(request)) => *request,
            };
        }
        let mut connection = self.connections.connect(endpoint).await?;
        match connection.ask(request).await {
            Ok(answer) => Ok((connection, answer)),
            Err(Failed::Sent(error)) => Err(error),
            Err(Failed::Unsent(_)) => Err(HttpError::Broken("it ended at once".to_owned())),
        }
    }

    /// The beginning of an answer's body. Reads on to its end when that is near.
    async fn excerpt(
        &self,
        connection: &mut Connection,
        answer: &mut Response<Incoming>,
    ) -> String {
        let until = Instant::now() + self.timeouts.body;
        let (mut kept, mut read) = (Vec::new(), 0);
        let body = answer.body_mut();
        while let Ok(Some(piece)) = timeout_at(until, connection.piece(body)).await {
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

fn request(
    endpoint: &Endpoint,
    headers: &[(&'static str, String)],
    body: Bytes,
) -> Result<Request<Body>, String> {
    let request = Request::post(endpoint.target())
        .header(HOST, endpoint.host_and_port())
        .header(USER_AGENT, OWN_NAME)
        .header(CONTENT_TYPE, "application/json");
    let request =
        headers.iter().fold(request, |request, (name, value)| request.header(*name, value));
    request.body(Body::new(body)).map_err(|error| format!("the request cannot be sent: {error}"))
}
