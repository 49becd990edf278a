//! Tries out a module that is not deployed: runs it on stored transactions and stores nothing.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde_json::Value;
use serde_json::value::RawValue;

use super::effects::{Effects, Run};
use super::engine::CheckRules;
use super::manifest::{Manifest, Progress};
use super::records::{Execution, RunSource};
use super::registry::{Cell, Deploy, Entry};
use super::rows::RunRows;
use super::runner::{Runner, TurnLimits};
use super::transaction::HostCall;
use super::{ProgramError, names};
use orrery_ledger::domain::{
    ContractId, Emit, LedgerRange, LedgerSeq, LedgerSet, Owner, Page, ProgramId, TxHash,
};
use orrery_store::{TransactionPosition, TransactionQuery, TransactionRecord};
use orrery_tables::query::Interrupted;
use orrery_tables::schema::{ProgramSchema, SchemaLimits, TableSchema};
use orrery_tables::show;

/// A module, and the transactions on which to try it.
#[derive(Debug, Clone)]
pub struct Trial {
    /// The module and settings that would be deployed.
    pub deploy: Deploy,
    /// The transactions on which it is run.
    pub on: TrialSelection,
}

/// Selection of transactions for a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrialSelection {
    /// The transactions with these hashes.
    Transactions(Vec<TxHash>),
    /// The given number of newest successful transactions that call one of the contracts.
    Last(usize),
}

/// Result of a trial.
#[derive(Debug)]
pub struct TrialResult {
    /// Tables with their columns and types, as they would be after these runs.
    pub tables: Value,
    /// The selected transactions, in chain order.
    pub transactions: Vec<TrialTransaction>,
    /// Ledgers that should have been searched but are not stored in full: they are not stored at
    /// all, retention has removed transactions of them, or transactions of the contracts were left
    /// out.
    pub missing: LedgerSet,
}

/// Result of a trial for one transaction.
#[derive(Debug)]
pub struct TrialTransaction {
    /// Hash of the transaction.
    pub hash: TxHash,
    /// Ledger of the transaction.
    pub ledger: LedgerSeq,
    /// Result of its run, or a sentence that says why it was not run.
    pub run: Result<TrialRun, String>,
}

/// One run of a trial.
#[derive(Debug)]
pub struct TrialRun {
    /// The record of the run that would be stored.
    pub execution: Execution,
    /// The rows that would be written, as a JSON array.
    pub rows: Box<RawValue>,
    /// Fuel that the run consumed.
    pub fuel: u64,
}

/// Duration after which no further run of a trial is started.
const MAX_DURATION: Duration = Duration::from_secs(20);
/// Size of emitted values, as XDR, from which on no further run of a trial is started. It also caps
/// the size of the rows as JSON: rows beyond it are left out of the answer.
const MAX_BYTES: usize = 16 << 20;
/// Maximum number of stored transactions searched for the newest ones that call a contract.
const MAX_SEARCHED: usize = 20_000;
/// Number of transactions read from the store at a time.
const PAGE_SIZE: usize = 200;

/// Maximum number of ledgers that are checked for completeness.
const LEDGERS_CHECKED: usize = 100_000;

/// Placeholder id of the program of a trial.
const NO_PROGRAM: ProgramId = ProgramId(0);

pub(super) fn run(
    runner: &Runner,
    owner: &Owner,
    trial: Trial,
    interrupted: Interrupted<'_>,
) -> Result<TrialResult, ProgramError> {
    let Trial { deploy, on } = trial;
    let contracts = names::distinct(deploy.contracts)?;
    let facts = runner
        .engine
        .check(&deploy.code, &CheckRules::from(&runner.settings))
        .map_err(|refused| ProgramError::Module(refused.to_string()))?;
    let schema = ProgramSchema::from_spec(
        &facts.spec,
        |target| facts.targets.may_emit_to(target),
        SchemaLimits::from(&runner.settings),
    )
    .map_err(|error| ProgramError::Module(error.to_string()))?;
    let module = runner.engine.check_and_load(&deploy.code, &CheckRules::from(&runner.settings))?;
    let manifest = Manifest {
        id: NO_PROGRAM,
        owner: owner.clone(),
        project_name: deploy.project_name,
        replaces: None,
        contracts,
        module: facts.sha256,
        public: false,
        running: false,
        stopped_because: None,
        deployed_at: 0,
        schema,
        events: None,
    };
    let (chosen, missing) = chosen(runner, &manifest, &on)?;
    let cell = Cell::new(manifest.clone(), Progress::default());
    let entry = Entry::new(NO_PROGRAM, OnceLock::from(module), cell, Arc::default());
    let Runs { mut by_hash, end, schema } = runs(runner, &entry, &manifest, &chosen, interrupted)?;
    let mut left = MAX_BYTES;
    let mut transactions = Vec::with_capacity(chosen.len());
    for (position, Chosen { hash, reason }) in chosen {
        let run = match (reason, by_hash.remove(&hash)) {
            (Some(reason), _) => Err(reason.to_owned()),
            (None, Some(ran)) => ran.into_json(&schema, &mut left)?,
            (None, None) => match end {
                Some((end, why)) if position >= end => Err(why.to_string()),
                _ => Err("none of these contracts is called in it".to_owned()),
            },
        };
        transactions.push(TrialTransaction { hash, ledger: position.ledger, run });
    }
    let tables = schema.tables().iter().map(columns).collect();
    Ok(TrialResult { tables: Value::Object(tables), transactions, missing })
}

/// A transaction that a trial covers.
struct Chosen {
    hash: TxHash,
    /// Why it is not run, if it is not.
    reason: Option<&'static str>,
}

/// The runs of a trial.
struct Runs {
    by_hash: HashMap<TxHash, FinishedRun>,
    /// The first transaction that was not run, and why it and all later ones were not.
    end: Option<(TransactionPosition, End)>,
    schema: ProgramSchema,
}

/// Why a trial ends before all of its transactions were run.
#[derive(Debug, Clone, Copy)]
enum End {
    Time,
    TooManyBytes,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time => {
                let most = MAX_DURATION.as_secs();
                write!(f, "there was no time for it: a trial takes {most} s at the most")
            }
            Self::TooManyBytes => {
                let most = MAX_BYTES >> 20;
                write!(f, "there was no room for it: a trial's rows take {most} MiB at the most")
            }
        }
    }
}

/// A finished run, with its rows in their stored form: decoded values take several times as much
/// memory.
struct FinishedRun {
    execution: Execution,
    fuel: u64,
    rows: Vec<u8>,
}

impl FinishedRun {
    fn of(run: Run) -> Result<Self, ProgramError> {
        let rows = run.rows.encode().map_err(|_| ProgramError::Damaged(EMITTED))?;
        Ok(Self { execution: run.execution, fuel: run.fuel, rows })
    }

    /// Converts the run's rows to JSON, or returns the reason as `Err` when they exceed `left`.
    fn into_json(
        self,
        schema: &ProgramSchema,
        left: &mut usize,
    ) -> Result<Result<TrialRun, String>, ProgramError> {
        let Self { execution, fuel, rows } = self;
        let emits = RunRows::decode(&rows).map_err(|_| ProgramError::Damaged(EMITTED))?.emits;
        let mut text = "[".to_owned();
        for emit in emits {
            if text.len() > 1 {
                text.push(',');
            }
            text.push_str(&emit_json(&emit, schema).to_string());
            if text.len() > *left {
                *left = 0;
                return Ok(Err(End::TooManyBytes.to_string()));
            }
        }
        text.push(']');
        *left = left.saturating_sub(text.len());
        let rows = RawValue::from_string(text).expect("an array of JSON values is JSON");
        Ok(Ok(TrialRun { execution, rows, fuel }))
    }
}

/// Names the damaged item when emits cannot be encoded into or decoded from their stored form.
const EMITTED: &str = "what a run emitted";

fn runs(
    runner: &Runner,
    entry: &Entry,
    manifest: &Manifest,
    chosen: &BTreeMap<TransactionPosition, Chosen>,
    interrupted: Interrupted<'_>,
) -> Result<Runs, ProgramError> {
    let deadline = Instant::now() + MAX_DURATION;
    let mut left = MAX_BYTES;
    let schema = manifest.schema.clone();
    let mut runs = Runs { by_hash: HashMap::new(), end: None, schema };
    // Run transactions one by one, so that the values emitted by one are encoded before the next is
    // run.
    for (position, transaction) in chosen.iter().filter(|(_, it)| it.reason.is_none()) {
        if interrupted() {
            return Err(ProgramError::Interrupted);
        }
        let end = match () {
            () if Instant::now() > deadline => Some(End::Time),
            () if left == 0 => Some(End::TooManyBytes),
            () => None,
        };
        if let Some(end) = end {
            runs.end = Some((*position, end));
            break;
        }
        let mut effects = Effects::none(manifest, position.ledger, RunSource::Live);
        effects.schema = runs.schema;
        effects.selected = Some([transaction.hash].into());
        let effects =
            runner.run(entry, &manifest.contracts, effects, TurnLimits::with_deadline(deadline))?;
        runs.schema = effects.schema;
        for run in effects.runs {
            let hash = run.rows.transaction;
            let ran = FinishedRun::of(run)?;
            left = left.saturating_sub(ran.rows.len());
            runs.by_hash.insert(hash, ran);
        }
    }
    Ok(runs)
}

/// Returns the transactions that a trial covers, in chain order, and the ledgers that it could not
/// search.
fn chosen(
    runner: &Runner,
    manifest: &Manifest,
    on: &TrialSelection,
) -> Result<(BTreeMap<TransactionPosition, Chosen>, LedgerSet), ProgramError> {
    match on {
        TrialSelection::Transactions(wanted) => {
            let mut chosen = BTreeMap::new();
            for hash in wanted {
                let mut found = None;
                runner.store.transaction(hash, |record| {
                    found = Some((record.position, choice(runner, &manifest.contracts, record)));
                })?;
                let unknown = || ProgramError::UnknownTransaction(hash.to_string());
                let (position, choice) = found.ok_or_else(unknown)?;
                chosen.insert(position, choice?);
            }
            Ok((chosen, LedgerSet::default()))
        }
        TrialSelection::Last(wanted) => newest(runner, &manifest.contracts, *wanted),
    }
}

fn newest(
    runner: &Runner,
    contracts: &[ContractId],
    wanted: usize,
) -> Result<(BTreeMap<TransactionPosition, Chosen>, LedgerSet), ProgramError> {
    let mut chosen = BTreeMap::new();
    let mut page = Page::first(PAGE_SIZE);
    let ranges = runner.store.status().ranges;
    // The lowest ledger searched so far.
    let mut down_to = LedgerSeq(0);
    for _ in 0..MAX_SEARCHED / PAGE_SIZE {
        let contracts = contracts.to_vec();
        let query = TransactionQuery { ledgers: None, contracts, page };
        let (mut last, mut choices) = (None, Vec::new());
        runner.store.transactions(&query, |record| {
            last = Some(record.position);
            choices.push((record.position, choice(runner, &query.contracts, record)));
        })?;
        for (position, choice) in choices {
            let choice = choice?;
            if choice.reason.is_none() && chosen.len() < wanted {
                chosen.insert(position, choice);
            }
        }
        if chosen.len() == wanted {
            down_to = chosen.keys().next().map_or(down_to, |oldest| oldest.ledger);
            break;
        }
        let Some(last) = last else {
            down_to = LedgerSeq::FIRST;
            break;
        };
        down_to = last.ledger;
        page.cursor = Some(last);
    }
    let missing = missing(runner, contracts, &ranges, down_to)?;
    Ok((chosen, missing))
}

/// Returns the ledgers between `down_to` and the newest that are not stored in full. At most
/// [`LEDGERS_CHECKED`] ledgers are checked; ledgers below them count as missing.
fn missing(
    runner: &Runner,
    contracts: &[ContractId],
    ranges: &[LedgerRange],
    down_to: LedgerSeq,
) -> Result<LedgerSet, ProgramError> {
    let Some(newest) = ranges.last() else { return Ok(LedgerSet::default()) };
    let mut missing = LedgerSet::from(LedgerRange { first: down_to, last: newest.last });
    let mut left = LEDGERS_CHECKED;
    for range in ranges.iter().rev() {
        let mut next = Some(range.last);
        while let Some(ledger) = next.filter(|it| *it >= range.first.max(down_to) && left > 0) {
            if runner.is_complete_for(ledger, contracts)? {
                missing.remove(LedgerRange::only(ledger));
            }
            left -= 1;
            next = ledger.previous();
        }
    }
    Ok(missing)
}

fn choice(
    runner: &Runner,
    contracts: &[ContractId],
    record: &TransactionRecord<'_>,
) -> Result<Chosen, ProgramError> {
    let call = HostCall::read(record, runner.store.network().id())?;
    let called = |call: HostCall| call.called.all().any(|contract| contracts.contains(contract));
    let reason = if !record.successful {
        Some("it failed on the network, and only what succeeded is run")
    } else if !call.is_some_and(called) {
        Some("none of these contracts is called in it")
    } else {
        None
    };
    Ok(Chosen { hash: TxHash::from(*record.tx), reason })
}

/// Returns a table's name and its columns with their SQL types.
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
