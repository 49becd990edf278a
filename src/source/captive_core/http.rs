//! Core's HTTP interface on this machine, if it is on: checks that core follows the right network,
//! and sets the protocol of a new standalone network.

use std::time::Duration;

use orrery_ledger::domain::Network;
use orrery_net::http;
use orrery_net::reqwest::{self, Client};
use serde::Deserialize;
use tokio::time::sleep;

use super::error::CoreError;

/// Interval between two requests. Core may work for a long time before it answers the first.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
struct Answer {
    info: Info,
}

#[derive(Deserialize)]
struct Info {
    network: String,
    ledger: Ledger,
}

#[derive(Deserialize)]
struct Ledger {
    version: u32,
}

/// Sends requests until core answers, and compares the network. If `protocol` is given and the
/// network has none yet, because it has only just begun, sets it.
///
/// # Errors
/// [`CoreError::Fatal`] when core belongs to another network.
pub(super) async fn check(
    port: u16,
    network: &Network,
    protocol: Option<u32>,
) -> Result<(), CoreError> {
    // Core is on this machine, so there is no proxy.
    let client = http::build(|| Client::builder().no_proxy().timeout(RESPONSE_TIMEOUT));
    let client = client.map_err(CoreError::internal)?;
    let base = format!("http://127.0.0.1:{port}");
    loop {
        match (info(&client, &base).await, protocol) {
            (Ok(info), _) if info.network != network.passphrase() => {
                let what = format_args!("the stellar-core at port {port}");
                return Err(CoreError::wrong_network(what, &info.network, network));
            }
            (Ok(info), Some(protocol)) if info.ledger.version == 0 => {
                match upgrade(&client, &base, protocol).await {
                    Ok(()) => return Ok(()),
                    Err(error) => {
                        tracing::warn!("stellar-core did not take protocol {protocol}: {error}");
                    }
                }
            }
            (Ok(_), _) => return Ok(()),
            (Err(error), _) => tracing::trace!(%error, "stellar-core does not answer yet"),
        }
        sleep(POLL_INTERVAL).await;
    }
}

async fn info(client: &Client, base: &str) -> reqwest::Result<Info> {
    let answer = client.get(format!("{base}/info")).send().await?.error_for_status()?;
    Ok(answer.json::<Answer>().await?.info)
}

/// Schedules an upgrade of the protocol. A network begins with protocol 0, which supports next to
/// nothing, until its validators vote for an upgrade.
async fn upgrade(client: &Client, base: &str, protocol: u32) -> reqwest::Result<()> {
    let url = format!(
        "{base}/upgrades?mode=set&protocolversion={protocol}&upgradetime=1970-01-01T00:00:00Z"
    );
    client.get(url).send().await?.error_for_status()?;
    tracing::info!(protocol, "the standalone network begins");
    Ok(())
}
