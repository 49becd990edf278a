//! Connections: accepting them, bounding them, and letting them finish. Knows no route.

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
use tokio::time::{MissedTickBehavior, sleep, timeout};
use warp::Filter;
use warp::filters::path::FullPath;
use warp::http::{HeaderMap, Method};
use warp::reply::Response;

use super::blocking::SPARE_THREADS;
use super::client::{Client, Pace};
use super::gate::{Gate, Head};
use super::identity::holder_of_address;
use super::router::Router;
use super::wire::{Wire, whole_answer};
use super::{ApiError, ApiSettings, Deps, description, flow};
use crate::memory;
use crate::priority::PromptRuntime;

/// How long a closed connection is still read from, so that a client that is busy sending gets to
/// read its answer before the system resets the connection.
const LINGER: Duration = Duration::from_secs(2);

/// How long to wait when the system refuses a connection, for example for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long the API's threads have to end at a stop, beyond the time of the longest scan.
const THREADS_END_WITHIN: Duration = Duration::from_secs(2);

/// Bytes of a request's head, and of what is read ahead of one: the longest path and query with the usual
/// headers fit.
const LARGEST_HEAD: usize = 48 << 10;

/// Headers of a request.
const MOST_HEADERS: usize = 64;

/// How often it is looked whether memory is to be given back.
const TIDY_EVERY: Duration = Duration::from_secs(5);

/// Bytes of bodies and answers after which that pays.
const WORTH_TIDYING: u64 = 16 << 20;

type Request = hyper::Request<hyper::body::Incoming>;
type Answering = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;
type Answer = Arc<dyn Fn(Request) -> Answering + Send + Sync>;

/// The client of the connection that a request came on.
#[derive(Clone)]
struct Of(Arc<Client>);

/// Serves the API on `listener` until `shutdown` completes, then lets requests in flight finish
/// within [`ApiSettings::stop_timeout`].
pub async fn serve(
    deps: Deps,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ApiError> {
    description::prepare()?;
    let router = Router::new(&super::areas(&deps.settings))?;
    serve_routes(deps, router, listener, shutdown).await
}

/// [`serve`] with other routes.
async fn serve_routes(
    deps: Deps,
    router: Router,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ApiError> {
    let settings = deps.settings.clone();
    let scan_time = settings.scan.time;
    let gate = Arc::new(Gate::new(deps, router)?);
    // Its threads serve connections and read the store; see [`super::blocking`].
    let threads = PromptRuntime::start("api", settings.readers.max(1) + SPARE_THREADS)
        .map_err(|error| ApiError::Start(format!("its threads cannot be created ({error})")))?;
    let runtime = threads.handle().clone();
    // Sockets belong to the runtime that they are opened on.
    let listener = listener.into_std().map_err(ApiError::Listener)?;
    let (stop, stopping) = watch::channel(false);
    let accepting = runtime.spawn(accept(listener, Arc::clone(&gate), settings, stopping));
    tokio::select! {
        () = shutdown => {}
        _ = gate.watch().keep(&runtime) => {}
    }
    gate.stop();
    // Fails only when nobody is left to be told.
    let _ = stop.send(true);
    let outcome = tokio::select! {
        outcome = accepting => outcome,
        never = gate.watch().keep(&runtime) => match never {},
    };
    // Scans of requests that were cut off end after their time.
    let wait = scan_time + THREADS_END_WITHIN;
    if tokio::task::spawn_blocking(move || threads.stop(wait)).await.is_err() {
        tracing::error!("the API's threads could not be stopped in order");
    }
    outcome
        .unwrap_or_else(|panic| Err(ApiError::Start(format!("its accept loop failed ({panic})"))))
}

/// Accepts connections until told to stop, then waits for them to finish.
async fn accept(
    listener: std::net::TcpListener,
    gate: Arc<Gate>,
    settings: ApiSettings,
    mut stopping: watch::Receiver<bool>,
) -> Result<(), ApiError> {
    let listener = TcpListener::from_std(listener).map_err(ApiError::Listener)?;
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
    let mut tidy = tokio::time::interval(TIDY_EVERY);
    tidy.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = told_to_stop(&mut stopping) => break,
            Some(ended) = open.tasks.join_next_with_id(), if !open.tasks.is_empty() => {
                open.forget(&ended);
            }
            _ = tidy.tick() => open.tidy(),
            () = became_idle.notified(), if !open.have_room() => open.make_room(),
            accepted = listener.accept(), if open.have_room() => {
                match accepted {
                    Ok((stream, address)) => open.welcome(stream, address, &stopping),
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
    if timeout(settings.stop_timeout, finish).await.is_err() {
        tracing::warn!(connections = tasks.len(), "requests were cut off at the stop");
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
    /// Whether another one may come: one place is free, or can be made so.
    fn have_room(&self) -> bool {
        let taken = self.clients.len();
        taken < self.settings.connections
            || (taken == self.settings.connections && self.idle_longest().is_some())
    }

    /// Tells the one that has been idle longest to end, while there are too many.
    fn make_room(&self) {
        if self.clients.len() > self.settings.connections
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
    fn welcome(
        &mut self,
        stream: TcpStream,
        address: SocketAddr,
        stopping: &watch::Receiver<bool>,
    ) {
        let budgets = self.gate.budgets();
        let ip = address.ip().to_canonical();
        let trusted = &self.settings.trusted_proxies;
        let place = match trusted.iter().any(|proxy| proxy.to_canonical() == ip) {
            true => None,
            false => match budgets.connections.take_now(holder_of_address(ip), 1) {
                Ok(place) => Some(place),
                Err(_) => return self.turn_away(stream, ip),
            },
        };
        let pace = Pace {
            grace: self.settings.answer_timeout,
            bytes_per_second: self.settings.answer_bytes_per_second,
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "small answers may be delayed");
        }
        let (client, write) = Client::new(stream, address, pace, &self.became_idle);
        let (answer, settings) = (Arc::clone(&self.answer), self.settings.clone());
        let (serve, told) = (Arc::clone(&client), stopping.clone());
        let task = self.tasks.spawn(async move {
            let _place = place;
            connection(serve, write, answer, settings, told).await;
        });
        if self.clients.len() >= self.settings.connections
            && let Some(idle) = self.idle_longest()
        {
            idle.evict();
        }
        self.clients.insert(task.id(), client);
    }

    /// Tells a client that its address has too many connections, when not too many are being told.
    fn turn_away(&mut self, mut stream: TcpStream, address: IpAddr) {
        let budgets = self.gate.budgets();
        let Ok(farewell) = budgets.farewells.take_now(holder_of_address(address), 1) else {
            return;
        };
        let most = self.settings.connections_per_address;
        let sentence =
            format!("your address has {most} connections already: use those, or close one first");
        let answer = whole_answer("429 Too Many Requests", "too_many_requests", &sentence);
        self.tasks.spawn(async move {
            let _farewell = farewell;
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

    /// Gives memory back to the system once many bytes of bodies and answers are gone.
    fn tidy(&self) {
        let bytes = &self.gate.budgets().bytes;
        let (peak, now) = (bytes.peak(), bytes.usage().taken);
        if peak >= WORTH_TIDYING && now < peak / 2 {
            tokio::task::spawn_blocking(memory::give_back_freed_memory);
        }
    }
}

/// Every request, taken apart. The table of routes decides what becomes of it: a chain of path
/// filters could not tell a wrong method from an unknown route, or either from a missing token.
fn requests(
    gate: Arc<Gate>,
) -> impl Filter<Extract = (Response,), Error = warp::Rejection> + Clone + Send + Sync + 'static {
    let query = warp::query::raw().or(warp::any().map(String::new)).unify();
    warp::method()
        .and(warp::path::full())
        .and(query)
        .and(warp::header::headers_cloned())
        .and(warp::ext::get::<Of>())
        .and(warp::body::stream())
        .then(move |method: Method, path: FullPath, query, headers: HeaderMap, of: Of, body| {
            let gate = Arc::clone(&gate);
            let path = path.as_str().to_owned();
            async move { gate.answer(Head { method, path, query, headers, client: of.0 }, body).await }
        })
}

/// Serves one connection to its end.
async fn connection(
    client: Arc<Client>,
    write: OwnedWriteHalf,
    answer: Answer,
    settings: ApiSettings,
    mut stopping: watch::Receiver<bool>,
) {
    let wire = TokioIo::new(Wire::new(Arc::clone(&client), write, settings.write_timeout));
    let of = Of(Arc::clone(&client));
    let service = service_fn(move |mut request: Request| {
        request.extensions_mut().insert(of.clone());
        answer(request).map(|answered| answered.map(flow::sent))
    });
    let mut http = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.header_timeout)
        .max_buf_size(LARGEST_HEAD)
        .max_headers(MOST_HEADERS)
        // A client may close its sending side and still wait for the answer.
        .half_close(true)
        .serve_connection(wire, service);
    let mut told = false;
    let mut first_request = pin!(sleep(settings.first_request_timeout));
    let mut awaits_first = true;
    let ended = loop {
        tokio::select! {
            ended = poll_fn(|cx| http.poll_without_shutdown(cx)) => break ended.map_err(Ended::Http),
            () = told_to_stop(&mut stopping), if !told => {
                Pin::new(&mut http).graceful_shutdown();
                told = true;
            }
            () = &mut first_request, if awaits_first => {
                awaits_first = false;
                if !client.has_asked() {
                    break Err(Ended::TooSlow);
                }
            }
            // It may have begun a request since it was chosen.
            () = client.evicted() => if client.idle_since().is_some() { return },
        }
    };
    let parts = http.into_parts();
    let mut wire = parts.io.into_inner();
    if let Err(ended) = ended
        && let Some(answer) = last_word(&ended, wire.has_refused(), &parts.read_buf)
        && wire.write_all(&answer).await.is_err()
    {
        return;
    }
    if !told {
        // Whatever comes now is not for us, and whether it does is not our concern either.
        let _ = timeout(LINGER, linger(&mut wire)).await;
    }
}

/// Why a connection ended without an answer of ours.
enum Ended {
    /// The HTTP library gave up.
    Http(hyper::Error),
    /// The first request did not come in time.
    TooSlow,
}

/// What a client is told whose connection ended without an answer of the HTTP library.
fn last_word(ended: &Ended, refused: bool, unread: &[u8]) -> Option<Vec<u8>> {
    let (is_timeout, is_parse) = match ended {
        Ended::Http(error) => (error.is_timeout(), error.is_parse()),
        Ended::TooSlow => (true, false),
    };
    if is_timeout && !unread.is_empty() {
        let sentence = "the request's head did not arrive in time: send it faster";
        return Some(whole_answer("408 Request Timeout", "request_timeout", sentence));
    }
    if is_parse && !refused {
        // All that the library does not answer by itself is the preface of HTTP/2.
        let sentence = "this HTTP version is not spoken here: use HTTP/1.1";
        let status = "505 HTTP Version Not Supported";
        return Some(whole_answer(status, "http_version", sentence));
    }
    None
}

/// Waits for the word to stop, or until nobody is left to give it.
async fn told_to_stop(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// Closes our side and reads on until the client has closed its own.
async fn linger(wire: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<()> {
    wire.shutdown().await?;
    let mut dropped = vec![0; 16 * 1024];
    while wire.read(&mut dropped).await? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests;
