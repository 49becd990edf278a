//! Removes old data, and measures the store, at regular intervals.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::Node;
use super::stop::stopped;

/// Name under which retention reports to health.
pub(super) const RETENTION: &str = "retention";

/// Interval between two prunes.
const PRUNE_EVERY: Duration = Duration::from_secs(10);

/// Number of prunes between two measurements of the store's size.
const MEASURE_EVERY: u32 = 6;

/// Removes what retention no longer keeps, and reports sizes and consumers, until `stop` turns true.
pub(super) async fn prune_regularly(node: Arc<Node>, stop: watch::Receiver<bool>) {
    for round in 0u32.. {
        let work = Arc::clone(&node);
        let done = spawn_blocking(move || {
            work.prune()?;
            work.report_consumers();
            if round % MEASURE_EVERY == 0 { work.measure() } else { Ok(()) }
        });
        let failure = match done.await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        match failure {
            None => node.health().up(RETENTION),
            Some(error) => {
                tracing::error!("retention could not remove old data: {error}");
                let reason = "old data could not be removed: the log says why";
                node.health().down(RETENTION, reason);
            }
        }
        tokio::select! {
            () = tokio::time::sleep(PRUNE_EVERY) => {}
            () = stopped(stop.clone()) => return,
        }
    }
}
