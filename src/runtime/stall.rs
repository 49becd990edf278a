//! A limit on the time for which a write makes no progress, because the peer does not read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep};

/// Ends the writes of one stream that make no progress for too long.
#[derive(Default)]
pub struct Stall {
    /// Set while the peer does not read.
    ends: Option<Pin<Box<Sleep>>>,
}

impl Stall {
    /// Returns the outcome of a write, or [`io::ErrorKind::TimedOut`] when the time is over that `ends`
    /// returned when the writes began to wait.
    ///
    /// # Errors
    /// Those of the write, and that one.
    pub fn limit<T>(
        &mut self,
        cx: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
        ends: impl FnOnce() -> Instant,
    ) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.ends = None;
            return outcome;
        }
        let sleep = self.ends.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(ends())));
        ready!(sleep.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}
