//! The socket of a connection, with two features that the HTTP library lacks: it disconnects
//! clients that read too slowly, and answers requests that are not HTTP in JSON.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::time::Instant;

use super::budgets::RETRY_AFTER;
use super::client::Client;
use super::error;
use orrery_runtime::stall::Stall;

/// A TCP stream that limits how long a write may stall, and how long responses may take to be sent.
pub(super) struct Wire {
    client: Arc<Client>,
    stream: OwnedWriteHalf,
    limit: Duration,
    stall: Stall,
    /// Whether the end of a line has been read since the last write.
    has_line: bool,
    replacement: Option<Replacement>,
    /// Whether an error response of the HTTP library has been replaced on this connection.
    replaced_error: bool,
}

/// Bytes that are written in place of those from the HTTP library.
struct Replacement {
    bytes: Vec<u8>,
    written: usize,
    /// Number of bytes that are replaced.
    replaced_bytes: usize,
}

impl Wire {
    pub(super) fn new(client: Arc<Client>, stream: OwnedWriteHalf, limit: Duration) -> Self {
        Self {
            client,
            stream,
            limit,
            stall: Stall::default(),
            has_line: false,
            replacement: None,
            replaced_error: false,
        }
    }

    /// Whether a request that is not HTTP has been answered.
    pub(super) fn has_replaced_error(&self) -> bool {
        self.replaced_error
    }

    /// Returns the outcome of a write, or [`io::ErrorKind::TimedOut`] when the client has not read
    /// for too long.
    fn fail_if_stalled<T>(
        &mut self,
        cx: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let (limit, client) = (self.limit, &self.client);
        self.stall.limit(cx, outcome, || {
            let ends = Instant::now() + limit;
            client.deadline().map_or(ends, |deadline| deadline.min(ends))
        })
    }

    fn poll_replacement(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        while let Some(replacement) = &mut self.replacement {
            let rest = &replacement.bytes[replacement.written..];
            if rest.is_empty() {
                let length = replacement.replaced_bytes;
                self.replacement = None;
                return Poll::Ready(Ok(length));
            }
            let outcome = Pin::new(&mut self.stream).poll_write(cx, rest);
            let written = ready!(self.fail_if_stalled(cx, outcome))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            if let Some(replacement) = &mut self.replacement {
                replacement.written += written;
            }
        }
        Poll::Ready(Ok(0))
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let client = Arc::clone(&self.client);
        let stream: &TcpStream = client.read_half().as_ref();
        loop {
            ready!(stream.poll_read_ready(cx))?;
            match stream.try_read_buf(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => {
                    self.has_line = self.has_line || buffer.filled().contains(&b'\n');
                    if !buffer.filled().is_empty() {
                        client.note_read();
                    }
                    return Poll::Ready(outcome.map(drop));
                }
            }
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.replacement.is_none()
            && let Some(better) = json_for_bare_error(bytes, self.has_line)
        {
            let replaced_bytes = bytes.len();
            self.replacement = Some(Replacement { bytes: better, written: 0, replaced_bytes });
            self.replaced_error = true;
        }
        if self.replacement.is_some() {
            return self.poll_replacement(cx);
        }
        self.has_line = false;
        let outcome = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.fail_if_stalled(cx, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let first = slices.iter().find(|slice| !slice.is_empty()).map_or(&[][..], |slice| slice);
        if self.replacement.is_some() || json_for_bare_error(first, true).is_some() {
            return self.poll_write(cx, first);
        }
        self.has_line = false;
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.fail_if_stalled(cx, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Status, code and message for a path and query that are too long.
const URI_TOO_LONG: (&str, &str, &str) = (
    "414 URI Too Long",
    "uri_too_long",
    "the path and query are too long: ask for fewer values at a time",
);

/// Returns the JSON response that replaces a bare error response. The HTTP library answers what it
/// cannot parse with a bare status line, recognisable by the lack of a request id. It does not
/// report which part of a head is too large: before the end of the first line (`has_line`), it is
/// the path and query.
fn json_for_bare_error(bytes: &[u8], has_line: bool) -> Option<Vec<u8>> {
    let status = bytes.strip_prefix(b"HTTP/1.")?.get(1..5)?;
    if status[..2] != *b" 4" || !bytes.ends_with(b"\r\n\r\n") {
        return None;
    }
    let head = std::str::from_utf8(bytes).ok()?;
    if head.contains("\r\nx-request-id:") {
        return None;
    }
    let (status, code, sentence) = match &status[1..] {
        b"414" => URI_TOO_LONG,
        b"431" if !has_line => URI_TOO_LONG,
        b"431" => (
            "431 Request Header Fields Too Large",
            "headers_too_large",
            "the request's headers, or the body that they announce, are too large: send less",
        ),
        _ => (
            "400 Bad Request",
            "bad_request",
            "the request is not well-formed HTTP/1.1: check its request line and headers, and percent-encode the path and query",
        ),
    };
    Some(complete_response(status, code, sentence))
}

/// Builds a complete response for a connection on which the HTTP library parsed no request, or
/// which was refused. The connection is closed after it.
pub(super) fn complete_response(status: &str, code: &str, sentence: &str) -> Vec<u8> {
    let body = error::body(code, sentence);
    let retry_after =
        if status.starts_with("429") { &format!("retry-after: {RETRY_AFTER}\r\n") } else { "" };
    let head = [
        &format!("HTTP/1.1 {status}"),
        "content-type: application/json",
        &format!("content-length: {}", body.len()),
        &format!("{retry_after}connection: close"),
        "\r\n",
    ];
    let mut answer = head.join("\r\n").into_bytes();
    answer.extend_from_slice(&body);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_client_errors_without_a_body_are_replaced() {
        let bare = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        let better = String::from_utf8(json_for_bare_error(bare, true).unwrap()).unwrap();
        assert!(better.starts_with("HTTP/1.1 400 Bad Request\r\n"));
        let (_, body) = better.split_once("\r\n\r\n").unwrap();
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["code"], "bad_request");
        let large = b"HTTP/1.1 431 X\r\ncontent-length: 0\r\n\r\n";
        for (has_line, status) in [(true, "HTTP/1.1 431 "), (false, "HTTP/1.1 414 ")] {
            let better = json_for_bare_error(large, has_line).unwrap();
            assert!(better.starts_with(status.as_bytes()));
        }
        for other in [
            &b"HTTP/1.1 200 OK\r\n\r\n"[..],
            b"HTTP/1.1 404 Not Found\r\nx-request-id: 1\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\n",
            b"HTTP/1.1 4",
            b"",
            b"[]",
        ] {
            assert!(json_for_bare_error(other, true).is_none());
        }
    }
}
