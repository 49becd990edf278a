//! Runs contracts' own code as programs: every successful contract transaction of the recorded
//! ledgers, replayed, must do what the network recorded.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use orrery::domain::ContractId;
use orrery::programs::engine::{CheckRules, Engine, Fidelity, Limits, Module, Program, RunError};
use stellar_xdr::{
    HostFunction, LedgerCloseMeta, LedgerEntryChange, LedgerEntryData, LedgerKey, ScAddress, ScVal,
};

use crate::engine_vault::{Vaults, engine};
use orrery_testkit::fixtures;
use orrery_testkit::replay::{Call, Replay, first_sequence, replay, sections};

/// Known and explained differences: part of the case's name, part of the message, reason.
const EXPLAINED: &[(&str, &str, &str)] = &[];

#[derive(Default)]
struct Tally {
    runs: usize,
    exact: usize,
    transactions: usize,
    constructors: usize,
    /// Transactions that create a contract without running its code.
    creations: usize,
    /// Transactions that call a contract with a program and never enter it.
    calls_not_entered: usize,
    unknown_state: usize,
    /// Modules compiled so far, by code.
    modules: HashMap<Vec<u8>, Module>,
    differences: Vec<String>,
}

impl Tally {
    fn visit(&mut self, engine: &Engine, name: &str, call: &Call, state: &Replay) {
        if matches!(call.invocation.host_function, HostFunction::UploadContractWasm(_)) {
            return;
        }
        let (mut some, mut entered) = (false, false);
        for (code, contracts) in contracts_of(call, state) {
            let module = self.modules.entry(code).or_insert_with_key(|code| {
                // Code that runs on a network must not be refused for its cost.
                let rules = CheckRules { must_emit: false, ..CheckRules::default() };
                let module = engine.check_and_load(code, &rules);
                module.unwrap_or_else(|error| panic!("{name}: {error}"))
            });
            let program = Program { module, contracts: &contracts };
            let outcome = match engine.run(&call.invocation, state, program, &Limits::default()) {
                Ok(outcome) => outcome,
                Err(RunError::StateUnavailable(_)) => {
                    self.unknown_state += 1;
                    continue;
                }
                Err(error) => panic!("{name}: {error}"),
            };
            some = true;
            if !outcome.entered {
                continue;
            }
            entered = true;
            self.runs += 1;
            let difference = match (outcome.result, outcome.fidelity) {
                (Ok(_), Fidelity::Exact) => {
                    self.exact += 1;
                    continue;
                }
                (Ok(_), Fidelity::Diverged(how)) => how,
                (Ok(_), Fidelity::Unchecked) => "nothing was recorded".to_owned(),
                (Err(fault), _) => fault.0,
            };
            let (ledger, transaction) = (call.invocation.ledger, call.invocation.transaction);
            self.differences.push(format!("{name}, ledger {ledger}, {transaction}: {difference}"));
        }
        let creates = !matches!(call.invocation.host_function, HostFunction::InvokeContract(_));
        if entered {
            self.transactions += 1;
            self.constructors += usize::from(creates);
        } else if some && creates {
            self.creations += 1;
        } else if some {
            self.calls_not_entered += 1;
        }
    }

    fn unexplained(&self) -> Vec<&String> {
        self.differences
            .iter()
            .filter(|difference| {
                !EXPLAINED.iter().any(|(name, message, _)| {
                    difference.contains(name) && difference.contains(message)
                })
            })
            .collect()
    }

    fn report(&self, of: &str) {
        println!(
            "{of}: {} transactions entered a contract, {} of them through its constructor; {} runs, {} exact; \
             {} transactions only create a contract, {} calls stay outside, {} runs lack state",
            self.transactions,
            self.constructors,
            self.runs,
            self.exact,
            self.creations,
            self.calls_not_entered,
            self.unknown_state
        );
        for difference in &self.differences {
            println!("  {difference}");
        }
    }
}

/// Returns the contracts with Wasm code that a transaction may call or create, by code.
fn contracts_of(call: &Call, state: &Replay) -> BTreeMap<Vec<u8>, Vec<ContractId>> {
    let mut contracts: BTreeMap<Vec<u8>, BTreeSet<ContractId>> = BTreeMap::new();
    for key in &call.invocation.footprint {
        let LedgerKey::ContractData(data) = key else { continue };
        let (ScAddress::Contract(contract), ScVal::LedgerKeyContractInstance) =
            (&data.contract, &data.key)
        else {
            continue;
        };
        let contract = ContractId(contract.0.0);
        if let Some(code) = state.code_of(&contract) {
            contracts.entry(code).or_default().insert(contract);
        }
    }
    let recorded = call.invocation.recorded.iter().flat_map(|recorded| recorded.changes.iter());
    for change in recorded {
        let LedgerEntryChange::Created(entry) = change else { continue };
        let LedgerEntryData::ContractData(data) = &entry.data else { continue };
        if let (ScAddress::Contract(contract), ScVal::ContractInstance(instance)) =
            (&data.contract, &data.val)
            && let stellar_xdr::ContractExecutable::Wasm(hash) = &instance.executable
            && let Some(code) = state.code(hash)
        {
            contracts.entry(code).or_default().insert(ContractId(contract.0.0));
        }
    }
    contracts.into_iter().map(|(code, ids)| (code, ids.into_iter().collect())).collect()
}

fn go_through(engine: &Engine, tally: &mut Tally, name: &str, fixture: &fixtures::Fixture) {
    for section in sections(&fixture.ledgers) {
        go_through_section(engine, tally, name, &section, fixture);
    }
}

fn go_through_section(
    engine: &Engine,
    tally: &mut Tally,
    name: &str,
    section: &[LedgerCloseMeta],
    fixture: &fixtures::Fixture,
) {
    let from_genesis = first_sequence(section) == 2;
    replay(section, &fixture.network, from_genesis, |call, state| {
        if call.successful {
            tally.visit(engine, name, call, state);
        }
    });
}

#[test]
fn recorded_transactions_are_reproduced_exactly() {
    let Some(folder) = fixtures::folder() else { return };
    let engine = engine();
    let mut core = Tally::default();
    let mut public = Tally::default();
    for name in fixtures::files(&folder) {
        let tally = match name.split('/').next() {
            Some("core-tests") => &mut core,
            Some("pubnet" | "testnet") => &mut public,
            _ => continue,
        };
        if name.starts_with("pubnet/ledger-6309") {
            continue;
        }
        go_through(&engine, tally, &name, &fixtures::load(&folder, &name));
    }
    // The twelve consecutive public ledgers form one section.
    let mut chain = (63_092_982..=63_092_993)
        .map(|sequence| fixtures::load(&folder, &format!("pubnet/ledger-{sequence}.xdr.gz")));
    let mut together = chain.next().unwrap();
    together.ledgers.extend(chain.flat_map(|fixture| fixture.ledgers));
    go_through(&engine, &mut public, "pubnet", &together);
    core.report("unit tests of the core");
    public.report("public networks");

    let local = Vaults::load().unwrap();
    let mut tally = Tally::default();
    local.visit(|call, state| tally.visit(&engine, "local network", call, state));
    tally.report("local network");

    let all = [&core, &public, &tally];
    let transactions: usize = all.iter().map(|tally| tally.transactions).sum();
    let runs: usize = all.iter().map(|tally| tally.runs).sum();
    let exact: usize = all.iter().map(|tally| tally.exact).sum();
    println!("together: {transactions} transactions, {runs} runs, {exact} exact");
    assert!(exact * 1000 >= runs * 995, "{exact} of {runs} are exact");
    let unexplained: Vec<_> = all.iter().flat_map(|tally| tally.unexplained()).collect();
    assert!(unexplained.is_empty(), "{unexplained:#?}");
    // Number of transactions in the recorded ledgers whose state is known.
    assert!(transactions >= 180, "{transactions}");
}
