//! Feed consumer that maintains the index of smart accounts.

use super::rows::{self, FAMILIES, Logged};
use crate::accounts::emitted::{any, recognised};
use crate::store::{
    ConsumerEffects, ConsumerSpec, FedLedger, Gathers, LedgerConsumer, Needs, StartPosition, Store,
    StoreError,
};

/// Name of the feed consumer, also used when the index is rebuilt.
pub const CONSUMER: &str = "smart_accounts";

/// Records whether a ledger has any event for this consumer.
const ANY: Gathers = Gathers { consumer: CONSUMER, from: |ledger| any(ledger, Logged::recognise) };

/// Feed consumer for smart accounts.
#[derive(Debug, Clone, Copy, Default)]
pub struct SmartAccounts;

impl LedgerConsumer for SmartAccounts {
    fn spec(&self) -> ConsumerSpec {
        ConsumerSpec {
            name: CONSUMER,
            families: FAMILIES,
            needs: Needs { events: true, ..Needs::default() },
            start: StartPosition::FirstLedger,
        }
    }

    fn gathers(&self) -> Option<Gathers> {
        Some(ANY)
    }

    fn ledger(
        &self,
        store: &Store,
        ledger: &FedLedger,
        effects: &mut ConsumerEffects<'_>,
    ) -> Result<(), StoreError> {
        let events = recognised(store, &ANY, ledger.ledger, Logged::recognise)?;
        if events.is_empty() { Ok(()) } else { rows::apply_events(effects, &events) }
    }
}
