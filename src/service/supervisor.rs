//! What the supervisor that started the service is told: how far an upgrade of the store is, that the service is ready,
//! that it is alive, what it has stored, and that it stops. The protocol is that of systemd (sd_notify(3)); without one
//! nothing is said.

use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::{Ledgers, stopped};
use crate::store::UpgradeStep;

/// Between two lines about what is stored, where the supervisor asks for no sign of life.
const TELL_EVERY: Duration = Duration::from_secs(30);

/// How long nothing may be heard of an upgrade until the supervisor gives it up, in microseconds.
const UPGRADE_GOES_ON_WITHIN: u32 = 300_000_000;

/// Says how far an upgrade of the store is, and that the start takes longer for it: as long as it goes on, the
/// supervisor's own limit does not hold.
pub(super) fn upgrading(UpgradeStep { what, ledger, last }: UpgradeStep<'_>) {
    let status = format!("upgrading the store: {what}, ledger {ledger} of {last}");
    let states =
        [NotifyState::ExtendTimeoutUsec(UPGRADE_GOES_ON_WITHIN), NotifyState::Status(&status)];
    if let Err(error) = sd_notify::notify(&states) {
        tracing::warn!("the supervisor cannot be told: {error}");
    }
}

/// Says that the service is ready, then goes on with signs of life until it is dropped, also while the
/// service stops. A sign goes out only after a thread of the pool has read the state of the store: when
/// timers, threads or the store's locks are stuck, none does.
pub(super) async fn tell(ledgers: Arc<Ledgers>, stop: watch::Receiver<bool>) {
    // Two signs in the time after which one counts as missing, as sd_watchdog_enabled(3) recommends.
    let watchdog = sd_notify::watchdog_enabled().map(|most| most / 2);
    let every = watchdog.unwrap_or(TELL_EVERY).max(Duration::from_millis(1));
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    say(&ledgers, NotifyState::Ready).await;
    let mut stopping = false;
    loop {
        let state = tokio::select! {
            _ = ticks.tick() => NotifyState::Watchdog,
            () = stopped(stop.clone()), if !stopping => {
                stopping = true;
                NotifyState::Stopping
            }
        };
        say(&ledgers, state).await;
    }
}

/// Tells a state, and what is stored.
async fn say(ledgers: &Arc<Ledgers>, state: NotifyState<'static>) {
    let ledgers = Arc::clone(ledgers);
    let said = spawn_blocking(move || {
        let stored = match ledgers.store().status().latest() {
            Some(ledger) => format!("latest ledger {}", ledger.0),
            None => "no ledger is stored yet".to_owned(),
        };
        let status = match state {
            NotifyState::Stopping => format!("stopping, {stored}"),
            _ => stored,
        };
        sd_notify::notify(&[state, NotifyState::Status(&status)])
    });
    match said.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!("the supervisor cannot be told: {error}"),
        Err(error) => tracing::warn!("the supervisor is not told: {error}"),
    }
}
