//! Whether the configured sources reach back to the end of a snapshot, before it is restored.

use std::time::Duration;

use tokio::time::timeout;

use super::{SourcesError, lake, rpc};
use crate::config::Config;
use crate::domain::{LedgerSeq, LedgerSource, Network, SourceError};
use crate::settings::{SourceSpec, is_directory};

/// Longest wait for a source. One that does not answer may do so later.
const PATIENCE: Duration = Duration::from_secs(30);

/// Refuses a snapshot that ends at `latest` if what the service would follow has dropped the next ledger, with both
/// numbers. A source that does not answer now, or is on this machine, is not refused: following it says more.
///
/// # Errors
/// When that is so, or settings are invalid.
pub async fn check_reach(
    config: &Config,
    network: &Network,
    latest: LedgerSeq,
) -> Result<(), SourcesError> {
    let plan = config.source.plan(network)?;
    let Some(next) = latest.next() else { return Ok(()) };
    let mut begins = None;
    for spec in plan.live.into_iter().chain(plan.gaps) {
        let mut source = match &spec {
            SourceSpec::Rpc { url, headers } => rpc::open(url.reveal(), headers)?,
            SourceSpec::Lake { address, is_public } if !is_directory(address) => {
                lake::open(address, *is_public, &config.source, network, Some(next)).await?
            }
            // Replays ledgers, or can be looked at.
            _ => return Ok(()),
        };
        match timeout(PATIENCE, oldest(&mut *source, next)).await {
            Ok(Some(oldest)) => begins = Some((source.name(), oldest)),
            Ok(None) | Err(_) => return Ok(()),
        }
    }
    match begins {
        None => Ok(()),
        Some((name, oldest)) => Err(format!(
            "the snapshot ends at ledger {latest}, and the raw ledgers of {name} begin at ledger {oldest}: make a \
             newer snapshot, let the writer keep more raw ledgers (retention.raw_ledgers), or follow a source \
             that reaches further back"
        )
        .into()),
    }
}

/// Returns the oldest ledger of a source that has dropped `next`; `None` when it has it, or may.
async fn oldest(source: &mut dyn LedgerSource, next: LedgerSeq) -> Option<LedgerSeq> {
    let range = source.range().await.ok()??;
    if range.last < next {
        return None;
    }
    match source.fetch(next).await {
        Err(SourceError::Gone(_)) => {}
        _ => return None,
    }
    // A server learns of what it has dropped from the answer.
    let range = source.range().await.ok().flatten().unwrap_or(range);
    let first = source.first_available(range.first).await.unwrap_or(range.first);
    (first > next).then_some(first)
}
