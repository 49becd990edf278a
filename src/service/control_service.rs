//! The operations of a running service that the control socket offers.

use std::sync::Arc;
use std::time::Instant;

use super::importing::Importing;
use super::{Backfills, Node};
use crate::control::{
    BACKFILL, BackfillReport, BackfillRequest, CHECKPOINT, CheckpointReport, RAW_LEDGER, REBUILD,
    RawXdr, STATUS, STORE, STORE_LAST, Verbs,
};
use crate::domain::LedgerSeq;
use crate::store::Checkpoint;

/// What is kept for a client while its connection is open.
#[derive(Default)]
pub(super) struct Kept {
    /// Its ledgers, once it has sent some.
    import: Option<Importing>,
    /// The checkpoint that it copies from.
    checkpoint: Option<Checkpoint>,
}

/// Returns what the control socket of a service offers.
pub(super) fn verbs(node: &Arc<Node>, backfills: &Arc<Backfills>) -> Verbs<Kept> {
    let of = || Arc::clone(node);
    let (status, rebuild, raw, checkpoint, storing, last) = (of(), of(), of(), of(), of(), of());
    let backfills = Arc::clone(backfills);
    Verbs::default()
        .on(STATUS, move |_, ()| status.report().map_err(|error| error.to_string()))
        .on(REBUILD, move |_, request| rebuild.rebuild(&request).map_err(|it| it.to_string()))
        .on(BACKFILL, move |_, request| backfill(&backfills, request))
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
