//! Builds a contract host for one transaction and runs it.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use soroban_env_host::budget::Budget;
use soroban_env_host::storage::{SnapshotSource, Storage};
use soroban_env_host::xdr::{
    Hash, ScAddress, ScErrorType, ScVal, SorobanAddressCredentials, SorobanCredentials,
};
use soroban_env_host::{EnvBase, Host, HostError, LedgerInfo};

use super::Engine;
use super::creation::{Creation, created_code};
use super::emitting;
use super::fidelity::{Ended, Fidelity, compare};
use super::frame::Replacement;
use super::guest::Run;
use super::limits::{Bounds, Bytes, HOST_INSTRUCTIONS, HOST_MEMORY, Stop};
use super::lookups::Lookups;
use super::run::{Invocation, Program};
use super::snapshot::Snapshot;
use crate::domain::ContractId;
use crate::programs::emit::Emit;
use crate::programs::state::StateError;

thread_local! {
    /// What the last run of this thread counted with, if it went well. To make one fills tables of what
    /// everything costs, which takes a fifteenth of a short run.
    static SPARE_BUDGET: Cell<Option<Budget>> = const { Cell::new(None) };
}

/// Everything that a run needs.
pub(super) struct Job<'a> {
    pub(super) invocation: &'a Invocation,
    pub(super) engine: &'a Engine,
    pub(super) program: Program<'a>,
    pub(super) lookups: Lookups,
    pub(super) ledger_info: LedgerInfo,
    pub(super) bounds: &'a Arc<Bounds>,
}

/// What came of a job.
pub(super) struct Report {
    pub(super) entered: bool,
    pub(super) result: Result<Vec<Emit>, String>,
    pub(super) fidelity: Fidelity,
    pub(super) fuel: u64,
    pub(super) missing: Vec<soroban_env_host::xdr::LedgerKey>,
    pub(super) stop: Option<Stop>,
    /// Why looking an entry up failed.
    pub(super) failure: Option<StateError>,
}

/// Whom the host asks whether something was authorized.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Authorization {
    /// The transaction's own entries, as on the network.
    Checked,
    /// Nobody: everything is.
    Recorded,
}

pub(super) fn execute(job: Job<'_>) -> Report {
    let Job { invocation, engine, program, lookups, ledger_info, bounds } = job;
    let contracts = program.contracts;
    let replaced: HashMap<_, _> = contracts.iter().map(|id| (*id, synthetic_hash(id))).collect();
    let longest = ledger_info.max_live_until_ledger_checked().unwrap_or(u32::MAX);
    let snapshot = Snapshot::new(lookups, replaced.clone(), Arc::clone(bounds), longest);
    let attempt = Attempt {
        invocation,
        engine,
        program,
        replaced: &replaced,
        ledger_info: &ledger_info,
        bounds,
        snapshot: Rc::new(snapshot),
    };
    let calls_back = invocation.authorization.iter().any(|entry| by_contract(&entry.credentials));
    let mut report = if calls_back {
        // A program that asks for other authorizations than the contract did has none to show.
        attempt.run(Authorization::Checked).or_else(|| attempt.run(Authorization::Recorded))
    } else {
        attempt.run(Authorization::Recorded)
    }
    .unwrap_or_else(|| Report {
        entered: false,
        result: Err("authorization failed".to_owned()),
        fidelity: Fidelity::Unchecked,
        fuel: 0,
        missing: Vec::new(),
        stop: None,
        failure: None,
    });
    report.failure = attempt.snapshot.failure();
    report.stop = bounds.why();
    report.missing = attempt.snapshot.missing();
    if let Some(Stop::Guest(why)) = &report.stop {
        report.result = Err(why.clone());
        report.fidelity = Fidelity::Unchecked;
    }
    report
}

struct Attempt<'a> {
    invocation: &'a Invocation,
    engine: &'a Engine,
    program: Program<'a>,
    replaced: &'a HashMap<ContractId, Hash>,
    ledger_info: &'a LedgerInfo,
    bounds: &'a Arc<Bounds>,
    snapshot: Rc<Snapshot>,
}

impl Attempt<'_> {
    /// Runs once; `None` when checked authorization was refused.
    fn run(&self, authorization: Authorization) -> Option<Report> {
        let run = Rc::new(Run::new(
            Arc::clone(self.bounds),
            self.engine.inner.marker,
            self.invocation.protocol,
        ));
        let ended = self.invoke(&run, authorization);
        let result = match ended {
            Ok(ended) => Ok(ended),
            Err(Failed { auth: true, .. })
                if authorization == Authorization::Checked && self.bounds.why().is_none() =>
            {
                return None;
            }
            Err(failed) => Err(failed.why),
        };
        let entered = run.entered.get();
        let fuel = self.bounds.limits.fuel.saturating_sub(run.fuel.get());
        let (result, fidelity) = match result {
            Err(why) => (Err(why), Fidelity::Unchecked),
            Ok((emits, ended)) => {
                let fidelity = match &self.invocation.recorded {
                    Some(recorded) if entered => compare(recorded, ended, &self.snapshot),
                    _ => Fidelity::Unchecked,
                };
                (Ok(emits), fidelity)
            }
        };
        let (missing, stop, failure) = (Vec::new(), None, None);
        Some(Report { entered, result, fidelity, fuel, missing, stop, failure })
    }

    fn invoke(
        &self,
        run: &Rc<Run>,
        authorization: Authorization,
    ) -> Result<(Vec<Emit>, Ended), Failed> {
        let budget = SPARE_BUDGET.take().unwrap_or_default();
        let ours = |error: HostError| {
            self.bounds.stop(Stop::Ours(format!("the contract host refused: {:?}", error.error)));
            Failed { auth: false, why: String::new() }
        };
        budget.reset_limits(HOST_INSTRUCTIONS, HOST_MEMORY).map_err(ours)?;
        let host = self.host(&budget, authorization).map_err(ours)?;
        self.replace_code(&host, run).map_err(ours)?;
        let value = host
            .invoke_function(self.invocation.host_function.clone())
            .map_err(|error| failed(&error, run, &budget))?;
        let events = host.get_events().map_err(|error| failed(&error, run, &budget))?;
        let (emits, events) = emitting::separate(events.0, run);
        // What the run changed is looked at after its work: not at its expense.
        budget.reset_unlimited().map_err(ours)?;
        let entries = if self.invocation.recorded.is_some() && run.entered.get() {
            host.get_stored_entries().map_err(ours)?
        } else {
            Vec::new()
        };
        // After a failure, nobody knows how deep the host was when it gave up.
        SPARE_BUDGET.set(Some(budget));
        Ok((emits, Ended { value, events, entries }))
    }

    fn host(&self, budget: &Budget, authorization: Authorization) -> Result<Host, HostError> {
        let snapshot: Rc<dyn SnapshotSource> = self.snapshot.clone();
        let storage = Storage::with_recording_footprint(snapshot);
        let host = Host::with_storage_and_budget(storage, budget.clone());
        host.set_ledger_info(self.ledger_info.clone())?;
        host.set_source_account(self.invocation.source_account.clone())?;
        match authorization {
            Authorization::Checked => {
                host.set_authorization_entries(self.invocation.authorization.clone())?;
            }
            Authorization::Recorded => host.switch_to_recording_auth(false)?,
        }
        host.set_base_prng_seed(self.invocation.seed())?;
        Ok(host)
    }

    /// Puts the program in the place of the contracts' code.
    fn replace_code(&self, host: &Host, run: &Rc<Run>) -> Result<(), HostError> {
        for (contract, synthetic) in self.replaced {
            let functions = Rc::new(Replacement {
                contract: *contract,
                module: self.program.module.clone(),
                run: Rc::clone(run),
                is_program: true,
            });
            let hash = host.bytes_new_from_slice(&synthetic.0)?;
            host.register_native_contract_as_wasm(functions, hash)?;
        }
        // A contract that this transaction creates has the network's hash in its entry.
        let created = created_code(self.invocation, self.program.contracts, &self.snapshot);
        for (code, created) in created {
            let functions = Rc::new(Creation {
                code: code.clone(),
                created,
                engine: self.engine.clone(),
                module: self.program.module.clone(),
                run: Rc::clone(run),
                snapshot: Rc::clone(&self.snapshot),
            });
            functions.load_entry(host)?;
            let hash = host.bytes_new_from_slice(&code.0)?;
            host.register_native_contract_as_wasm(functions, hash)?;
        }
        Ok(())
    }
}

struct Failed {
    /// An authorization was refused.
    auth: bool,
    why: String,
}

/// A failed call, as far as the program had to do with it.
fn failed(error: &HostError, run: &Run, budget: &Budget) -> Failed {
    let auth = error.error.is_type(ScErrorType::Auth);
    let exhausted = budget.cpu_limit_exceeded().unwrap_or(false)
        || budget.mem_limit_exceeded().unwrap_or(false);
    let why = if exhausted {
        format!(
            "the host functions and other contracts that the program called used more than \
             {HOST_INSTRUCTIONS} instructions or {} of memory, as the network counts them",
            Bytes(HOST_MEMORY as usize)
        )
    } else {
        match run.trouble.borrow_mut().take() {
            Some((_, why)) => why,
            None => format!("the transaction failed when it was run again: {:?}", error.error),
        }
    };
    Failed { auth, why }
}

/// Whether a contract is asked for this authorization.
fn by_contract(credentials: &SorobanCredentials) -> bool {
    let is_contract =
        |address: &SorobanAddressCredentials| matches!(address.address, ScAddress::Contract(_));
    match credentials {
        SorobanCredentials::SourceAccount => false,
        SorobanCredentials::Address(address) => is_contract(address),
        // Newer kinds of credentials may ask several.
        _ => true,
    }
}

/// The hash that stands for a program in the entry of a contract.
fn synthetic_hash(contract: &ContractId) -> Hash {
    let mut hash = Sha256::new();
    hash.update(b"orrery: a program in place of the code of ");
    hash.update(contract.0);
    Hash(hash.finalize().into())
}

/// What a contract id is for the host.
pub(super) fn contract_of(value: &ScVal) -> Option<ContractId> {
    match value {
        ScVal::Address(ScAddress::Contract(contract)) => Some(ContractId(contract.0.0)),
        _ => None,
    }
}
