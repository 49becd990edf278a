//! The symbols with which the keys of a contract begin.

use std::ops::ControlFlow;

use orrery_ledger::domain::ContractId;
use orrery_store::StoreError;

use super::lookup::Lookup;
use super::rows::NAMES;

/// Maximum number of symbols in an answer.
pub const MOST_NAMES: usize = 10_000;

impl Lookup<'_> {
    /// Returns the number of different symbols with which those keys of a contract begin that are vectors
    /// and have an entry, live or archived, at the newest ledger; and the first [`MOST_NAMES`] of them,
    /// ascending by bytes. They are read from counters: where the temporary entry with the greatest time to
    /// live was removed before its time, its symbol may stay until then if others of that symbol are dead.
    /// None where the contract is not recorded.
    ///
    /// # Errors
    /// Errors of the database, or that a row is damaged.
    pub fn names(&self, contract: &ContractId) -> Result<(u64, Vec<Vec<u8>>), StoreError> {
        let (mut total, mut names) = (0, Vec::new());
        if !self.has_all_rows(contract)? {
            return Ok((total, names));
        }
        NAMES.scan(&self.view, contract, None, |(_, name), row| {
            let is_live = row.temporary > 0 && row.live_until >= self.ledger.0;
            if row.persistent > 0 || is_live {
                total += 1;
                if names.len() < MOST_NAMES {
                    names.push(name);
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok((total, names))
    }
}
