//! The consumer of the store's feed that keeps the index of passkey wallets.

use super::event::recognise;
use super::rows::{self, FAMILIES};
use crate::accounts::emitted::{any, recognised};
use crate::store::{
    Begins, ConsumerEffects, ConsumerSpec, FedLedger, Gathers, LedgerConsumer, Needs, Store,
    StoreError,
};

/// The name under which ledgers are taken from the feed, and the index is built anew.
pub const CONSUMER: &str = "passkey_wallets";

/// Whether a ledger has any event for it.
const ANY: Gathers = Gathers { consumer: CONSUMER, from: |ledger| any(ledger, recognise) };

/// Takes ledgers from the feed.
#[derive(Debug, Clone, Copy, Default)]
pub struct PasskeyWallets;

impl LedgerConsumer for PasskeyWallets {
    fn spec(&self) -> ConsumerSpec {
        ConsumerSpec {
            name: CONSUMER,
            families: FAMILIES,
            needs: Needs { events: true, ..Needs::default() },
            begins: Begins::AtTheBeginning,
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
        if events.is_empty() { Ok(()) } else { rows::take(effects, &events) }
    }
}
