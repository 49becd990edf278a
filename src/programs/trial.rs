//! Trying a module that is not deployed: it is run on stored transactions, and nothing is stored.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use serde_json::Value;

use super::manifest::{Manifest, Progress};
use super::records::{Execution, RunSource};
use super::registry::{Cell, Deploy, Entry};
use super::runner::{Effects, Runner};
use super::{ProgramError, names};
use crate::domain::{Emit, LedgerSeq, Owner, Page, ProgramId, TxHash};
use crate::store::TransactionQuery;
use crate::tables::schema::{ProgramSchema, TableSchema};
use crate::tables::show;

/// A module, and what it is to be tried on.
#[derive(Debug, Clone)]
pub struct Trial {
    /// What would be deployed.
    pub deploy: Deploy,
    /// What it is run on.
    pub on: TrialOn,
}

/// Transactions of a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrialOn {
    /// These.
    Transactions(Vec<TxHash>),
    /// The newest successful ones that touch one of the contracts.
    Last(usize),
}

/// What came of a trial.
#[derive(Debug)]
pub struct Tried {
    /// The tables with their columns and types, as they would be after these runs.
    pub tables: Value,
    /// The runs, in chain order.
    pub runs: Vec<TriedRun>,
}

/// One run of a trial.
#[derive(Debug)]
pub struct TriedRun {
    /// What would be recorded.
    pub execution: Execution,
    /// The rows that would be written.
    pub rows: Value,
    /// Fuel that it used.
    pub fuel: u64,
}

/// Number of a program that is none.
const NO_PROGRAM: ProgramId = ProgramId(0);

pub(super) fn run(runner: &Runner, owner: &Owner, wanted: Trial) -> Result<Tried, ProgramError> {
    let Trial { deploy, on } = wanted;
    let contracts = names::distinct(deploy.contracts)?;
    let facts = runner
        .engine
        .check(&deploy.code, &runner.settings.check_rules())
        .map_err(|refused| ProgramError::Module(refused.to_string()))?;
    let schema = ProgramSchema::from_spec(
        &facts.spec,
        |target| facts.targets.has(target),
        runner.settings.schema_limits(),
    )
    .map_err(|error| ProgramError::Module(error.to_string()))?;
    let module = runner.engine.load(&deploy.code)?;
    let manifest = Manifest {
        id: NO_PROGRAM,
        owner: owner.clone(),
        project_name: deploy.project_name,
        contracts,
        module: *facts.sha256.as_bytes(),
        public: false,
        running: false,
        stopped_because: None,
        deployed_at: 0,
        schema,
    };
    let (ledgers, hashes) = chosen(runner, &manifest, &on)?;
    let progress = Progress::default();
    let cell = Cell { manifest: manifest.clone(), progress, unwritten: 0, deleted: false };
    let entry = Entry { id: NO_PROGRAM, module, cell: Mutex::new(cell) };
    let mut schema = manifest.schema.clone();
    let mut runs = Vec::new();
    for ledger in ledgers {
        let mut effects = Effects::none(&manifest, ledger, RunSource::Live);
        effects.schema = schema;
        let effects = runner.run(&entry, &manifest.contracts, effects, None)?;
        schema = effects.schema;
        for run in effects.runs {
            if hashes.contains(&run.rows.transaction) {
                let rows = run.rows.emits.iter().map(|emit| emit_json(emit, &schema)).collect();
                runs.push(TriedRun {
                    execution: run.execution,
                    rows: Value::Array(rows),
                    fuel: run.fuel,
                });
            }
        }
    }
    let tables = schema.tables().iter().map(columns).collect();
    Ok(Tried { tables: Value::Object(tables), runs })
}

/// The transactions that a trial is about, and their ledgers in chain order.
fn chosen(
    runner: &Runner,
    manifest: &Manifest,
    on: &TrialOn,
) -> Result<(BTreeSet<LedgerSeq>, BTreeSet<TxHash>), ProgramError> {
    let (mut ledgers, mut hashes) = (BTreeSet::new(), BTreeSet::new());
    match on {
        TrialOn::Transactions(wanted) => {
            for hash in wanted {
                let mut found = None;
                runner.store.transaction(hash, |record| {
                    found = Some((record.position.ledger, TxHash::from(*record.tx)));
                })?;
                let unknown = || ProgramError::UnknownTransaction(hash.to_string());
                let (ledger, hash) = found.ok_or_else(unknown)?;
                ledgers.insert(ledger);
                hashes.insert(hash);
            }
        }
        TrialOn::Last(wanted) => {
            let query = TransactionQuery {
                ledgers: None,
                contracts: manifest.contracts.clone(),
                page: Page::first(*wanted),
            };
            runner.store.transactions(&query, |record| {
                ledgers.insert(record.position.ledger);
                hashes.insert(TxHash::from(*record.tx));
            })?;
        }
    }
    Ok((ledgers, hashes))
}

/// A table's columns and their types, as SQL calls them.
fn columns(table: &TableSchema) -> (String, Value) {
    let columns = table
        .columns
        .iter()
        .map(|column| serde_json::json!({ "name": column.name, "type": column.kind.to_string() }));
    (table.target.clone(), columns.collect())
}

fn emit_json(emit: &Emit, schema: &ProgramSchema) -> Value {
    serde_json::json!({
        "table": emit.target,
        "contract_id": emit.contract.to_string(),
        "values": schema.table(&emit.target).map(|table| show::row(table, emit)),
    })
}
