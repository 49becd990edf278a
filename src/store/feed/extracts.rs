//! Hands the extracts of ledgers to consumers.

use orrery_ledger::decode::decode;
use orrery_ledger::domain::LedgerSeq;

use crate::encoding::error::StoreError;
use crate::state::extracts::Gathers;
use crate::state::store::Store;

impl Store {
    /// Takes the value that a consumer has gathered from a ledger out of memory, if it is still
    /// there. Returns it only once.
    pub fn take_gathered(&self, gathers: &Gathers, ledger: LedgerSeq) -> Option<Vec<u8>> {
        self.gathered.take(gathers.consumer, ledger)
    }

    /// Returns what a consumer gathers from a ledger: from memory, or computed from the raw form;
    /// `None` when neither is kept.
    ///
    /// # Errors
    /// Errors of the database or zstd, or that the raw form cannot be decoded.
    pub fn gathered(
        &self,
        gathers: &Gathers,
        ledger: LedgerSeq,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        if let Some(cached) = self.take_gathered(gathers, ledger) {
            return Ok(Some(cached));
        }
        let Some(raw) = self.raw_ledger(ledger)? else { return Ok(None) };
        let view = decode(&raw, self.network.id())
            .map_err(|error| StoreError::Database(format!("ledger {ledger}: {error}")))?;
        Ok(Some((gathers.from)(&view)))
    }
}
