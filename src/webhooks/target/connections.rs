//! Connections to servers: made only to addresses that are allowed at that moment, and kept alive
//! for the next delivery.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::Endpoint;
use super::connection::{Connection, Stream};
use super::names::AllowedNames;
use crate::source::http::{HttpError, root_cause};
use crate::source::tls::Tls;

/// How long an idle connection is kept for the next delivery.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of idle connections per server.
const MAX_IDLE: usize = 16;
/// How long a connection attempt may take before the next address of the name is tried in parallel
/// (RFC 8305, section 5).
const CONNECTION_ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Opens connections, and keeps idle ones.
pub(super) struct Connections {
    names: AllowedNames,
    tls: Tls,
    idle: Arc<Idle>,
}

impl Connections {
    pub(super) fn new(names: AllowedNames) -> Self {
        Self { names, tls: Tls::new(), idle: Arc::default() }
    }

    /// Returns an idle connection to a server; `None` when no usable one is left.
    pub(super) fn take_idle(&self, server: &str) -> Option<Connection> {
        loop {
            // Whether it is usable is checked without holding the lock.
            let (mut connection, since) = self.idle.pop(server)?;
            if since.elapsed() < IDLE_TIMEOUT && connection.is_usable() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection for reuse, if it is usable.
    pub(super) fn put_idle(&self, server: String, mut connection: Connection) {
        if connection.is_usable() {
            self.idle.push(server, connection);
        }
    }

    /// Opens a connection to the endpoint's server.
    ///
    /// # Errors
    /// [`HttpError`]
    pub(super) async fn connect(&self, endpoint: &Endpoint) -> Result<Connection, HttpError> {
        let url = endpoint.url();
        let refused = |error: &dyn std::error::Error| HttpError::NoConnection(error.to_string());
        let addresses = match (endpoint.literal(), endpoint.name()) {
            (Some(address), _) => {
                self.names.policy.check(address).map_err(|denied| refused(&denied))?;
                vec![address]
            }
            (None, Some(name)) => {
                self.names.addresses(name).await.map_err(|error| refused(&error))?
            }
            (None, None) => Vec::new(),
        };
        // A URL without a port has the default port of its scheme.
        let port = url.port_or_known_default().unwrap_or(80);
        let tcp = first_to_connect(addresses, port).await?;
        tcp.set_nodelay(true).map_err(|error| refused(&error))?;
        let stream = match url.scheme() {
            "https" => {
                let literal = endpoint.literal().map(|address| address.to_string());
                let host = literal.as_deref().or(endpoint.name()).unwrap_or_default();
                Stream::Tls(Box::new(self.tls.over(host, tcp).await?))
            }
            _ => Stream::Plain(tcp),
        };
        Connection::over(stream).await
    }
}

/// Connects to one of these addresses: tries the next when an attempt has failed or takes long.
async fn first_to_connect(addresses: Vec<IpAddr>, port: u16) -> Result<TcpStream, HttpError> {
    let mut rest = addresses.into_iter();
    let mut attempts = FuturesUnordered::new();
    let mut failed = HttpError::NoConnection("the name has no address".to_owned());
    loop {
        let next = rest.next();
        let is_last = next.is_none();
        attempts.extend(next.map(|address| TcpStream::connect(SocketAddr::new(address, port))));
        tokio::select! {
            ended = attempts.next() => match ended {
                Some(Ok(stream)) => return Ok(stream),
                Some(Err(error)) => failed = HttpError::NoConnection(root_cause(&error)),
                None => return Err(failed),
            },
            () = sleep(CONNECTION_ATTEMPT_DELAY), if !is_last => {}
        }
    }
}

/// Idle connections by server, each with the time at which it became idle.
#[derive(Default)]
struct Idle(Mutex<HashMap<String, Vec<(Connection, Instant)>>>);

impl Idle {
    /// Takes the connection that was used last.
    fn pop(&self, server: &str) -> Option<(Connection, Instant)> {
        let mut idle = self.0.lock();
        let found = idle.get_mut(server)?.pop();
        if idle.get(server).is_some_and(Vec::is_empty) {
            idle.remove(server);
        }
        found
    }

    fn push(self: &Arc<Self>, server: String, connection: Connection) {
        let mut idle = self.0.lock();
        if idle.is_empty() {
            // The task runs until no idle connection is left.
            tokio::spawn(Self::close_old(Arc::downgrade(self)));
        }
        let of_server = idle.entry(server).or_default();
        if of_server.len() < MAX_IDLE {
            of_server.push((connection, Instant::now()));
        }
    }

    /// Closes connections that have been idle for too long.
    async fn close_old(idle: Weak<Self>) {
        loop {
            sleep(IDLE_TIMEOUT).await;
            let Some(idle) = idle.upgrade() else { return };
            let mut idle = idle.0.lock();
            idle.retain(|_, connections| {
                connections.retain(|(_, since)| since.elapsed() < IDLE_TIMEOUT);
                !connections.is_empty()
            });
            if idle.is_empty() {
                return;
            }
        }
    }
}
