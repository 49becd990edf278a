//! Core's HTTP interface on this machine, where it is on: whether it follows the right network, and
//! which protocol a new standalone network should begin with.

use std::time::Duration;

use reqwest::Client;
use serde::Deserialize;
use tokio::time::sleep;

use super::error::CoreError;
use crate::domain::Network;

/// Between two questions. Core may work for long before it answers the first.
const ASK_EVERY: Duration = Duration::from_millis(500);
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

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

/// Asks until core answers, and compares the network. With `protocol`, a network that has none yet,
/// because it has only just begun, is told to take that.
///
/// # Errors
/// [`CoreError::WrongNetwork`]
pub(super) async fn check(
    port: u16,
    network: &Network,
    protocol: Option<u32>,
) -> Result<(), CoreError> {
    // Another provider that was installed before is as good. Core is on this machine, so there is
    // neither a proxy nor TLS on the way.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder().no_proxy().timeout(ANSWER_WITHIN).build();
    let client = client.map_err(|error| CoreError::Internal(error.to_string()))?;
    let base = format!("http://127.0.0.1:{port}");
    loop {
        match (info(&client, &base).await, protocol) {
            (Ok(info), _) if info.network != network.passphrase() => {
                return Err(CoreError::WrongNetwork {
                    what: format!("the stellar-core at port {port}"),
                    found: info.network,
                    wanted: network.clone(),
                });
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
        sleep(ASK_EVERY).await;
    }
}

async fn info(client: &Client, base: &str) -> reqwest::Result<Info> {
    let answer = client.get(format!("{base}/info")).send().await?.error_for_status()?;
    Ok(answer.json::<Answer>().await?.info)
}

/// A chain begins with protocol 0, which has next to nothing; its validators vote for another.
async fn upgrade(client: &Client, base: &str, protocol: u32) -> reqwest::Result<()> {
    let question = format!(
        "{base}/upgrades?mode=set&protocolversion={protocol}&upgradetime=1970-01-01T00:00:00Z"
    );
    client.get(question).send().await?.error_for_status()?;
    tracing::info!(protocol, "the standalone network begins");
    Ok(())
}
