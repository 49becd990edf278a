//! What a key held, by its whole XDR.

use std::borrow::Cow;

use orrery_ledger::decode::{EntryKey, EntryKind};
use orrery_store::StoreError;

use super::changes::hash_of;
use super::entry::DataKey;
use super::lookup::{Held, Lookup};
use super::rows::KeyTag;

impl Lookup<'_> {
    /// Returns what the key with this XDR `LedgerKey` held; unknown for nonces, and for all that is no data
    /// of a contract.
    ///
    /// # Errors
    /// Errors of the database, or that stored bytes are damaged.
    pub fn held_under(&self, ledger_key: &[u8]) -> Result<Held, StoreError> {
        const UNKNOWN: Held = Held::Unknown { live_until: None };

        let key = EntryKey::from_ledger_key(ledger_key);
        let Some(key) = key.filter(|key| key.kind == EntryKind::ContractData) else {
            return Ok(UNKNOWN);
        };
        let Some(contract) = DataKey::of(Cow::Borrowed(key.body)).map(|key| key.contract()) else {
            return Ok(UNKNOWN);
        };
        Ok(match self.held((contract, KeyTag::of(&hash_of(&key))))? {
            // Another key shares the first bytes of the hash.
            Held::Present(held) if held.key.entry_key() != key => UNKNOWN,
            held => held,
        })
    }
}
