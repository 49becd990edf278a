//! Connections: accepting them, bounding them, and letting them finish. Knows no route.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use warp::Filter;
use warp::filters::path::FullPath;
use warp::http::{HeaderMap, Method};
use warp::reply::Response;

use super::gate::{Gate, Head};
use super::wire::{Wire, whole_answer};
use super::{ApiError, ApiSettings, Deps, description};

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
/// within [`ApiSettings::stop_timeout`]. Needs a multi-threaded runtime: storage is read on its
/// worker threads, which it replaces meanwhile.
pub async fn serve(
    deps: Deps,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ApiError> {
    if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
        return Err(ApiError::Start("it needs a multi-threaded runtime".to_owned()));
    }
    description::prepare()?;
    let settings = deps.settings.clone();
    let service = TowerToHyperService::new(warp::service(requests(Arc::new(Gate::new(deps)))));
    let answer: Answer = Arc::new(move |request| Box::pin(service.call(request)));
    let (stop, stopping) = watch::channel(false);
    let mut shutdown = pin!(shutdown);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept(), if connections.len() < settings.connections => {
                match accepted {
                    Ok((stream, peer)) => {
                        let (answer, settings) = (Arc::clone(&answer), settings.clone());
                        connections.spawn(connection(
                            stream, peer, answer, settings, stopping.clone(),
                        ));
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
    // Fails only when no connection is left to be told.
    let _ = stop.send(true);
    let finish = async { while connections.join_next().await.is_some() {} };
    if timeout(settings.stop_timeout, finish).await.is_err() {
        tracing::warn!(connections = connections.len(), "requests were cut off at the stop");
        connections.abort_all();
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
            // Also when the server is gone without a word: then it is time to stop as well.
            _ = stopping.wait_for(|stop| *stop), if !told => {
                Pin::new(&mut http).graceful_shutdown();
                told = true;
            }
        }
    };
    let parts = http.into_parts();
    let mut wire = parts.io.into_inner();
    if ended.is_err_and(|error| error.is_timeout()) && !parts.read_buf.is_empty() {
        let sentence = "the request's head did not arrive in time: send it faster";
        let answer = whole_answer("408 Request Timeout", "request_timeout", sentence);
        if wire.write_all(&answer).await.is_err() {
            return;
        }
    }
    if !told {
        // Whatever comes now is not for us, and whether it does is not our concern either.
        let _ = timeout(LINGER, linger(&mut wire)).await;
    }
}

/// Closes our side and reads on until the client has closed its own.
async fn linger(wire: &mut Wire) -> io::Result<()> {
    wire.shutdown().await?;
    let mut dropped = vec![0; 16 * 1024];
    while wire.read(&mut dropped).await? > 0 {}
    Ok(())
}
