//! Connections to servers: made only to addresses that are allowed at that moment, and kept alive
//! for the next delivery.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use super::Endpoint;
use super::connection::{Connection, Stream};
use super::resolver::AllowedNames;
use orrery_net::http::{HttpError, root_cause};
use orrery_net::tls::Tls;

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
    pub(super) fn put_idle(&self, server: &str, mut connection: Connection) {
        if connection.is_usable() {
            self.idle.push(server, connection);
        }
    }

    /// Opens a connection to the endpoint's server.
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

/// Idle connections.
#[derive(Default)]
struct Idle(Mutex<IdleState>);

#[derive(Default)]
struct IdleState {
    /// Connections by server, each with the time at which it became idle. Servers without one are
    /// removed by the closer.
    by_server: HashMap<String, Vec<(Connection, Instant)>>,
    /// Whether a task closes old connections.
    has_closer: bool,
}

impl Idle {
    /// Takes the connection that was used last.
    fn pop(&self, server: &str) -> Option<(Connection, Instant)> {
        self.0.lock().by_server.get_mut(server)?.pop()
    }

    fn push(self: &Arc<Self>, server: &str, connection: Connection) {
        let mut state = self.0.lock();
        if !std::mem::replace(&mut state.has_closer, true) {
            tokio::spawn(Closer { idle: Arc::downgrade(self), has_ended: false }.run());
        }
        let of_server = match state.by_server.get_mut(server) {
            Some(of_server) => of_server,
            None => state.by_server.entry(server.to_owned()).or_default(),
        };
        if of_server.len() < MAX_IDLE {
            of_server.push((connection, Instant::now()));
        }
    }
}

/// Closes connections that have been idle for too long, until no server is left.
struct Closer {
    idle: Weak<Idle>,
    has_ended: bool,
}

impl Closer {
    async fn run(mut self) {
        while !self.has_ended {
            sleep(IDLE_TIMEOUT).await;
            let Some(idle) = self.idle.upgrade() else { return };
            let mut state = idle.0.lock();
            state.by_server.retain(|_, connections| {
                connections.retain(|(_, since)| since.elapsed() < IDLE_TIMEOUT);
                !connections.is_empty()
            });
            state.has_closer = !state.by_server.is_empty();
            self.has_ended = !state.has_closer;
        }
    }
}

impl Drop for Closer {
    /// Lets another task begin when this one is dropped with its runtime.
    fn drop(&mut self) {
        if !self.has_ended
            && let Some(idle) = self.idle.upgrade()
        {
            idle.0.lock().has_closer = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio::runtime::{Builder, Handle};

    use super::*;

    async fn connection() -> (Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let connection = Connection::over(Stream::Plain(client)).await;
        (connection.unwrap_or_else(|_| panic!("no connection")), server)
    }

    fn runtime() -> tokio::runtime::Runtime {
        Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
    }

    #[test]
    fn a_single_task_closes_idle_connections() {
        let idle = Arc::<Idle>::default();
        for round in 0..2 {
            let idle = Arc::clone(&idle);
            runtime().block_on(async move {
                let (mut connection, mut server) = connection().await;
                for use_count in 0..100 {
                    idle.push("http://example.com", connection);
                    // That of an earlier runtime has ended with the runtime.
                    let tasks = Handle::current().metrics().num_alive_tasks();
                    assert_eq!(tasks, 1, "round {round}, use {use_count}");
                    (connection, _) = idle.pop("http://example.com").unwrap();
                }
                if round == 0 {
                    return;
                }
                idle.push("http://example.com", connection);
                // The paused clock moves on when nothing else is left to do.
                let closed = tokio::io::AsyncReadExt::read(&mut server, &mut [0; 1]).await;
                assert_eq!(closed.unwrap(), 0);
                assert!(idle.0.lock().by_server.is_empty());
            });
        }
    }
}
