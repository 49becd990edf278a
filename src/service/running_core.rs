//! The stellar-core that this process runs, as the node from which JSON-RPC requests entries and to
//! which it submits transactions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use stellar_xdr::{LedgerKey, TransactionEnvelope};
use tokio::time::timeout;

use super::{Ledgers, ServiceError};
use crate::net::http::Timeouts;
use crate::rpc::{FoundEntries, LiveEntry, Node, Submitted, SubmittedStatus};
use crate::source::core::{CoreEntries, CoreSubmission, SubmissionError, SubmissionOutcome};
use crate::source::entries::FetchedEntry;
use crate::store::Store;

/// Timeout of a request to core.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Client for the stellar-core of this process; requests fail while it does not run.
pub(super) struct RunningCore {
    entries: CoreEntries,
    submission: CoreSubmission,
    store: Arc<Store>,
}

impl RunningCore {
    pub(super) fn new(ledgers: &Ledgers) -> Result<Self, ServiceError> {
        let port = ledgers.query_port();
        let failed = ServiceError::Core;
        Ok(Self {
            entries: CoreEntries::new(port.clone(), Timeouts::default()).map_err(failed)?,
            submission: CoreSubmission::new(port.clone(), Timeouts::default()).map_err(failed)?,
            store: Arc::clone(ledgers.store()),
        })
    }

    async fn look_up(&self, keys: &[LedgerKey]) -> Result<FoundEntries, String> {
        // Core rejects requests without keys, and requests that repeat a key.
        let distinct: Vec<LedgerKey> =
            keys.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect();
        if distinct.is_empty() {
            return Ok((self.store.status().latest().map_or(0, |ledger| ledger.0), Vec::new()));
        }
        let held = timeout(ANSWER_TIMEOUT, self.entries.look_up(&distinct)).await;
        let held = held.map_err(|_| "stellar-core does not answer".to_owned())?;
        let held = held.map_err(|error| error.to_string())?;
        let entry = |it: FetchedEntry| LiveEntry { entry: it.entry, live_until: it.live_until };
        let found: BTreeMap<_, _> = distinct.iter().zip(held.entries).collect();
        let entries = keys.iter().map(|key| found.get(key).cloned().flatten().map(entry)).collect();
        Ok((held.as_of.0, entries))
    }

    async fn submit(&self, envelope: TransactionEnvelope) -> Result<Submitted, String> {
        let hash = envelope.hash(self.store.network().id().0).map_err(|error| error.to_string())?;
        let answered = timeout(ANSWER_TIMEOUT, self.submission.send(&envelope)).await;
        let answered = answered.map_err(|_| {
            "could not submit transaction to stellar-core: it does not answer".to_owned()
        })?;
        let status = match answered {
            Ok(SubmissionOutcome::Pending) => SubmittedStatus::Pending,
            Ok(SubmissionOutcome::Duplicate) => SubmittedStatus::Duplicate,
            Ok(SubmissionOutcome::TryAgainLater) => SubmittedStatus::TryAgainLater,
            Ok(SubmissionOutcome::Error { result, events }) => {
                SubmittedStatus::Error { result: *result, events }
            }
            Err(error) => {
                if let SubmissionError::Exception(said) | SubmissionError::Status(said) = &error {
                    tracing::warn!("stellar-core did not accept a transaction: {said}");
                }
                return Err(error.to_string());
            }
        };
        let latest = self.store.status().latest();
        let closed = latest.map(|ledger| self.store.ledger(ledger)).transpose();
        let closed = closed.map_err(|error| error.to_string())?.flatten();
        Ok(Submitted {
            hash,
            status,
            latest_ledger: latest.map_or(0, |ledger| ledger.0),
            latest_closed_at: closed.map_or(0, |ledger| ledger.close_time.seconds()),
        })
    }
}

impl Node for RunningCore {
    fn entries<'a>(&'a self, keys: &'a [LedgerKey]) -> BoxFuture<'a, Result<FoundEntries, String>> {
        self.look_up(keys).boxed()
    }

    fn send(&self, transaction: TransactionEnvelope) -> BoxFuture<'_, Result<Submitted, String>> {
        self.submit(transaction).boxed()
    }
}
