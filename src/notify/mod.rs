//! Posts status messages to chat channels: down, up, behind, caught up. Decides when a message is
//! due and formats it for each service; the caller supplies the observations.

mod announcer;
mod target;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

pub use announcer::{Announcer, Kind, Lag, Message, Observation};
pub use target::{Target, TargetError};

use crate::net::http::{self, HttpError, Timeouts};
use crate::net::reqwest;

/// Interval between two observations of the service.
const OBSERVE_INTERVAL: Duration = Duration::from_secs(1);
/// Number of messages that may wait for a channel that does not answer; further ones are dropped.
const MAX_WAITING: usize = 8;
/// Delays before the second and further attempts to send a message.
const RETRY_DELAYS: [Duration; 3] =
    [Duration::from_secs(2), Duration::from_secs(10), Duration::from_secs(30)];
/// Longest delay that is honoured when a channel asks for one.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Observes the service and posts messages until `stop` becomes true. Never waits for a channel.
///
/// # Errors
/// When the HTTP client cannot be created.
pub async fn run(
    targets: Vec<Target>,
    observe: Arc<dyn Fn() -> Observation + Send + Sync>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), HttpError> {
    let client = http::client(Timeouts::default())?;
    let mut workers = JoinSet::new();
    let queues: Vec<_> = targets
        .into_iter()
        .map(|target| {
            let (queue, waiting) = mpsc::channel(MAX_WAITING);
            workers.spawn(post_all(target, client.clone(), waiting));
            queue
        })
        .collect();
    let mut announcer = Announcer::default();
    loop {
        tokio::select! {
            () = sleep(OBSERVE_INTERVAL) => {}
            // Messages not sent by now are dropped with the workers.
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
        }
        if let Some(message) = announcer.observe(Instant::now(), &observe()) {
            tracing::info!(status = message.kind.name(), "status message: {}", message.text);
            for queue in &queues {
                if queue.try_send(message.clone()).is_err() {
                    tracing::warn!("a status message was dropped: its channel does not respond");
                }
            }
        }
    }
}

async fn post_all(target: Target, client: reqwest::Client, mut waiting: mpsc::Receiver<Message>) {
    while let Some(message) = waiting.recv().await {
        if let Err(error) = post(&target, &client, &message).await {
            tracing::warn!("a status message could not be sent to {}: {error}", target.name());
        }
    }
}

/// Sends a message, with retries if the error is temporary.
async fn post(
    target: &Target,
    client: &reqwest::Client,
    message: &Message,
) -> Result<(), TargetError> {
    let mut waits = RETRY_DELAYS.into_iter();
    loop {
        let error = match target.send(client, message).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let Some(wait) = waits.next().filter(|_| error.is_retryable()) else { return Err(error) };
        tracing::debug!("a status message to {} will be retried: {error}", target.name());
        sleep(error.retry_after().unwrap_or_default().clamp(wait, MAX_RETRY_AFTER)).await;
    }
}

#[cfg(test)]
mod tests;
