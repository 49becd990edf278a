//! Accepts connections, limits them, and lets them finish at a stop. Does not depend on routes.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use warp::Filter;
use warp::filters::path::FullPath;
use warp::http::{HeaderMap, Method};
use warp::reply::Response;

use super::areas::areas;
use super::blocking::SPARE_THREADS;
use super::client::{Client, Pace};
use super::gate::Gate;
use super::head::{Head, merged_slashes};
use super::identity::holder_of_address;
use super::reach::Reach;
use super::router::Router;
use super::wire::{Wire, complete_response};
use super::{ApiError, ApiSettings, Deps, Tunables, streamed_body};
use orrery_runtime::observe::health::Health;
use orrery_runtime::priority::PromptRuntime;
use orrery_runtime::process;

/// Maximum time for which input is read and discarded after a connection was closed for sending, so
/// that a client that is still sending can read its response before the operating system resets the
/// connection.
const LINGER: Duration = Duration::from_secs(2);

/// Pause after the operating system refused a connection, for example for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Time that the API's threads have to end at a stop, beyond the time limit of a scan.
const THREAD_STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum size of a request's head in bytes, and of the HTTP library's read buffer. Holds the
/// longest path and query with the usual headers.
const LARGEST_HEAD: usize = 48 << 10;

/// Maximum number of headers of a request.
const MAX_HEADERS: usize = 64;

/// Number of checks whether the head of a request is late, during the time that it may take.
const HEAD_CHECKS: u32 = 8;

/// Interval at which the server checks whether to return freed memory.
const MEMORY_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Peak of bytes of bodies and responses from which returning freed memory is worthwhile.
const MIN_PEAK_TO_RELEASE: u64 = 16 << 20;

/// Name of the task that accepts connections, for tests.
const ACCEPTING: &str = "accepting";

type Request = hyper::Request<hyper::body::Incoming>;
type Answering = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;
type Answer = Arc<dyn Fn(Request) -> Answering + Send + Sync>;

/// Request extension with the client of the request's connection.
#[derive(Clone)]
struct ConnectionClient(Arc<Client>);

/// Serves the API on `listener` until `shutdown` completes, then lets requests in flight finish
/// within [`Tunables::stop_timeout`].
///
/// # Errors
/// When it cannot begin, and at once when connections are no longer accepted.
pub async fn serve(
    deps: Deps,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ApiError> {
    let router = Router::new(&areas(&deps.settings, deps.friendbot.is_some()))?;
    serve_routes(deps, router, listener, shutdown).await
}

/// Like [`serve`], with a given router.
async fn serve_routes(
    deps: Deps,
    router: Router,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ApiError> {
    let settings = deps.settings.clone();
    let scan_time = settings.limits.scan_ms.duration();
    let health = Arc::clone(&deps.health);
    let reach = Reach { is_local: listener.local_addr().is_ok_and(|it| it.ip().is_loopback()) };
    let gate = Arc::new(Gate::new(deps, router, reach)?);
    // These threads serve connections and read the store; see [`super::blocking`].
    let threads = PromptRuntime::start("api", settings.tunables.readers.max(1) + SPARE_THREADS)
        .map_err(|error| ApiError::Start(format!("its threads cannot be created ({error})")))?;
    let runtime = threads.handle().clone();
    // A Tokio socket belongs to the runtime on which it was created, so it is created anew there.
    let listener = listener.into_std().map_err(ApiError::Listener)?;
    let (stop, stopping) = watch::channel(false);
    let mut accepting =
        runtime.spawn(accept(listener, Arc::clone(&gate), settings, health, stopping));
    let ended_early = tokio::select! {
        () = shutdown => None,
        outcome = &mut accepting => Some(outcome),
        never = gate.watch().keep_polling(&runtime) => match never {},
    };
    gate.stop();
    // Fails only when the accept loop has already ended.
    let _ = stop.send(true);
    let outcome = match ended_early {
        Some(outcome) => outcome,
        None => tokio::select! {
            outcome = accepting => outcome,
            never = gate.watch().keep_polling(&runtime) => match never {},
        },
    };
    // Scans of requests that were cut off end at their time limit.
    let wait = scan_time + THREAD_STOP_TIMEOUT;
    if tokio::task::spawn_blocking(move || threads.stop(wait)).await.is_err() {
        tracing::error!("the API's threads did not stop cleanly");
    }
    outcome
        .unwrap_or_else(|panic| Err(ApiError::Start(format!("its accept loop failed ({panic})"))))
}

/// Accepts connections until the stop signal, then waits for them to finish.
async fn accept(
    listener: std::net::TcpListener,
    gate: Arc<Gate>,
    settings: ApiSettings,
    health: Arc<Health>,
    mut stopping: watch::Receiver<bool>,
) -> Result<(), ApiError> {
    let listener = TcpListener::from_std(listener).map_err(ApiError::Listener)?;
    let mut injected = pin!(health.injected().panic_when(ACCEPTING));
    let service = TowerToHyperService::new(warp::service(requests(Arc::clone(&gate))));
    let answer: Answer = Arc::new(move |request| Box::pin(service.call(request)));
    let became_idle = Arc::new(Notify::new());
    let mut open = Connections {
        gate,
        settings,
        answer,
        tasks: JoinSet::new(),
        became_idle: Arc::clone(&became_idle),
        clients: HashMap::new(),
    };
    let mut memory_check = tokio::time::interval(MEMORY_CHECK_INTERVAL);
    memory_check.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = wait_for_stop(&mut stopping) => break,
            never = &mut injected => match never {},
            Some(ended) = open.tasks.join_next_with_id(), if !open.tasks.is_empty() => {
                open.forget(&ended);
            }
            _ = memory_check.tick() => open.release_memory(),
            () = became_idle.notified(), if !open.has_capacity() => open.evict_if_over_limit(),
            accepted = listener.accept(), if open.has_capacity() => {
                match accepted {
                    Ok((stream, address)) => open.admit(stream, address, &stopping),
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        }
    }
    drop(listener);
    let Connections { settings, mut tasks, .. } = open;
    let finish = async { while tasks.join_next().await.is_some() {} };
    if timeout(settings.tunables.stop_timeout, finish).await.is_err() {
        tracing::warn!(connections = tasks.len(), "requests were cut off when the service stopped");
    }
    Ok(())
}

/// The open connections.
struct Connections {
    gate: Arc<Gate>,
    settings: ApiSettings,
    answer: Answer,
    tasks: JoinSet<()>,
    became_idle: Arc<Notify>,
    clients: HashMap<Id, Arc<Client>>,
}

impl Connections {
    /// Returns how many may be open.
    fn most(&self) -> usize {
        self.settings.http.connections.get() as usize
    }

    /// Whether another connection may be accepted: a slot is free, or an idle connection can be
    /// evicted.
    fn has_capacity(&self) -> bool {
        let taken = self.clients.len();
        taken < self.most() || (taken == self.most() && self.idle_longest().is_some())
    }

    /// Evicts the connection that has been idle longest, if there are more than allowed.
    fn evict_if_over_limit(&self) {
        if self.clients.len() > self.most()
            && let Some(client) = self.idle_longest()
        {
            client.evict();
        }
    }

    fn idle_longest(&self) -> Option<&Arc<Client>> {
        let idle = self.clients.values().filter_map(|client| Some((client.idle_since()?, client)));
        idle.min_by_key(|(since, _)| *since).map(|(_, client)| client)
    }

    /// Serves a connection, unless its address has too many.
    fn admit(&mut self, stream: TcpStream, address: SocketAddr, stopping: &watch::Receiver<bool>) {
        let budgets = self.gate.budgets();
        let ip = address.ip().to_canonical();
        let slot = if self.settings.http.is_trusted_proxy(ip) {
            None
        } else {
            match budgets.connections.take_now(holder_of_address(ip), 1) {
                Ok(slot) => Some(slot),
                Err(_) => return self.reject_connection(stream, ip),
            }
        };
        let pace = Pace {
            grace: self.settings.limits.answer_seconds.duration(),
            bytes_per_second: self.settings.limits.answer_kib_per_second.bytes(),
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY cannot be set, so small responses may be delayed");
        }
        let (client, write) = Client::new(stream, address, pace, &self.became_idle);
        let (answer, tunables) = (Arc::clone(&self.answer), self.settings.tunables);
        let (serve, stopping) = (Arc::clone(&client), stopping.clone());
        let task = self.tasks.spawn(async move {
            let _slot = slot;
            connection(serve, write, answer, tunables, stopping).await;
        });
        if self.clients.len() >= self.most()
            && let Some(idle) = self.idle_longest()
        {
            idle.evict();
        }
        self.clients.insert(task.id(), client);
    }

    /// Informs a client that its address has too many connections, unless too many such notices are
    /// being sent already.
    fn reject_connection(&mut self, mut stream: TcpStream, address: IpAddr) {
        let budgets = self.gate.budgets();
        let Ok(notice) = budgets.rejection_notices.take_now(holder_of_address(address), 1) else {
            return;
        };
        let most = self.settings.limits.connections_per_address;
        let sentence =
            format!("your address has {most} connections already: use those, or close one first");
        let answer = complete_response("429 Too Many Requests", "too_many_requests", &sentence);
        self.tasks.spawn(async move {
            let _notice = notice;
            let _ = timeout(LINGER, async {
                stream.write_all(&answer).await?;
                linger(&mut stream).await
            })
            .await;
        });
    }

    fn forget(&mut self, ended: &Result<(Id, ()), JoinError>) {
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, ())| *id);
        self.clients.remove(&id);
    }

    /// Returns freed memory to the operating system after the bytes of bodies and responses have
    /// dropped to less than half of a peak of at least [`MIN_PEAK_TO_RELEASE`], and after the last of
    /// the requests that change programs: what they supply takes many times its size while it is read,
    /// and what they delete may have been in memory.
    fn release_memory(&self) {
        let budgets = self.gate.budgets();
        let (peak, now) = (budgets.bytes.peak(), budgets.bytes.usage().taken);
        let has_changed = budgets.changes.peak() > 0 && budgets.changes.usage().taken == 0;
        if has_changed || (peak >= MIN_PEAK_TO_RELEASE && now < peak / 2) {
            tokio::task::spawn_blocking(process::give_back_freed_memory);
        }
    }
}

/// Builds the filter that splits every request into its parts and passes them to the gate. The
/// route table decides what happens next: a chain of path filters could not distinguish a wrong
/// method from an unknown route, or either from a missing token. Warp stays at this outermost edge:
/// it decides nothing about a request.
fn requests(
    gate: Arc<Gate>,
) -> impl Filter<Extract = (Response,), Error = warp::Rejection> + Clone + Send + Sync + 'static {
    let query = warp::query::raw().or(warp::any().map(String::new)).unify();
    warp::method()
        .and(warp::path::full())
        .and(query)
        .and(warp::header::headers_cloned())
        .and(warp::ext::get::<ConnectionClient>())
        .and(warp::body::stream())
        .then(
            move |method: Method,
                  path: FullPath,
                  query,
                  headers: HeaderMap,
                  of: ConnectionClient,
                  body| {
                let gate = Arc::clone(&gate);
                let path = merged_slashes(path.as_str());
                async move {
                    gate.answer(Head { method, path, query, headers, client: of.0 }, body).await
                }
            },
        )
}

/// Serves one connection to its end.
async fn connection(
    client: Arc<Client>,
    write: OwnedWriteHalf,
    answer: Answer,
    tunables: Tunables,
    mut stopping: watch::Receiver<bool>,
) {
    let wire = TokioIo::new(Wire::new(Arc::clone(&client), write, tunables.write_timeout));
    let of = ConnectionClient(Arc::clone(&client));
    let service = service_fn(move |mut request: Request| {
        request.extensions_mut().insert(of.clone());
        answer(request).map(|answered| answered.map(streamed_body::sent))
    });
    let mut http = http(&tunables).serve_connection(wire, service);
    let (mut is_stopping, mut awaits_first) = (false, true);
    let mut first_request = pin!(sleep(tunables.first_request_timeout));
    let mut head_checks = interval(tunables.header_timeout / HEAD_CHECKS);
    head_checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let ended = loop {
        tokio::select! {
            ended = poll_fn(|cx| http.poll_without_shutdown(cx)) => break ended.map_err(ConnectionError::Http),
            () = wait_for_stop(&mut stopping), if !is_stopping => {
                Pin::new(&mut http).graceful_shutdown();
                is_stopping = true;
            }
            () = &mut first_request, if awaits_first => {
                awaits_first = false;
                if !client.has_sent_request() {
                    break Err(ConnectionError::TooSlow);
                }
            }
            _ = head_checks.tick() => if client.is_head_overdue(tunables.header_timeout) {
                break Err(ConnectionError::TooSlow);
            },
            // The client may have begun a request since it was chosen for eviction.
            () = client.evicted() => if client.idle_since().is_some() { return },
        }
    };
    let parts = http.into_parts();
    let mut wire = parts.io.into_inner();
    if let Err(ended) = ended
        && let Some(answer) = closing_response(&ended, wire.has_replaced_error(), &parts.read_buf)
        && wire.write_all(&answer).await.is_err()
    {
        return;
    }
    if !is_stopping {
        // Further input is discarded, and errors do not matter.
        let _ = timeout(LINGER, linger(&mut wire)).await;
    }
}

/// Returns how connections speak HTTP.
fn http(tunables: &Tunables) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(tunables.idle_timeout)
        .max_buf_size(LARGEST_HEAD)
        .max_headers(MAX_HEADERS)
        // A client may close its sending side and still wait for the response.
        .half_close(true);
    http
}

/// Reason why a connection failed.
enum ConnectionError {
    /// The HTTP library reported an error.
    Http(hyper::Error),
    /// The head of a request did not arrive in time.
    TooSlow,
}

/// Returns the response for a client whose connection failed without a response of the HTTP
/// library; `None` when none is due.
fn closing_response(
    ended: &ConnectionError,
    replaced_error: bool,
    unread: &[u8],
) -> Option<Vec<u8>> {
    let (is_timeout, is_parse) = match ended {
        ConnectionError::Http(error) => (error.is_timeout(), error.is_parse()),
        ConnectionError::TooSlow => (true, false),
    };
    if is_timeout && !unread.is_empty() {
        let sentence = "the request's head did not arrive in time: send it faster";
        return Some(complete_response("408 Request Timeout", "request_timeout", sentence));
    }
    if is_parse && !replaced_error {
        // The preface of HTTP/2 is the only parse error that the library does not answer itself.
        let sentence = "this HTTP version is not supported: use HTTP/1.1";
        let status = "505 HTTP Version Not Supported";
        return Some(complete_response(status, "http_version", sentence));
    }
    None
}

/// Waits for the stop signal, or until its sender is dropped.
async fn wait_for_stop(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// Shuts down the sending side and discards input until the client has closed its own side.
async fn linger(wire: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<()> {
    wire.shutdown().await?;
    let mut dropped = vec![0; 16 * 1024];
    while wire.read(&mut dropped).await? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests;
