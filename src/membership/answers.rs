//! What another server's answers say.

use orrery_executables::{Executable, facts};
use orrery_ledger::decode::EntryKey;
use orrery_ledger::domain::ContractId;
use orrery_store::{Store, StoreError};

use super::adding::Adding;
use super::named::Named;
use super::of_transaction::code_of;
use super::rows::CONSUMER;

/// Keeps what another server's answers say of the instances of contracts, and of entries that these refer to.
/// `answers` are keys of entries, each an XDR `LedgerKey`, with the XDR of the `LedgerEntry`.
///
/// # Errors
/// When the index does not exist here, or the database fails.
pub fn keep_answers(store: &Store, answers: &[(Vec<u8>, Vec<u8>)]) -> Result<(), StoreError> {
    let answers: Vec<Answer> = answers.iter().filter_map(|(key, it)| Answer::of(key, it)).collect();
    if answers.is_empty() || store.consumer(CONSUMER).is_none() {
        return Ok(());
    }
    store.change_consumer_rows(CONSUMER, move |effects| {
        let mut adding = Adding::new(effects)?;
        answers.iter().try_for_each(|answer| answer.add(&mut adding))?;
        adding.finish()
    })
}

/// What an answer says of an entry.
struct Answer {
    contract: ContractId,
    id: [u8; 32],
    is_instance: bool,
    executable: Executable,
}

impl Answer {
    fn of(key: &[u8], entry: &[u8]) -> Option<Self> {
        let entry_key = EntryKey::from_ledger_key(key)?;
        Some(Self {
            contract: entry_key.contract()?,
            id: facts::id_of(key),
            is_instance: entry_key.instance_of().is_some(),
            executable: Executable::of_xdr(entry)?,
        })
    }

    fn add(&self, adding: &mut Adding<'_, '_>) -> Result<(), StoreError> {
        if self.is_instance {
            adding.know(&self.contract)?;
            let named = Named::of(&self.executable);
            return named.map_or(Ok(()), |named| adding.add_runner(named, self.contract));
        }
        code_of(&self.executable).map_or(Ok(()), |code| adding.add_tag(code, self.id))
    }
}
