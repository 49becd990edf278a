//! P13 and P14: how fast programs run. The baseline is the call as a node makes it, with the
//! contract's own code in the contract host's interpreter. The measured side runs a program that
//! does the same and emits rows, and compares its outcome with what the network recorded.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use orrery::domain::{ContractId, Network};
use orrery::programs::engine::{
    Engine, EngineSettings, Fidelity, Invocation, Limits, Module, Program, THREAD_STACK,
};
use orrery::source::records::Records;
use serde_json::Value;
use soroban_env_host::ModuleCache;

use super::baseline::host::BareCall;
use super::deposits::{Deposits, built};
use super::measure::{REPETITIONS, Sample, Sides, quantile, sized, time};
use super::report::{Goal, Report, Row};
use orrery_testkit::replay::{Replay, instance_key, replay, sections};

const P13: Goal = Goal::at_least(0.9, 4.0);
const P14: Goal = Goal::at_least(0.8, 0.97);
/// Goal for a run with a storage read, a storage write and an emit of eight fields, in
/// microseconds.
const RUN: Goal = Goal::at_most(100.0, 46.0);

/// Consecutive calls of one side before the other side's turn.
const IN_TURN: usize = sized(50, 5);
/// Approximate number of calls of each side per repetition.
const CALLS: usize = sized(2_000, 10);

/// Measures the selected goals of P13, P14 and run, on a thread with the stack size of the
/// service's program threads.
pub fn run(
    wanted: impl Fn(&str) -> bool + Send,
    data: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(THREAD_STACK);
        let measured = thread.spawn_scoped(scope, || {
            measure(wanted, data, report).map_err(|error| error.to_string())
        })?;
        measured.join().map_err(|_| "the measuring thread panicked")?.map_err(Into::into)
    })
}

fn measure(
    wanted: impl Fn(&str) -> bool,
    data: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let settings = EngineSettings {
        concurrent_runs: 1,
        ..EngineSettings::new(env!("CARGO_BIN_EXE_orrery").into())
    };
    let engine = Engine::new(settings)?;
    let cases = [vaults(&engine, data)?, deposits(&engine)?];
    for case in &cases {
        let (entered, exact) = case.verify(&engine)?;
        report.note(format!(
            "{}: {} calls, {entered} of them entered the program, {exact} did exactly what was recorded; the contract \
             has {} bytes, the program {}. Each run compares itself with the record.",
            case.name,
            case.calls.len(),
            case.contract_bytes,
            case.program_bytes,
        ));
        for (goal, name, cache) in [
            (P13, "P13 program runs / bare invoke, no module cache", None),
            (P14, "P14 program runs / bare invoke, warm module cache", Some(&case.cache)),
        ] {
            if wanted(&name[..3]) {
                let sides = case.against(&engine, cache)?;
                report.add(Row::new(format!("{name}, {}", case.name), "runs/s", sides, goal));
            }
        }
    }
    if wanted("run") {
        let [_, deposits] = &cases;
        let name = "Run with a storage read, a write and an 8-field emit";
        report.add(Row::absolute(name, "µs", deposits.median_micros(&engine)?, RUN));
    }
    Ok(())
}

/// Calls of some contracts, and the program for these contracts.
struct Case {
    name: &'static str,
    calls: Vec<(Arc<Invocation>, Replay)>,
    bare: Vec<BareCall>,
    cache: ModuleCache,
    module: Module,
    contracts: Vec<ContractId>,
    contract_bytes: usize,
    program_bytes: usize,
}

/// Reads the calls of the recorded local network.
fn vaults(engine: &Engine, data: &Path) -> Result<Case, Box<dyn Error>> {
    let folder = data.parent().unwrap_or(data).join("local-network");
    let expected = std::fs::read(folder.join("local-vault.expected.json"))?;
    let expected: Value = serde_json::from_slice(&expected)?;
    let network = Network::from_passphrase(expected["passphrase"].as_str().ok_or("no network")?);
    let contracts: Vec<ContractId> = expected["vaults"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    let file = std::fs::File::open(folder.join("local-vault.xdr.zst"))?;
    let ledgers: Vec<Vec<u8>> =
        Records::new(file)?.map(|record| record.map(|r| r.xdr)).collect::<Result<_, _>>()?;
    let keys: BTreeSet<_> = contracts.iter().map(instance_key).collect();
    let mut calls = Vec::new();
    for section in sections(&ledgers) {
        replay(&section, &network, false, |call, state| {
            let touches = call.invocation.footprint.iter().any(|key| keys.contains(key));
            if call.successful && touches && call.invocation.recorded.is_some() {
                calls.push((Arc::clone(&call.invocation), state.clone()));
            }
        });
    }
    let contract = std::fs::read(folder.join("vault/vault.wasm"))?;
    let program = std::fs::read(folder.join("vault/vault_program.wasm"))?;
    Case::new("recorded calls of a vault", engine, calls, contracts, (&contract, &program))
}

/// Makes deposits into a contract that already has some.
fn deposits(engine: &Engine) -> Result<Case, Box<dyn Error>> {
    const ACCOUNTS: u64 = 20;
    let mut deposits = Deposits::new();
    for _ in 0..ACCOUNTS {
        deposits.next(ACCOUNTS);
    }
    let calls = (0..ACCOUNTS).map(|_| {
        let state = deposits.state().clone();
        (Arc::new(deposits.next(ACCOUNTS)), state)
    });
    let calls = calls.collect();
    let contracts = vec![deposits.contract];
    let codes = (&built("deposit")[..], &built("deposit_program")[..]);
    Case::new("deposits", engine, calls, contracts, codes)
}

impl Case {
    fn new(
        name: &'static str,
        engine: &Engine,
        calls: Vec<(Arc<Invocation>, Replay)>,
        contracts: Vec<ContractId>,
        (contract, program): (&[u8], &[u8]),
    ) -> Result<Self, Box<dyn Error>> {
        let module = engine.load(program)?;
        let bare = |(call, state): &(Arc<Invocation>, Replay)| BareCall::new(call, state);
        let mut calls = calls;
        // Keeps the calls that a node can run with the known state; the others create contracts.
        calls.retain(|call| bare(call).invoke(None).is_ok());
        let bare: Vec<BareCall> = calls.iter().map(bare).collect();
        if bare.is_empty() {
            return Err(format!("{name}: no call can be made as a node makes it").into());
        }
        let cache = BareCall::cache(&bare).map_err(|error| format!("{name}: {error:?}"))?;
        let (contract_bytes, program_bytes) = (contract.len(), program.len());
        Ok(Self { name, calls, bare, cache, module, contracts, contract_bytes, program_bytes })
    }

    fn run_ours(&self, engine: &Engine, number: usize) -> orrery::programs::engine::Outcome {
        let (call, state) = &self.calls[number];
        let program = Program { module: &self.module, contracts: &self.contracts };
        engine.run(call, state, program, &Limits::default()).expect("the state is known")
    }

    /// Returns the number of calls that entered the program, and how many of these had exactly the
    /// recorded outcome.
    fn verify(&self, engine: &Engine) -> Result<(usize, usize), Box<dyn Error>> {
        let (mut entered, mut exact) = (0, 0);
        for number in 0..self.calls.len() {
            let outcome = self.run_ours(engine, number);
            outcome.result.map_err(|fault| format!("{}: {fault}", self.name))?;
            entered += usize::from(outcome.entered);
            exact += usize::from(outcome.fidelity == Fidelity::Exact);
            for cache in [None, Some(&self.cache)] {
                self.bare[number].invoke(cache).map_err(|error| format!("{error:?}"))?;
            }
        }
        if exact < entered || entered == 0 {
            return Err(format!("{}: {exact} of {entered} runs are exact", self.name).into());
        }
        Ok((entered, exact))
    }

    /// Returns the runs per second of both sides.
    fn against(
        &self,
        engine: &Engine,
        cache: Option<&ModuleCache>,
    ) -> Result<Sides, Box<dyn Error>> {
        let sides = (0..REPETITIONS).map(|_| {
            let (mut ours, mut bare, mut done) = (0.0, 0.0, 0);
            let mut numbers = (0..self.calls.len()).cycle();
            while done < CALLS {
                let turn: Vec<usize> = numbers.by_ref().take(IN_TURN).collect();
                ours += time(|| {
                    for number in &turn {
                        std::hint::black_box(self.run_ours(engine, *number));
                    }
                })
                .as_secs_f64();
                bare += time(|| {
                    for number in &turn {
                        let result = self.bare[*number].invoke(cache);
                        std::hint::black_box(result.expect("it did before"));
                    }
                })
                .as_secs_f64();
                done += turn.len();
            }
            (done as f64 / ours, done as f64 / bare)
        });
        Ok(sides.collect())
    }

    /// Returns the median microseconds of a run for each repetition.
    fn median_micros(&self, engine: &Engine) -> Result<Sample, Box<dyn Error>> {
        let numbers: Vec<usize> = (0..self.calls.len()).cycle().take(CALLS).collect();
        let medians = (0..REPETITIONS).map(|_| {
            let times = super::measure::micros(&numbers, |number| {
                std::hint::black_box(self.run_ours(engine, *number));
            });
            quantile(&times, 0.5)
        });
        Ok(Sample::from(medians.collect::<Vec<f64>>()))
    }
}
