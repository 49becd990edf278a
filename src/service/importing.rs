//! Ledgers that a client of the control socket sends to be stored.

use std::sync::Arc;

use super::Node;
use crate::control::{NotStored, Stored};
use crate::domain::{Origin, RawLedger, sequence_of};
use crate::pipeline::{Gate, PipelineError};
use crate::store::Durability;

/// Name of the source of these ledgers in messages of the service.
const NAME: &str = "orrery import";

/// The ledgers of one client. Those that have to be attested first wait from one batch to the next.
pub(super) struct Importing {
    node: Arc<Node>,
    gate: Gate,
    /// Number of ledgers that the client has sent.
    sent: u64,
}

impl Importing {
    /// Begins with a client that has sent nothing.
    pub(super) fn new(node: &Arc<Node>) -> Self {
        Self { node: Arc::clone(node), gate: node.gate(), sent: 0 }
    }

    /// Stores `LedgerCloseMeta`s in their order, each completely or not at all, and returns when those
    /// that may be stored are durable. Others wait for the next batch, unless these are the last ones. May
    /// block.
    pub(super) fn store(
        &mut self,
        ledgers: Vec<Vec<u8>>,
        are_last: bool,
    ) -> Result<Stored, NotStored> {
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
