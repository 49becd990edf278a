//! Status messages: their configured destinations, and the state of the service that they report.

use std::sync::Arc;

use tokio::sync::watch;

use super::{Node, ServiceError};
use crate::notify::{self, Lag, Observation, Target, TargetError};
use crate::settings::Status;
use crate::steady::unix_now;

/// Returns the configured destinations.
///
/// # Errors
/// When an address is invalid.
pub(super) fn targets(status: &Status) -> Result<Vec<Target>, ServiceError> {
    let given = |url: Option<&str>, make: fn(&str) -> Result<Target, TargetError>| {
        url.map(make).transpose().map_err(ServiceError::from)
    };
    let targets = [
        given(status.discord_webhook.as_option(), Target::discord)?,
        given(status.slack_webhook.as_option(), Target::slack)?,
        given(status.telegram_bot.as_option(), Target::telegram)?,
        given(status.generic_url.as_option(), Target::generic)?,
    ];
    Ok(targets.into_iter().flatten().collect())
}

/// Posts messages until `stop` turns true, or until messages cannot be sent at all.
pub(super) async fn post(
    node: Arc<Node>,
    targets: Vec<Target>,
    follows: bool,
    stop: watch::Receiver<bool>,
) {
    let observe = Arc::new(move || observe(&node, follows, unix_now()));
    if let Err(error) = notify::run(targets, observe, stop).await {
        tracing::error!("status messages cannot be sent: {error}");
    }
}

/// Returns the observable state of the service at `now`, UNIX time in seconds.
fn observe(node: &Node, follows: bool, now: u64) -> Observation {
    let (health, status) = (node.health(), node.store().status());
    let network = node.store().network();
    // Other networks may close ledgers irregularly, so the age of their newest ledger tells
    // nothing.
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
