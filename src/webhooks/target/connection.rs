//! One connection to a server, over which one request is made after the other. Whoever waits for something drives it,
//! and nobody else: when its attempt is broken off, it is closed at once, and what the system has taken of the request
//! and not sent yet goes nowhere.

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

use crate::source::http::{HttpError, root_cause};
use crate::source::tls::TlsStream;

/// Bytes of the head of an answer that are read at the most.
const LONGEST_HEAD: usize = 64 << 10;

/// What is sent.
pub type Body = Full<Bytes>;

type Exchange = Pin<Box<http1::Connection<TokioIo<Socket>, Body>>>;

/// A connection.
pub struct Connection {
    requests: SendRequest<Body>,
    /// Reads and writes; none when the connection has ended.
    exchange: Option<Exchange>,
    /// Whether a request has begun and its answer has not ended.
    is_busy: Arc<AtomicBool>,
}

/// Why there is no answer.
pub enum Failed {
    /// The connection had ended before any of the request was sent: it can be sent over another one.
    Unsent(Box<Request<Body>>),
    /// It may have been sent.
    Sent(HttpError),
}

impl Connection {
    /// Speaks HTTP/1.1 over a stream.
    ///
    /// # Errors
    /// [`HttpError::Broken`]
    pub async fn over(stream: Stream) -> Result<Self, HttpError> {
        let is_busy = Arc::<AtomicBool>::default();
        let socket = Socket { stream, is_busy: Arc::clone(&is_busy) };
        let mut builder = http1::Builder::new();
        let shaken = builder.max_buf_size(LONGEST_HEAD).handshake(TokioIo::new(socket)).await;
        let (requests, exchange) = shaken.map_err(broken)?;
        Ok(Self { requests, exchange: Some(Box::pin(exchange)), is_busy })
    }

    /// Sends a request, and waits for the head of the answer. Its body is read with [`Self::piece`].
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn ask(&mut self, request: Request<Body>) -> Result<Response<Incoming>, Failed> {
        self.is_busy.store(true, Ordering::Relaxed);
        let answer = self.requests.try_send_request(request);
        let answer = drive(&mut self.exchange, answer).await;
        answer.map_err(|mut failed| match failed.take_message() {
            Some(request) => Failed::Unsent(Box::new(request)),
            None => Failed::Sent(broken(failed.into_error())),
        })
    }

    /// The next piece of an answer's body; none at its end, or when the connection breaks. At the end the
    /// connection may be used again.
    pub async fn piece(&mut self, body: &mut Incoming) -> Option<Bytes> {
        loop {
            match drive(&mut self.exchange, body.frame()).await {
                None => {
                    self.is_busy.store(false, Ordering::Relaxed);
                    return None;
                }
                Some(Err(_)) => return None,
                // Trailers are nobody's here.
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(piece) => return Some(piece),
                    Err(_) => continue,
                },
            }
        }
    }

    /// Whether another request can be sent, as far as can be told without sending one.
    pub fn is_usable(&mut self) -> bool {
        let Some(exchange) = &mut self.exchange else { return false };
        // Notices what the other side has done meanwhile. Who uses the connection will be woken again.
        let mut nobody = Context::from_waker(Waker::noop());
        if exchange.as_mut().poll(&mut nobody).is_ready() {
            self.exchange = None;
            return false;
        }
        !self.is_busy.load(Ordering::Relaxed) && self.requests.is_ready()
    }
}

/// Waits for something that a connection has to read or write for.
async fn drive<T>(exchange: &mut Option<Exchange>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| {
        let done = work.as_mut().poll(context);
        if done.is_ready() {
            return done;
        }
        if let Some(running) = exchange
            && running.as_mut().poll(context).is_ready()
        {
            // Why it has ended is told to whoever waits for an answer.
            *exchange = None;
        }
        work.as_mut().poll(context)
    })
    .await
}

fn broken(error: hyper::Error) -> HttpError {
    HttpError::Broken(root_cause(&error))
}

/// What a connection is made of.
pub enum Stream {
    /// It is read by everybody on the way.
    Plain(TcpStream),
    /// It is encrypted.
    Tls(Box<TlsStream>),
}

/// A stream that is reset, instead of closed, when it is dropped within a request.
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
            // Without waiting for anything to be sent (SO_LINGER, socket(7)).
            if let Err(error) = tcp.set_zero_linger() {
                tracing::debug!("a connection is closed, and not reset: {error}");
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
