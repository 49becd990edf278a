//! The operations of a running service that the control socket offers.

use std::sync::Arc;
use std::time::Instant;

use super::importing::Importing;
use super::{Backfills, Node};
use crate::control::{
    BackfillReport, BackfillRequest, CheckpointReport, HeldCheckpoint, Import, RebuildReport,
    RebuildRequest, Service, StatusReport,
};
use crate::domain::LedgerSeq;

/// The parts of a service that the control socket reaches.
pub(super) struct Controlled {
    pub node: Arc<Node>,
    pub backfills: Arc<Backfills>,
}

impl Service for Controlled {
    fn import(&self) -> Box<dyn Import> {
        Box::new(Importing::new(&self.node))
    }

    fn status(&self) -> Result<StatusReport, String> {
        self.node.report().map_err(|error| error.to_string())
    }

    fn backfill(&self, request: BackfillRequest) -> Result<BackfillReport, String> {
        match request {
            BackfillRequest::Start(order) => {
                self.backfills.start(order).map_err(|error| error.to_string())
            }
            BackfillRequest::Status => Ok(self.backfills.report()),
            BackfillRequest::Cancel => {
                self.backfills.cancel();
                Ok(self.backfills.report())
            }
        }
    }

    fn rebuild(&self, request: RebuildRequest) -> Result<RebuildReport, String> {
        self.node.rebuild(&request).map_err(|error| error.to_string())
    }

    fn raw_ledger(&self, ledger: u32) -> Result<Option<Vec<u8>>, String> {
        self.node.store().raw_ledger(LedgerSeq(ledger)).map_err(|error| error.to_string())
    }

    fn checkpoint(&self) -> Result<HeldCheckpoint, String> {
        let begun = Instant::now();
        let store = self.node.store();
        // Before the checkpoint, so that it holds all of them.
        let attested = self.node.attestation().ledgers(store);
        let held = store.checkpoint().map_err(|error| error.to_string())?;
        let below = held.directory().strip_prefix(store.directory());
        let directory = below.map_err(|error| error.to_string())?.to_owned();
        let milliseconds = begun.elapsed().as_millis() as u64;
        let report = CheckpointReport { directory, milliseconds, attested };
        Ok(HeldCheckpoint { report, guard: Box::new(held) })
    }
}
