//! `chain.events`: the number of all events, and the newest ones, in SQL over an export of the large store. The newest
//! ledgers are in no file. The service's own part, from the manifest to the answer, is measured without HTTP.

use std::error::Error;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use orrery::domain::Owner;
use orrery::export::{Destination, Export, Interrupt, LiveChain};
use orrery::settings::Queries;
use orrery::store::Needs;
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
    let (store, place) = (&filled.store, directory.path().join("export"));
    let mut export = Export::open(&Destination::directory(&place), store, Interrupt::default())?;
    let mut left = filled.ledgers.saturating_sub(NEWEST);
    let wanted = store.status().ledgers_with(Needs::RECORDS);
    let mut added = Ok(());
    let took = time(|| {
        let exported = export.add(store, &wanted, PORTION, |_, _| {
            left = left.saturating_sub(PORTION.into());
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        added = exported.and_then(|_| export.finish()).map(drop);
    });
    added?;
    let chain = LiveChain::open(Arc::clone(store), None, &place, PORTION)?;
    let owner = Owner("ratios".to_owned());
    let tables = Tables::open(TablesSettings {
        directory: directory.path().join("tables"),
        worker: PathBuf::from(env!("CARGO_BIN_EXE_orrery")),
        queries: Queries { allow_unconfined: true, ..Queries::default() },
        chain: Some(Arc::new(chain)),
        tunables: Tunables::default(),
    })?;
    tables.apply(&owner, Vec::new())?;
    tables.set_complete(&owner)?;
    let events = store.status().totals.events;
    report.note(format!(
        "chain.events: {events} events, exported in {:.0} s, without the newest {NEWEST} ledgers or more.",
        took.as_secs_f64()
    ));
    let ask = |query: &str| {
        let request = QueryRequest { query: query.to_owned(), ..QueryRequest::default() };
        tables
            .query(&owner, request)
            .map(|answer| String::from_utf8_lossy(&answer.bytes).into_owned())
    };
    let count = "select count(*) as n from chain.events";
    let (found, expected) = (ask(count)?, format!("[{{\"n\":{events}}}]"));
    if found != expected {
        return Err(format!("chain.events has {found}, and not {expected}").into());
    }
    let newest = "select * from chain.events order by ledger desc, id desc limit 100";
    // A failure was reported by the first query.
    let median = |query: &str| {
        let times: Vec<f64> =
            (0..QUESTIONS).map(|_| time(|| drop(ask(query))).as_secs_f64() * 1e3).collect();
        quantile(&times, 0.5)
    };
    report.add(Row::absolute("Count of chain.events", "ms", repeat(|| median(count)), COUNT));
    ask(newest)?;
    let sides = Sides { ours: repeat(|| median(newest)), baseline: Sample::exact(1.0) };
    report.add(Row::information("Newest 100 of chain.events", "ms", sides));
    tables.close();
    Ok(())
}
