//! Stores a follower's ledgers in sessions, each of which lasts until a ledger cannot be stored.
//! The follower is then notified whether the ledger or the store is at fault, and the next session
//! begins at that ledger.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::Node;
use super::tasks::stopped;
use crate::attestation::Attestation;
use crate::domain::{LedgerSeq, RawLedger};
use crate::observe::health::Health;
use crate::pipeline::{HeldError, Ingested, PipelineError};
use crate::source::captive_core;
use crate::source::follow::{FollowError, Followed, Follower, InFlight, RangeOf, Refusal};
use crate::store::{Committed, Durability, Store, StoreError};
use crate::verify::VerifyError;

/// Capacity, in ledgers, of the channel from the follower to the pipeline.
const LEDGERS_AHEAD: usize = 8;
/// First and longest delay before storing is retried; the delay doubles with each failure.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(8);

/// How an ingestion ended.
#[derive(Debug)]
pub enum Ended {
    /// The follower has no more ledgers; all ledgers that it sent are stored.
    Followed(Followed),
    /// The follower cannot continue; all ledgers that it sent are stored.
    Failed(FollowError),
    /// A stop was requested; ledgers already received are stored, unless storing had failed.
    Stopped,
}

/// An ingestion: where ledgers are stored and how it reports.
pub struct Ingestion<'a> {
    /// The data directory that stores the ledgers.
    pub node: &'a Arc<Node>,
    /// When a ledger counts as stored.
    pub durability: Durability,
    /// Last ledger of a backfill, whose raw ledgers are stored only if retention keeps some of
    /// them; `None` for live ledgers.
    pub older_up_to: Option<LedgerSeq>,
    /// Name under which storing failures are reported to health.
    pub component: &'static str,
    /// Called for each stored ledger.
    pub stored: Arc<dyn Fn(&Ingested) + Send + Sync>,
}

/// Outcome of a session.
enum Session {
    Ended(Ended),
    /// The oldest ledger in flight is invalid.
    Refused(Refusal),
    /// Storing failed although the ledgers may be valid; `after_some` is true if the session had
    /// stored new ledgers before.
    Failed {
        reason: String,
        after_some: bool,
    },
}

impl Ingestion<'_> {
    /// Stores the follower's ledgers until it has no more or `stop` turns true. An invalid ledger
    /// is never stored: the follower looks for a better one. When the store fails, the same ledgers
    /// are retried later.
    pub async fn run(&self, follower: &mut Follower, stop: watch::Receiver<bool>) -> Ended {
        let health = self.node.health();
        // Found by an earlier process, perhaps.
        match self.node.contradiction() {
            Some(contradiction) => health.down(self.component, contradiction.to_string()),
            None => health.up(self.component),
        }
        let mut failures = 0;
        loop {
            match self.session(follower, stop.clone()).await {
                Session::Ended(ended) => return ended,
                Session::Refused(refusal) => {
                    tracing::error!("a ledger is refused: {}", refusal.reason());
                    self.node.metrics().ledger_refused();
                    // Others are refused because of it: it is the cause, and tells what to do.
                    let contradiction = self.node.contradiction().map(|it| it.to_string());
                    match (contradiction, &refusal) {
                        (Some(contradiction), _) => health.down(self.component, contradiction),
                        // Nothing of it is stored, and storing goes on with other sources' ledgers.
                        (None, Refusal::Waiting { is_broken: true, .. }) => {}
                        (None, _) => health.down(self.component, refusal.reason()),
                    }
                    follower.refused(&refusal);
                }
                Session::Failed { reason, after_some } => {
                    failures = if after_some { 0 } else { failures };
                    let delay = LONGEST_RETRY.min(FIRST_RETRY.saturating_mul(1 << failures.min(8)));
                    failures += 1;
                    let retry_in_ms = delay.as_millis() as u64;
                    tracing::error!(retry_in_ms, "storing failed: {reason}");
                    health.down(self.component, reason);
                    follower.interrupted();
                    tokio::select! {
                        () = sleep(delay) => {}
                        () = stopped(stop.clone()) => return Ended::Stopped,
                    }
                }
            }
        }
    }

    async fn session(&self, follower: &mut Follower, stop: watch::Receiver<bool>) -> Session {
        let (out, received) = mpsc::channel(LEDGERS_AHEAD);
        let (storing_ends, storing_ended) = oneshot::channel::<Infallible>();
        let some_stored = Arc::new(AtomicBool::new(false));
        let storing = spawn_blocking({
            let (node, durability) = (Arc::clone(self.node), self.durability);
            let older_up_to = self.older_up_to;
            let stored =
                self.stored_callback(Arc::clone(follower.in_flight()), Arc::clone(&some_stored));
            let from_core = Arc::new(FromCore::default());
            let received = Received { ledgers: received, from_core: Arc::clone(&from_core) };
            move || {
                let attestation = Arc::clone(node.attestation());
                let stored = move |ingested: &Ingested| {
                    // Dropped with this closure as soon as storing has ended, which wakes the
                    // `select!` below: the source may not send anything for a long time.
                    let _ = &storing_ends;
                    from_core.stored(ingested.sequence, older_up_to.is_none(), &attestation);
                    stored(ingested);
                };
                match older_up_to {
                    Some(last) => node.store_older(last, received, durability, stored),
                    None => node.store_all(received, durability, stored),
                }
            }
        });
        // Dropping the follower's future closes the channel, which ends the storing thread.
        let ended = tokio::select! {
            followed = follower.run(out) => match followed {
                Ok(followed) => Ended::Followed(followed),
                Err(error) => Ended::Failed(error),
            },
            _ = storing_ended => Ended::Followed(Followed::ReceiverClosed),
            () = stopped(stop) => Ended::Stopped,
        };
        let after_some = some_stored.load(Ordering::Relaxed);
        match storing.await {
            Ok(Ok(())) => Session::Ended(ended),
            // Live ledgers that still wait for signatures are requested again at the next start. If
            // the pipeline has ended by itself, they are requested again now.
            Ok(Err(PipelineError::Unattested { source: HeldError::End { .. }, .. }))
                if self.older_up_to.is_none()
                    && !matches!(ended, Ended::Followed(Followed::ReceiverClosed)) =>
            {
                Session::Ended(ended)
            }
            Ok(Err(error)) => match refusal(&error) {
                Some(refusal) => Session::Refused(refusal),
                None => Session::Failed { reason: error.to_string(), after_some },
            },
            Err(error) => {
                let reason = format!("the pipeline stopped unexpectedly: {error}");
                Session::Failed { reason, after_some }
            }
        }
    }

    /// Returns a callback that records each stored ledger, and reports the component as recovered
    /// with the first new one.
    fn stored_callback(
        &self,
        in_flight: Arc<InFlight>,
        some_stored: Arc<AtomicBool>,
    ) -> impl Fn(&Ingested) + Send + use<> {
        let (health, component) = (Arc::clone(self.node.health()), self.component);
        let stored = Arc::clone(&self.stored);
        move |ingested| {
            in_flight.mark_stored();
            if ingested.committed == Committed::New {
                some_stored.store(true, Ordering::Relaxed);
                recovered(&health, component);
            }
            stored(ingested);
        }
    }
}

fn recovered(health: &Health, component: &'static str) {
    if health.is_down(component) {
        tracing::info!("{component} has recovered");
        health.up(component);
    }
}

/// Returns what is wrong with the ledger if the ledger caused the error; `None` if the store did.
fn refusal(error: &PipelineError) -> Option<Refusal> {
    let reason = error.to_string();
    match error {
        PipelineError::Decode { .. } | PipelineError::Verify { .. } => Some(Refusal::Data(reason)),
        PipelineError::Unattested { source, .. } => match source {
            HeldError::Chain { wrong, .. } => {
                Some(Refusal::Waiting { wrong: *wrong, is_broken: true, reason })
            }
            HeldError::NeverAttested { first, .. } => {
                Some(Refusal::Waiting { wrong: *first, is_broken: false, reason })
            }
            HeldError::End { .. } => None,
        },
        PipelineError::Contradicted(_) => Some(Refusal::Link(reason)),
        PipelineError::Store { source: StoreError::Chain(chain), .. } => Some(match chain {
            VerifyError::BrokenLink { .. } => Refusal::Link(reason),
            VerifyError::Conflict { .. } => Refusal::Conflict(reason),
            _ => Refusal::Data(reason),
        }),
        _ => None,
    }
}

/// Whether each ledger on its way into the store came from a stellar-core, in their order.
#[derive(Default)]
struct FromCore(Mutex<VecDeque<bool>>);

impl FromCore {
    /// Records that the next ledger is stored. A stellar-core that is followed attests it; one that
    /// replays older ledgers for a backfill takes them from an archive.
    fn stored(&self, ledger: LedgerSeq, is_followed: bool, attestation: &Attestation) {
        if self.0.lock().pop_front() == Some(true) && is_followed {
            attestation.stored_from_core(ledger);
        }
    }
}

/// Iterator over the ledgers of a channel, for a thread that may block.
struct Received {
    ledgers: mpsc::Receiver<RawLedger>,
    from_core: Arc<FromCore>,
}

impl Iterator for Received {
    type Item = Result<RawLedger, Infallible>;

    fn next(&mut self) -> Option<Self::Item> {
        let ledger = self.ledgers.blocking_recv()?;
        self.from_core.0.lock().push_back(*ledger.origin.name == *captive_core::NAME);
        Some(Ok(ledger))
    }
}

/// Returns the function with which a follower asks what is stored.
pub(super) fn range_of(store: &Arc<Store>) -> RangeOf {
    let store = Arc::clone(store);
    Arc::new(move |ledger| store.range_of(ledger))
}
