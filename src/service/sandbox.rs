//! The sandbox network as the node behind JSON-RPC and friendbot.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use stellar_xdr::{LedgerKey, ScAddress, TransactionEnvelope, TransactionV1Envelope};
use tokio::time::timeout;

use super::unix_now;
use crate::api::{Friendbot, FundedTransaction, FundingError};
use crate::rpc::{
    Authorisation, FoundEntries, LiveEntry, LiveNetwork, Settings, Simulation, Submitted,
    SubmittedStatus,
};
use crate::sandbox::network::{AuthMode, Funding, Simulated};
use crate::sandbox::source::{FULL, LiveSandbox, NotFunded, SubmissionOutcome};

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
                SubmissionOutcome::Queued => SubmittedStatus::Pending,
                SubmissionOutcome::Duplicate => SubmittedStatus::Duplicate,
                SubmissionOutcome::TryAgainLater => SubmittedStatus::TryAgainLater,
                SubmissionOutcome::Full => return Err(FULL.to_owned()),
                SubmissionOutcome::Refused(result) => {
                    SubmittedStatus::Error { result, events: Vec::new() }
                }
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
    fn fund(&self, address: ScAddress) -> BoxFuture<'_, Result<FundedTransaction, FundingError>> {
        async move {
            let funding = self.live.fund(address).map_err(|error| match error {
                NotFunded::Exists => FundingError::Exists,
                NotFunded::Full => FundingError::Refused(FULL),
                NotFunded::TooMany => FundingError::Busy,
            })?;
            let given = timeout(self.close_time.saturating_mul(3) + FUNDING_GRACE, funding).await;
            match given {
                Ok(Ok(Some(Funding { hash, envelope, meta, succeeded: true }))) => {
                    Ok(FundedTransaction { hash, envelope, meta })
                }
                Ok(Ok(_)) => Err(FundingError::Refused("the transaction failed: try again")),
                Ok(Err(_)) | Err(_) => Err(FundingError::Busy),
            }
        }
        .boxed()
    }
}
