//! P22 and neighbours: how a program that loops until it is stopped, modules that are expensive to
//! compile, and clients that send requests without a pause slow down ingestion and another program.

use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use orrery::domain::Owner;
use orrery::priority::Priority;
use orrery::programs::{Deploy, Replace, Trial, TrialSelection};

use super::client::Client;
use super::indexing::{Indexing, LedgersWithCalls, Which, raw};
use super::measure::{COMPARISON_REPETITIONS, Sides, compare, sized, time};
use super::recorded::Recorded;
use super::report::{Goal, Report, Row};
use super::sql::ask_if_ready;
use orrery_testkit::costly::{FUNCTION, shapes};

const P22: Goal = Goal::at_most(1.5, 1.1);
/// Goal for a program or ingestion beside a load, against the same beside counting threads: what
/// the load costs beyond the mere use of processors.
const BESIDE: Goal = Goal::at_least(0.9, 1.0);

const CLIENTS: usize = 16;
/// Owners that try out modules without a pause: as many as the service runs compiler processes at a
/// time.
const COMPILERS: usize = 2;
/// Shape of the module that these owners try out.
const COSTLY: &str = "calls";
/// Copies of the recorded ledgers that are ingested.
const COPIES: u64 = sized(40, 3);
/// Copies of the recorded ledgers on which a program runs.
const FEW_COPIES: u64 = sized(10, 1);
/// Calls of the measured program per ledger.
const DEPOSITS: usize = sized(60, 3);
const POLL_INTERVAL: Duration = Duration::from_millis(2);
const TIMEOUT: Duration = Duration::from_secs(60);

/// Measures the selected goals of P22 and neighbours.
pub fn run(
    recorded: &Recorded,
    wanted: impl Fn(&str) -> bool,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let scene = Scene {
        busy: LedgersWithCalls::new(recorded, COPIES, DEPOSITS),
        brief: LedgersWithCalls::new(recorded, FEW_COPIES, DEPOSITS),
        first: recorded.ledgers.len(),
        directory,
        answers: AtomicU64::new(0),
        compiled: AtomicU64::new(0),
    };
    let measured = |others| scene.ingestion(others).expect("the ledgers are stored");
    if wanted("P22") {
        let sides = compare(|| measured(Others::ClientsAndEndless), || measured(Others::None));
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
        let ledgers = scene.measured_ledgers();
        let runs = |others| scene.runs_per_second(others).expect("the program is run");
        for (others, name, counting) in [
            (Others::Endless, "an endless program", 1),
            (Others::Compilers, "two compilers", COMPILERS),
        ] {
            let control = Others::Counting(counting);
            let alone = Others::None;
            let comparison =
                LoadComparison::of(|| measured(others), || measured(control), || measured(alone));
            comparison.to_rates(ledgers).report("Ingestion", name, "ledgers/s", report);
            let comparison = LoadComparison::of(|| runs(others), || runs(control), || runs(alone));
            comparison.report("Program", name, "runs/s", report);
        }
        report.note(format!(
            "Neighbours: {} modules were compiled meanwhile, each in a process of its own.",
            scene.compiled.load(Ordering::Relaxed)
        ));
    }
    Ok(())
}

/// Something measured beside a load, beside the same number of counting threads, and alone.
pub struct LoadComparison {
    /// Beside the load, against beside counting threads: the avoidable cost of the load.
    own: Sides,
    /// Beside the load, against alone.
    whole: Sides,
    /// Beside counting threads, against alone: the cost that no scheduling can prevent.
    machine: Sides,
}

impl LoadComparison {
    /// Takes the three measurements in turn.
    pub fn of(
        beside: impl Fn() -> f64,
        counting: impl Fn() -> f64,
        alone: impl Fn() -> f64,
    ) -> Self {
        let values = || [beside(), counting(), alone()];
        let values: Vec<_> = std::iter::repeat_with(values).take(COMPARISON_REPETITIONS).collect();
        let sides = |a: usize, b: usize| values.iter().map(|it| (it[a], it[b])).collect();
        Self { own: sides(0, 1), whole: sides(0, 2), machine: sides(1, 2) }
    }

    /// Converts times to speeds, see [`Sides::to_rates`].
    pub fn to_rates(&self, units_per_second: f64) -> Self {
        let Self { own, whole, machine } = self;
        let [own, whole, machine] = [own, whole, machine].map(|it| it.to_rates(units_per_second));
        Self { own, whole, machine }
    }

    /// Adds the three rows to the report.
    pub fn report(self, what: &str, others: &str, unit: &'static str, report: &mut Report) {
        let name = format!("{what} beside {others} / beside as many threads that only count");
        report.add(Row::new(name, unit, self.own, BESIDE));
        let name = format!("{what} beside {others} / alone");
        report.add(Row::information(name, unit, self.whole));
        let name = format!("{what} beside threads that only count / alone");
        report.add(Row::information(name, unit, self.machine));
    }
}

/// The load beside which something is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Others {
    None,
    Endless,
    ClientsAndEndless,
    /// Owners that try out modules that take long to compile.
    Compilers,
    /// Number of threads that use only processor time that no other thread uses, and touch no
    /// memory. Their cost is due to the machine, whose processors are not independent of each
    /// other.
    Counting(usize),
}

impl Others {
    /// Starts the counting threads if this load has them.
    fn count<'scope>(self, scope: &'scope Scope<'scope, '_>, done: &'scope AtomicBool) {
        let threads = if let Self::Counting(threads) = self { threads } else { 0 };
        for _ in 0..threads {
            scope.spawn(move || spin_idle(done));
        }
    }
}

struct Scene<'a> {
    busy: LedgersWithCalls<'a>,
    brief: LedgersWithCalls<'a>,
    /// Number of ledgers that are stored before the measurement.
    first: usize,
    directory: &'a Path,
    answers: AtomicU64,
    compiled: AtomicU64,
}

impl Scene<'_> {
    /// Returns the number of ledgers whose ingestion is measured.
    fn measured_ledgers(&self) -> f64 {
        (self.busy.ledgers.len() - self.first) as f64
    }

    /// Returns the seconds it takes to store all ledgers except the first ones.
    fn ingestion(&self, others: Others) -> Result<f64, Box<dyn Error>> {
        let service = Indexing::start(self.busy.network, self.directory)?;
        let (first, rest) = self.busy.ledgers.split_at(self.first);
        if matches!(others, Others::Endless | Others::ClientsAndEndless) {
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
            let compiling = self.compilers(others, scope, service, done);
            others.count(scope, done);
            // Gives all threads time to start.
            thread::sleep(Duration::from_millis(200));
            let mut ingested = Ok(());
            let took = time(|| ingested = service.ingest(ledgers.into_iter()));
            done.store(true, Ordering::Relaxed);
            let mut failed = ingested.err().map(|error| error.to_string());
            for client in asking.into_iter().chain(compiling) {
                failed = failed.or(client.join().unwrap_or(Some("a client panicked".to_owned())));
            }
            (took.as_secs_f64(), failed)
        });
        failed.map_or(Ok(seconds), |why| Err(why.into()))
    }

    /// Sends requests until `done` is set. Returns the reason of a failure.
    fn client(&self, service: &Indexing, number: usize, done: &AtomicBool) -> Option<String> {
        // Real clients run on other machines; these must not compete with ingestion for processors.
        Priority::Prompt.apply_to_current_thread();
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
                send_request(&mut client, &paths, round)?;
                self.answers.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        asked().err().map(|error| format!("a client: {error}"))
    }

    /// Starts owners that try out modules until `done` is set, if this load has them.
    fn compilers<'scope>(
        &'scope self,
        others: Others,
        scope: &'scope Scope<'scope, '_>,
        service: &'scope Indexing,
        done: &'scope AtomicBool,
    ) -> Vec<ScopedJoinHandle<'scope, Option<String>>> {
        let count = if others == Others::Compilers { COMPILERS } else { 0 };
        let compile = move |number| scope.spawn(move || self.compile(service, number, done));
        (0..count).map(compile).collect()
    }

    /// Tries out modules until `done` is set. Returns the reason of a failure.
    fn compile(&self, service: &Indexing, number: usize, done: &AtomicBool) -> Option<String> {
        // The priority of threads that handle requests.
        Priority::Prompt.apply_to_current_thread();
        let owner = Owner(format!("compiler-{number}"));
        let module = shapes(1, FUNCTION).into_iter().find(|(name, _)| *name == COSTLY);
        let Some((_, code)) = module else { return Some(format!("there is no shape '{COSTLY}'")) };
        while !done.load(Ordering::Relaxed) {
            let deploy = Deploy {
                code: code.clone(),
                project_name: "costly".to_owned(),
                contracts: vec![self.busy.endless()],
                public: None,
                replace: Replace::No,
                allow_unfit: true,
            };
            let trial = Trial { deploy, on: TrialSelection::Last(1) };
            if let Err(error) = service.programs.try_out(&owner, trial, &|| false) {
                return Some(format!("a trial: {error}"));
            }
            self.compiled.fetch_add(1, Ordering::Relaxed);
        }
        None
    }

    /// Returns the runs per second of a program over ledgers that are already stored.
    fn runs_per_second(&self, others: Others) -> Result<f64, Box<dyn Error>> {
        let (busy, ledgers) = (&self.brief, &self.brief.ledgers);
        let service = Indexing::start(busy.network, self.directory)?;
        let watched = service.deploy(Which::Deposits, busy)?;
        service.programs.set_running(&service.owner, watched, false)?;
        let endless = match others {
            Others::Endless => Some(service.deploy(Which::Endless, busy)?),
            _ => None,
        };
        service.ingest(ledgers.iter().map(|xdr| raw(xdr))).map_err(|error| error.to_string())?;
        if let Some(endless) = endless {
            // After the first run has been stopped, the service treats the program as slow.
            let begun = Instant::now();
            while service.newest_run(endless)?.is_none() {
                if begun.elapsed() > TIMEOUT {
                    return Err("the endless program is not stopped".into());
                }
                thread::sleep(POLL_INTERVAL);
            }
        }
        let (last, done) = (busy.last()?, AtomicBool::new(false));
        let seconds = thread::scope(|scope| {
            let compiling = self.compilers(others, scope, &service, &done);
            others.count(scope, &done);
            if others != Others::None {
                thread::sleep(Duration::from_millis(200));
            }
            let begun = Instant::now();
            let run = || -> Result<f64, Box<dyn Error>> {
                service.programs.set_running(&service.owner, watched, true)?;
                service.wait_for_run(watched, last)?;
                Ok(begun.elapsed().as_secs_f64())
            };
            let seconds = run();
            done.store(true, Ordering::Relaxed);
            let failed = compiling.into_iter().find_map(|it| it.join().unwrap_or(None));
            failed.map_or(seconds, |why| Err(why.into()))
        })?;
        service.verify_runs(watched)?;
        Ok((ledgers.len() * DEPOSITS) as f64 / seconds)
    }
}

/// Uses processor time that no other thread uses until `done` is set, and touches no memory.
/// Independent chains of instructions keep all execution units busy, as a program's loop does. On
/// processors that are hardware threads of one core, this measures what they take from each other.
pub fn spin_idle(done: &AtomicBool) {
    Priority::Background.apply_to_current_thread();
    let mut chains = [1u64; 8];
    while !done.load(Ordering::Relaxed) {
        for _ in 0..1000 {
            for (chain, add) in chains.iter_mut().zip(1..) {
                *chain = chain.rotate_left(5).wrapping_add(add);
            }
        }
        black_box(&mut chains);
    }
}

fn send_request(client: &mut Client, paths: &[String], round: usize) -> Result<(), Box<dyn Error>> {
    if let Some(path) = paths.get(round % (paths.len() + 1)) {
        client.get(path)?;
        return Ok(());
    }
    ask_if_ready(client, "select count(*) as n from program_1_heavy_row").map(drop)
}
