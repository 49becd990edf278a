//! What a run asks the state before its transaction: in advance for what the transaction declared, and
//! for the rest when it comes to it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use scoped_tls_hkt::scoped_thread_local;
use soroban_env_host::xdr::{HostFunction, LedgerKey, ScAddress};

use super::limits::Bounds;
use super::run::{Invocation, instance_key};
use super::snapshot::is_nonce;
use crate::domain::ContractId;
use crate::programs::state::{Known, PreState, StateError};

// The host owns whom it asks for entries, and a state borrows from the store: this thread has it while
// the run lasts.
scoped_thread_local!(static STATE: for<'a> &'a dyn PreState);

/// Entries before a transaction.
pub(super) struct Lookups {
    /// What was looked up in advance. Taken by those who ask.
    before: RefCell<HashMap<LedgerKey, Known>>,
    failure: Cell<Option<StateError>>,
}

/// Runs something in which [`Lookups::entry`] asks this state.
pub(super) fn with_state<T>(state: &dyn PreState, run: impl FnOnce() -> T) -> T {
    STATE.set(state, run)
}

impl Lookups {
    /// Asks for everything that the transaction declared, and for the called contract: what is asked for
    /// now is not measured one by one.
    ///
    /// # Errors
    /// What the state says.
    pub(super) fn begin(
        invocation: &Invocation,
        contracts: &[ContractId],
        state: &dyn PreState,
    ) -> Result<Self, StateError> {
        let called = match &invocation.host_function {
            HostFunction::InvokeContract(call) => match &call.contract_address {
                ScAddress::Contract(contract) => Some(ContractId(contract.0.0)),
                _ => None,
            },
            _ => None,
        };
        let called = called.filter(|called| contracts.contains(called)).map(|id| instance_key(&id));
        let mut before = HashMap::with_capacity(invocation.footprint.len() + 1);
        for key in invocation.footprint.iter().chain(&called) {
            // Code is large and mostly that of the registered contract, which is not needed.
            let needed = !matches!(key, LedgerKey::ContractCode(_)) && !is_nonce(key);
            if needed && !before.contains_key(key) {
                before.insert(key.clone(), state.entry(key)?);
            }
        }
        Ok(Self { before: RefCell::new(before), failure: Cell::default() })
    }

    /// An entry as it was before, with its own code; none when looking it up failed.
    pub(super) fn entry(&self, key: &LedgerKey, bounds: &Bounds) -> Option<Known> {
        if let Some(known) = self.before.borrow_mut().remove(key) {
            return Some(known);
        }
        // It may mean asking another server; that time is not the program's.
        let found = bounds.aside(|| STATE.with(|state| state.entry(key)));
        found
            .map_err(|error| {
                let first = self.failure.take().unwrap_or(error);
                self.failure.set(Some(first));
            })
            .ok()
    }

    /// Why looking an entry up failed first, if it did.
    pub(super) fn failure(&self) -> Option<StateError> {
        self.failure.take()
    }
}
