//! Connections: accepting them, bounding them, and letting them finish. Knows no route.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use warp::Filter;
use warp::filters::path::FullPath;
use warp::http::{HeaderMap, Method};
use warp::reply::Response;

use super::blocking::SPARE_THREADS;
use super::gate::{Gate, Head};
use super::wire::{Wire, whole_answer};
use super::{ApiError, ApiSettings, Deps, description};
use crate::priority::Priority;

/// How long a closed connection is still read from, so that a client that is busy sending gets to
/// read its answer before the system resets the connection.
const LINGER: Duration = Duration::from_secs(2);

/// How long to wait when the system refuses a connection, for example for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

type Request = hyper::Request<hyper::body::Incoming>;
type Answering = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;
type Answer = Arc<dyn Fn(Request) -> Answering + Send + Sync>;

/// The client's end of the connection that a request came on.
#[derive(Clone, Copy)]
struct Peer(SocketAddr);

/// Serves the API on `listener` until `shutdown` completes, then lets requests in flight finish
/// within [`ApiSettings::stop_timeout`].
pub async fn serve(
    deps: Deps,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ApiError> {
    description::prepare()?;
    let settings = deps.settings.clone();
    let gate = Arc::new(Gate::new(deps));
    let threads = own_runtime(settings.readers)?;
    let runtime = threads.handle().clone();
    let _threads = StopInBackground(Some(threads));
    // Sockets belong to the runtime that they are opened on.
    let listener = listener.into_std().map_err(ApiError::Listener)?;
    let (stop, stopping) = watch::channel(false);
    let accepting = runtime.spawn(accept(listener, Arc::clone(&gate), settings, stopping));
    tokio::select! {
        () = shutdown => {}
        _ = gate.readers().watch(&runtime) => {}
    }
    // Fails only when nobody is left to be told.
    let _ = stop.send(true);
    let outcome = tokio::select! {
        outcome = accepting => outcome,
        never = gate.readers().watch(&runtime) => match never {},
    };
    outcome
        .unwrap_or_else(|panic| Err(ApiError::Start(format!("its accept loop failed ({panic})"))))
}

/// The runtime whose threads serve connections and read the store; see [`super::blocking`].
fn own_runtime(readers: usize) -> Result<Runtime, ApiError> {
    Builder::new_multi_thread()
        .worker_threads(readers.max(1) + SPARE_THREADS)
        .thread_name("api")
        .on_thread_start(|| Priority::Prompt.take())
        .enable_all()
        .build()
        .map_err(|error| ApiError::Start(format!("its threads cannot be created ({error})")))
}

/// Stops a runtime without waiting for its threads, which a task of another runtime must not do.
struct StopInBackground(Option<Runtime>);

impl Drop for StopInBackground {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Accepts connections until told to stop, then waits for them to finish.
async fn accept(
    listener: std::net::TcpListener,
    gate: Arc<Gate>,
    settings: ApiSettings,
    mut stopping: watch::Receiver<bool>,
) -> Result<(), ApiError> {
    let listener = TcpListener::from_std(listener).map_err(ApiError::Listener)?;
    let service = TowerToHyperService::new(warp::service(requests(gate)));
    let answer: Answer = Arc::new(move |request| Box::pin(service.call(request)));
    let mut connections = JoinSet::new();
    let told = stopping.clone();
    loop {
        tokio::select! {
            () = told_to_stop(&mut stopping) => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept(), if connections.len() < settings.connections => {
                match accepted {
                    Ok((stream, peer)) => {
                        let (answer, settings) = (Arc::clone(&answer), settings.clone());
                        let told = told.clone();
                        connections.spawn(connection(stream, peer, answer, settings, told));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        }
    }
    drop(listener);
    let finish = async { while connections.join_next().await.is_some() {} };
    if timeout(settings.stop_timeout, finish).await.is_err() {
        tracing::warn!(connections = connections.len(), "requests were cut off at the stop");
    }
    Ok(())
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
        .and(warp::ext::get::<Peer>())
        .and(warp::body::stream())
        .then(move |method: Method, path: FullPath, query, headers: HeaderMap, peer: Peer, body| {
            let gate = Arc::clone(&gate);
            let path = path.as_str().to_owned();
            async move { gate.answer(Head { method, path, query, headers, peer: peer.0 }, body).await }
        })
}

/// Serves one connection to its end.
async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    answer: Answer,
    settings: ApiSettings,
    mut stopping: watch::Receiver<bool>,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "small answers may be delayed");
    }
    let wire = TokioIo::new(Wire::new(stream, settings.write_timeout));
    let service = service_fn(move |mut request: Request| {
        request.extensions_mut().insert(Peer(peer));
        answer(request)
    });
    let mut http = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.header_timeout)
        // A client may close its sending side and still wait for the answer.
        .half_close(true)
        .serve_connection(wire, service);
    let mut told = false;
    let ended = loop {
        tokio::select! {
            ended = poll_fn(|cx| http.poll_without_shutdown(cx)) => break ended,
            () = told_to_stop(&mut stopping), if !told => {
                Pin::new(&mut http).graceful_shutdown();
                told = true;
            }
        }
    };
    let parts = http.into_parts();
    let mut wire = parts.io.into_inner();
    if let Err(error) = ended
        && let Some(answer) = last_word(&error, wire.has_refused(), &parts.read_buf)
        && wire.write_all(&answer).await.is_err()
    {
        return;
    }
    if !told {
        // Whatever comes now is not for us, and whether it does is not our concern either.
        let _ = timeout(LINGER, linger(&mut wire)).await;
    }
}

/// What a client is told whose connection ended without an answer of the HTTP library.
fn last_word(error: &hyper::Error, refused: bool, unread: &[u8]) -> Option<Vec<u8>> {
    if error.is_timeout() && !unread.is_empty() {
        let sentence = "the request's head did not arrive in time: send it faster";
        return Some(whole_answer("408 Request Timeout", "request_timeout", sentence));
    }
    if error.is_parse() && !refused {
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
async fn linger(wire: &mut Wire) -> io::Result<()> {
    wire.shutdown().await?;
    let mut dropped = vec![0; 16 * 1024];
    while wire.read(&mut dropped).await? > 0 {}
    Ok(())
}
