//! Where the live source of ledgers has got to. Other ledgers may be stored beyond it, by an import
//! beside the service, so it does not follow from what is stored.

use orrery_ledger::domain::LedgerSeq;

use crate::encoding::bytes::Malformed;
use crate::encoding::columns::{Family, Key, LedgerKey};
use crate::encoding::error::{StoreError, corrupt};
use crate::state::store::Store;

pub(crate) const LIVE_POSITION_ROW: &[u8] = b"live_position";

impl Store {
    /// Returns a ledger from which the live source yields every one that is not stored; `None` when
    /// nothing was followed yet. It lies at or before the next ledger that the source has to yield.
    pub fn live_position(&self) -> Result<Option<LedgerSeq>, StoreError> {
        let Some(bytes) = self.database.get(Family::Meta, LIVE_POSITION_ROW)? else {
            return Ok(None);
        };
        let key = LedgerKey::decode(&bytes).ok_or(Malformed);
        Ok(Some(key.map_err(corrupt(Family::Meta, LIVE_POSITION_ROW))?.0))
    }

    /// Records that the live source yields every ledger from `ledger` on that is not stored.
    pub fn set_live_position(&self, ledger: LedgerSeq) -> Result<(), StoreError> {
        let _writer = self.writer.lock();
        let mut batch = self.database.batch();
        batch.put_raw(Family::Meta, LIVE_POSITION_ROW, LedgerKey(ledger).encode().as_ref())?;
        self.database.write_synced(batch)
    }
}
