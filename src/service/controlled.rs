//! What the control socket reaches of a running service.

use std::sync::Arc;

use super::{Backfills, Ledgers};
use crate::control::{
    BackfillReport, BackfillRequest, NotStored, RebuildReport, RebuildRequest, Service,
    StatusReport, Stored,
};

/// The parts of a service that are reached from outside.
pub(super) struct Controlled {
    pub ledgers: Arc<Ledgers>,
    pub backfills: Arc<Backfills>,
}

impl Service for Controlled {
    fn store(&self, ledgers: Vec<Vec<u8>>) -> Result<Stored, NotStored> {
        self.ledgers.store_handed_over(ledgers)
    }

    fn status(&self) -> Result<StatusReport, String> {
        self.ledgers.report().map_err(|error| error.to_string())
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
        self.ledgers.rebuild(&request.name, request.begin).map_err(|error| error.to_string())
    }
}
