//! P22 and neighbours: what a program that goes round until it is stopped, and clients that ask without a
//! pause, do to ingestion; and what it does to another program.

use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use orrery::priority::Priority;

use crate::client::Client;
use crate::indexing::{Busy, Indexing, Which, raw};
use crate::measure::{alternate, time};
use crate::recorded::Recorded;
use crate::report::{Goal, Report, Row};
use crate::sql::ask;

const P22: Goal = Goal::at_most(1.5, 1.1);
/// Of a program beside one that loops, against the program alone; and of ingestion likewise.
const BESIDE: Goal = Goal::at_least(0.9, 1.0);

const CLIENTS: usize = 16;
/// Copies of the recorded ledgers that are ingested.
const COPIES: u64 = 40;
/// Copies of them that a program is run on.
const FEW_COPIES: u64 = 10;
/// Calls of the program that is watched, in each ledger.
const DEPOSITS: usize = 60;
const LOOK_EVERY: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_secs(60);

/// Measures the wanted ones of P22 and neighbours.
pub fn run(
    recorded: &Recorded,
    wanted: impl Fn(&str) -> bool,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let scene = Scene {
        busy: Busy::new(recorded, COPIES, DEPOSITS),
        brief: Busy::new(recorded, FEW_COPIES, DEPOSITS),
        first: recorded.ledgers.len(),
        directory,
        answers: AtomicU64::new(0),
    };
    let measured = |others| scene.ingestion(others).expect("the ledgers are stored");
    if wanted("P22") {
        let sides = alternate(|| measured(Others::ClientsAndEndless), || measured(Others::None));
        let seconds: f64 = sides.ours.values().iter().sum();
        report.note(format!(
            "P22: the {CLIENTS} clients, in the same process, got {:.0} answers a second: pages of 100 events, \
             transactions of a contract, and SQL.",
            scene.answers.load(Ordering::Relaxed) as f64 / seconds
        ));
        let name = "P22 ingestion beside 16 clients and an endless program / alone";
        report.add(Row::new(name, "s", sides, P22));
    }
    if wanted("neighbours") {
        let sides = alternate(|| measured(Others::Endless), || measured(Others::None));
        let name = "Ingestion beside an endless program / alone";
        let ledgers = (scene.busy.ledgers.len() - scene.first) as f64;
        report.add(Row::new(name, "ledgers/s", sides.inverse(ledgers), BESIDE));
        let runs = |beside| scene.runs_per_second(beside).expect("the program is run");
        let sides = alternate(|| runs(true), || runs(false));
        let name = "Program beside an endless one / alone";
        report.add(Row::new(name, "runs/s", sides, BESIDE));
    }
    Ok(())
}

/// Who is there beside ingestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Others {
    None,
    Endless,
    ClientsAndEndless,
}

struct Scene<'a> {
    busy: Busy<'a>,
    brief: Busy<'a>,
    /// Ledgers that are stored before anything is measured.
    first: usize,
    directory: &'a Path,
    answers: AtomicU64,
}

impl Scene<'_> {
    /// Seconds to store all ledgers but the first ones.
    fn ingestion(&self, others: Others) -> Result<f64, Box<dyn Error>> {
        let service = Indexing::start(self.busy.network, self.directory)?;
        let (first, rest) = self.busy.ledgers.split_at(self.first);
        if others != Others::None {
            service.deploy(Which::Endless, &self.busy)?;
        }
        service.ingest(first.iter().map(|xdr| raw(xdr))).map_err(|error| error.to_string())?;
        let ledgers: Vec<_> = rest.iter().map(|xdr| raw(xdr)).collect();
        let clients = if others == Others::ClientsAndEndless { CLIENTS } else { 0 };
        let done = AtomicBool::new(false);
        let (seconds, failed) = thread::scope(|scope| {
            let (service, done) = (&service, &done);
            let asking: Vec<_> = (0..clients)
                .map(|number| scope.spawn(move || self.client(service, number, done)))
                .collect();
            // All of them have begun by then.
            thread::sleep(Duration::from_millis(200));
            let mut ingested = Ok(());
            let took = time(|| ingested = service.ingest(ledgers.into_iter()));
            done.store(true, Ordering::Relaxed);
            let mut failed = ingested.err().map(|error| error.to_string());
            for client in asking {
                failed = failed.or(client.join().unwrap_or(Some("a client panicked".to_owned())));
            }
            (took.as_secs_f64(), failed)
        });
        failed.map_or(Ok(seconds), |why| Err(why.into()))
    }

    /// Asks until it is done; why it failed, if it did.
    fn client(&self, service: &Indexing, number: usize, done: &AtomicBool) -> Option<String> {
        // Clients are elsewhere: here, they must not take what the service keeps for ingestion.
        Priority::Prompt.take();
        let asked = || -> Result<(), Box<dyn Error>> {
            let mut client = service.server.client()?;
            let paths = [
                "/rest/events/by-ledger?limit=100".to_owned(),
                format!("/rest/txs/by-contract/{}?limit=10", self.busy.endless()),
                format!("/rest/events/by-contract/{}?limit=100", self.busy.deposits()),
            ];
            for round in number.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                one_question(&mut client, &paths, round)?;
                self.answers.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        asked().err().map(|error| format!("a client: {error}"))
    }

    /// Runs per second of a program over ledgers that are stored already.
    fn runs_per_second(&self, beside_endless: bool) -> Result<f64, Box<dyn Error>> {
        let (busy, ledgers) = (&self.brief, &self.brief.ledgers);
        let service = Indexing::start(busy.network, self.directory)?;
        let watched = service.deploy(Which::Deposits, busy)?;
        service.programs.set_running(&service.owner, watched, false)?;
        let endless = match beside_endless {
            true => Some(service.deploy(Which::Endless, busy)?),
            false => None,
        };
        service.ingest(ledgers.iter().map(|xdr| raw(xdr))).map_err(|error| error.to_string())?;
        if let Some(endless) = endless {
            // It was stopped once: from here on it is known to be slow.
            let begun = Instant::now();
            while service.newest_run(endless)?.is_none() {
                if begun.elapsed() > PATIENCE {
                    return Err("the endless program is not stopped".into());
                }
                thread::sleep(LOOK_EVERY);
            }
        }
        let last = busy.last()?;
        let begun = Instant::now();
        service.programs.set_running(&service.owner, watched, true)?;
        service.wait_for_run(watched, last)?;
        let seconds = begun.elapsed().as_secs_f64();
        service.verify_runs(watched, 100)?;
        Ok((ledgers.len() * DEPOSITS) as f64 / seconds)
    }
}

fn one_question(client: &mut Client, paths: &[String], round: usize) -> Result<(), Box<dyn Error>> {
    if let Some(path) = paths.get(round % (paths.len() + 1)) {
        client.get(path)?;
        return Ok(());
    }
    match ask(client, "select count(*) as n from program_1_heavy_row") {
        // Of one owner only so many are answered at a time.
        Err(error) if error.to_string().starts_with("429") => Ok(()),
        answer => answer.map(drop),
    }
}
