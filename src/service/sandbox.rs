//! The sandbox network as JSON-RPC and its friendbot see it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use stellar_xdr::{LedgerKey, ScAddress, TransactionEnvelope, TransactionV1Envelope};
use tokio::time::timeout;

use super::unix_now;
use crate::api::{Friendbot, Given, NotGiven};
use crate::rpc::{
    Authorisation, FoundEntries, LiveEntry, LiveNetwork, Settings, Simulation, Submitted,
    SubmittedStatus,
};
use crate::source::sandbox::{AuthMode, Funding, Simulated};
use crate::source::sandbox_network::{FULL, LiveSandbox, NotFunded, Sent};

/// How long somebody waits for coins beyond the time between two ledgers.
const PATIENCE: Duration = Duration::from_secs(20);

/// A sandbox network that is running.
pub struct RunningSandbox {
    live: Arc<LiveSandbox>,
    close_time: Duration,
}

impl RunningSandbox {
    /// A network with so much time between two ledgers.
    pub fn new(live: Arc<LiveSandbox>, close_time: Duration) -> Self {
        Self { live, close_time }
    }
}

impl RunningSandbox {
    /// Seconds after which its newest ledger is old: three times that between two of them, and half a minute at least.
    pub(super) fn old_after(&self) -> u64 {
        self.close_time.as_secs().saturating_mul(3).max(Settings::default().max_ledger_latency)
    }
}

impl LiveNetwork for RunningSandbox {
    fn entries(&self, keys: &[LedgerKey]) -> Result<FoundEntries, String> {
        let newest = self.live.newest();
        let found = keys.iter().map(|key| newest.entry(key));
        let found: Vec<_> = found.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        let entry = |(entry, live_until)| LiveEntry { entry, live_until };
        Ok((newest.latest_ledger().0, found.into_iter().map(|found| found.map(entry)).collect()))
    }

    fn send(&self, transaction: TransactionEnvelope) -> Result<Submitted, String> {
        let newest = self.live.newest();
        let sent = self.live.send(transaction, unix_now());
        let (hash, sent) = sent.map_err(|error| error.to_string())?;
        Ok(Submitted {
            hash,
            status: match sent {
                Sent::Waits => SubmittedStatus::Pending,
                Sent::Waited => SubmittedStatus::Duplicate,
                Sent::Later => SubmittedStatus::TryAgainLater,
                Sent::Full => return Err(FULL.to_owned()),
                Sent::Refused(result) => SubmittedStatus::Error { result, events: Vec::new() },
            },
            latest_ledger: newest.latest_ledger().0,
            latest_closed_at: newest.latest_close_time(),
        })
    }

    fn simulate(
        &self,
        transaction: &TransactionV1Envelope,
        mode: Authorisation,
        leeway: u32,
    ) -> Result<Simulation, String> {
        let mode = match mode {
            Authorisation::Enforce => AuthMode::Enforce,
            Authorisation::Record { allow_nonroot, upgraded } => {
                AuthMode::Record { allow_nonroot, upgraded }
            }
        };
        let newest = self.live.newest();
        let simulated = newest.simulate(transaction, mode, leeway);
        let Simulated { data, error, result, events, changes } =
            simulated.map_err(|error| error.to_string())?;
        let latest_ledger = newest.latest_ledger().0;
        Ok(Simulation { latest_ledger, error, data, result, events, changes })
    }
}

impl Friendbot for RunningSandbox {
    fn fund(&self, address: ScAddress) -> BoxFuture<'_, Result<Given, NotGiven>> {
        async move {
            let hears = self.live.fund(address).map_err(|error| match error {
                NotFunded::Exists => NotGiven::Exists,
                NotFunded::Full => NotGiven::Refused(FULL),
                NotFunded::TooMany => NotGiven::Busy,
            })?;
            let given = timeout(self.close_time.saturating_mul(3) + PATIENCE, hears).await;
            match given {
                Ok(Ok(Some(Funding { hash, envelope, meta, succeeded: true }))) => {
                    Ok(Given { hash, envelope, meta })
                }
                Ok(Ok(_)) => Err(NotGiven::Refused("the transaction failed: try again")),
                Ok(Err(_)) | Err(_) => Err(NotGiven::Busy),
            }
        }
        .boxed()
    }
}
