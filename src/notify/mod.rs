//! Status messages to a chat channel: down, up, behind, caught up. Knows when something is worth saying
//! and how the services want it said; what is observed comes from outside.

mod announcer;
mod target;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

pub use announcer::{Announcer, Kind, Lag, Message, Observation};
pub use target::{Target, TargetError};

use crate::source::http::{self, HttpError, Timeouts};

/// Between two looks at the service.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Messages that may wait for a channel that does not answer; further ones are dropped.
const MOST_WAITING: usize = 8;
/// Waits between the attempts to send one message.
const RETRY_AFTER: [Duration; 3] =
    [Duration::from_secs(2), Duration::from_secs(10), Duration::from_secs(30)];
/// The longest wait that a channel may ask for.
const LONGEST_ASKED_WAIT: Duration = Duration::from_secs(60);

/// Posts what is worth saying until `stop` turns true. Never waits for a channel.
///
/// # Errors
/// When there can be no HTTP client.
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
            let (queue, waiting) = mpsc::channel(MOST_WAITING);
            workers.spawn(post_all(target, client.clone(), waiting));
            queue
        })
        .collect();
    let mut announcer = Announcer::default();
    loop {
        tokio::select! {
            () = sleep(LOOK_EVERY) => {}
            // What has not been sent by now is dropped with the workers.
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
        }
        if let Some(message) = announcer.observe(Instant::now(), &observe()) {
            tracing::info!(status = message.kind.word(), "status message: {}", message.text);
            for queue in &queues {
                if queue.try_send(message.clone()).is_err() {
                    tracing::warn!("a status message is dropped: its channel does not answer");
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

/// Sends a message, some times if need be.
async fn post(
    target: &Target,
    client: &reqwest::Client,
    message: &Message,
) -> Result<(), TargetError> {
    let mut waits = RETRY_AFTER.into_iter();
    loop {
        let error = match target.send(client, message).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let Some(wait) = waits.next().filter(|_| error.may_pass()) else { return Err(error) };
        tracing::debug!("a status message to {} is tried again: {error}", target.name());
        sleep(error.asked_wait().unwrap_or_default().clamp(wait, LONGEST_ASKED_WAIT)).await;
    }
}

#[cfg(test)]
mod tests;
