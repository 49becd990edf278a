//! Builds a contract host for one transaction and executes the transaction.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use orrery_ledger::domain::{ContractId, Emit};
use sha2::{Digest, Sha256};
use soroban_env_host::budget::Budget;
use soroban_env_host::storage::{SnapshotSource, Storage};
use soroban_env_host::xdr::{
    Hash, ScAddress, ScErrorType, SorobanAddressCredentials, SorobanCredentials,
};
use soroban_env_host::{EnvBase, Host, HostError, LedgerInfo};

use super::creation::{Creation, created_code};
use super::emitting;
use super::engine::Engine;
use super::fidelity::{Ended, Fidelity, compare};
use super::frame::Replacement;
use super::guest::Run;
use super::invocation::{Invocation, Program};
use super::limits::{Bounds, Bytes, HOST_INSTRUCTIONS, HOST_MEMORY, Stop};
use super::lookups::Lookups;
use super::snapshot::Snapshot;
use super::state::StateError;

thread_local! {
    /// Budget object of this thread's last successful run, kept for the next one. Creating one
    /// fills tables of the network's cost model, which takes a fifteenth of a short run.
    static SPARE_BUDGET: Cell<Option<Budget>> = const { Cell::new(None) };
}

/// Input of a run.
pub(super) struct Job<'a> {
    pub(super) invocation: &'a Invocation,
    pub(super) engine: &'a Engine,
    pub(super) program: Program<'a>,
    pub(super) lookups: Lookups,
    pub(super) ledger_info: LedgerInfo,
    pub(super) bounds: &'a Arc<Bounds>,
}

/// Result of a job.
pub(super) struct Report {
    pub(super) entered: bool,
    pub(super) result: Result<Vec<Emit>, String>,
    pub(super) fidelity: Fidelity,
    pub(super) fuel: u64,
    pub(super) missing: Vec<soroban_env_host::xdr::LedgerKey>,
    pub(super) stop: Option<Stop>,
    /// Error of a failed entry lookup.
    pub(super) failure: Option<StateError>,
}

/// How the host decides whether a call is authorised.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Authorization {
    /// By the transaction's authorization entries, as on the network.
    Checked,
    /// Every call is authorised, and the authorizations are only recorded.
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
    let calls_back =
        invocation.authorization.iter().any(|entry| needs_contract(&entry.credentials));
    let mut report = if calls_back {
        // A program that requires authorizations other than the contract's fails this check, and
        // runs again without it.
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
    report.stop = bounds.stop_reason();
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
    /// Executes the transaction once; returns `None` when the checked authorization was refused.
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
                if authorization == Authorization::Checked
                    && self.bounds.stop_reason().is_none() =>
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
        let internal = |error: HostError| {
            self.bounds
                .stop(Stop::Internal(format!("the contract host refused: {:?}", error.error)));
            Failed { auth: false, why: String::new() }
        };
        budget.reset_limits(HOST_INSTRUCTIONS, HOST_MEMORY).map_err(internal)?;
        let host = self.host(&budget, authorization).map_err(internal)?;
        self.replace_code(&host, run).map_err(internal)?;
        let value = host
            .invoke_function(self.invocation.host_function.clone())
            .map_err(|error| failed(&error, run, &budget))?;
        let events = host.get_events().map_err(|error| failed(&error, run, &budget))?;
        let (emits, events) = emitting::separate(events.0, run);
        // Reading the changed entries back is not charged to the run.
        budget.reset_unlimited().map_err(internal)?;
        let entries = if self.invocation.recorded.is_some() && run.entered.get() {
            host.get_stored_entries().map_err(internal)?
        } else {
            Vec::new()
        };
        // Not reused after a failure, which may leave the budget with a wrong nesting depth.
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

    /// Replaces the contracts' code with the program.
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
        // The entry of a contract that this transaction creates contains the hash of the network's
        // code.
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
    /// Whether an authorization was refused.
    auth: bool,
    why: String,
}

/// Describes a failed invocation from the program's point of view.
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
        match run.frame_failure.borrow_mut().take() {
            Some((_, why)) => why,
            None => format!("the transaction failed when it was run again: {:?}", error.error),
        }
    };
    Failed { auth, why }
}

/// Returns whether a contract may have to confirm this authorization.
fn needs_contract(credentials: &SorobanCredentials) -> bool {
    let is_contract =
        |address: &SorobanAddressCredentials| matches!(address.address, ScAddress::Contract(_));
    match credentials {
        SorobanCredentials::SourceAccount => false,
        SorobanCredentials::Address(address) => is_contract(address),
        // Newer kinds of credentials may name several addresses.
        _ => true,
    }
}

/// Returns the hash that stands for the program in the instance entry of a contract.
fn synthetic_hash(contract: &ContractId) -> Hash {
    let mut hash = Sha256::new();
    hash.update(b"orrery: a program in place of the code of ");
    hash.update(contract.0);
    Hash(hash.finalize().into())
}
