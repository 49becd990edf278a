//! An HTTP/1.1 connection to a server, over which requests are made one after the other. Its I/O is
//! driven only by the future that waits for a response, not by a background task: when the attempt
//! is aborted, the connection is closed at once, and data of the request that the kernel has
//! buffered but not sent is discarded.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use orrery_net::http::{HttpError, root_cause};
use orrery_net::tls::TlsStream;

/// Maximum length of a response head, in bytes.
const LONGEST_HEAD: usize = 64 << 10;

/// Request body.
pub type Body = Full<Bytes>;

type IoDriver = Pin<Box<http1::Connection<TokioIo<Socket>, Body>>>;

/// An HTTP/1.1 connection.
pub struct Connection {
    requests: SendRequest<Body>,
    /// Drives the connection's I/O; `None` when the connection has ended.
    io_driver: Option<IoDriver>,
    /// Whether a request has begun and its response has not ended.
    is_busy: Arc<AtomicBool>,
}

/// Why there is no response.
pub enum SendError {
    /// The connection had ended before any of the request was sent; the request can be sent over
    /// another one.
    Unsent(Box<Request<Body>>),
    /// The request may have been sent.
    Sent(HttpError),
}

impl Connection {
    /// Starts HTTP/1.1 on a stream.
    ///
    /// # Errors
    /// [`HttpError::Broken`]
    pub async fn over(stream: Stream) -> Result<Self, HttpError> {
        let is_busy = Arc::<AtomicBool>::default();
        let socket = Socket { stream, is_busy: Arc::clone(&is_busy) };
        let mut builder = http1::Builder::new();
        let handshake = builder.max_buf_size(LONGEST_HEAD).handshake(TokioIo::new(socket)).await;
        let (requests, io_driver) = handshake.map_err(broken)?;
        Ok(Self { requests, io_driver: Some(Box::pin(io_driver)), is_busy })
    }

    /// Sends a request, and waits for the response head. The body is read with [`Self::next_chunk`].
    pub async fn send_request(
        &mut self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, SendError> {
        self.is_busy.store(true, Ordering::Relaxed);
        let answer = self.requests.try_send_request(request);
        let answer = drive(&mut self.io_driver, answer).await;
        answer.map_err(|mut failed| match failed.take_message() {
            Some(request) => SendError::Unsent(Box::new(request)),
            None => SendError::Sent(broken(failed.into_error())),
        })
    }

    /// Returns the next chunk of a response body; `None` at its end, or when the connection breaks.
    /// After the end, the connection can be reused.
    pub async fn next_chunk(&mut self, body: &mut Incoming) -> Option<Bytes> {
        loop {
            match drive(&mut self.io_driver, body.frame()).await {
                None => {
                    self.is_busy.store(false, Ordering::Relaxed);
                    return None;
                }
                Some(Err(_)) => return None,
                // Trailers are ignored.
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(chunk) => return Some(chunk),
                    Err(_) => continue,
                },
            }
        }
    }

    /// Whether another request can be sent, as far as can be determined without sending one.
    pub fn is_usable(&mut self) -> bool {
        let Some(io_driver) = &mut self.io_driver else { return false };
        // Detects what the peer has done meanwhile. The next use of the connection registers its
        // own waker.
        let mut noop_context = Context::from_waker(Waker::noop());
        if io_driver.as_mut().poll(&mut noop_context).is_ready() {
            self.io_driver = None;
            return false;
        }
        !self.is_busy.load(Ordering::Relaxed) && self.requests.is_ready()
    }
}

/// Drives the connection's I/O until `work` completes.
async fn drive<T>(io_driver: &mut Option<IoDriver>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| {
        let done = work.as_mut().poll(context);
        if done.is_ready() {
            return done;
        }
        if let Some(running) = io_driver
            && running.as_mut().poll(context).is_ready()
        {
            // The future that waits for the response receives the reason.
            *io_driver = None;
        }
        work.as_mut().poll(context)
    })
    .await
}

fn broken(error: hyper::Error) -> HttpError {
    HttpError::Broken(root_cause(&error))
}

/// Byte stream under a connection.
pub enum Stream {
    /// Unencrypted TCP.
    Plain(TcpStream),
    /// TLS over TCP.
    Tls(Box<TlsStream>),
}

/// A stream that is reset instead of closed when it is dropped during a request.
struct Socket {
    stream: Stream,
    is_busy: Arc<AtomicBool>,
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.is_busy.load(Ordering::Relaxed) {
            let tcp = match &self.stream {
                Stream::Plain(tcp) => tcp,
                Stream::Tls(tls) => tls.get_ref().0,
            };
            // Does not wait until buffered data has been sent (SO_LINGER, socket(7)).
            if let Err(error) = tcp.set_zero_linger() {
                tracing::debug!("a connection is closed, because it cannot be reset: {error}");
            }
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(context, parts),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(context, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
