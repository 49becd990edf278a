//! The body of a file on a web server, read to its end also when the connection breaks.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use orrery_net::http::HttpError;
use orrery_net::reqwest::header::CONTENT_RANGE;
use orrery_net::reqwest::{Method, Response, StatusCode, Url};

use crate::error::{CheckpointError, Result};
use crate::server::Server;

/// Number of times that a file is continued after a broken connection.
const CONTINUATIONS: u32 = 5;
/// Delay before the first of them; each further one waits twice as long.
const FIRST_DELAY: Duration = Duration::from_millis(250);
/// Minimum rate of a file, in bytes per second, after the grace period: a server that is slower would
/// need weeks for the state of the public network.
const MIN_RATE: u64 = 4 << 10;
/// Time in which a file may be slower.
const GRACE_PERIOD: Duration = Duration::from_secs(60);

/// A reader of a response's body. Its errors are of this crate.
pub(crate) struct Body {
    server: Server,
    url: Url,
    shown: String,
    response: Response,
    /// What was received and not read yet.
    piece: Bytes,
    received: u64,
    continuations: u32,
    began: Instant,
}

impl Body {
    pub fn new(server: Server, url: Url, shown: String, response: Response) -> Self {
        let (piece, began) = (Bytes::new(), Instant::now());
        Self { server, url, shown, response, piece, received: 0, continuations: 0, began }
    }

    /// Receives the next piece; an empty one at the end.
    fn receive(&mut self) -> Result<Bytes> {
        loop {
            self.check_rate()?;
            let received = self.server.runtime.block_on(self.response.chunk());
            match received {
                Ok(None) => return Ok(Bytes::new()),
                Ok(Some(piece)) if piece.is_empty() => {}
                Ok(Some(piece)) => {
                    self.received += piece.len() as u64;
                    return Ok(piece);
                }
                Err(error) => self.go_on(&HttpError::from(error))?,
            }
        }
    }

    fn check_rate(&self) -> Result<()> {
        let counted = self.began.elapsed().saturating_sub(GRACE_PERIOD);
        if self.received >= counted.as_secs() * MIN_RATE {
            return Ok(());
        }
        let reason = format!("the server sends fewer than {MIN_RATE} bytes per second");
        Err(CheckpointError::unreadable(&self.shown, reason))
    }

    /// Requests the rest of a file whose connection broke.
    fn go_on(&mut self, error: &HttpError) -> Result<()> {
        let broken = || CheckpointError::unreadable(&self.shown, error);
        if self.continuations == CONTINUATIONS {
            return Err(broken());
        }
        // The caller blocks on this file anyway.
        std::thread::sleep(FIRST_DELAY * (1 << self.continuations));
        self.continuations += 1;
        let rest = self.server.request(Method::GET, &self.url, &self.shown, self.received)?;
        let begins = format!("bytes {}-", self.received);
        let fits = |response: &Response| {
            let range = response.headers().get(CONTENT_RANGE).and_then(|range| range.to_str().ok());
            response.status() == StatusCode::PARTIAL_CONTENT
                && range.is_some_and(|range| range.starts_with(&begins))
                // From the beginning on, when nothing was received.
                || self.received == 0 && response.status() == StatusCode::OK
        };
        // A server that sends the whole file again is given up: the caller begins anew.
        self.response = rest.filter(fits).ok_or_else(broken)?;
        Ok(())
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.piece.is_empty() {
            self.piece = self.receive().map_err(io::Error::other)?;
        }
        let count = self.piece.len().min(buffer.len());
        self.piece.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}
