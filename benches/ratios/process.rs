//! P23 and P24: the built binary on a large store.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use orrery::auth::{IssueRequest, Tokens};
use orrery::domain::Network;
use orrery::store::Durability;

use super::client::Client;
use super::many::Generator;
use super::measure::{repeat, sized};
use super::report::{Goal, Report, Row};
use super::stores::{Filled, QuerySample};

const P23: Goal = Goal::at_most(2_000.0, 200.0);
const P24: Goal = Goal::at_most(400.0, 150.0);

/// Ledgers that are only in the WAL when the process dies: about ten minutes of the network.
const LEDGERS_IN_LOG: u64 = sized(120, 4);
/// Requests before memory is measured.
const REQUESTS: usize = sized(20_000, 40);
/// Longer than any start may take.
const TIMEOUT: Duration = Duration::from_secs(60);
const CACHE_METRIC: &str = "orrery_store_cache_bytes ";
const MEBIBYTE: f64 = 1024.0 * 1024.0;

/// Measures the selected goals of P23 and P24. Consumes the store.
pub fn run(
    filled: Filled,
    questions: &QuerySample,
    generator: &Generator<'_>,
    wanted: impl Fn(&str) -> bool,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let images = tempfile::tempdir_in(directory)?;
    let (clean, dirty) = (images.path().join("clean"), images.path().join("dirty"));
    let network = filled.store.network().clone();
    // A copy of the files of an open store is equivalent to what a crash leaves.
    copy_image(&filled.path(), &clean)?;
    generator.fill(
        &filled.store,
        filled.ledgers..filled.ledgers + LEDGERS_IN_LOG,
        Durability::Synced,
    );
    copy_image(&filled.path(), &dirty)?;
    drop(filled);
    if wanted("P23") {
        let killed = repeat(|| {
            let mut service = Service::start(&clean, &network).expect("the service starts");
            let start = Instant::now();
            service.kill();
            drop(Service::start(&clean, &network).expect("the service starts again"));
            start.elapsed().as_secs_f64() * 1e3
        });
        report.add(Row::absolute(
            "P23 kill -9 to health up, nothing in the log",
            "ms",
            killed,
            P23,
        ));
        let image = images.path().join("image");
        let recovered = repeat(|| {
            copy_image(&dirty, &image).expect("a copy");
            let start = Instant::now();
            drop(Service::start(&image, &network).expect("the service starts"));
            let took = start.elapsed().as_secs_f64() * 1e3;
            fs::remove_dir_all(&image).expect("the copy is removed");
            took
        });
        let name = format!("P23 start after a crash, {LEDGERS_IN_LOG} ledgers in the log");
        report.add(Row::absolute(name, "ms", recovered, P23));
    }
    if wanted("P24") {
        let service = Service::start(&clean, &network)?;
        let mut client = service.client(&clean, &network)?;
        query_load(&mut client, questions)?;
        let [resident, cache] = service.memory(&mut client)?;
        let sample = super::measure::Sample::exact(resident - cache);
        report.add(Row::absolute("P24 resident memory without block cache", "MiB", sample, P24));
        report.note(format!(
            "P24: {resident:.0} MiB resident, of which {cache:.0} MiB block cache, after {REQUESTS} requests of all kinds; \
             no programs run.",
        ));
    }
    Ok(())
}

/// Copies a data directory of which no ledgers are written: hard links for SST files, which never change,
/// and copies of all other files in their current state. Begins again when a compaction ends meanwhile,
/// because then the files may not be of one state.
pub fn copy_image(from: &Path, to: &Path) -> io::Result<()> {
    loop {
        let before = tables(from)?;
        let copied = copy_once(from, to);
        if tables(from)? == before {
            return copied;
        }
        fs::remove_dir_all(to)?;
    }
}

/// Returns the paths of all SST files in a directory.
fn tables(directory: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            found.append(&mut tables(&path)?);
        } else if is_table(&path) {
            found.insert(path);
        }
    }
    Ok(found)
}

fn is_table(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "sst")
}

fn copy_once(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let (source, target) = {
            let entry = entry?;
            (entry.path(), to.join(entry.file_name()))
        };
        if source.is_dir() {
            copy_once(&source, &target)?;
        } else if is_table(&source) {
            fs::hard_link(&source, &target)?;
        } else if source.is_file() {
            // Not a socket, which belongs to the process that listens on it.
            fs::copy(&source, &target)?;
        }
    }
    Ok(())
}

/// `orrery serve` in a child process, killed when dropped.
pub struct Service {
    process: Child,
    address: SocketAddr,
}

impl Service {
    /// Starts the service on a data directory and waits until it reports that it is up.
    fn start(directory: &Path, network: &Network) -> Result<Self, Box<dyn Error>> {
        Self::start_build(Path::new(env!("CARGO_BIN_EXE_orrery")), directory, network)
    }

    /// Like [`Service::start`], with the given binary.
    pub fn start_build(
        program: &Path,
        directory: &Path,
        network: &Network,
    ) -> Result<Self, Box<dyn Error>> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut command = Command::new(program);
        command
            .args(["serve", "--no-source", "--network", network.name(), "--log-level", "warn"])
            .arg("--data-dir")
            .arg(directory)
            .args(["--listen", &address.to_string()])
            .env("ORRERY_LIMITS_REQUESTS_PER_SECOND", "0")
            .stdout(Stdio::null());
        Self::started(&mut command, address)
    }

    /// Runs a command that serves at an address, and waits until it reports that it is up.
    pub fn started(command: &mut Command, address: SocketAddr) -> Result<Self, Box<dyn Error>> {
        let mut service = Self { process: command.spawn()?, address };
        service.wait_until_up()?;
        Ok(service)
    }

    fn wait_until_up(&mut self) -> Result<(), Box<dyn Error>> {
        let start = Instant::now();
        while start.elapsed() < TIMEOUT {
            if let Some(status) = self.process.try_wait()? {
                return Err(format!("the service ended with {status}").into());
            }
            let answer = Client::connect(self.address, "none")
                .and_then(|mut client| client.get("/rest/health").map(<[u8]>::to_vec));
            if answer.is_ok_and(|body| is_up(&body)) {
                return Ok(());
            }
            // Connections are refused until the service listens; a retry costs almost nothing.
            std::thread::sleep(Duration::from_micros(500));
        }
        Err("the service is not up after a minute".into())
    }

    /// Opens a connection with a new token.
    pub fn client(&self, directory: &Path, network: &Network) -> Result<Client, Box<dyn Error>> {
        let tokens = Tokens::open(&directory.join("secrets"), network)?;
        let token = tokens.issue(&IssueRequest::for_owner("ratios"))?.token;
        Ok(Client::connect(self.address, &token)?)
    }

    /// Returns the resident memory and the part of it that is block cache, in mebibytes.
    pub fn memory(&self, client: &mut Client) -> Result<[f64; 2], Box<dyn Error>> {
        Ok([self.resident_bytes()? / MEBIBYTE, cache_bytes(client)? / MEBIBYTE])
    }

    fn resident_bytes(&self) -> Result<f64, Box<dyn Error>> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kibibytes: f64 =
            line.and_then(|rest| rest.split_whitespace().next()).ok_or("no VmRSS")?.parse()?;
        Ok(kibibytes * 1024.0)
    }

    fn kill(&mut self) {
        // Errors are ignored: the process may have exited already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.kill();
    }
}

fn is_up(body: &[u8]) -> bool {
    let record: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    record.is_some_and(|record| record["service"] == "up")
}

/// Sends requests of all kinds.
pub fn query_load(client: &mut Client, questions: &QuerySample) -> Result<(), Box<dyn Error>> {
    let contracts = questions.contracts.iter().cycle();
    let transactions = questions.transactions.iter().cycle();
    for (number, (contract, hash)) in contracts.zip(transactions).take(REQUESTS).enumerate() {
        let path = match number % 4 {
            0 => format!("/rest/events/by-contract/{contract}?limit=100"),
            1 => format!("/rest/events/by-tx/{hash}"),
            2 => format!("/rest/txs/by-contract/{contract}?limit=10"),
            _ => format!(
                "/rest/events/by-ledger?limit=1000&cursor={}",
                2 + questions.last / 20_000 * number as u64
            ),
        };
        client.get(&path)?;
    }
    Ok(())
}

/// Returns the size of the block cache as the service reports it, in bytes.
fn cache_bytes(client: &mut Client) -> Result<f64, Box<dyn Error>> {
    let metrics = String::from_utf8(client.get("/metrics")?.to_vec())?;
    let value = metrics.lines().find_map(|line| line.strip_prefix(CACHE_METRIC));
    Ok(value.ok_or(format!("no {CACHE_METRIC}among the metrics"))?.trim().parse()?)
}
