//! The network whose ledgers a store holds, and its row.

use std::path::Path;

use orrery_ledger::domain::Network;

use crate::db::database::Database;
use crate::encoding::bytes::Malformed;
use crate::encoding::columns::Family;
use crate::encoding::error::{StoreError, corrupt};
use crate::state::coverage::Coverage;

pub(crate) const PASSPHRASE_ROW: &[u8] = b"passphrase";

pub(crate) fn stored_network(database: &Database) -> Result<Option<Network>, StoreError> {
    let Some(bytes) = database.get(Family::Meta, PASSPHRASE_ROW)? else { return Ok(None) };
    let passphrase = std::str::from_utf8(&bytes)
        .map_err(|_| corrupt(Family::Meta, PASSPHRASE_ROW)(Malformed))?;
    Ok(Some(Network::from_passphrase(passphrase)))
}

pub(crate) fn resolve_network(
    database: &Database,
    directory: &Path,
    wanted: Option<&Network>,
) -> Result<Network, StoreError> {
    match (stored_network(database)?, wanted) {
        (Some(stored), Some(wanted)) if stored != *wanted => {
            let is_empty = Coverage::load(database)?.latest().is_none();
            let empty = if is_empty { ", or delete this one, which has no ledger yet" } else { "" };
            Err(StoreError::Other(format!(
                "the data directory {} holds {stored}, not {wanted}: give another directory for {wanted}{empty}",
                directory.display()
            )))
        }
        (Some(stored), _) => Ok(stored),
        (None, None) => Err(StoreError::Empty(directory.to_owned())),
        (None, Some(wanted)) => {
            let mut batch = database.batch();
            batch.put_raw(Family::Meta, PASSPHRASE_ROW, wanted.passphrase().as_bytes())?;
            database.write_synced(batch)?;
            Ok(wanted.clone())
        }
    }
}
