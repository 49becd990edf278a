//! The feed consumer that maintains an account index, and the contract events that it reads.

use super::{AccountIndex, Emitted, Position};
use orrery_ledger::decode::{EventType, LedgerView, Placement};
use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq};
use orrery_store::{
    ConsumerEffects, ConsumerSpec, EventQuery, FedLedger, Gathers, LedgerConsumer, Needs,
    StartPosition, Store, StoreError,
};

/// Value gathered from a ledger without any account event.
const NONE: &[u8] = &[0];

/// Number of rows by which an index continues earlier work with a ledger: while newer ledgers wait,
/// and otherwise.
const BUSY_ROWS: usize = 256;
const IDLE_ROWS: usize = 8192;

/// Feed consumer that maintains an index.
#[derive(Debug, Clone, Copy, Default)]
pub struct AccountConsumer<I>(pub I);

impl<I: AccountIndex> AccountConsumer<I> {
    /// Records whether a ledger has any event for the index.
    const ANY: Gathers = Gathers { consumer: I::CONSUMER, from: any::<I> };
}

impl<I: AccountIndex> LedgerConsumer for AccountConsumer<I> {
    fn spec(&self) -> ConsumerSpec {
        ConsumerSpec {
            name: I::CONSUMER,
            families: I::FAMILIES,
            needs: Needs { events: true, ..Needs::default() },
            start: StartPosition::FirstLedger,
        }
    }

    fn gathers(&self) -> Option<Gathers> {
        Some(Self::ANY)
    }

    fn process_ledger(
        &self,
        store: &Store,
        ledger: &FedLedger,
        effects: &mut ConsumerEffects<'_>,
    ) -> Result<(), StoreError> {
        let events = recognised::<I>(store, &Self::ANY, ledger.ledger)?;
        if !events.is_empty() {
            I::apply_events(effects, &events)?;
        }
        // What is left to do must not delay newer ledgers.
        let is_newest = store.last_place() == ledger.place;
        let most = if is_newest { IDLE_ROWS } else { BUSY_ROWS };
        if I::continue_work(effects, most)? && is_newest {
            effects.mark_taken();
        }
        Ok(())
    }
}

/// Returns one byte that is 1 when the index recognises any event of the ledger and 0 otherwise.
/// Most ledgers have no account event, and [`recognised`] then skips reading their events. Some
/// events checked here may not be stored; a false positive costs one read.
fn any<I: AccountIndex>(ledger: &LedgerView<'_>) -> Vec<u8> {
    let any = ledger.events.iter().any(|event| {
        event.event_type == EventType::Contract
            && matches!(event.placement, Placement::Operation { .. })
            && I::recognise(ledger.topics(event), event.data).is_some()
    });
    vec![u8::from(any)]
}

/// Returns the events of a ledger that the index recognises. Only events of type `contract` count;
/// failed transactions have none. `any` is the [`Gathers`] that was filled by [`any`].
fn recognised<I: AccountIndex>(
    store: &Store,
    any: &Gathers,
    ledger: LedgerSeq,
) -> Result<Vec<Emitted<I::Event>>, StoreError> {
    if store.take_gathered(any, ledger).is_some_and(|any| any == NONE) {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    store.events(&EventQuery::of_ledgers(LedgerRange::only(ledger)), |record| {
        // Fee events have no index within their transaction and never belong to an account.
        let of_contract = record.contract.filter(|_| record.event_type == EventType::Contract);
        if let (Some(contract), Some(event_index)) = (of_contract, record.event_index())
            && let Some(event) = I::recognise(record.topics, record.data)
        {
            let application_order = record.application_order;
            let position = Position { ledger: record.ledger.0, application_order, event_index };
            found.push(Emitted { contract: ContractId(*contract), position, event });
        }
    })?;
    Ok(found)
}
