//! Feed consumer that maintains the index of passkey wallets.

use super::event::recognise;
use super::rows::{self, FAMILIES};
use crate::accounts::emitted::{any, recognised};
use crate::store::{
    ConsumerEffects, ConsumerSpec, FedLedger, Gathers, LedgerConsumer, Needs, StartPosition, Store,
    StoreError,
};

/// Name of the feed consumer, also used when the index is rebuilt.
pub const CONSUMER: &str = "passkey_wallets";

/// Records whether a ledger has any event for this consumer.
const ANY: Gathers = Gathers { consumer: CONSUMER, from: |ledger| any(ledger, recognise) };

/// Feed consumer for passkey wallets.
#[derive(Debug, Clone, Copy, Default)]
pub struct PasskeyWallets;

impl LedgerConsumer for PasskeyWallets {
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
        let events = recognised(store, &ANY, ledger.ledger, recognise)?;
        if events.is_empty() { Ok(()) } else { rows::apply_events(effects, &events) }
    }
}
