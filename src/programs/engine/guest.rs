//! What belongs to one run, to one instance in it, and how a call of a guest enters the host.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use soroban_env_host::xdr::{ContractCostType, ScMap};
use soroban_env_host::{Error, Host, HostError, VecObject};
use wasmtime::{Caller, Memory};

use super::limits::{Bounds, Growth};
use super::word::{Objects, Word};

/// One run, shared by all its frames.
pub(super) struct Run {
    pub(super) bounds: Arc<Bounds>,
    /// Fuel that is left, up to date whenever the host is running.
    pub(super) fuel: Cell<u64>,
    /// Whether the program was called.
    pub(super) entered: Cell<bool>,
    /// Everything that was emitted, rolled back or not.
    pub(super) emitted: RefCell<Vec<(String, ScMap)>>,
    /// Bytes of it.
    pub(super) emitted_bytes: Cell<usize>,
    /// Topic of the events that stand for emits; nobody outside the process can know it.
    pub(super) marker: [u8; 32],
    /// The same as an object of the host, once it is needed.
    pub(super) topics: Cell<Option<VecObject>>,
    /// The frame of the program that failed, and in a sentence why, unless that was caught.
    pub(super) trouble: RefCell<Option<(Error, String)>>,
    /// Protocol of the ledger.
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
            trouble: RefCell::new(None),
            protocol,
        }
    }
}

/// What wasmtime keeps with an instance.
pub(super) struct Guest {
    pub(super) host: Host,
    pub(super) run: std::rc::Rc<Run>,
    pub(super) objects: Objects,
    pub(super) memory: Option<Memory>,
    pub(super) growth: Growth,
}

/// A host function failed, as wasmtime carries it through the guest's frames.
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

/// Runs a host function that takes no memory of the guest.
pub(super) fn host_call<R: Word>(
    caller: &mut Caller<'_, Guest>,
    function: &'static str,
    call: impl FnOnce(&Host, &Objects) -> Result<R, HostError>,
) -> wasmtime::Result<i64> {
    let host = enter(caller, function)?;
    let result = call(&host, &caller.data().objects);
    leave(caller, function, &host, result)
}

/// Runs a host function over the guest's memory.
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
        None => Err(super::guest_memory::NO_MEMORY.into()),
    };
    leave(caller, function, &host, result)
}

/// Hands the fuel over to the run, because the host may call other instances of the program.
pub(super) fn enter(caller: &Caller<'_, Guest>, function: &'static str) -> wasmtime::Result<Host> {
    let guest = caller.data();
    guest.run.bounds.check().map_err(wasmtime::Error::new)?;
    guest.run.fuel.set(caller.get_fuel()?);
    // A frame that failed before was caught: the guest goes on.
    guest.run.trouble.borrow_mut().take();
    let host = guest.host.clone();
    host.charge_budget(ContractCostType::DispatchHostFunction, None)
        .map_err(|error| HostCallFailed::error(function, &error))?;
    Ok(host)
}

/// Takes what is left of the fuel, and makes a word of the result.
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
