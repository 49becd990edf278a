//! The signal with which the tasks of a service are stopped.

use tokio::sync::watch;

/// Returns when `stop` turns true or its sender is dropped.
pub(super) async fn stopped(mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}
