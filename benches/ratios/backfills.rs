//! Backfills: the cost of program and ledger backfills for live ingestion and, if another build is
//! available, the speed of program backfills compared with that build.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use orrery::domain::{LedgerRange, Network, ProgramId, sequence_of};
use orrery::programs::backfill::State;
use serde_json::{Value, json};

use super::client::Client;
use super::deposits::built;
use super::indexing::{Indexing, LedgersWithCalls, Which, raw};
use super::measure::{REPETITIONS, Sides, sized, time};
use super::neighbours::{LoadComparison, spin_idle};
use super::process::Service;
use super::recorded::{Recorded, write_record};
use super::report::{Goal, Report, Row};

/// Goal for the speed of a program's backfill against that of another build.
const OTHER_BUILD: Goal = Goal::at_least(3.0, 10.0);
/// Environment variable with the path of the other build's binary, built with the same profile as
/// this one.
const OTHER: &str = "ORRERY_OTHER_BUILD";

/// Data directory of a service, within its temporary directory.
const DIRECTORY: &str = "data";
/// Copies of the recorded ledgers that are stored first, that the ledger backfill stores, and that
/// are ingested live.
const FIRST: usize = sized(10, 1);
const OLDER: usize = sized(30, 2);
const LIVE: usize = sized(20, 2);
/// Calls of the program per ledger.
const DEPOSITS: usize = 2;
/// Number of counting threads that stand in for the backfills. One of these runs the program, the
/// other prepares ledgers on all processors.
const BUSY_THREADS: usize = 2;
const POLL_INTERVAL: Duration = Duration::from_millis(2);
const TIMEOUT: Duration = Duration::from_secs(120);

/// Measures both comparisons.
pub fn run(
    recorded: &Recorded,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let busy = LedgersWithCalls::new(recorded, (FIRST + OLDER + LIVE) as u64, DEPOSITS);
    let scene = Scene { busy: &busy, copy: recorded.ledgers.len(), directory };
    let measured = |others| scene.live(others).expect("the ledgers are stored");
    let comparison = LoadComparison::of(
        || measured(Others::Backfills),
        || measured(Others::Counting),
        || measured(Others::None),
    );
    let ledgers = (LIVE * scene.copy) as f64;
    let others = "a program's backfill and one of ledgers";
    comparison.to_rates(ledgers).report("Ingestion", others, "ledgers/s", report);
    let Some(other) = env::var_os(OTHER).map(PathBuf::from) else {
        report
            .note(format!("Backfills of programs: {OTHER} names no other build to compare with."));
        return Ok(());
    };
    let own = Path::new(env!("CARGO_BIN_EXE_orrery"));
    let [own, other] = [own, &other].map(|program| Built::new(program, &scene));
    let (mut own, mut other) = (own?, other?);
    let sides = (0..REPETITIONS)
        .map(|_| Ok((own.ledgers_per_second()?, other.ledgers_per_second()?)))
        .collect::<Result<Sides, Box<dyn Error>>>()?;
    let name = "Backfill of a program / the same with another build";
    report.add(Row::new(name, "ledgers/s", sides, OTHER_BUILD));
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Others {
    None,
    Backfills,
    Counting,
}

struct Scene<'a> {
    busy: &'a LedgersWithCalls<'a>,
    /// Ledgers per copy.
    copy: usize,
    directory: &'a Path,
}

impl Scene<'_> {
    fn parts(&self) -> [&[Vec<u8>]; 3] {
        let (first, rest) = self.busy.ledgers.split_at(FIRST * self.copy);
        let (older, live) = rest.split_at(OLDER * self.copy);
        [first, older, live]
    }

    /// Returns the seconds it takes to store the live ledgers.
    fn live(&self, others: Others) -> Result<f64, Box<dyn Error>> {
        let service = Indexing::start(self.busy.network, self.directory)?;
        let program = service.deploy(Which::Deposits, self.busy)?;
        let [first, older, live] = self.parts();
        service.ingest(first.iter().map(|xdr| raw(xdr))).map_err(|error| error.to_string())?;
        service.wait_for_run(program, sequence_of(first.last().ok_or("no ledgers")?)?)?;
        let older: Vec<_> = older.iter().map(|xdr| raw(xdr)).collect();
        let live: Vec<_> = live.iter().map(|xdr| raw(xdr)).collect();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let (service, done) = (&service, &done);
            let mut working = Vec::new();
            match others {
                Others::None => {}
                Others::Backfills => {
                    let run = || again_and_again(service, program, first, done);
                    working.push(scope.spawn(run));
                    let fill = || {
                        service.backfill_ledgers(older.into_iter(), done).map_err(|e| e.to_string())
                    };
                    working.push(scope.spawn(fill));
                }
                Others::Counting => {
                    for _ in 0..BUSY_THREADS {
                        scope.spawn(|| spin_idle(done));
                    }
                }
            }
            let mut ingested = Ok(());
            let took = time(|| ingested = service.ingest(live.into_iter()));
            done.store(true, Ordering::Relaxed);
            for thread in working {
                thread.join().map_err(|_| "a backfill panicked")??;
            }
            ingested.map_err(|error| error.to_string())?;
            Ok(took.as_secs_f64())
        })
    }
}

/// Backfills a program over stored ledgers repeatedly until `done` is set.
fn again_and_again(
    service: &Indexing,
    program: ProgramId,
    ledgers: &[Vec<u8>],
    done: &AtomicBool,
) -> Result<(), String> {
    let sequence = |xdr: Option<&Vec<u8>>| sequence_of(xdr.ok_or("there are no ledgers")?);
    let range = LedgerRange { first: sequence(ledgers.first())?, last: sequence(ledgers.last())? };
    let (programs, owner) = (&service.programs, &service.owner);
    while !done.load(Ordering::Relaxed) {
        programs.begin_backfill(owner, program, range).map_err(|error| error.to_string())?;
        let is_running =
            || programs.backfill(owner, program).is_ok_and(|it| it.state == State::Running);
        while is_running() && !done.load(Ordering::Relaxed) {
            thread::sleep(POLL_INTERVAL);
        }
    }
    Ok(())
}

/// A service of one build that holds ledgers.
struct Built<'n> {
    service: Service,
    network: &'n Network,
    data: tempfile::TempDir,
    contract: String,
    range: [u32; 2],
    projects: usize,
}

impl<'n> Built<'n> {
    fn new(program: &Path, scene: &Scene<'n>) -> Result<Self, Box<dyn Error>> {
        let data = tempfile::tempdir_in(scene.directory)?;
        let [first, older, _] = scene.parts();
        let ledgers: Vec<_> = first.iter().chain(older).collect();
        let mut stream = Vec::new();
        for ledger in &ledgers {
            write_record(&mut stream, ledger)?;
        }
        let file = data.path().join("ledgers.xdr");
        std::fs::write(&file, stream)?;
        let (network, directory) = (scene.busy.network, data.path().join(DIRECTORY));
        let mut import = Command::new(program);
        import.args(["import", "--network", network.name(), "--data-dir"]);
        let imported = import.args([&directory, &file]).output()?;
        if !imported.status.success() {
            return Err(String::from_utf8_lossy(&imported.stderr).into());
        }
        let service = Service::start_build(program, &directory, network)?;
        let sequence = |ledger: Option<&&Vec<u8>>| -> Result<u32, Box<dyn Error>> {
            Ok(sequence_of(ledger.ok_or("there are no ledgers")?)?.0)
        };
        Ok(Self {
            service,
            network,
            data,
            contract: scene.busy.deposits().to_string(),
            range: [sequence(ledgers.first())?, sequence(ledgers.last())?],
            projects: 0,
        })
    }

    /// Deploys a new program and returns the speed of its backfill over all ledgers.
    fn ledgers_per_second(&mut self) -> Result<f64, Box<dyn Error>> {
        self.projects += 1;
        let deploy = json!({
            "code": built("deposit_program"),
            "project_name": format!("deposits{}", self.projects),
            "contracts": [self.contract],
        });
        // A new connection, because the server closes connections that are idle for long.
        let mut client = self.service.client(&self.data.path().join(DIRECTORY), self.network)?;
        let id = post(&mut client, "deploy", &deploy)?["id"].as_u64();
        let id = id.ok_or("a program has a number")?;
        let path = format!("{id}/backfill");
        let [from, to] = self.range;
        let begun = Instant::now();
        post(&mut client, &path, &json!({ "from": from, "to": to }))?;
        loop {
            let answer = client.get(&format!("/rest/retroshade/{path}"))?;
            let backfill: Value = serde_json::from_slice(answer)?;
            match backfill["state"].as_str() {
                Some("done") => break,
                Some("running") if begun.elapsed() < TIMEOUT => thread::sleep(POLL_INTERVAL),
                _ => return Err(format!("a backfill: {backfill}").into()),
            }
        }
        Ok(f64::from(to - from + 1) / begun.elapsed().as_secs_f64())
    }
}

fn post(client: &mut Client, path: &str, body: &Value) -> Result<Value, Box<dyn Error>> {
    let path = format!("/rest/retroshade/{path}");
    Ok(serde_json::from_slice(client.post(&path, body.to_string().as_bytes())?)?)
}
