//! Client side of the control socket, used by the command line: blocking, one request at a time.

use std::error::Error;
use std::io;
use std::panic::resume_unwind;
use std::path::Path;
use std::thread;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{HOST, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tokio::time::timeout;

use super::verb::{Body, LONGEST_ANSWER, Verb};
use super::{ControlError, PROTOCOL, Peer, SocketPath};

/// Timeout for the first answer, which a working service gives at once.
const FIRST_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a connection ended that worked after the last request.
const BETWEEN_REQUESTS: &str =
    ": it is stopping or has stopped, or nothing was asked on the connection for ten minutes";

/// A connection to the running service that has a data directory open.
pub struct Client {
    path: SocketPath,
    /// Drives the connection during a request; `None` while this is dropped.
    runtime: Option<Runtime>,
    requests: SendRequest<Full<Bytes>>,
}

impl Client {
    /// Connects to the service of `data_dir`. Returns `None` when no service is listening there.
    pub fn connect(data_dir: &Path) -> Result<Option<Self>, ControlError> {
        let path = SocketPath::new(data_dir)?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| path.error(error))?;
        let connect = async {
            let stream = UnixStream::connect(path.short(SocketPath::NAME)).await?;
            io::Result::Ok(handshake(TokioIo::new(stream)).await)
        };
        let shaken = match wait_for(&runtime, connect) {
            Ok(shaken) => shaken,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                ) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(path.error(error)),
        };
        let (requests, connection) = shaken.map_err(|error| ended(&path, &error))?;
        runtime.spawn(connection);
        let mut client = Self { path, runtime: Some(runtime), requests };
        client.request("", Vec::new(), FIRST_TIMEOUT)?;
        Ok(Some(client))
    }

    /// Asks the service. Storing ledgers takes as long as the disk needs, so this has no time limit.
    pub fn ask<Q: Body, A: Body>(
        &mut self,
        verb: Verb<Q, A>,
        request: &Q,
    ) -> Result<A, ControlError> {
        let body = request.to_bytes().map_err(ControlError::Protocol)?;
        let answer = self.request(verb.name, body, Duration::MAX)?;
        A::from_bytes(answer).map_err(ControlError::Protocol)
    }

    /// Returns the body of the answer of the path `/control/NAME`.
    ///
    /// # Errors
    /// When the service refuses, its connection has ended, or nothing was answered in `time`.
    pub(super) fn request(
        &mut self,
        name: &str,
        body: Vec<u8>,
        time: Duration,
    ) -> Result<Vec<u8>, ControlError> {
        let mut request = Request::new(Full::from(body));
        *request.method_mut() = Method::POST;
        let uri = format!("/control/{name}").parse();
        *request.uri_mut() = uri.map_err(|error| ControlError::Protocol(format!("{error}")))?;
        request.headers_mut().insert(HOST, HeaderValue::from_static("orrery"));
        Peer::name_own(request.headers_mut());
        let Self { path, runtime: Some(runtime), requests } = self else {
            return Err(ControlError::Closed(""));
        };
        let exchange = async {
            // The connection runs only now: twice, to learn of its end and to pass that on.
            for _ in 0..2 {
                yield_now().await;
            }
            let ready = requests.ready().await;
            ready.map_err(|_| ControlError::Closed(BETWEEN_REQUESTS))?;
            let response = requests.send_request(request).await;
            let (head, body) = response.map_err(|error| ended(path, &error))?.into_parts();
            let peer = Peer::of(&head.headers).unwrap_or_default();
            if peer.protocol != PROTOCOL {
                return Err(ControlError::Refused(peer.refusal()));
            }
            let body = Limited::new(body, LONGEST_ANSWER).collect().await;
            let body = body.map_err(|error| match error.downcast_ref() {
                Some(error) => ended(path, error),
                None => ControlError::Protocol(error.to_string()),
            })?;
            Ok((head.status, body.to_bytes().to_vec()))
        };
        let answered = wait_for(runtime, async { timeout(time, exchange).await });
        let silent = |_| {
            let sentence = format!("the running service has not answered for {} s", time.as_secs());
            path.error(io::Error::new(io::ErrorKind::TimedOut, sentence))
        };
        match answered.map_err(silent)?? {
            (StatusCode::OK, body) => Ok(body),
            (StatusCode::SERVICE_UNAVAILABLE, _) => Err(ControlError::Closed(": it is stopping")),
            (_, body) => Err(ControlError::Refused(sentence(&body))),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Never waits, so that this may be dropped by an asynchronous task.
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// Waits for a future on a thread of its own, because the calling thread may serve asynchronous tasks, in
/// which a runtime cannot be entered.
fn wait_for<T: Send>(runtime: &Runtime, future: impl Future<Output = T> + Send) -> T {
    let waited = thread::scope(|scope| scope.spawn(|| runtime.block_on(future)).join());
    waited.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Returns the sentence of an answer that refuses.
fn sentence(body: &[u8]) -> String {
    let error = serde_json::from_slice::<Value>(body).ok();
    let error = error.and_then(|body| Some(body.get("error")?.as_str()?.to_owned()));
    error.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned())
}

fn ended(path: &SocketPath, error: &hyper::Error) -> ControlError {
    if error.is_parse() {
        return ControlError::Refused(Peer::default().refusal());
    }
    let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    let Some(source) = source else { return ControlError::Closed("") };
    match source.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe => ControlError::Closed(""),
        kind => path.error(source.raw_os_error().map_or_else(
            || io::Error::new(kind, source.to_string()),
            io::Error::from_raw_os_error,
        )),
    }
}
