//! State of one run, state of one wasmtime instance in it, and the path of a guest's call into the
//! host.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use soroban_env_host::xdr::{ContractCostType, ScErrorCode, ScErrorType, ScMap};
use soroban_env_host::{Error, Host, HostError, VecObject};
use wasmtime::{Caller, Memory};

use super::limits::{Bounds, Growth};
use super::word::{Objects, Word};

/// Error for a module that exports no memory under the name that the interface requires.
const NO_MEMORY: Error = Error::from_type_and_code(ScErrorType::WasmVm, ScErrorCode::MissingValue);

/// State of one run, shared by all its frames.
pub(super) struct Run {
    pub(super) bounds: Arc<Bounds>,
    /// Remaining fuel. Up to date only while the host executes; while a guest executes, its
    /// wasmtime store counts.
    pub(super) fuel: Cell<u64>,
    /// Whether the program was called in this run.
    pub(super) entered: Cell<bool>,
    /// Every row emitted so far, rolled back or not, as target and fields.
    pub(super) emitted: RefCell<Vec<(String, ScMap)>>,
    /// Size of all emitted fields, in bytes of XDR.
    pub(super) emitted_bytes: Cell<usize>,
    /// Topic of the events that represent emits: random bytes that never leave the process, so that
    /// a contract cannot forge such an event.
    pub(super) marker: [u8; 32],
    /// Host vector that contains `marker`; created at the first emit.
    pub(super) topics: Cell<Option<VecObject>>,
    /// Error and one-sentence reason of the last frame that failed. Cleared once a caller has
    /// caught the failure.
    pub(super) frame_failure: RefCell<Option<(Error, String)>>,
    /// Protocol version of the ledger.
    pub(super) protocol: u32,
}

impl Run {
    pub(super) fn new(bounds: Arc<Bounds>, marker: [u8; 32], protocol: u32) -> Self {
        let fuel = Cell::new(bounds.limits.fuel);
        Self {
            bounds,
            fuel,
            entered: Cell::new(false),
            emitted: RefCell::default(),
            emitted_bytes: Cell::new(0),
            marker,
            topics: Cell::new(None),
            frame_failure: RefCell::new(None),
            protocol,
        }
    }
}

/// Data that wasmtime keeps with an instance.
pub(super) struct Guest {
    pub(super) host: Host,
    pub(super) run: std::rc::Rc<Run>,
    pub(super) objects: Objects,
    pub(super) memory: Option<Memory>,
    pub(super) growth: Growth,
}

/// Failure of a host function, passed by wasmtime through the guest's frames.
#[derive(Debug, thiserror::Error)]
#[error("the host function '{function}' failed with {error:?}")]
pub(super) struct HostCallFailed {
    pub(super) function: &'static str,
    pub(super) error: Error,
}

impl HostCallFailed {
    pub(super) fn error(function: &'static str, error: &HostError) -> wasmtime::Error {
        wasmtime::Error::new(Self { function, error: error.error })
    }
}

/// Runs a host function that does not access the guest's memory.
pub(super) fn host_call<R: Word>(
    caller: &mut Caller<'_, Guest>,
    function: &'static str,
    call: impl FnOnce(&Host, &Objects) -> Result<R, HostError>,
) -> wasmtime::Result<i64> {
    let host = enter(caller, function)?;
    let result = call(&host, &caller.data().objects);
    leave(caller, function, &host, result)
}

/// Runs a host function that accesses the guest's memory.
pub(super) fn memory_call<R: Word>(
    caller: &mut Caller<'_, Guest>,
    function: &'static str,
    call: impl FnOnce(&Host, &mut [u8], &mut Objects) -> Result<R, HostError>,
) -> wasmtime::Result<i64> {
    let host = enter(caller, function)?;
    let memory = caller.data().memory;
    let result = match memory {
        Some(memory) => {
            let (bytes, guest) = memory.data_and_store_mut(&mut *caller);
            call(&host, bytes, &mut guest.objects)
        }
        None => Err(NO_MEMORY.into()),
    };
    leave(caller, function, &host, result)
}

/// Enters the host from a guest: checks whether the run may continue, saves the remaining fuel in
/// the run, because the host may call other instances of the program, and charges the dispatch
/// cost.
pub(super) fn enter(caller: &Caller<'_, Guest>, function: &'static str) -> wasmtime::Result<Host> {
    let guest = caller.data();
    guest.run.bounds.check().map_err(wasmtime::Error::new)?;
    guest.run.fuel.set(caller.get_fuel()?);
    // The guest is still executing, so it caught any earlier failure of a frame.
    guest.run.frame_failure.borrow_mut().take();
    let host = guest.host.clone();
    host.charge_budget(ContractCostType::DispatchHostFunction, None)
        .map_err(|error| HostCallFailed::error(function, &error))?;
    Ok(host)
}

/// Returns to the guest: restores the remaining fuel and encodes the result as a guest word.
pub(super) fn leave<R: Word>(
    caller: &mut Caller<'_, Guest>,
    function: &'static str,
    host: &Host,
    result: Result<R, HostError>,
) -> wasmtime::Result<i64> {
    let left = caller.data().run.fuel.get();
    caller.set_fuel(left)?;
    let guest = caller.data_mut();
    result.and_then(|value| value.into_word(&mut guest.objects, host)).map_err(|error| match guest
        .run
        .bounds
        .check()
    {
        Ok(()) => HostCallFailed::error(function, &error),
        Err(stopped) => wasmtime::Error::new(stopped),
    })
}
