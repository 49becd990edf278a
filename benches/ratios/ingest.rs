//! P1 to P3: storing whole ledgers.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use orrery::decode::decode;
use orrery::domain::Network;
use orrery::pipeline::{Pipeline, StepObserver};
use orrery::store::{Durability, Store};
use parking_lot::Mutex;
use stellar_xdr::{LedgerCloseMeta, Limits, ReadXdr};

use super::amplify;
use super::baseline::sqlite::Sqlite;
use super::catch_up;
use super::indexing::raw;
use super::many;
use super::measure::{REPETITIONS, alternate, sized, time};
use super::recorded::Recorded;
use super::report::{Goal, Report, Row};

const P1: Goal = Goal::at_least(0.5, 1.2);
const P2: Goal = Goal::at_least(1.2, 2.5);
const P3: Goal = Goal::at_least(5.0, 20.0);

/// Ledgers per repetition.
const LEDGERS: u64 = sized(480, 6);

struct Load {
    name: &'static str,
    network: Network,
    ledgers: Vec<Vec<u8>>,
    steps: Arc<Steps>,
}

/// Measures the selected goals of P1, P2, P3 and catch-up on amplified copies of these ledgers.
pub fn run(
    recorded: &Recorded,
    wanted: impl Fn(&str) -> bool,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let copies = LEDGERS / recorded.ledgers.len() as u64;
    let ledgers = amplify::chain(recorded, copies);
    let (name, network) = (recorded.name, recorded.network.clone());
    let load = Load { name, network, ledgers, steps: Arc::default() };
    describe(&load, recorded.ledgers.len(), report)?;
    if wanted("P1") {
        let sides = alternate(
            || load.ours_per_second(directory, Durability::Synced),
            || load.full_decodes_per_second(),
        );
        load.note_steps("P1", report);
        report.add(Row::new(
            format!("P1 durable ingest / full decode, {}", load.name),
            "ledgers/s",
            sides,
            P1,
        ));
    }
    if wanted("P2") {
        let sides = alternate(
            || load.ours_per_second(directory, Durability::Deferred),
            || load.full_decodes_per_second(),
        );
        load.note_steps("P2", report);
        report.add(Row::new(
            format!("P2 bulk ingest / full decode, {}", load.name),
            "ledgers/s",
            sides,
            P2,
        ));
    }
    if wanted("P3") {
        let sides = alternate(
            || load.ours_per_second(directory, Durability::Synced),
            || load.sqlite_per_second(directory),
        );
        load.note_steps("P3", report);
        report.add(Row::new(
            format!("P3 durable ingest / SQLite, {}", load.name),
            "ledgers/s",
            sides,
            P3,
        ));
    }
    if wanted("catch-up") {
        let chain = (load.name, &load.network, &load.ledgers[..]);
        catch_up::run(chain, || load.full_decodes_per_second(), directory, report)?;
    }
    Ok(())
}

fn describe(load: &Load, recorded: usize, report: &mut Report) -> Result<(), Box<dyn Error>> {
    let (mut transactions, mut events) = (0, 0);
    for xdr in &load.ledgers {
        let view = decode(xdr, load.network.id())?;
        transactions += view.transactions.len();
        events += view.transactions.iter().map(|t| t.operation_events.len()).sum::<usize>();
    }
    let count = load.ledgers.len();
    let bytes: usize = load.ledgers.iter().map(Vec::len).sum();
    report.note(format!(
        "{}: {count} linked ledgers, made of {recorded} recorded ones with other accounts, amounts and hashes in \
         each copy; per ledger {} KB of XDR, {} transactions, {} events stored (classic events on, fee events off).",
        load.name,
        bytes / count / 1000,
        transactions / count,
        events / count,
    ));
    Ok(())
}

impl Load {
    fn per_second(&self, work: impl FnOnce()) -> f64 {
        self.ledgers.len() as f64 / time(work).as_secs_f64()
    }

    /// Reports the time of each ingestion step per ledger. The steps before `commit` run on all
    /// processors.
    fn note_steps(&self, goal: &str, report: &mut Report) {
        let ledgers = (self.ledgers.len() * REPETITIONS) as f64;
        let steps = self.steps.per_ledger(ledgers);
        report.note(format!("{goal}, {}, per ledger: {steps}.", self.name));
    }

    fn ours_per_second(&self, directory: &Path, durability: Durability) -> f64 {
        let directory = tempfile::tempdir_in(directory).expect("a directory");
        let store = Store::open(directory.path(), Some(&self.network)).expect("a new store");
        let pipeline = Pipeline::new(Arc::new(store), many::options(true), self.steps.clone());
        let ledgers = self.ledgers.iter().map(|xdr| raw(xdr)).collect::<Vec<_>>();
        self.per_second(|| {
            let ledgers = ledgers.into_iter().map(Ok::<_, Infallible>);
            let stored = pipeline.run(ledgers, durability, |_| ControlFlow::Continue(()));
            stored.expect("the load is a valid chain");
        })
    }

    fn full_decodes_per_second(&self) -> f64 {
        self.per_second(|| {
            for xdr in &self.ledgers {
                let ledger = LedgerCloseMeta::from_xdr(xdr, Limits::none());
                std::hint::black_box(ledger.expect("the load is valid XDR"));
            }
        })
    }

    fn sqlite_per_second(&self, directory: &Path) -> f64 {
        let directory = tempfile::tempdir_in(directory).expect("a directory");
        let mut sqlite = Sqlite::create(&directory.path().join("db")).expect("a new database");
        self.per_second(|| {
            for xdr in &self.ledgers {
                let ledger = decode(xdr, self.network.id()).expect("the load is valid");
                sqlite.insert(&ledger).expect("the ledger is stored");
            }
        })
    }
}

/// Seconds that each ingestion step has taken in all.
#[derive(Default)]
pub struct Steps(Mutex<BTreeMap<&'static str, f64>>);

impl Steps {
    /// Formats the time of each step per ledger, and resets all steps.
    pub fn per_ledger(&self, ledgers: f64) -> String {
        let step = |(name, seconds)| format!("{name} {:.2} ms", seconds / ledgers * 1e3);
        let steps: Vec<_> = std::mem::take(&mut *self.0.lock()).into_iter().map(step).collect();
        steps.join(", ")
    }
}

impl StepObserver for Steps {
    fn step(&self, name: &'static str, seconds: f64) {
        *self.0.lock().entry(name).or_default() += seconds;
    }
}
