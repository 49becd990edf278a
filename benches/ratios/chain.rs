//! `chain.events`: the number of all events, and the newest ones, in SQL over an export of the large store. The newest
//! ledgers are in no file. The service's own part, from the manifest to the answer, is measured without HTTP.

use std::error::Error;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use orrery::domain::Owner;
use orrery::export::{Destination, Export, Interrupt, LiveChain};
use orrery::settings::Queries;
use orrery::store::{Needs, Store};
use orrery::tables::query::QueryRequest;
use orrery::tables::{Tables, TablesSettings, Tunables};

use super::measure::{Sample, Sides, quantile, repeat, sized, time};
use super::report::{Goal, Report, Row};
use super::stores::Filled;

const COUNT: Goal = Goal::at_most(100.0, 20.0);

/// Ledgers of a portion, and how many of the newest are not exported.
const PORTION: u32 = sized(1_000, 4);
const NEWEST: u64 = sized(200, 2);
/// Queries per repetition.
const QUESTIONS: usize = sized(20, 2);

/// Measures the goals of `chain.events`.
///
/// # Errors
/// When the export or a query fails, or an answer is wrong.
pub fn run(filled: &Filled, directory: &Path, report: &mut Report) -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir_in(directory)?;
    let store = &filled.store;
    let left = filled.ledgers.saturating_sub(NEWEST);
    let seconds = export(store, left, &directory.path().join("export"))?;
    let chain = ChainTables::open(store, directory.path())?;
    let events = store.status().totals.events;
    report.note(format!(
        "chain.events: {events} events, exported in {seconds:.0} s, without the newest {NEWEST} ledgers or more.",
    ));
    let count = "select count(*) as n from chain.events";
    let (found, expected) = (chain.ask(count)?, format!("[{{\"n\":{events}}}]"));
    if found != expected {
        return Err(format!("chain.events has {found}, and not {expected}").into());
    }
    let newest = "select * from chain.events order by ledger desc, id desc limit 100";
    report.add(Row::absolute("Count of chain.events", "ms", repeat(|| chain.millis(count)), COUNT));
    chain.ask(newest)?;
    let sides = Sides { ours: repeat(|| chain.millis(newest)), baseline: Sample::exact(1.0) };
    report.add(Row::information("Newest 100 of chain.events", "ms", sides));
    chain.close();
    Ok(())
}

/// Exports at least this many ledgers that are not exported yet, and returns the seconds it took.
///
/// # Errors
/// When the export fails.
pub fn export(store: &Arc<Store>, mut ledgers: u64, place: &Path) -> Result<f64, Box<dyn Error>> {
    let mut export = Export::open(&Destination::directory(place), store, Interrupt::default())?;
    let wanted = store.status().ledgers_with(Needs::RECORDS);
    let mut added = Ok(());
    let took = time(|| {
        let exported = export.add(store, &wanted, PORTION, |_, _| {
            ledgers = ledgers.saturating_sub(PORTION.into());
            if ledgers == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        added = exported.and_then(|_| export.finish()).map(drop);
    });
    added?;
    Ok(took.as_secs_f64())
}

/// SQL over an export and what is not exported yet.
pub struct ChainTables {
    tables: Tables,
    owner: Owner,
}

impl ChainTables {
    /// Opens the tables of a directory that has an export in `export`.
    ///
    /// # Errors
    /// When they cannot be opened.
    pub fn open(store: &Arc<Store>, directory: &Path) -> Result<Self, Box<dyn Error>> {
        let chain = LiveChain::open(Arc::clone(store), None, &directory.join("export"), PORTION)?;
        let owner = Owner("ratios".to_owned());
        let tables = Tables::open(TablesSettings {
            directory: directory.join("tables"),
            worker: PathBuf::from(env!("CARGO_BIN_EXE_orrery")),
            queries: Queries { allow_unconfined: true, ..Queries::default() },
            chain: Some(Arc::new(chain)),
            tunables: Tunables::default(),
        })?;
        tables.apply(&owner, Vec::new())?;
        tables.set_complete(&owner)?;
        Ok(Self { tables, owner })
    }

    /// Returns the answer to a query.
    ///
    /// # Errors
    /// When it fails.
    pub fn ask(&self, query: &str) -> Result<String, Box<dyn Error>> {
        let request = QueryRequest { query: query.to_owned(), ..QueryRequest::default() };
        let answer = self.tables.query(&self.owner, request)?;
        Ok(String::from_utf8_lossy(&answer.bytes).into_owned())
    }

    /// Returns the median time of a query that has succeeded before, in milliseconds.
    pub fn millis(&self, query: &str) -> f64 {
        let times: Vec<f64> =
            (0..QUESTIONS).map(|_| time(|| drop(self.ask(query))).as_secs_f64() * 1e3).collect();
        quantile(&times, 0.5)
    }

    /// Ends the worker.
    pub fn close(&self) {
        self.tables.close();
    }
}
