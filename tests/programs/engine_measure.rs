//! Prints how long runs and compilation take, and checks that runs are deterministic.

use std::sync::Arc;
use std::time::{Duration, Instant};

use orrery::domain::{ContractId, LedgerSeq};
use orrery::programs::engine::{Engine, Fidelity, Invocation, Limits, Program, RunError};
use orrery::programs::engine::{EntryState, PreState, StateError};
use stellar_xdr::LedgerKey;

use crate::engine_vault::{Vaults, engine, run};
use orrery_testkit::engine_world::engine_settings;
use orrery_testkit::replay::{Replay, instance_key};

/// Number of times that one call is run.
const TIMES: u32 = 300;

fn first_deposits(vaults: &Vaults, count: usize) -> Vec<(Arc<Invocation>, Replay)> {
    let mut found = Vec::new();
    vaults.visit(|call, state| {
        let is_call =
            matches!(call.invocation.host_function, stellar_xdr::HostFunction::InvokeContract(_));
        if is_call && found.len() < count && call.invocation.ledger >= LedgerSeq(113) {
            found.push((Arc::clone(&call.invocation), state.clone()));
        }
    });
    found
}

#[test]
fn prints_run_and_compile_times() {
    let Some(vaults) = Vaults::load() else { return };
    let begun = Instant::now();
    let engine = Engine::new(engine_settings(1)).unwrap();
    println!("engine: {:?}", begun.elapsed());
    let code = vaults.program();
    let begun = Instant::now();
    let module = engine.load(&code).unwrap();
    println!("compiled {} bytes in {:?}", code.len(), begun.elapsed());

    let (invocation, state) = first_deposits(&vaults, 3).remove(2);
    let program = Program { module: &module, contracts: &vaults.contracts };
    let unchecked = Arc::new(Invocation { recorded: None, ..(*invocation).clone() });
    for (what, invocation) in [("with the fidelity check", &invocation), ("alone", &unchecked)] {
        let mut times: Vec<Duration> = (0..TIMES)
            .map(|_| {
                let begun = Instant::now();
                let outcome = engine.run(invocation, &state, program, &Limits::default()).unwrap();
                assert!(outcome.entered);
                begun.elapsed()
            })
            .collect();
        times.sort();
        let (median, best) = (times[times.len() / 2], times[0]);
        println!("a deposit {what}: median {median:?}, best {best:?}");
    }
}

#[test]
fn runs_are_deterministic() {
    let Some(vaults) = Vaults::load() else { return };
    let engine = engine();
    let module = engine.load(&vaults.program()).unwrap();
    let mut compared = 0;
    vaults.visit(|call, state| {
        let first = run(&engine, &module, &vaults.contracts, call, state);
        let again = run(&engine, &module, &vaults.contracts, call, state);
        assert_eq!((&first.result, first.fuel), (&again.result, again.fuel));
        compared += usize::from(first.entered);
    });
    assert!(compared >= 48, "{compared}");
}

/// A state of which every read fails.
struct Broken;

impl PreState for Broken {
    fn entry(&self, _: &LedgerKey) -> Result<EntryState, StateError> {
        Err(StateError::store(orrery::store::StoreError::Database("a test".to_owned())))
    }
}

#[test]
fn missing_state_makes_a_run_unavailable_and_not_failed() {
    let Some(vaults) = Vaults::load() else { return };
    let engine = engine();
    let module = engine.load(&vaults.program()).unwrap();
    let (invocation, state) = first_deposits(&vaults, 3).remove(2);
    let program = Program { module: &module, contracts: &vaults.contracts };
    let run = |state: &dyn PreState| engine.run(&invocation, state, program, &Limits::default());
    assert_eq!(run(&state).unwrap().fidelity, Fidelity::Exact);

    for key in invocation.footprint.iter().filter(|key| matches!(key, LedgerKey::ContractData(_))) {
        let mut without = state.clone();
        without.forget(key);
        let Err(RunError::StateUnavailable(missing)) = run(&without) else {
            panic!("a run without {key:?}");
        };
        assert_eq!(&missing, std::slice::from_ref(key));
    }
    let called =
        vaults.contracts.iter().find(|id| invocation.footprint.contains(&instance_key(id)));
    let mut without = state.clone();
    without.forget(&instance_key(called.unwrap()));
    let error = run(&without).unwrap_err().to_string();
    assert!(error.contains(&format!("the instance of {}", called.unwrap())), "{error}");
    assert!(matches!(run(&Broken), Err(RunError::State(_))));
}

#[test]
fn a_program_for_other_contracts_is_not_entered() {
    let Some(vaults) = Vaults::load() else { return };
    let engine = engine();
    let module = engine.load(&vaults.program()).unwrap();
    let (invocation, state) = first_deposits(&vaults, 1).remove(0);
    let contracts = [ContractId([77; 32])];
    let program = Program { module: &module, contracts: &contracts };
    let outcome = engine.run(&invocation, &state, program, &Limits::default()).unwrap();
    assert!(!outcome.entered);
    assert_eq!((outcome.result, outcome.fuel), (Ok(Vec::new()), 0));
    assert_eq!(outcome.fidelity, Fidelity::Unchecked);
}
