//! The node of the network that this process runs, behind JSON-RPC: the stellar-core that it follows,
//! or a sandbox network, which has a friendbot as well.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use stellar_xdr::{LedgerKey, ScAddress, TransactionEnvelope, TransactionV1Envelope};
use tokio::time::{sleep, timeout};

use crate::api::Friendbot;
use crate::domain::{AuthMode, Funding, LedgerSeq, LiveEntries, LiveState, NotFunded, Simulation};
use crate::net::http::{HttpError, Timeouts};
use crate::rpc::{LiveNetwork, Node, Settings, Submitted};
use crate::sandbox::source::LiveSandbox;
use crate::source::captive_core::{CoreEntries, CoreSubmission, QueryPort, SubmissionError};
use crate::steady::unix_now;
use crate::store::Store;

/// Timeout of a request to core.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a friendbot request may take, in addition to three times the interval between ledgers.
const FUNDING_GRACE: Duration = Duration::from_secs(20);
/// Interval at which a friendbot request looks whether its ledger is stored.
const STORED_INTERVAL: Duration = Duration::from_millis(10);

/// The stellar-core that this process follows. Requests to it fail while it does not run.
#[derive(Clone, Default)]
pub struct RunningCore {
    /// Where it answers: the source publishes it, and the clients read it.
    port: QueryPort,
}

impl RunningCore {
    /// Returns the ports at which it answers.
    pub(super) fn port(&self) -> &QueryPort {
        &self.port
    }

    /// Creates a client for ledger entries.
    pub(super) fn entries(&self) -> Result<CoreEntries, HttpError> {
        CoreEntries::new(self.port.clone(), Timeouts::default())
    }

    /// Creates the node behind JSON-RPC.
    pub(super) fn node(&self, store: &Arc<Store>) -> Result<CoreNode, HttpError> {
        Ok(CoreNode {
            core: self.entries()?,
            submission: CoreSubmission::new(self.port.clone(), Timeouts::default())?,
            store: Arc::clone(store),
        })
    }
}

/// The stellar-core of this process as the node behind JSON-RPC.
pub(super) struct CoreNode {
    core: CoreEntries,
    submission: CoreSubmission,
    store: Arc<Store>,
}

impl CoreNode {
    async fn entries(&self, keys: &[LedgerKey]) -> Result<LiveEntries, String> {
        // Core rejects requests without keys, and requests that repeat a key.
        let distinct: Vec<LedgerKey> =
            keys.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect();
        if distinct.is_empty() {
            let as_of = self.latest();
            return Ok(LiveEntries { as_of, entries: Vec::new() });
        }
        let held = timeout(ANSWER_TIMEOUT, self.core.look_up(&distinct)).await;
        let held = held.map_err(|_| "stellar-core does not answer".to_owned())??;
        let found: BTreeMap<_, _> = distinct.iter().zip(held.entries).collect();
        let entries = keys.iter().map(|key| found.get(key).cloned().flatten()).collect();
        Ok(LiveEntries { as_of: held.as_of, entries })
    }

    /// Returns the newest stored ledger; 0 when nothing is stored.
    fn latest(&self) -> LedgerSeq {
        self.store.status().latest().unwrap_or(LedgerSeq(0))
    }

    async fn submit(&self, envelope: TransactionEnvelope) -> Result<Submitted, String> {
        let hash = envelope.hash(self.store.network().id().0).map_err(|error| error.to_string())?;
        let answered = timeout(ANSWER_TIMEOUT, self.submission.send(&envelope)).await;
        let answered = answered.map_err(|_| {
            "could not submit transaction to stellar-core: it does not answer".to_owned()
        })?;
        let status = match answered {
            Ok(status) => status,
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
            latest_ledger: self.latest(),
            latest_closed_at: closed.map_or(0, |ledger| ledger.close_time.seconds()),
        })
    }
}

impl LiveState for CoreNode {
    fn look_up<'a>(&'a self, keys: &'a [LedgerKey]) -> BoxFuture<'a, Result<LiveEntries, String>> {
        self.entries(keys).boxed()
    }
}

impl Node for CoreNode {
    fn send(&self, transaction: TransactionEnvelope) -> BoxFuture<'_, Result<Submitted, String>> {
        self.submit(transaction).boxed()
    }
}

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

    /// Age in seconds at which the newest ledger counts as old: three times the interval between
    /// ledgers, and at least half a minute.
    pub(super) fn old_after(&self) -> u64 {
        self.close_time.as_secs().saturating_mul(3).max(Settings::default().max_ledger_latency)
    }

    /// Returns the network's friendbot, where `store` holds the network's ledgers.
    pub(super) fn friendbot(self: Arc<Self>, store: &Arc<Store>) -> Friendbot {
        let store = Arc::clone(store);
        Arc::new(move |address| {
            let (sandbox, store) = (Arc::clone(&self), Arc::clone(&store));
            async move { sandbox.fund(address, &store).await }.boxed()
        })
    }

    /// Funds an address. Returns when the transaction is stored: clients ask for it at once, and only
    /// once.
    async fn fund(&self, address: ScAddress, store: &Store) -> Result<Funding, NotFunded> {
        let funding = self.live.fund(address)?;
        let stored = async {
            let funding = funding.await;
            let ledger = self.live.newest().latest_ledger();
            while store.ends().latest < Some(ledger) {
                sleep(STORED_INTERVAL).await;
            }
            funding
        };
        match timeout(self.close_time.saturating_mul(3) + FUNDING_GRACE, stored).await {
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
