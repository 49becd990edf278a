//! P30: a project over the stored events of contracts that declare them, from the request that makes
//! it until SQL has the last row. With one contract and with a hundred, and with an upgrade of the
//! contract in its first ledgers or in its last. With the built binary, over HTTP, beside DuckDB's
//! appender in this process.

use std::error::Error;
use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use orrery::domain::Network;
use orrery::programs::{row_log, storage};
use orrery::store::Store;
use orrery_testkit::binary::{Service, run as run_orrery};
use serde_json::{Value, json};
use stellar_strkey::ed25519::PublicKey;

use super::baseline::rows::{self, PlainTransfer};
use super::client::Client;
use super::declaring::{Declaring, Upgrade};
use super::measure::{Sample, Sides, sized, time};
use super::process::copy_image;
use super::recorded::Recorded;
use super::report::{Goal, Report, Row};
use super::running::wait_until;
use super::sql::ask_if_ready;
use super::variation::spread;

const SPEED: Goal = Goal::at_least(150e3, 300e3);
const APPENDER: Goal = Goal::at_least(0.5, 0.8);
/// Goal for the memory of the service after a fill, without the block cache, against the memory
/// before.
const MEMORY: Goal = Goal::at_most(1.1, 1.0);

/// A fill takes seconds, and begins with a new process on a copy of the same store.
const REPETITIONS: usize = sized(3, 1);
/// Rows that the baseline writes in one transaction, and in all.
const ROWS_AT_ONCE: usize = 8_192;
const APPENDED: u64 = sized(500_000, 1_000);
/// Time in which a service gives back the memory that it does not need, after its start and after a
/// fill.
const SETTLES_WITHIN: [Duration; 2] =
    sized([Duration::from_secs(5), Duration::from_secs(20)], [Duration::from_millis(100); 2]);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Slower than any fill.
const SLOWEST: u64 = 2_000;
const STARTS_WITHIN: Duration = Duration::from_secs(120);
const PROJECT: &str = "asset";
const CACHE_METRIC: &str = "orrery_store_cache_bytes ";
const MEBIBYTE: f64 = (1 << 20) as f64;

/// A load, and what it is called.
struct Case {
    name: &'static str,
    file: &'static str,
    load: Declaring,
}

fn cases(events: u64) -> [Case; 4] {
    [
        ("one contract", "one", 1, Upgrade::Never),
        ("one contract, upgraded in its first ledgers", "upgraded", 1, Upgrade::InFirstLedgers),
        ("one contract, upgraded in its last ledgers", "late", 1, Upgrade::InLastLedgers),
        ("100 contracts", "hundred", 100, Upgrade::Never),
    ]
    .map(|(name, file, contracts, upgrade)| {
        let load = Declaring::new(contracts, upgrade, events);
        Case { name, file, load }
    })
}

/// Writes the ledgers of each case to a file of a directory, and to its `README` how they are used.
pub fn keep(recorded: &Recorded, events: u64, directory: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(directory)?;
    let mut readme = format!(
        "Ledgers of P30. Network passphrase: {}\n\
         orrery import --network {:?} --data-dir DIR FILE\n",
        recorded.network.passphrase(),
        recorded.network.name(),
    );
    for case in cases(events) {
        let file = directory.join(case.file).with_extension("xdr");
        case.load.write(recorded, &file)?;
        readme += &format!("\n{}.xdr: {}, {} events\n", case.file, case.name, case.load.events());
        case.load.contracts().for_each(|contract| readme += &format!("{contract}\n"));
        fs::write(directory.join("README"), &readme)?;
        eprintln!("  {}", file.display());
    }
    Ok(())
}

/// Measures P30 with this number of events in each case.
pub fn run(
    recorded: &Recorded,
    events: u64,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let plain: Vec<_> = (0..APPENDED).map(plain).collect();
    for case in cases(events) {
        let scene = Scene::new(&case, recorded, directory)?;
        let mut fills = Vec::new();
        for _ in 0..REPETITIONS {
            fills.push((scene.fill(directory)?, appended_per_second(&plain, directory)?));
        }
        scene.report(&fills, report);
    }
    report.note(format!(
        "P30: each fill begins with a new process on a copy of a store that has the ledgers, compacted. Each event is a \
         row of its table and one of the view of all events, and counts once. The appender writes {APPENDED} transfers \
         with the columns of that table, each once, {ROWS_AT_ONCE} in a transaction."
    ));
    Ok(())
}

/// A store that has the events of a case.
struct Scene<'c> {
    case: &'c Case,
    network: Network,
    data: tempfile::TempDir,
    /// Bytes of the store's files.
    stored: u64,
}

/// What a fill took.
struct Fill {
    events_per_second: f64,
    /// Bytes of the files of DuckDB, and those by which the store has grown.
    tables: f64,
    store: f64,
    /// Bytes of memory.
    memory: Memory,
    /// Bytes that the service and its SQL worker have written to the disk: a second fill shows here.
    written: f64,
    /// Whether rows that had been written were derived or laid out anew.
    is_anew: bool,
}

/// Resident memory of a service without its block cache, and of its SQL worker, in bytes.
struct Memory {
    before: f64,
    most: f64,
    after: f64,
    most_of_worker: f64,
    after_of_worker: f64,
}

impl<'c> Scene<'c> {
    fn new(case: &'c Case, recorded: &Recorded, directory: &Path) -> Result<Self, Box<dyn Error>> {
        let data = tempfile::tempdir_in(directory)?;
        let file = data.path().join("ledgers.xdr");
        case.load.write(recorded, &file)?;
        let network = recorded.network.clone();
        let import = ["import", "--network", network.name(), "--data-dir", "stored", "ledgers.xdr"];
        run_orrery(data.path(), &import).succeeded();
        fs::remove_file(file)?;
        let mut scene = Self { case, network, data, stored: 0 };
        let service = Service::start(&scene.path());
        wait_until("all ledgers are indexed", || {
            let lag = "orrery_consumer_lag_ledgers{consumer=\"interfaces\"} 0";
            service.metrics().lines().any(|line| line == lag)
        })?;
        service.stop();
        scene.stored = scene.size_of_store(&scene.path())?.0;
        Ok(scene)
    }

    fn path(&self) -> std::path::PathBuf {
        self.data.path().join("stored")
    }

    /// Returns the size of a compacted store, and whether rows of its project were derived or laid out
    /// anew.
    fn size_of_store(&self, path: &Path) -> Result<(u64, bool), Box<dyn Error>> {
        let store = Store::open_with(path, Some(&self.network), storage::extensions())?;
        store.flush()?;
        store.compact()?;
        let projects = row_log::programs(&store)?;
        let is_anew = projects.iter().any(|project| project.arrangement() != Some(0));
        Ok((store.sizes()?.values().sum(), is_anew))
    }

    /// Makes the project in a copy of the store.
    fn fill(&self, directory: &Path) -> Result<Fill, Box<dyn Error>> {
        let copy = tempfile::tempdir_in(directory)?;
        let data = copy.path().join("data");
        copy_image(&self.path(), &data)?;
        let service = Service::start(&data);
        let mut client = Client::connect(service.address.parse()?, service.token())?;
        client.get("/rest/events/by-ledger?limit=100")?;
        let before = settled(&service, SETTLES_WITHIN[0])?;
        let events = self.case.load.events();
        let written = service.io("write_bytes");
        let begun = Instant::now();
        self.watch_until_filled(&mut client, begun)?;
        let took = begun.elapsed();
        let written = service.io("write_bytes").saturating_sub(written) as f64;
        let memory = Memory {
            before,
            most: service.memory("VmHWM") as f64 - cache_bytes(&service)?,
            most_of_worker: service.memory_of_children("VmHWM") as f64,
            after: settled(&service, SETTLES_WITHIN[1])?,
            after_of_worker: service.memory_of_children("VmRSS") as f64,
        };
        service.stop();
        let tables = size_of(&data.join("tables"))? as f64;
        let (stored, is_anew) = self.size_of_store(&data)?;
        Ok(Fill {
            events_per_second: events as f64 / took.as_secs_f64(),
            tables: tables / events as f64,
            store: (stored as f64 - self.stored as f64) / events as f64,
            memory,
            written: written / events as f64,
            is_anew,
        })
    }

    /// Makes the project, and waits until its status says that its tables hold all rows, and SQL
    /// counts them.
    fn watch_until_filled(
        &self,
        client: &mut Client,
        begun: Instant,
    ) -> Result<(), Box<dyn Error>> {
        let events = self.case.load.events();
        let contracts: Vec<_> = self.case.load.contracts().map(|it| it.to_string()).collect();
        let watch = json!({ "project_name": PROJECT, "contracts": contracts }).to_string();
        let watched = client.post("/rest/retroshade/watch", watch.as_bytes())?;
        let id = serde_json::from_slice::<Value>(watched)?["id"].clone();
        let count = format!("select count(*) as n from {PROJECT}.events");
        let longest = STARTS_WITHIN + Duration::from_secs(events / SLOWEST);
        let mut answer = None;
        loop {
            let status = client.get(&format!("/rest/retroshade/{id}/status"))?;
            let status: Value = serde_json::from_slice(status)?;
            if status["backfill"] == "done" && status["rows_in_tables"] == true {
                let counted = ask_if_ready(client, &count)?;
                if counted.as_ref().is_some_and(|rows| rows[0]["n"] == events) {
                    return match status["undeclared"].as_u64() {
                        Some(0) => Ok(()),
                        _ => Err(format!("there are undeclared events: {status}").into()),
                    };
                }
                answer = counted;
            }
            if begun.elapsed() > longest {
                return Err(format!("not all of {events} events: {status} {answer:?}").into());
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn report(&self, fills: &[(Fill, f64)], report: &mut Report) {
        let name = self.case.name;
        let of = |value: &dyn Fn(&Fill) -> f64| {
            Sample::from(fills.iter().map(|(fill, _)| value(fill)).collect::<Vec<_>>())
        };
        let speed = of(&|fill| fill.events_per_second);
        let appended = fills.iter().map(|(_, appended)| *appended).collect::<Vec<_>>();
        let sides = Sides { ours: speed.clone(), baseline: appended.into() };
        let row = format!("P30 from watch to the last row in SQL, {name}");
        report.add(Row::absolute(row, "events/s", speed, SPEED));
        let row = format!("P30 rows / DuckDB's appender, {name}");
        report.add(Row::new(row, "rows/s", sides, APPENDER));
        let row = format!("P30 bytes per row in DuckDB's files / in the store, {name}");
        let sides = Sides { ours: of(&|fill| fill.tables), baseline: of(&|fill| fill.store) };
        report.add(Row::information(row, "bytes", sides));
        let memory =
            fills.iter().map(|(fill, _)| (fill.memory.after, fill.memory.before)).collect();
        let row = format!("P30 memory after / before, block cache not counted, {name}");
        report.add(Row::new(row, "bytes", memory, MEMORY));
        let mebibytes = |value: &dyn Fn(&Memory) -> f64| {
            format!("{:.0}", of(&|fill| value(&fill.memory)).median() / MEBIBYTE)
        };
        report.note(format!(
            "P30, {name}: {} events. Resident memory without block cache: {} MiB before, {} at most, {} after; of the SQL \
             worker {} at most, {} after. {:.0} bytes per row were written to the disk until SQL had the last one; rows \
             that were there were {} anew.",
            self.case.load.events(),
            mebibytes(&|it| it.before),
            mebibytes(&|it| it.most),
            mebibytes(&|it| it.after),
            mebibytes(&|it| it.most_of_worker),
            mebibytes(&|it| it.after_of_worker),
            of(&|fill| fill.written).median(),
            if fills.iter().any(|(fill, _)| fill.is_anew) { "written" } else { "not written" },
        ));
    }
}

/// Returns the lowest resident memory of a service, without its block cache, within a time, in bytes.
fn settled(service: &Service, within: Duration) -> Result<f64, Box<dyn Error>> {
    let (begun, mut lowest) = (Instant::now(), f64::INFINITY);
    while begun.elapsed() < within {
        thread::sleep(POLL_INTERVAL);
        lowest = lowest.min(service.memory("VmRSS") as f64);
    }
    Ok(lowest - cache_bytes(service)?)
}

/// Returns the size of the block cache as the service reports it, in bytes.
fn cache_bytes(service: &Service) -> Result<f64, Box<dyn Error>> {
    let metrics = service.metrics();
    let value = metrics.lines().find_map(|line| line.strip_prefix(CACHE_METRIC));
    Ok(value.ok_or("the block cache is not among the metrics")?.trim().parse()?)
}

/// Returns the size of the files in a directory and those below it, in bytes.
fn size_of(directory: &Path) -> io::Result<u64> {
    let sizes = fs::read_dir(directory)?.map(|entry| {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_dir() { size_of(&entry.path()) } else { Ok(metadata.len()) }
    });
    sizes.sum()
}

fn appended_per_second(plain: &[PlainTransfer], directory: &Path) -> Result<f64, Box<dyn Error>> {
    let directory = tempfile::tempdir_in(directory)?;
    let file = directory.path().join("plain.duckdb");
    let connection = rows::database::<PlainTransfer>(&file, "transfer")?;
    let mut done = Ok(());
    let took = time(|| done = rows::append(&connection, "transfer", plain, ROWS_AT_ONCE));
    done?;
    Ok(plain.len() as f64 / took.as_secs_f64())
}

/// Returns a row as ours are: ids that grow, other accounts and amounts in each, ten in a transaction.
fn plain(number: u64) -> PlainTransfer {
    let account = |number| PublicKey(spread(number)).to_string().as_str().to_owned();
    let transaction = hex::encode(spread(number / 10));
    PlainTransfer {
        contract: "CDECLARINGAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA".to_owned(),
        row_id: hex::encode(spread(number + (1 << 40))),
        transaction,
        ledger: 63_092_982 + (number / 2_500) as i64,
        closed_at: 1_700_000_000 + (number / 2_500 * 5) as i64,
        event_id: number,
        event_index: (number % 10) as u32,
        from: account(2 * number),
        to: account(2 * number + 1),
        amount: i128::from(number) * 1_000_000_007,
    }
}
