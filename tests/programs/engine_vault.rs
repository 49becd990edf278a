//! The recorded local network: the vault's program, replayed over all its ledgers, yields the rows
//! that a model of the contract computed, and does what the network recorded.

use std::path::PathBuf;

use orrery::domain::{ContractId, Emit};
use orrery::programs::engine::{CheckRules, Engine, Fidelity, Limits, Module, Outcome, Program};
use serde_json::{Value, json};
use stellar_xdr::{ScAddress, ScVal};

use orrery_testkit::engine_world::engine_settings;
use orrery_testkit::fixtures;
use orrery_testkit::replay::{Call, Replay, replay, sections};

pub struct Vaults {
    pub expected: Value,
    pub contracts: Vec<ContractId>,
    folder: PathBuf,
}

impl Vaults {
    /// `None` when the recorded ledgers are absent.
    pub fn load() -> Option<Self> {
        let folder = fixtures::folder()?.parent().unwrap().join("local-network");
        let text = std::fs::read_to_string(folder.join("local-vault.expected.json")).unwrap();
        let expected: Value = serde_json::from_str(&text).unwrap();
        let ids = expected["vaults"].as_array().unwrap().iter();
        let contracts = ids.map(|id| id.as_str().unwrap().parse().unwrap()).collect();
        Some(Self { expected, contracts, folder })
    }

    /// Returns the program that is written for the vaults.
    pub fn program(&self) -> Vec<u8> {
        std::fs::read(self.folder.join("vault/vault_program.wasm")).unwrap()
    }

    /// Returns the code of the vaults on the network.
    pub fn contract(&self) -> Vec<u8> {
        std::fs::read(self.folder.join("vault/vault.wasm")).unwrap()
    }

    /// Visits every successful call with one of the vaults in its footprint.
    pub fn visit(&self, mut visit: impl FnMut(&Call, &Replay)) {
        let fixture = fixtures::load(&self.folder, "local-vault.xdr.zst");
        let sections = sections(&fixture.ledgers);
        assert_eq!(sections.len(), 1, "one chain");
        replay(&sections[0], &fixture.network, false, |call, state| {
            let touched = self.contracts.iter().any(|contract| {
                let key = orrery_testkit::replay::instance_key(contract);
                call.invocation.footprint.contains(&key)
            });
            if call.successful && touched {
                visit(call, state);
            }
        });
    }
}

pub fn engine() -> Engine {
    Engine::new(engine_settings(2)).unwrap()
}

pub fn run(
    engine: &Engine,
    module: &Module,
    contracts: &[ContractId],
    call: &Call,
    state: &Replay,
) -> Outcome {
    let program = Program { module, contracts };
    engine.run(&call.invocation, state, program, &Limits::default()).unwrap()
}

#[test]
fn the_vault_program_yields_the_rows_of_the_model_with_exact_fidelity() {
    let Some(vaults) = Vaults::load() else { return };
    let engine = engine();
    let code = vaults.program();
    let facts = engine.check(&code, &CheckRules::default()).unwrap();
    assert!(facts.emits);
    assert_eq!(facts.functions, ["balance", "deposit", "sweep", "withdraw"]);
    let module = engine.load(&code).unwrap();

    let mut rows = serde_json::Map::new();
    let (mut runs, mut entered) = (0, 0);
    vaults.visit(|call, state| {
        let outcome = run(&engine, &module, &vaults.contracts, call, state);
        runs += 1;
        if !outcome.entered {
            assert_eq!(outcome.result, Ok(Vec::new()));
            return;
        }
        entered += 1;
        let ledger = call.invocation.ledger;
        assert_eq!(outcome.fidelity, Fidelity::Exact, "ledger {ledger}");
        for emit in outcome.result.unwrap() {
            let row = row(&emit, &call.invocation.transaction.to_string());
            rows.entry(emit.target).or_insert(json!([])).as_array_mut().unwrap().push(row);
        }
    });
    assert_eq!(Value::Object(rows), vaults.expected["program_tables"]);
    println!("{runs} transactions with a vault in their footprint, {entered} entered one");
    assert!(entered >= 48, "{entered}");
}

/// Returns a row as the model writes it: 128-bit integers as text.
fn row(emit: &Emit, transaction: &str) -> Value {
    let mut row = serde_json::Map::new();
    row.insert("contract_id".into(), json!(emit.contract.to_string()));
    row.insert("transaction".into(), json!(transaction));
    for field in emit.fields.iter() {
        let ScVal::Symbol(name) = &field.key else { panic!("{:?}", field.key) };
        row.insert(name.to_utf8_string_lossy(), value(&field.val));
    }
    Value::Object(row)
}

fn value(value: &ScVal) -> Value {
    match value {
        ScVal::Bool(v) => json!(v),
        ScVal::Void => Value::Null,
        ScVal::U32(v) => json!(v),
        ScVal::U64(v) => json!(v),
        ScVal::I128(v) => json!(i128::from(v).to_string()),
        ScVal::Symbol(v) => json!(v.to_utf8_string_lossy()),
        ScVal::Address(ScAddress::Contract(id)) => json!(ContractId(id.0.0).to_string()),
        ScVal::Address(ScAddress::Account(id)) => json!(id.to_string()),
        ScVal::Vec(Some(items)) => items.iter().map(self::value).collect(),
        other => panic!("the model has no {other:?}"),
    }
}
