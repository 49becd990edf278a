//! The feed consumer that keeps what transactions say.

use orrery_executables::{facts, read_new};
use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq};
use orrery_store::{
    ConsumerEffects, ConsumerSpec, FedLedger, Gathers, LedgerConsumer, Needs, StartPosition, Store,
    StoreError,
};

use super::adding::Adding;
use super::of_transaction::OfTransaction;
use super::rows::{CONSUMER, CREATED, LEARNT, MADE, READ, RUNNERS, SEEN, TAGS, UNREAD};

/// Transactions of a ledger that may say something new.
const MENTIONS: Gathers = Gathers { consumer: CONSUMER, from: facts::mentions };

/// Feed consumer that keeps who created contracts, and which codes they have run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Membership;

impl LedgerConsumer for Membership {
    fn spec(&self) -> ConsumerSpec {
        ConsumerSpec {
            name: CONSUMER,
            // With another one, all rows would be made again without what is known from removed transactions and
            // from events.
            families: &[
                CREATED.family,
                MADE.family,
                RUNNERS.family,
                TAGS.family,
                READ.family,
                SEEN.family,
                LEARNT.family,
                UNREAD.family,
            ],
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
        let (ledger, network) = (ledger.ledger, store.network().id());
        let of_ledger = read_new(
            store,
            ledger,
            &MENTIONS,
            |contract| has_read(store, effects, contract, ledger),
            |record| OfTransaction::read(record, network),
        )?;
        let mut adding = Adding::new(effects)?;
        of_ledger.into_iter().try_for_each(|(at, found)| adding.add(at, &found))?;
        adding.finish()
    }

    fn cannot_be_rebuilt(&self) -> Option<&'static str> {
        Some("what it knows from removed transactions cannot be read again")
    }
}

/// Whether what a contract runs at the end of a ledger was read, and no ledger since is missing.
fn has_read(
    store: &Store,
    effects: &ConsumerEffects<'_>,
    contract: &ContractId,
    last: LedgerSeq,
) -> Result<bool, StoreError> {
    let read = Adding::last_read(effects, contract, last)?;
    Ok(read.is_some_and(|first| {
        store.is_complete_for(CONSUMER, contract, LedgerRange { first, last })
    }))
}
