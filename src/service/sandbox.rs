//! The sandbox network as the node behind JSON-RPC and friendbot.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use stellar_xdr::{LedgerKey, ScAddress, TransactionEnvelope, TransactionV1Envelope};
use tokio::time::timeout;

use super::unix_now;
use crate::api::Friendbot;
use crate::domain::{AuthMode, Funding, LiveEntries, NotFunded, Simulation};
use crate::rpc::{LiveNetwork, Settings, Submitted};
use crate::sandbox::source::LiveSandbox;

/// How long a friendbot request may take, in addition to three times the interval between ledgers.
const FUNDING_GRACE: Duration = Duration::from_secs(20);

/// A sandbox network that is running.
pub struct RunningSandbox {
    live: Arc<LiveSandbox>,
    close_time: Duration,
}

impl RunningSandbox {
    /// Creates the adapter of a network that closes a ledger every `close_time`.
    pub fn new(live: Arc<LiveSandbox>, close_time: Duration) -> Self {
        Self { live, close_time }
    }
}

impl RunningSandbox {
    /// Age in seconds at which the newest ledger counts as old: three times the interval between
    /// ledgers, and at least half a minute.
    pub(super) fn old_after(&self) -> u64 {
        self.close_time.as_secs().saturating_mul(3).max(Settings::default().max_ledger_latency)
    }

    /// Returns the network's friendbot.
    pub(super) fn friendbot(self: Arc<Self>) -> Friendbot {
        Arc::new(move |address| {
            let sandbox = Arc::clone(&self);
            async move { sandbox.fund(address).await }.boxed()
        })
    }

    async fn fund(&self, address: ScAddress) -> Result<Funding, NotFunded> {
        let funding = self.live.fund(address)?;
        match timeout(self.close_time.saturating_mul(3) + FUNDING_GRACE, funding).await {
            Ok(Ok(Some(funding))) => Ok(funding),
            Ok(Ok(None)) => Err(NotFunded::Refused("the transaction failed: try again")),
            Ok(Err(_)) | Err(_) => Err(NotFunded::Busy),
        }
    }
}

impl LiveNetwork for RunningSandbox {
    fn entries(&self, keys: &[LedgerKey]) -> Result<LiveEntries, String> {
        let newest = self.live.newest();
        let entries = keys.iter().map(|key| newest.entry(key)).collect::<Result<_, _>>();
        let entries = entries.map_err(|error| error.to_string())?;
        Ok(LiveEntries { as_of: newest.latest_ledger(), entries })
    }

    fn send(&self, transaction: TransactionEnvelope) -> Result<Submitted, String> {
        let newest = self.live.newest();
        let sent = self.live.send(transaction, unix_now());
        let (hash, status) = sent.map_err(|error| error.to_string())?;
        let (latest_ledger, latest_closed_at) =
            (newest.latest_ledger(), newest.latest_close_time());
        Ok(Submitted { hash, status, latest_ledger, latest_closed_at })
    }

    fn simulate(
        &self,
        transaction: &TransactionV1Envelope,
        mode: AuthMode,
        leeway: u32,
    ) -> Result<Simulation, String> {
        let simulated = self.live.newest().simulate(transaction, mode, leeway);
        simulated.map_err(|error| error.to_string())
    }
}
