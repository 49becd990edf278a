//! Notifies the supervisor that started the service: that the service is ready, that it is alive,
//! which ledger is stored, and that it stops. The protocol is that of systemd (sd_notify(3)); without
//! such a supervisor nothing is sent.

use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::Node;
use super::stop::stopped;

/// Interval between two status lines when the supervisor has no watchdog.
const STATUS_INTERVAL: Duration = Duration::from_secs(30);

/// Reports that the service is ready, then sends watchdog notifications until the future is
/// dropped, also while the service stops. Each is sent only after a thread of the blocking pool has
/// read the state of the store, so none is sent while timers, threads or the store's locks are
/// stuck.
pub(super) async fn notify_supervisor(node: Arc<Node>, stop: watch::Receiver<bool>) {
    // Half the watchdog timeout, as sd_watchdog_enabled(3) recommends.
    let watchdog = sd_notify::watchdog_enabled().map(|most| most / 2);
    let every = watchdog.unwrap_or(STATUS_INTERVAL).max(Duration::from_millis(1));
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    send_status(&node, NotifyState::Ready).await;
    let mut stopping = false;
    loop {
        let state = tokio::select! {
            _ = ticks.tick() => NotifyState::Watchdog,
            () = stopped(stop.clone()), if !stopping => {
                stopping = true;
                NotifyState::Stopping
            }
        };
        send_status(&node, state).await;
    }
}

/// Sends a state together with the newest stored ledger.
async fn send_status(node: &Arc<Node>, state: NotifyState<'static>) {
    let node = Arc::clone(node);
    let sent = spawn_blocking(move || {
        let stored = match node.store().status().latest() {
            Some(ledger) => format!("latest ledger {}", ledger.0),
            None => "no ledger is stored yet".to_owned(),
        };
        let status = match state {
            NotifyState::Stopping => format!("stopping, {stored}"),
            _ => stored,
        };
        sd_notify::notify(&[state, NotifyState::Status(&status)])
    });
    match sent.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!("the supervisor cannot be notified: {error}"),
        Err(error) => tracing::warn!("the supervisor was not notified: {error}"),
    }
}
