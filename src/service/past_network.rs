//! Simulations on the state at the end of stored ledgers: what the store knows of that state, in the
//! contract host of the sandbox. Contract data comes from its index, code, accounts and trustlines as
//! the programs read them, settings from recorded upgrades; nothing from other servers, which only know
//! the present state.

use std::rc::Rc;
use std::sync::Arc;

use stellar_xdr::{LedgerEntry, LedgerKey, Limits, ReadXdr, ScVal, WriteXdr};

use crate::contract_data::{Held, Lookup};
use crate::domain::{DEEPEST_VALUE, LedgerSeq, Simulation};
use crate::programs::engine::{EntryState, StateError};
use crate::programs::state::{LedgerStates, States};
use crate::rpc::{self, NotSimulated, PastCall};
use crate::sandbox::past::{
    self, Known, KnownState, PROTOCOL, PastLedger, SETTINGS, simulate_after,
};
use crate::store::{LedgerRow, RowBounds, Store, StoreError};

/// The networks of stored ledgers, as they were.
pub struct PastNetwork {
    store: Arc<Store>,
}

impl PastNetwork {
    /// Simulates on the ledgers of this store.
    pub fn new(store: Arc<Store>) -> Self {
        Self { store }
    }

    /// Returns what is known of a ledger; the error names what is not.
    fn ledger(&self, call: &PastCall<'_>) -> Result<PastLedger, NotSimulated> {
        let sequence = call.ledger;
        let row = self.store.ledger(sequence)?.ok_or(StoreError::Missing(sequence))?;
        check_protocol(&row, call)?;
        let not_known = |what: &str| {
            let why = format!(
                "{what} is not known at ledger {sequence}: it comes from ledgers that are stored"
            );
            NotSimulated::Refused(why)
        };
        let conditions = self.store.conditions(sequence)?;
        let conditions = conditions.ok_or_else(|| not_known("the base reserve"))?;
        let state_size = conditions.state_size;
        let state_size = state_size.ok_or_else(|| not_known("the size of the state"))?;
        let mut settings = Vec::with_capacity(SETTINGS.len());
        for id in SETTINGS {
            let entry = self.store.setting(id as u32, sequence)?;
            let entry = entry.ok_or_else(|| not_known(&format!("the setting {}", id.name())))?;
            settings.push(decode(&entry, sequence)?);
        }
        Ok(PastLedger {
            sequence,
            close_time: row.close_time.seconds(),
            network: *self.store.network().id(),
            base_reserve: conditions.base_reserve,
            state_size,
            settings,
        })
    }
}

impl rpc::PastNetwork for PastNetwork {
    fn simulate(
        &self,
        call: &PastCall<'_>,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Simulation, NotSimulated> {
        let ledger = self.ledger(call)?;
        let states = States::new(&self.store, None);
        let bounds = RowBounds { interrupted: Box::new(is_over), ..RowBounds::none() };
        let state = StateAfter {
            data: Lookup::new(&self.store, call.ledger, bounds)?.without_updated(),
            others: states.at(call.ledger).map_err(failed)?,
            is_over,
        };
        simulate_after(&ledger, &state, call.transaction, call.mode, call.leeway).map_err(|error| {
            match error {
                past::NotSimulated::Unknown(key) => NotSimulated::Unknown(key),
                past::NotSimulated::Lookup(error) => error,
                past::NotSimulated::TooMuch => NotSimulated::TooExpensive,
                past::NotSimulated::Settings(why) => NotSimulated::Refused(why),
            }
        })
    }
}

fn check_protocol(row: &LedgerRow, call: &PastCall<'_>) -> Result<(), NotSimulated> {
    let (ledger, protocol) = (call.ledger, row.protocol);
    if protocol == PROTOCOL || call.any_protocol {
        return Ok(());
    }
    Err(NotSimulated::Refused(format!(
        "ledger {ledger} is of protocol {protocol}, and calls are simulated by the rules of protocol \
         {PROTOCOL}: give allowProtocol true to have them simulated by these rules"
    )))
}

/// The state at the end of a ledger.
struct StateAfter<'s> {
    data: Lookup<'s>,
    others: LedgerStates<'s>,
    is_over: &'s dyn Fn() -> bool,
}

impl KnownState for StateAfter<'_> {
    type Error = NotSimulated;

    fn entry(&self, key: &LedgerKey) -> Result<Known, NotSimulated> {
        let known = match key {
            LedgerKey::ContractData(data) if !matches!(data.key, ScVal::LedgerKeyNonce(_)) => {
                self.data(key)?
            }
            _ => self.other(key)?,
        };
        // Where it was cut off, rows may have been missed.
        if self.data.is_cut() || (self.is_over)() {
            return Err(NotSimulated::TooExpensive);
        }
        Ok(known)
    }
}

impl StateAfter<'_> {
    fn data(&self, key: &LedgerKey) -> Result<Known, NotSimulated> {
        let Ok(xdr) = key.to_xdr(Limits::none()) else { return Ok(Known::Unknown) };
        let ledger = self.data.ledger();
        let held = match self.data.held_under(&xdr)? {
            Held::Absent => return Ok(Known::Absent),
            // If it is disputed, the network would restore another value than the one that is known.
            Held::Present(held) if !held.disputed => held,
            Held::Present(_) | Held::Unknown { .. } => return Ok(Known::Unknown),
        };
        let live_until = match (held.archived, held.live_until) {
            (Some(false), Some(live_until)) => live_until,
            (Some(true), Some(live_until)) if live_until < ledger => live_until,
            // When it was evicted without a time to live that is known, it had died before.
            (Some(true), _) => ledger.previous().unwrap_or(ledger),
            _ => return Ok(Known::Unknown),
        };
        let entry = decode(&held.entry, ledger)?;
        Ok(Known::Present(Rc::new(entry), Some(live_until.0)))
    }

    fn other(&self, key: &LedgerKey) -> Result<Known, NotSimulated> {
        let range = self.others.complete();
        let begins_empty = range.map(|range| self.data.begins_empty(range)).transpose()?;
        let found = self.others.entry_after(key, begins_empty.unwrap_or(false)).map_err(failed)?;
        Ok(match found {
            EntryState::Present(entry, live_until) => Known::Present(entry, live_until),
            EntryState::Absent => Known::Absent,
            EntryState::Unknown => Known::Unknown,
        })
    }
}

/// Decodes the XDR of a stored entry.
fn decode(xdr: &[u8], ledger: LedgerSeq) -> Result<LedgerEntry, NotSimulated> {
    let limits = Limits { depth: DEEPEST_VALUE, len: xdr.len() };
    LedgerEntry::from_xdr(xdr, limits).map_err(|_| failed(StateError::Damaged(ledger)))
}

fn failed(error: StateError) -> NotSimulated {
    NotSimulated::Store(StoreError::Other(error.to_string()))
}
