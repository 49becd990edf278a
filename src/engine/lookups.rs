//! State lookups of a run: entries that the transaction declared are looked up in advance, all
//! others when the run first reads them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use orrery_ledger::domain::{ContractId, instance_key};
use scoped_tls_hkt::scoped_thread_local;
use soroban_env_host::xdr::{HostFunction, LedgerKey, ScAddress};

use super::invocation::Invocation;
use super::keys::is_nonce;
use super::limits::Bounds;
use super::state::{EntryState, PreState, StateError};

// The host owns its source of entries, while a state borrows from the store: the thread holds the
// state here while the run lasts.
scoped_thread_local!(static STATE: for<'a> &'a dyn PreState);

/// Entries before a transaction.
pub(super) struct Lookups {
    /// Entries that were looked up in advance. Each is removed when the run first reads it.
    before: RefCell<HashMap<LedgerKey, EntryState>>,
    failure: Cell<Option<StateError>>,
}

/// Runs a closure in which [`Lookups::entry`] reads from `state`.
pub(super) fn with_state<T>(state: &dyn PreState, run: impl FnOnce() -> T) -> T {
    STATE.set(state, run)
}

impl Lookups {
    /// Looks up the entries that the transaction declared and the instance of the called contract.
    /// Done before the run's clock starts, so that these lookups need not be timed one by one.
    ///
    /// # Errors
    /// When the state returns an error.
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
            // Code is large, and mostly that of the registered contract, which the program
            // replaces.
            let needed = !matches!(key, LedgerKey::ContractCode(_)) && !is_nonce(key);
            if needed && !before.contains_key(key) {
                before.insert(key.clone(), state.entry(key)?);
            }
        }
        Ok(Self { before: RefCell::new(before), failure: Cell::default() })
    }

    /// Returns an entry as it was before the transaction, with its original code; `None` when the
    /// lookup failed.
    pub(super) fn entry(&self, key: &LedgerKey, bounds: &Bounds) -> Option<EntryState> {
        if let Some(known) = self.before.borrow_mut().remove(key) {
            return Some(known);
        }
        // This may require a request to another server, whose time does not count as the program's.
        let found = bounds.untimed(|| STATE.with(|state| state.entry(key)));
        found
            .map_err(|error| {
                let first = self.failure.take().unwrap_or(error);
                self.failure.set(Some(first));
            })
            .ok()
    }

    /// Takes the error of the first lookup that failed, if any.
    pub(super) fn failure(&self) -> Option<StateError> {
        self.failure.take()
    }
}
