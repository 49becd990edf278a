//! Which status messages are configured, and what they are about.

use std::sync::Arc;

use tokio::sync::watch;

use super::{Ledgers, ServiceError, unix_now};
use crate::config::Status;
use crate::notify::{self, Lag, Observation, Target, TargetError};

/// The configured places for messages.
///
/// # Errors
/// When an address is none.
pub(super) fn targets(status: &Status) -> Result<Vec<Target>, ServiceError> {
    let given = |url: Option<&str>, make: fn(&str) -> Result<Target, TargetError>| {
        url.map(make).transpose().map_err(ServiceError::from)
    };
    let targets = [
        given(status.discord_webhook.given(), Target::discord)?,
        given(status.slack_webhook.given(), Target::slack)?,
        given(status.telegram_bot.given(), Target::telegram)?,
        given(status.generic_url.given(), Target::generic)?,
    ];
    Ok(targets.into_iter().flatten().collect())
}

/// Posts messages until `stop` turns true.
pub(super) async fn post(
    ledgers: Arc<Ledgers>,
    targets: Vec<Target>,
    follows: bool,
    stop: watch::Receiver<bool>,
) {
    let observe = Arc::new(move || observe(&ledgers, follows, unix_now()));
    if let Err(error) = notify::run(targets, observe, stop).await {
        tracing::error!("status messages cannot be sent: {error}");
    }
}

/// What can be seen of the service at `now`, UNIX seconds.
fn observe(ledgers: &Ledgers, follows: bool, now: u64) -> Observation {
    let (health, status) = (ledgers.health(), ledgers.store().status());
    let network = ledgers.store().network();
    // Other networks may close ledgers when they like.
    let steady = matches!(network.name(), "mainnet" | "testnet" | "futurenet");
    let lag = status.latest().zip(health.network_latest()).filter(|_| follows);
    Observation {
        time: now,
        network: network.name().to_owned(),
        down: health.first_down().map(|(name, reason)| format!("{name}: {reason}")),
        lag: lag.map(|(ledger, network_latest)| Lag {
            ledger: ledger.0,
            network_latest: network_latest.0,
            seconds: status
                .latest_close_time
                .filter(|_| steady)
                .map(|closed| now.saturating_sub(closed)),
        }),
    }
}
