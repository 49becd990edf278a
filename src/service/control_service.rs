//! The operations of a running service that the control socket offers.

use std::sync::Arc;
use std::time::Instant;

use super::{Backfills, Node, StateBackfills};
use crate::control::{
    BACKFILL, BackfillReport, BackfillRequest, CHECKPOINT, CheckpointReport, NotStored, RAW_LEDGER,
    REBUILD, RawXdr, SINK_CHECK, SINK_REMOVE, SINK_REPLACE, SINK_TEST, SINKS, STATE_BACKFILL,
    STATUS, STORE, STORE_LAST, StateReport, StateRequest, Stored, Verbs,
};
use crate::domain::{LedgerSeq, Origin, RawLedger, sequence_of};
use crate::pipeline::{Gate, PipelineError};
use crate::sinks::Sinks;
use crate::store::{Checkpoint, Durability};

/// Name of the source of ledgers that a client sends, in messages of the service.
const NAME: &str = "orrery import";

/// What is kept for a client while its connection is open.
#[derive(Default)]
pub(super) struct Kept {
    /// Its ledgers, once it has sent some.
    import: Option<Importing>,
    /// The checkpoint that it copies from.
    checkpoint: Option<Checkpoint>,
}

/// Returns what the control socket of a service offers.
pub(super) fn verbs(
    node: &Arc<Node>,
    backfills: &Arc<Backfills>,
    states: &Arc<StateBackfills>,
    sinks: &Arc<Sinks>,
) -> Verbs<Kept> {
    let of = || Arc::clone(node);
    let (status, rebuild, raw, checkpoint, storing, last) = (of(), of(), of(), of(), of(), of());
    let (backfills, states) = (Arc::clone(backfills), Arc::clone(states));
    of_sinks(Verbs::default(), sinks)
        .on(STATUS, move |_, ()| status.report().map_err(|error| error.to_string()))
        .on(REBUILD, move |_, request| rebuild.rebuild(&request).map_err(|it| it.to_string()))
        .on(BACKFILL, move |_, request| backfill(&backfills, request))
        .on(STATE_BACKFILL, move |_, request| state_backfill(&states, request))
        .on(RAW_LEDGER, move |_, ledger| {
            let raw = raw.store().raw_ledger(LedgerSeq(ledger)).map_err(|it| it.to_string())?;
            Ok(RawXdr(raw))
        })
        .on(CHECKPOINT, move |kept: &mut Kept, ()| kept.checkpoint(&checkpoint))
        .on(STORE, move |kept: &mut Kept, ledgers| {
            Ok(kept.import(&storing).store(ledgers.0, false))
        })
        .on(STORE_LAST, move |kept: &mut Kept, ()| Ok(kept.import(&last).store(Vec::new(), true)))
}

/// Adds what is asked of sinks.
fn of_sinks(verbs: Verbs<Kept>, sinks: &Arc<Sinks>) -> Verbs<Kept> {
    let of = || Arc::clone(sinks);
    let (all, test, check, replace, remove) = (of(), of(), of(), of(), of());
    verbs
        .on(SINKS, move |_, ()| Ok(all.reports()))
        .on(SINK_TEST, move |_, request| test.test(&request))
        .on(SINK_CHECK, move |_, request| check.check(&request))
        .on(SINK_REPLACE, move |_, request| replace.replace(&request))
        .on(SINK_REMOVE, move |_, request| remove.remove(&request))
}

fn backfill(backfills: &Backfills, request: BackfillRequest) -> Result<BackfillReport, String> {
    match request {
        BackfillRequest::Start(order) => {
            return backfills.start(order).map_err(|error| error.to_string());
        }
        BackfillRequest::Status => {}
        BackfillRequest::Cancel => backfills.cancel(),
    }
    Ok(backfills.report())
}

fn state_backfill(
    states: &Arc<StateBackfills>,
    request: StateRequest,
) -> Result<StateReport, String> {
    match request {
        StateRequest::Start(order) => states.start(order)?,
        StateRequest::Status => {}
        StateRequest::Cancel => states.cancel(),
    }
    Ok(states.report())
}

impl Kept {
    fn import(&mut self, node: &Arc<Node>) -> &mut Importing {
        self.import.get_or_insert_with(|| Importing::new(node))
    }

    fn checkpoint(&mut self, node: &Node) -> Result<CheckpointReport, String> {
        self.checkpoint = None;
        let begun = Instant::now();
        let store = node.store();
        // Before the checkpoint, so that it holds all of them.
        let attested = node.attestation().ledgers(store);
        let held = self.checkpoint.insert(store.checkpoint().map_err(|error| error.to_string())?);
        let below = held.directory().strip_prefix(store.directory());
        let directory = below.map_err(|error| error.to_string())?.to_owned();
        let milliseconds = begun.elapsed().as_millis() as u64;
        Ok(CheckpointReport { directory, milliseconds, attested })
    }
}

/// The ledgers that a client sends to be stored. Those that have to be attested first wait from one batch to the next.
struct Importing {
    node: Arc<Node>,
    gate: Gate,
    /// Number of ledgers that the client has sent.
    sent: u64,
}

impl Importing {
    /// Begins with a client that has sent nothing.
    fn new(node: &Arc<Node>) -> Self {
        Self { node: Arc::clone(node), gate: node.gate(), sent: 0 }
    }

    /// Stores `LedgerCloseMeta`s in their order, each completely or not at all, and returns when those
    /// that may be stored are durable. Others wait for the next batch, unless these are the last ones. May
    /// block.
    fn store(&mut self, ledgers: Vec<Vec<u8>>, are_last: bool) -> Result<Stored, NotStored> {
        let before = self.sent;
        self.sent += ledgers.len() as u64;
        let ledgers = ledgers.into_iter().zip(before..).map(|(xdr, at)| {
            let sequence = sequence_of(&xdr).map_err(NoLedger)?;
            let origin = Origin { name: NAME.into(), position: Some(at) };
            Ok::<_, NoLedger>(RawLedger { sequence, xdr, compressed: None, origin })
        });
        let mut stored = Stored::default();
        let Self { node, gate, .. } = self;
        let done = node.store_batch(gate, ledgers, Durability::Synced, are_last, |ingested| {
            stored.count(ingested);
        });
        stored.waiting = self.gate.waiting();
        match done {
            Ok(()) => Ok(stored),
            Err(error) => {
                let (reason, at) = without_origin(&error);
                Err(NotStored { before: stored, reason, at })
            }
        }
    }
}

impl Drop for Importing {
    fn drop(&mut self) {
        if self.gate.waiting() > 0 {
            tracing::warn!(
                "an import has ended although {} of its ledgers wait until validators attest them: \
                 they are not stored",
                self.gate.waiting()
            );
        }
    }
}

/// Why bytes are not a ledger.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NoLedger(String);

/// Returns the reason without the ledger's origin, which the client has at hand, and the position of the
/// ledger among those that the client has sent.
fn without_origin(error: &PipelineError) -> (String, Option<u64>) {
    match error {
        PipelineError::Decode { origin, source } => (source.to_string(), origin.position),
        PipelineError::Verify { origin, source } => (source.to_string(), origin.position),
        PipelineError::Store { origin, source } => (source.to_string(), origin.position),
        PipelineError::Unattested { origin, source } => (source.to_string(), origin.position),
        other => (other.to_string(), None),
    }
}
