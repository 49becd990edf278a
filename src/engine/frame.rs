//! A contract with replaced code: each call runs in a new instance of a module.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use orrery_ledger::domain::ContractId;
use soroban_env_host::xdr::{ScErrorCode, ScErrorType};
use soroban_env_host::{
    ContractFunctionSet, ConversionError, EnvBase, Error, Host, HostError, Symbol, SymbolStr,
    TryFromVal, Val,
};
use wasmtime::{Store, Trap, UpdateDeadline};

use super::guest::{Guest, HostCallFailed, Run};
use super::limits::{Growth, STOPPED, Stop, Stopped};
use super::module::{Module, Signature};
use super::word::Objects;

/// A module that takes the place of a contract's code.
pub(super) struct Replacement {
    pub(super) contract: ContractId,
    pub(super) module: Module,
    pub(super) run: Rc<Run>,
    /// Whether the module is the program, as opposed to a contract's own code.
    pub(super) is_program: bool,
}

impl ContractFunctionSet for Replacement {
    fn call(&self, function: &Symbol, host: &Host, args: &[Val]) -> Option<Val> {
        match self.call_export(function, host, args) {
            Ok(result) => result,
            // The host extracts the error from this panic and fails the frame with it. That is the
            // only way to return a specific error.
            Err(error) => host.escalate_error_to_panic(error),
        }
    }
}

/// Failure of an exported function.
enum Failure {
    /// The frame fails with this error, for this reason.
    Frame(Error, String),
    /// The whole run is over.
    Stopped,
}

impl Replacement {
    /// Calls an exported function; returns `None` when it does not exist but may be missing.
    pub(super) fn call_export(
        &self,
        function: &Symbol,
        host: &Host,
        args: &[Val],
    ) -> Result<Option<Val>, HostError> {
        if self.run.bounds.check().is_err() {
            return Err(STOPPED.into());
        }
        let name = SymbolStr::try_from_val(host, function)?;
        let name: &str = name.as_ref();
        match self.module.signature(name) {
            // The host decides whether the contract may lack a constructor.
            None if name == "__constructor" => return Ok(None),
            signature => {
                if self.is_program {
                    self.run.entered.set(true);
                }
                self.check_signature(signature, args.len())
            }
        }
        .and_then(|()| self.instantiate_and_call(name, host, args))
        .map(Some)
        .map_err(|failure| self.fail(failure, name))
    }

    fn check_signature(&self, signature: Option<Signature>, args: usize) -> Result<(), Failure> {
        let (code, why) = match signature {
            Some(Signature::Words(parameters)) if parameters == args => return Ok(()),
            Some(Signature::Words(parameters)) => (
                ScErrorCode::UnexpectedSize,
                format!("it takes {parameters} arguments and was called with {args}"),
            ),
            Some(Signature::Other) => (
                ScErrorCode::UnexpectedType,
                "its parameters and its one result are not all of type i64".to_owned(),
            ),
            None => (
                ScErrorCode::MissingValue,
                "the module exports no function of this name".to_owned(),
            ),
        };
        Err(Failure::Frame(Error::from_type_and_code(ScErrorType::WasmVm, code), why))
    }

    fn instantiate_and_call(&self, name: &str, host: &Host, args: &[Val]) -> Result<Val, Failure> {
        let mut store = self.store(host);
        store.set_fuel(self.run.fuel.get()).map_err(|error| self.explain(&error))?;
        let guarded = catch_unwind(AssertUnwindSafe(|| self.call_in(&mut store, name, args)));
        self.run.fuel.set(store.get_fuel().unwrap_or(0));
        match guarded {
            Ok(result) => result,
            Err(panic) => {
                self.run.bounds.stop(Stop::Internal(panic_text(&*panic)));
                Err(Failure::Stopped)
            }
        }
    }

    fn store(&self, host: &Host) -> Store<Guest> {
        let guest = Guest {
            host: host.clone(),
            run: Rc::clone(&self.run),
            objects: Objects::default(),
            memory: None,
            growth: Growth::new(Arc::clone(&self.run.bounds)),
        };
        let mut store = Store::new(self.module.engine(), guest);
        store.limiter(|guest| &mut guest.growth);
        store.set_epoch_deadline(1);
        let bounds = Arc::clone(&self.run.bounds);
        store.epoch_deadline_callback(move |_| match bounds.check() {
            Ok(()) => Ok(UpdateDeadline::Continue(1)),
            Err(stopped) => Err(wasmtime::Error::new(stopped)),
        });
        store
    }

    fn call_in(&self, store: &mut Store<Guest>, name: &str, args: &[Val]) -> Result<Val, Failure> {
        let instance = self.module.instance(&mut *store).map_err(|error| self.explain(&error))?;
        store.data_mut().memory = instance.get_memory(&mut *store, "memory");
        let Some(function) = instance.get_func(&mut *store, name) else {
            return self.check_signature(None, 0).map(|()| Val::VOID.to_val());
        };
        let host = store.data().host.clone();
        let mut words = Vec::with_capacity(args.len());
        for arg in args {
            let word = store.data_mut().objects.write(*arg, &host);
            words.push(wasmtime::Val::I64(word.map_err(|error| Self::argument_failure(&error))?));
        }
        let mut result = [wasmtime::Val::I64(0)];
        function.call(&mut *store, &words, &mut result).map_err(|error| self.explain(&error))?;
        let word = match result[0] {
            wasmtime::Val::I64(word) => word.cast_unsigned(),
            _ => 0,
        };
        let val = Val::from_payload(word);
        if !val.is_good() {
            let why = format!("it returned {word:#x}, which is no value of a contract");
            return Err(Failure::Frame(ConversionError.into(), why));
        }
        store.data().objects.absolute(val).map_err(|error| {
            Failure::Frame(error.error, "it returned an object that it was not given".to_owned())
        })
    }

    fn argument_failure(error: &HostError) -> Failure {
        Failure::Frame(error.error, format!("its arguments could not be passed: {:?}", error.error))
    }

    /// Converts an error of wasmtime to the failure of the frame or of the run.
    fn explain(&self, error: &wasmtime::Error) -> Failure {
        let bounds = &self.run.bounds;
        if error.is::<Stopped>() || bounds.check().is_err() {
            return Failure::Stopped;
        }
        if let Some(failed) = error.downcast_ref::<HostCallFailed>() {
            return Failure::Frame(failed.error, failed.to_string());
        }
        let Some(trap) = error.downcast_ref::<Trap>() else {
            bounds.stop(Stop::Internal(format!("wasmtime failed: {error:#}")));
            return Failure::Stopped;
        };
        let (code, why) = match trap {
            Trap::OutOfFuel => {
                bounds.out_of_fuel();
                return Failure::Stopped;
            }
            Trap::StackOverflow => {
                let why = "the program's functions called one another too deeply";
                bounds.stop(Stop::Guest(why.to_owned()));
                return Failure::Stopped;
            }
            Trap::UnreachableCodeReached => (ScErrorCode::InvalidAction, "it panicked"),
            Trap::MemoryOutOfBounds => {
                (ScErrorCode::IndexBounds, "it went beyond the end of its memory")
            }
            Trap::TableOutOfBounds => {
                (ScErrorCode::IndexBounds, "it went beyond the end of a table")
            }
            Trap::IndirectCallToNull => {
                (ScErrorCode::MissingValue, "it called a function that is not there")
            }
            Trap::BadSignature => {
                (ScErrorCode::UnexpectedType, "it called a function of another type")
            }
            Trap::IntegerDivisionByZero => (ScErrorCode::ArithDomain, "it divided by zero"),
            Trap::IntegerOverflow => (ScErrorCode::ArithDomain, "an integer overflowed"),
            Trap::BadConversionToInteger => {
                (ScErrorCode::ArithDomain, "it converted NaN to an integer")
            }
            _ => (ScErrorCode::InvalidAction, "it trapped"),
        };
        let error = Error::from_type_and_code(ScErrorType::WasmVm, code);
        Failure::Frame(error, why.to_owned())
    }

    /// Records why a frame failed, in case the whole run fails.
    fn fail(&self, failure: Failure, function: &str) -> HostError {
        match failure {
            Failure::Stopped => STOPPED.into(),
            Failure::Frame(error, why) => {
                let contract = self.contract;
                let why = format!("'{function}' of {contract} failed: {why}");
                let mut frame_failure = self.run.frame_failure.borrow_mut();
                // The first failure is the reason; callers only propagate its error.
                if !matches!(&*frame_failure, Some((first, _)) if *first == error) {
                    *frame_failure = Some((error, why));
                }
                error.into()
            }
        }
    }
}

/// Returns an error message with the text of a panic.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message");
    format!("the contract host panicked: {text}")
}
