//! Sends a request again that a server may answer differently a moment later.

use std::time::Duration;

use tokio::time::sleep;

use super::transport::{Passes, refusal};

/// How often a request is sent, and how long is waited in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Delays between two requests; there is one request more.
    delays: &'static [Duration],
    /// Maximum delay that a server may ask for; one that asks for more is not asked again.
    longest: Duration,
    /// Whether a request without an answer is sent again.
    without_answer: bool,
}

impl Default for Patience {
    fn default() -> Self {
        Self::SHORT
    }
}

impl Patience {
    /// For callers that soon ask again, and perhaps another source meanwhile, but from the beginning,
    /// which a server that refuses every second request would never let pass.
    pub const SHORT: Self = Self {
        delays: &[Duration::from_millis(100), Duration::from_millis(400)],
        // A server that names a time is not asked before the caller decides what to do meanwhile.
        longest: Duration::ZERO,
        without_answer: false,
    };
    /// For work that would otherwise be lost: half a minute.
    pub const LONG: Self = Self {
        delays: &[
            Duration::from_millis(250),
            Duration::from_secs(1),
            Duration::from_secs(2),
            Duration::from_secs(4),
            Duration::from_secs(8),
            Duration::from_secs(15),
        ],
        longest: Duration::from_secs(60),
        without_answer: true,
    };

    /// Returns the answer to a request, which `send` sends, and sends again after a failure that may
    /// be over by then.
    ///
    /// # Errors
    /// The error of the last request.
    pub async fn ask<T, Answer>(self, mut send: impl FnMut() -> Answer) -> object_store::Result<T>
    where
        Answer: Future<Output = object_store::Result<T>>,
    {
        for delay in self.delays {
            let error = match send().await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let Some(asked) = self.delay_after(&error) else { return Err(error) };
            let words = refusal(&error);
            tracing::debug!("a request is sent again: {words}");
            sleep(asked.max(*delay)).await;
        }
        send().await
    }

    /// Returns the minimum delay that the server asks for; `None` when the request is not to be sent
    /// again.
    fn delay_after(self, error: &object_store::Error) -> Option<Duration> {
        let super::Refusal::Failed { delay, passes, .. } = refusal(error) else { return None };
        let again = match passes {
            Passes::No => false,
            Passes::Server => true,
            Passes::Connection => self.without_answer,
        };
        delay.or(Some(Duration::ZERO)).filter(|delay| again && *delay <= self.longest)
    }
}
