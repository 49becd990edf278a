//! Server side of the control socket, in the running service.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, interval, sleep, timeout};

use super::verb::{Body, Verb};
use super::{ControlError, PROTOCOL, Peer, SocketPath};
use crate::stall::Stall;

/// Maximum number of connections at a time: each may hold a batch of ledgers in memory.
const MAX_CONNECTIONS: usize = 4;
/// Times after which the connection of an inactive client is closed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    /// Time that a client has to begin its first request.
    pub first: Duration,
    /// Time between two requests; a client that sends ledgers reads files meanwhile.
    pub idle: Duration,
    /// Time without any new byte of a body, time for which a client may not read its answer, and time
    /// that it has to end what it sends when the service stops.
    pub stall: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(5),
            idle: Duration::from_secs(600),
            stall: Duration::from_secs(30),
        }
    }
}

/// Interval between two looks whether the socket's file is still there.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Permissions of the socket: only its owner may read and write.
const ONLY_OWNER: u32 = 0o600;

/// The control socket of a data directory. Dropping it removes the socket's file.
pub struct Listener {
    path: SocketPath,
    listener: UnixListener,
    pub(super) timeouts: Timeouts,
}

impl Listener {
    /// Opens the socket, readable and writable for its owner alone. The caller holds the
    /// directory's lock, so an existing socket file is left over from a crash and is replaced.
    pub fn bind(data_dir: &Path) -> Result<Self, ControlError> {
        let path = SocketPath::new(data_dir)?;
        let listener = Self::bind_at(&path)?;
        Ok(Self { path, listener, timeouts: Timeouts::default() })
    }

    fn bind_at(path: &SocketPath) -> Result<UnixListener, ControlError> {
        // Bound under another name first, so that it is never reachable with other permissions.
        let unfinished = path.short("control.sock.new");
        let io = |error| path.error(error);
        match fs::remove_file(&unfinished) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io(error)),
            _ => {}
        }
        let listener = UnixListener::bind(&unfinished).map_err(io)?;
        fs::set_permissions(&unfinished, fs::Permissions::from_mode(ONLY_OWNER)).map_err(io)?;
        fs::rename(&unfinished, path.short(SocketPath::NAME)).map_err(io)?;
        Ok(listener)
    }

    /// Opens the socket again if somebody has removed its file, so that clients find this service.
    fn bind_if_gone(&self) -> Option<UnixListener> {
        let found = fs::symlink_metadata(self.path.short(SocketPath::NAME));
        if !found.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
            return None;
        }
        match Self::bind_at(&self.path) {
            Ok(listener) => {
                tracing::warn!("the control socket was removed; it is open again");
                Some(listener)
            }
            Err(error) => {
                tracing::debug!(%error, "the control socket could not be opened again");
                None
            }
        }
    }

    /// Serves connections until `stop` turns true. A batch that is being stored at that time is
    /// still completed and acknowledged. May be called again after a panic, which closes the
    /// connections.
    pub async fn serve<C: Default + Send + 'static>(
        self: Arc<Self>,
        verbs: Arc<Verbs<C>>,
        stop: watch::Receiver<bool>,
    ) {
        let mut connections = JoinSet::new();
        let mut stopping = pin!(stopped(stop.clone()));
        let mut reopened: Option<UnixListener> = None;
        let mut looks = interval(LOOK_INTERVAL);
        loop {
            let listener = reopened.as_ref().unwrap_or(&self.listener);
            let room = connections.len() < MAX_CONNECTIONS;
            tokio::select! {
                () = &mut stopping => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                _ = looks.tick() => reopened = self.bind_if_gone().or(reopened),
                accepted = listener.accept(), if room => match accepted {
                    Ok((stream, _)) => {
                        let verbs = Arc::clone(&verbs);
                        connections.spawn(connection(stream, verbs, self.timeouts, stop.clone()));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the control socket could not accept a connection");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
        while connections.join_next().await.is_some() {}
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(self.path.short(SocketPath::NAME)) {
            tracing::debug!(%error, "the control socket could not be removed");
        }
    }
}

/// What the socket offers, with what does it. A `C` is kept for each connection.
pub struct Verbs<C> {
    by_name: HashMap<&'static str, Arc<Handler<C>>>,
}

struct Handler<C> {
    /// Maximum size of a request in bytes.
    longest: u64,
    answer: Box<Answer<C>>,
}

/// Turns the body of a request into that of its answer.
type Answer<C> = dyn Fn(&mut C, Vec<u8>) -> Result<Vec<u8>, Refusal> + Send + Sync;

/// Status and sentence for a request that is not answered.
type Refusal = (StatusCode, String);

impl<C> Default for Verbs<C> {
    fn default() -> Self {
        Self { by_name: HashMap::new() }
    }
}

impl<C> Verbs<C> {
    /// Adds a verb. `answer` gets what is kept for the connection, may block, and says in one sentence why
    /// it refuses.
    #[must_use]
    pub fn on<Q: Body, A: Body>(
        mut self,
        verb: Verb<Q, A>,
        answer: impl Fn(&mut C, Q) -> Result<A, String> + Send + Sync + 'static,
    ) -> Self {
        let answer = move |kept: &mut C, body| {
            let request = Q::from_bytes(body).map_err(malformed)?;
            let answer = answer(kept, request).map_err(|it| (StatusCode::CONFLICT, it))?;
            answer.to_bytes().map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error))
        };
        let handler = Handler { longest: Q::LONGEST, answer: Box::new(answer) };
        self.by_name.insert(verb.name, Arc::new(handler));
        self
    }

    fn paths(&self) -> Vec<String> {
        let paths = self.by_name.keys().map(|name| format!("/control/{name}"));
        let mut paths: Vec<_> = paths.collect();
        paths.sort_unstable();
        paths
    }

    /// What can be asked for.
    fn list(&self) -> Vec<u8> {
        json!({ "paths": self.paths() }).to_string().into_bytes()
    }

    fn unknown(&self) -> Refusal {
        let sentence = format!("there is no such path, only {}", self.paths().join(", "));
        (StatusCode::NOT_FOUND, sentence)
    }
}

fn malformed(sentence: impl ToString) -> Refusal {
    (StatusCode::BAD_REQUEST, ControlError::Protocol(sentence.to_string()).to_string())
}

/// Serves one connection to its end.
async fn connection<C: Default + Send + 'static>(
    stream: UnixStream,
    verbs: Arc<Verbs<C>>,
    timeouts: Timeouts,
    stop: watch::Receiver<bool>,
) {
    let kept = Arc::new(Mutex::new(C::default()));
    let has_begun = AtomicBool::new(false);
    let service = service_fn(|request| {
        has_begun.store(true, Ordering::Relaxed);
        let (verbs, kept, stop) = (Arc::clone(&verbs), Arc::clone(&kept), stop.clone());
        async move {
            let done = answer(request, &verbs, kept, timeouts.stall, stop).await;
            Ok::<_, Infallible>(response(done))
        }
    });
    let peer = TokioIo::new(Stalling { stream, stall: Stall::default(), limit: timeouts.stall });
    let mut http = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(timeouts.idle)
            // A client may close its sending side and still wait for the answer.
            .half_close(true)
            .serve_connection(peer, service)
    );
    let mut stopping = pin!(stopped(stop.clone()));
    let (mut is_stopping, mut is_new) = (false, true);
    let mut looks = pin!(sleep(timeouts.first));
    loop {
        tokio::select! {
            ended = &mut http => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection of the control socket ended");
                }
                break;
            }
            () = &mut stopping, if !is_stopping => {
                is_stopping = true;
                http.as_mut().graceful_shutdown();
                looks.as_mut().reset(Instant::now() + timeouts.stall);
            }
            () = &mut looks, if is_stopping || is_new => {
                let is_silent = !has_begun.load(Ordering::Relaxed);
                // A request that is being answered has what is kept, too.
                if is_silent || (is_stopping && Arc::strong_count(&kept) == 1) {
                    break;
                }
                is_new = false;
                looks.as_mut().reset(Instant::now() + timeouts.stall);
            }
        }
    }
    // What is kept may be a checkpoint, whose removal takes time.
    if let Err(error) = spawn_blocking(move || drop(kept)).await {
        tracing::warn!(%error, "the end of a connection of the control socket failed");
    }
}

fn response(done: Result<Vec<u8>, Refusal>) -> Response<Full<Bytes>> {
    let (status, body) = match done {
        Ok(body) => (StatusCode::OK, body),
        Err((status, error)) => (status, json!({ "error": error }).to_string().into_bytes()),
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    Peer::name_own(response.headers_mut());
    response
}

async fn answer<C: Default + Send + 'static>(
    request: Request<Incoming>,
    verbs: &Verbs<C>,
    kept: Arc<Mutex<C>>,
    stall: Duration,
    stop: watch::Receiver<bool>,
) -> Result<Vec<u8>, Refusal> {
    // Who asks by hand need not know the number.
    if let Some(peer) = Peer::of(request.headers()).filter(|it| it.protocol != PROTOCOL) {
        return Err((StatusCode::CONFLICT, peer.refusal()));
    }
    let stopping = || (StatusCode::SERVICE_UNAVAILABLE, "the service is stopping".to_owned());
    if stopped(stop.clone()).now_or_never().is_some() {
        return Err(stopping());
    }
    let path = request.uri().path();
    if matches!(path, "/" | "/control" | "/control/") {
        return Ok(verbs.list());
    }
    let name = path.strip_prefix("/control/").unwrap_or_default();
    let handler = Arc::clone(verbs.by_name.get(name).ok_or_else(|| verbs.unknown())?);
    let body = tokio::select! {
        biased;
        () = stopped(stop) => Err(stopping()),
        body = received(request.into_body(), handler.longest, stall) => body,
    }?;
    let work = move || {
        let mut kept = kept.lock();
        // After a panic nothing is kept: it would be half changed.
        let mut own = std::mem::take(&mut *kept);
        let done = (handler.answer)(&mut own, body);
        *kept = own;
        done
    };
    let done = spawn_blocking(work).await;
    done.unwrap_or_else(|error| {
        Err((StatusCode::INTERNAL_SERVER_ERROR, format!("the service failed: {error}")))
    })
}

/// Receives a body of at most `longest` bytes.
async fn received(mut body: Incoming, longest: u64, stall: Duration) -> Result<Vec<u8>, Refusal> {
    let mut bytes = Vec::new();
    loop {
        let frame = timeout(stall, body.frame()).await;
        let frame = frame.map_err(|_| {
            malformed(format_args!("nothing was received for {} s", stall.as_secs()))
        })?;
        let Some(frame) = frame.transpose().map_err(malformed)? else { return Ok(bytes) };
        if let Some(data) = frame.data_ref() {
            if (bytes.len() + data.len()) as u64 > longest {
                let sentence = format!("a body is longer than {longest} bytes");
                return Err((StatusCode::PAYLOAD_TOO_LARGE, sentence));
            }
            bytes.extend_from_slice(data);
        }
    }
}

/// A stream whose writes fail when the client does not read for too long.
struct Stalling {
    stream: UnixStream,
    stall: Stall,
    limit: Duration,
}

impl AsyncRead for Stalling {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Stalling {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Self { stream, stall, limit } = self.get_mut();
        let outcome = Pin::new(stream).poll_write(cx, bytes);
        stall.limit(cx, outcome, || Instant::now() + *limit)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Returns when `stop` turns true, or its sender is dropped.
async fn stopped(mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}
