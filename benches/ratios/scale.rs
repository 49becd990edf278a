//! What grows with the number of stored events: a service's store is filled to one size after the other, and
//! at each it is measured what users, operators and ingestion notice. On demand only, because it takes hours.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine};
use orrery::domain::Network;
use orrery::programs::storage;
use orrery::store::{Durability, Store};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use stellar_xdr::{Limits, ReadXdr, ScVal};
use tempfile::TempDir;

use super::chain::{self, ChainTables};
use super::client::Client;
use super::http::{NO_OP, REQUESTS, get, respelled};
use super::many::Generator;
use super::measure::{Sample, Sides, micros, quantile, repeat, sized, time};
use super::process::{Service, copy_image, query_load};
use super::report::{Goal, Report, Row};
use super::running::Running;
use super::stores::QuerySample;

/// Numbers of events, ascending.
pub const SIZES: [u64; 3] = [1_000_000, 10_000_000, 100_000_000];

const PAGES: Goal = Goal::at_most(1.5, 1.1);
const MEMORY: Goal = Goal::at_most(1.2, 1.05);
const START: Goal = Goal::at_most(500.0, 200.0);

/// Ledgers that are stored one by one, each durably, at every size. They are also what is in the log when the
/// service is killed.
const DURABLE_LEDGERS: u64 = sized(500, 2);
/// Ledgers that an export leaves out, as one that runs does.
const NOT_EXPORTED: u64 = sized(200, 2);
/// Time without progress after which consumers count as stuck.
const PATIENCE: Duration = Duration::from_secs(300);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

const COUNT: &str = "select count(*) as n from chain.events";
const AGGREGATE: &str = "select contract_id, count(*) as n, max(ledger) as last from chain.events \
    group by contract_id order by n desc limit 10";

/// What a figure is compared with at larger sizes.
#[derive(Clone, Copy)]
enum Compared {
    /// With the figure at the smallest size.
    Ratio(Option<Goal>),
    /// With a number.
    Absolute(Goal),
}

/// A figure at one size.
struct Figure {
    name: String,
    unit: &'static str,
    value: f64,
    compared: Compared,
}

/// Measures at each of these sizes.
pub fn run(
    generator: &Generator<'_>,
    network: &Network,
    sizes: &[u64],
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let mut growing = Growing {
        generator,
        network,
        data: Some(tempfile::tempdir_in(directory)?),
        beside: tempfile::tempdir_in(directory)?,
        ledgers: 0,
        exported: 0,
    };
    let mut smallest: Option<(u64, Vec<Figure>)> = None;
    for size in sizes {
        let figures = growing.figures_at(*size, report)?;
        let told = figures.iter().map(|it| format!("{} {:.1} {}", it.name, it.value, it.unit));
        report.note(format!("Scale, {size} events: {}.", told.collect::<Vec<_>>().join("; ")));
        match &smallest {
            None => smallest = Some((*size, figures)),
            Some((first, before)) => compare((*first, before), (*size, &figures), report),
        }
    }
    Ok(())
}

/// Adds a row for each figure at a size, beside that at the smallest size.
fn compare(
    (smallest, before): (u64, &[Figure]),
    (size, figures): (u64, &[Figure]),
    report: &mut Report,
) {
    for (now, then) in figures.iter().zip(before) {
        let ours = Sample::exact(now.value);
        let name = format!("Scale: {}, {size} events / {smallest}", now.name);
        let sides = Sides { ours: ours.clone(), baseline: Sample::exact(then.value) };
        report.add(match now.compared {
            Compared::Ratio(goal) => Row { name, unit: now.unit, sides, goal },
            Compared::Absolute(goal) => {
                let name = format!("Scale: {}, {size} events", now.name);
                Row::absolute(name, now.unit, ours, goal)
            }
        });
    }
}

/// A store that grows.
struct Growing<'a> {
    generator: &'a Generator<'a>,
    network: &'a Network,
    /// The data directory; `None` while a service has it.
    data: Option<TempDir>,
    /// Copies of it, its export and its backups.
    beside: TempDir,
    /// Ledgers that are stored.
    ledgers: u64,
    /// Ledgers that are exported, or more.
    exported: u64,
}

/// The figures at one size so far.
#[derive(Default)]
struct Figures(Vec<Figure>);

impl Figures {
    fn add(&mut self, name: &str, unit: &'static str, value: f64, compared: Compared) {
        self.0.push(Figure { name: name.to_owned(), unit, value, compared });
    }

    fn information(&mut self, name: &str, unit: &'static str, value: f64) {
        self.add(name, unit, value, Compared::Ratio(None));
    }
}

impl Growing<'_> {
    /// Fills the store to this many events and returns what is measured there.
    fn figures_at(
        &mut self,
        events: u64,
        report: &mut Report,
    ) -> Result<Vec<Figure>, Box<dyn Error>> {
        let mut figures = Figures::default();
        let dirty = self.beside.path().join("dirty");
        let questions = self.fill(events, &dirty, &mut figures, report)?;
        let data = self.data.as_ref().ok_or("the service has returned its directory")?.path();
        self.starts(&dirty, &mut figures)?;
        fs::remove_dir_all(&dirty)?;
        self.requests(data, &questions, &mut figures)?;
        let left = self.ledgers.saturating_sub(NOT_EXPORTED);
        self.queries(data, left.saturating_sub(self.exported), &mut figures, report)?;
        let audit = orrery(&["verify", "--data-dir"], &[data])?;
        figures.information("audit", "s", audit);
        let backups = self.beside.path().join("backups");
        let backup = orrery(&["backup", "--data-dir"], &[data, &backups])?;
        figures.information("backup", "s", backup);
        fs::remove_dir_all(&backups)?;
        self.exported = left;
        Ok(figures.0)
    }

    /// Lets a service with all consumers store ledgers up to this many events; copies the directory as a kill
    /// would leave it to `dirty`.
    fn fill(
        &mut self,
        events: u64,
        dirty: &Path,
        figures: &mut Figures,
        report: &mut Report,
    ) -> Result<QuerySample, Box<dyn Error>> {
        let data = self.data.take().ok_or("no service has the directory")?;
        let service = Running::over(data, self.network, |_| {})?;
        let (store, generator) = (service.store(), self.generator);
        let end = generator.ledgers_for(events);
        if end <= self.ledgers {
            return Err(format!("{events} events are not more than are stored").into());
        }
        let tenth = end - ((end - self.ledgers) / 10).max(1);
        let begun = Instant::now();
        generator.fill(store, self.ledgers..tenth, Durability::Deferred);
        figures.information(
            "import beside all consumers, last tenth",
            "events/s",
            events_per_second(store, || generator.fill(store, tenth..end, Durability::Deferred)),
        );
        let imported = begun.elapsed();
        wait_for_consumers(store)?;
        let indexed = begun.elapsed();
        self.ledgers = end + DURABLE_LEDGERS;
        let durable = || generator.fill(store, end..end + DURABLE_LEDGERS, Durability::Synced);
        figures.information(
            "ledgers one by one, durably",
            "events/s",
            events_per_second(store, durable),
        );
        wait_for_consumers(store)?;
        report.note(format!(
            "Scale, {events} events: imported in {:.0} s, processed by all consumers after {:.0} s.",
            imported.as_secs_f64(),
            indexed.as_secs_f64(),
        ));
        let bytes: u64 = store.sizes()?.values().sum();
        let stored = store.status().totals.events as f64;
        figures.information("disk, all families", "B/event", bytes as f64 / stored);
        let questions = QuerySample::of(store);
        copy_image(service.data.path(), dirty)?;
        self.data = Some(service.stop_and_keep()?);
        Ok(questions)
    }

    /// Measures starts on the state that a kill leaves.
    fn starts(&self, dirty: &Path, figures: &mut Figures) -> Result<(), Box<dyn Error>> {
        let image = self.beside.path().join("image");
        let program = Path::new(env!("CARGO_BIN_EXE_orrery"));
        let started = repeat(|| {
            copy_image(dirty, &image).expect("a copy");
            let start = Instant::now();
            drop(Service::start_build(program, &image, self.network).expect("the service starts"));
            let took = start.elapsed().as_secs_f64() * 1e3;
            fs::remove_dir_all(&image).expect("the copy is removed");
            took
        });
        figures.add("start after a kill", "ms", started.median(), Compared::Absolute(START));
        Ok(())
    }

    /// Measures pages that nobody has asked for before, over HTTP, and the memory after them.
    fn requests(
        &self,
        data: &Path,
        questions: &QuerySample,
        figures: &mut Figures,
    ) -> Result<(), Box<dyn Error>> {
        let program = Path::new(env!("CARGO_BIN_EXE_orrery"));
        let service = Service::start_build(program, data, self.network)?;
        let mut client = service.client(data, self.network)?;
        let nothing = vec![NO_OP.to_owned(); REQUESTS];
        let [nothing, _] = times(&mut client, &nothing);
        figures.information("request that does nothing, p50", "µs", nothing);
        for (name, paths) in pages(questions) {
            let paths: Vec<_> =
                paths.iter().cycle().take(REQUESTS).map(|path| respelled(path)).collect();
            let [p50, p99] = times(&mut client, &paths);
            figures.information(&format!("{name}, p50"), "µs", p50);
            figures.add(&format!("{name}, p99"), "µs", p99, Compared::Ratio(Some(PAGES)));
        }
        query_load(&mut client, questions)?;
        let [resident, cache] = service.memory(&mut client)?;
        let memory = Compared::Ratio(Some(MEMORY));
        figures.add("memory without block cache", "MiB", resident - cache, memory);
        Ok(())
    }

    /// Measures SQL over all events, after the export of so many more ledgers.
    fn queries(
        &self,
        data: &Path,
        ledgers: u64,
        figures: &mut Figures,
        report: &mut Report,
    ) -> Result<(), Box<dyn Error>> {
        let store = Store::open_with(data, Some(self.network), storage::extensions())?;
        let store = Arc::new(store);
        let seconds = chain::export(&store, ledgers, &self.beside.path().join("export"))?;
        report.note(format!("Scale: exported in {seconds:.0} s."));
        let tables = ChainTables::open(&store, self.beside.path())?;
        for (name, query) in
            [("SQL count of all events", COUNT), ("SQL aggregate of all events", AGGREGATE)]
        {
            tables.ask(query)?;
            figures.information(name, "ms", tables.millis(query));
        }
        tables.close();
        Ok(())
    }
}

/// Returns the paths of requests of each kind.
fn pages(questions: &QuerySample) -> Vec<(&'static str, Vec<String>)> {
    let mut random = ChaCha8Rng::seed_from_u64(59);
    let mut cursor = || random.random_range(2..=questions.last);
    let contracts: Vec<_> =
        questions.contracts.iter().take(REQUESTS).map(ToString::to_string).collect();
    let by_contract = |rest: &str, cursor: u64, contract: &str| {
        format!("/rest/events/by-contract/{contract}?limit=100&cursor={cursor}{rest}")
    };
    let plain = contracts.iter().map(|it| by_contract("", cursor(), it)).collect();
    let decoded = contracts.iter().map(|it| by_contract("&decoded=true", cursor(), it)).collect();
    let topics = questions.topics.iter().take(REQUESTS).map(|(contract, topic)| {
        // Not percent-encoded, because [`respelled`] does that. The API reads a space as a `+`.
        let topic = BASE64_STANDARD.encode(topic);
        format!("/rest/events/by-contract/{contract}?limit=100&topics={topic}")
    });
    let address = |topic: &[u8]| match ScVal::from_xdr(topic, Limits::none()) {
        Ok(ScVal::Address(address)) => Some(address.to_string()),
        _ => None,
    };
    let addresses: BTreeSet<_> =
        questions.topics.iter().filter_map(|(_, topic)| address(topic)).collect();
    let addresses: Vec<_> = addresses.into_iter().collect();
    let mut random = ChaCha8Rng::seed_from_u64(60);
    // Not in the order of the index.
    let addresses = addresses.choose_multiple(&mut random, REQUESTS);
    let by_address = addresses.map(|it| format!("/rest/events/by-address/{it}?limit=100"));
    let transactions = questions.transactions.iter().take(REQUESTS);
    vec![
        ("page of 100 by contract", plain),
        ("page of 100 by contract, decoded", decoded),
        ("page of 100 by topic", topics.collect()),
        ("page of 100 by address", by_address.collect()),
        (
            "events of a transaction",
            transactions.map(|it| format!("/rest/events/by-tx/{it}")).collect(),
        ),
    ]
}

/// Returns the median and the 99th percentile of requests, in microseconds.
fn times(client: &mut Client, paths: &[String]) -> [f64; 2] {
    let times = micros(paths, |path| get(client, path));
    [0.5, 0.99].map(|share| quantile(&times, share))
}

/// Returns how many events `work` stores per second.
fn events_per_second(store: &Store, work: impl FnOnce()) -> f64 {
    let before = store.status().totals.events;
    let took = time(work);
    (store.status().totals.events - before) as f64 / took.as_secs_f64()
}

/// Waits until all consumers have processed all ledgers.
fn wait_for_consumers(store: &Store) -> Result<(), Box<dyn Error>> {
    let lag = || -> u64 { store.consumers().iter().filter(|it| it.active).map(|it| it.lag).sum() };
    let (mut least, mut since) = (lag(), Instant::now());
    while least > 0 {
        std::thread::sleep(POLL_INTERVAL);
        let now = lag();
        if now < least {
            (least, since) = (now, Instant::now());
        } else if since.elapsed() > PATIENCE {
            return Err(format!("consumers lag {now} ledgers behind, and make no progress").into());
        }
    }
    Ok(())
}

/// Runs a command of the built binary, and returns the seconds that it took.
fn orrery(arguments: &[&str], paths: &[&Path]) -> Result<f64, Box<dyn Error>> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orrery"));
    command.args(arguments).args(paths);
    let mut output = None;
    let took = time(|| output = Some(command.output()));
    let output = output.ok_or("the command ran")??;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        return Err(format!("orrery {}: {told}", arguments.join(" ")).into());
    }
    Ok(took.as_secs_f64())
}
