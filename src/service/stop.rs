//! The signal with which the tasks of a service are stopped.

use tokio::sync::watch;

/// Returns whether `stop` has turned true or its sender is dropped.
pub(super) fn is_stopping(stop: &watch::Receiver<bool>) -> bool {
    *stop.borrow() || stop.has_changed().is_err()
}

/// Returns when `stop` turns true or its sender is dropped.
pub(super) async fn stopped(mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}
