//! The feed consumer that maintains the index.

use std::collections::BTreeSet;

use super::facts::{self, Facts, Said};
use super::rows::{self, CHANGES, CODE, Change, CodeInterface, Inverted};
use super::value::{Before, id_of, instance_key};
use orrery_interfaces::sections;
use orrery_ledger::decode::XdrError;
use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq};
use orrery_store::{
    ConsumerEffects, ConsumerSpec, EntryReader, FedLedger, Gathers, LedgerConsumer, Needs,
    StartPosition, Store, StoreError, TransactionPosition, TransactionRecord,
};

/// Name of the feed consumer.
pub const CONSUMER: &str = "interfaces";

/// Transactions of a ledger that may say something new.
const MENTIONS: Gathers = Gathers { consumer: CONSUMER, from: facts::mentions };

/// Feed consumer that maintains the index.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExecutableIndex;

impl LedgerConsumer for ExecutableIndex {
    fn spec(&self) -> ConsumerSpec {
        ConsumerSpec {
            name: CONSUMER,
            families: &[CHANGES.family, CODE.family],
            needs: Needs::TRANSACTIONS,
            start: StartPosition::FirstLedger,
        }
    }

    fn gathers(&self) -> Option<Gathers> {
        Some(MENTIONS)
    }

    fn process_ledger(
        &self,
        store: &Store,
        ledger: &FedLedger,
        effects: &mut ConsumerEffects<'_>,
    ) -> Result<(), StoreError> {
        let ledger = ledger.ledger;
        let reader = store.entry_reader(ledger)?;
        match store.take_gathered(&MENTIONS, ledger) {
            Some(mentions) => {
                for order in orders_to_read(store, effects, ledger, &mentions)? {
                    let position = TransactionPosition { ledger, application_order: order };
                    read(store, &reader, position, effects)?;
                }
            }
            None => read_all(store, &reader, ledger, effects)?,
        }
        Ok(())
    }
}

/// Returns the transactions that have to be read: those that may have changed executables, and the
/// first one that shows what a contract runs. What a contract runs is known when an earlier row says
/// it and no ledger in between is missing, because every change has a row.
fn orders_to_read(
    store: &Store,
    effects: &ConsumerEffects<'_>,
    ledger: LedgerSeq,
    mentions: &[u8],
) -> Result<BTreeSet<u32>, StoreError> {
    let (mut orders, mut seen) = (BTreeSet::new(), BTreeSet::new());
    for mention in facts::decode(mentions) {
        let must_read = match mention.written {
            None => true,
            Some(contract) => {
                seen.insert(contract) && !is_known(store, effects, ledger, &contract)?
            }
        };
        if must_read {
            orders.insert(mention.application_order);
        }
    }
    Ok(orders)
}

fn is_known(
    store: &Store,
    effects: &ConsumerEffects<'_>,
    ledger: LedgerSeq,
    contract: &ContractId,
) -> Result<bool, StoreError> {
    let Some(key) = instance_key(contract) else { return Ok(true) };
    let end = TransactionPosition { ledger, application_order: u32::MAX };
    Ok(known_before(store, effects, contract, &id_of(&key), end)?.is_some())
}

/// Returns what the last change of an entry before a position has left, if no ledger in between is
/// missing.
fn known_before(
    store: &Store,
    effects: &ConsumerEffects<'_>,
    contract: &ContractId,
    id: &[u8; 32],
    position: TransactionPosition,
) -> Result<Option<Change>, StoreError> {
    let last = rows::at_or_before(effects, id, position)?;
    Ok(last.and_then(|(at, change)| {
        let since = LedgerRange { first: at.ledger, last: position.ledger };
        store.is_complete_for(CONSUMER, contract, since).then_some(change)
    }))
}

fn read(
    store: &Store,
    reader: &EntryReader<'_>,
    position: TransactionPosition,
    effects: &mut ConsumerEffects<'_>,
) -> Result<(), StoreError> {
    let mut facts = Ok(Facts::default());
    reader.transaction(position, |record| {
        // What the operations of a failed transaction did was taken back.
        if record.successful {
            facts = Facts::of(record.meta, position.ledger);
        }
    })?;
    put(store, effects, position, facts.map_err(|error| unreadable(position, error))?)
}

/// Reads all stored transactions of a ledger of which it is not known any more what they mention.
fn read_all(
    store: &Store,
    reader: &EntryReader<'_>,
    ledger: LedgerSeq,
    effects: &mut ConsumerEffects<'_>,
) -> Result<(), StoreError> {
    let mut all = Vec::new();
    reader.transactions_of(ledger, |record: &TransactionRecord<'_>| {
        if !record.successful {
            return;
        }
        let of_record = facts::is_mentioned(record.meta).and_then(|is_mentioned| {
            is_mentioned.then(|| Facts::of(record.meta, ledger)).transpose()
        });
        all.push((record.position, of_record));
    })?;
    for (position, facts) in all {
        if let Some(facts) = facts.map_err(|error| unreadable(position, error))? {
            put(store, effects, position, facts)?;
        }
    }
    Ok(())
}

fn unreadable(position: TransactionPosition, error: XdrError) -> StoreError {
    let TransactionPosition { ledger, application_order } = position;
    StoreError::Database(format!(
        "the metadata of transaction {application_order} of ledger {ledger} cannot be read: {error}"
    ))
}

fn put(
    store: &Store,
    effects: &mut ConsumerEffects<'_>,
    position: TransactionPosition,
    facts: Facts,
) -> Result<(), StoreError> {
    for (id, Said { contract, change, .. }) in &facts.changes {
        let is_same = matches!((&change.before, &change.after),
            (Before::Held { executable, .. }, Some(after)) if executable == after);
        if is_same && known_before(store, effects, contract, id, position)?.is_some() {
            continue;
        }
        CHANGES.put(effects, &(*id, Inverted(position)), change)?;
    }
    for (hash, code) in &facts.code {
        let interface = match sections(code) {
            Ok(sections) => CodeInterface::Sections(sections),
            Err(error) => CodeInterface::None(error.to_string()),
        };
        CODE.put(effects, hash, &interface)?;
    }
    Ok(())
}
