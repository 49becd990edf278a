//! The feed consumer that maintains the index.

use super::facts::{self, Facts, Said};
use super::reading::{read_new, unreadable};
use super::rows::{self, CHANGES, CODE, Change, CodeInterface, Inverted, TRANSACTIONS};
use super::value::{Before, id_of, instance_key};
use orrery_interfaces::sections;
use orrery_ledger::domain::{ContractId, Hash32, LedgerRange, LedgerSeq};
use orrery_store::{
    ConsumerEffects, ConsumerSpec, FedLedger, Gathers, LedgerConsumer, Mark, Needs, StartPosition,
    Store, StoreError, TransactionPosition,
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
        let of_ledger = read_new(
            store,
            ledger,
            &MENTIONS,
            |contract| is_known(store, effects, ledger, contract),
            |record| {
                let facts = Facts::of(record.meta, ledger);
                let facts = facts.map_err(|error| unreadable(record.position, &error))?;
                Ok((Hash32(*record.tx), facts))
            },
        )?;
        of_ledger
            .into_iter()
            .try_for_each(|(at, (hash, facts))| put(store, effects, (at, hash), facts))
    }
}

/// Whether it is known what a contract runs: an earlier row says it, and no ledger in between is missing, because every
/// change has a row.
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

fn put(
    store: &Store,
    effects: &mut ConsumerEffects<'_>,
    (position, hash): (TransactionPosition, Hash32),
    facts: Facts,
) -> Result<(), StoreError> {
    for (id, Said { contract, change, .. }) in &facts.changes {
        let is_same = matches!((&change.before, &change.after),
            (Before::Held { executable, .. }, Some(after)) if executable == after);
        if is_same && known_before(store, effects, contract, id, position)?.is_some() {
            continue;
        }
        CHANGES.put(effects, &(*id, Inverted(position)), change)?;
        TRANSACTIONS.put(effects, &(Mark, position), &hash)?;
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
