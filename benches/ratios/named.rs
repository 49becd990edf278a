//! P30, P31 and the list of an address: decoded pages beside plain ones, pages by address beside
//! pages by contract, and the tables of a project of events beside DuckDB's appender. All with the
//! built binary, over HTTP.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use orrery::domain::Network;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::amplify;
use crate::baseline::rows;
use crate::client::Client;
use crate::http::{REQUESTS, REQUESTS_IN_TURN, get, respelled};
use crate::measure::{REPETITIONS, Sides, micros, quantile, time};
use crate::process::Service;
use crate::recorded::Recorded;
use crate::report::{Goal, Report, Row};
use crate::running::wait_until;
use crate::sql::ask;
use crate::swaps::Swaps;

const P30: Goal = Goal::at_least(0.5, 0.8);
const P30_BACKFILL: Goal = Goal::at_least(150_000.0, 300_000.0);
const P31: Goal = Goal::at_most(3.0, 2.0);
const P31_TIME: Goal = Goal::at_most(1_000.0, 500.0);
const BY_ADDRESS: Goal = Goal::at_most(1.3, 1.0);

/// Copies of the recorded ledgers that are stored.
const COPIES: u64 = 40;
/// Contracts and addresses whose pages are requested: those with the most events.
const POPULAR: usize = 10;
/// Events from which they are found.
const SAMPLED: usize = 1_000;
/// Rows that both sides write in one transaction.
const ROWS_AT_ONCE: usize = 8_192;

/// Measures the selected goals.
pub fn run(
    recorded: &Recorded,
    wanted: impl Fn(&str) -> bool,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let mut scene = Scene::new(recorded, directory)?;
    if wanted("P31") {
        scene.decoded_pages(report);
    }
    if wanted("by-address") {
        scene.pages_by_address(report);
    }
    if wanted("P30") {
        scene.project(directory, report)?;
    }
    Ok(())
}

/// A service that has stored the ledgers.
struct Scene<'n> {
    service: Option<Service>,
    network: &'n Network,
    client: Client,
    /// Contracts, and addresses that stand in topics, as strkeys.
    contracts: Vec<String>,
    addresses: Vec<String>,
    data: TempDir,
}

impl<'n> Scene<'n> {
    fn new(recorded: &'n Recorded, directory: &Path) -> Result<Self, Box<dyn Error>> {
        let data = tempfile::tempdir_in(directory)?;
        let mut stream = Vec::new();
        for ledger in amplify::chain(recorded, COPIES) {
            // A record mark (RFC 5531): the bit of the last fragment, and its length.
            stream.extend((0x8000_0000 | u32::try_from(ledger.len())?).to_be_bytes());
            stream.extend(ledger);
        }
        let file = data.path().join("ledgers.xdr");
        std::fs::write(&file, stream)?;
        let (program, network) = (Path::new(env!("CARGO_BIN_EXE_orrery")), &recorded.network);
        let stored = data.path().join("data");
        let mut import = Command::new(program);
        import.args(["import", "--network", network.name(), "--data-dir"]);
        let imported = import.args([&stored, &file]).output()?;
        if !imported.status.success() {
            return Err(String::from_utf8_lossy(&imported.stderr).into());
        }
        let service = Service::start_build(program, &stored, network)?;
        let mut client = service.client(&stored, network)?;
        wait_until("all ledgers are indexed", || {
            let metrics = client.get("/metrics").unwrap_or_default();
            let lag = "orrery_consumer_lag_ledgers{consumer=\"interfaces\"} 0";
            String::from_utf8_lossy(metrics).lines().any(|line| line == lag)
        })?;
        let newest = format!("/rest/events/by-ledger?limit={SAMPLED}&decoded=true");
        let newest: Value = serde_json::from_slice(client.get(&newest)?)?;
        let (mut contracts, mut addresses) = (BTreeMap::new(), BTreeMap::new());
        for event in newest.as_array().ok_or("there are events")? {
            let contract = event["contract_id"].as_str().unwrap_or_default();
            *contracts.entry(contract.to_owned()).or_insert(0) += 1;
            for topic in event["decoded"]["topics"].as_array().into_iter().flatten() {
                if let Some(address) = topic["address"].as_str() {
                    *addresses.entry(address.to_owned()).or_insert(0) += 1;
                }
            }
        }
        let (contracts, addresses) = (most(contracts), most(addresses));
        Ok(Self { service: Some(service), network, client, contracts, addresses, data })
    }

    fn by_contract(&self) -> Vec<String> {
        let path = |contract| format!("/rest/events/by-contract/{contract}?limit=100");
        self.contracts.iter().map(path).collect()
    }

    fn decoded_pages(&mut self, report: &mut Report) {
        let plain = self.by_contract();
        let decoded: Vec<_> = plain.iter().map(|path| format!("{path}&decoded=true")).collect();
        let sides = self.pages(&decoded, &plain);
        let name = "P31 decoded page of 100, p50";
        report.add(Row::absolute(name, "µs", sides.ours.clone(), P31_TIME));
        let name = "P31 decoded page of 100 / plain page, asked first";
        report.add(Row::new(name, "µs", sides, P31));
    }

    fn pages_by_address(&mut self, report: &mut Report) {
        let path = |address| format!("/rest/events/by-address/{address}?limit=100");
        let by_address: Vec<_> = self.addresses.iter().map(path).collect();
        let sides = self.pages(&by_address, &self.by_contract());
        let name = "Page of 100 by address / by contract, asked first";
        report.add(Row::new(name, "µs", sides, BY_ADDRESS));
    }

    /// Returns the medians of requests to both kinds of pages in turn, in microseconds, none of
    /// which was asked before.
    fn pages(&mut self, ours: &[String], baseline: &[String]) -> Sides {
        let [ours, baseline] =
            [ours, baseline].map(|paths| paths.iter().cycle().take(REQUESTS).collect::<Vec<_>>());
        let client = &mut self.client;
        let mut ask = |paths: &[&String]| {
            let paths: Vec<_> = paths.iter().map(|path| respelled(path)).collect();
            micros(&paths, |path| get(client, path))
        };
        let mut repetition = || {
            let mut times = (Vec::new(), Vec::new());
            for (ours, baseline) in
                ours.chunks(REQUESTS_IN_TURN).zip(baseline.chunks(REQUESTS_IN_TURN))
            {
                times.0.extend(ask(ours));
                times.1.extend(ask(baseline));
            }
            (quantile(&times.0, 0.5), quantile(&times.1, 0.5))
        };
        // The first repetition is a warm-up.
        repetition();
        (0..REPETITIONS).map(|_| repetition()).collect()
    }

    fn post(&mut self, path: &str, body: &Value) -> Result<Value, Box<dyn Error>> {
        let path = format!("/rest/retroshade/{path}");
        Ok(serde_json::from_slice(self.client.post(&path, body.to_string().as_bytes())?)?)
    }

    fn get(&mut self, path: &str) -> Result<Value, Box<dyn Error>> {
        Ok(serde_json::from_slice(self.client.get(&format!("/rest/retroshade/{path}"))?)?)
    }

    /// Measures P30: a project of the popular contracts is made from the stored events, then its
    /// tables are filled from what it stored.
    fn project(&mut self, directory: &Path, report: &mut Report) -> Result<(), Box<dyn Error>> {
        let watch = json!({ "project_name": "popular", "contracts": self.contracts });
        let (mut events, mut speeds) = (0, Vec::new());
        for repetition in 0..REPETITIONS {
            let begun = Instant::now();
            let id = self.post("watch", &watch)?["id"].as_u64().ok_or("a project has a number")?;
            wait_until("the events are read", || {
                let order = self.get(&format!("{id}/backfill"));
                order.is_ok_and(|order| order["state"] == "done")
            })?;
            let took = begun.elapsed().as_secs_f64();
            events = self.get(&format!("{id}/status"))?["events"].as_u64().unwrap_or_default();
            speeds.push(events as f64 / took);
            if repetition + 1 < REPETITIONS {
                self.client.delete(&format!("/rest/retroshade/{id}"))?;
            }
        }
        let name = "P30 backfill of a project of events over stored events";
        report.add(Row::absolute(name, "events/s", speeds.into(), P30_BACKFILL));
        let swaps = Swaps::new(events / 3);
        let plain = swaps.plain();
        let count = "select count(*) as n from popular.events";
        let sides = (0..REPETITIONS).map(|_| {
            // The tables are filled anew when the service finds none.
            self.restart_without_tables()?;
            let begun = Instant::now();
            wait_until("the tables are filled", || {
                ask(&mut self.client, count).is_ok_and(|answer| answer[0]["n"] == events)
            })?;
            let ours = events as f64 / begun.elapsed().as_secs_f64();
            let directory = tempfile::tempdir_in(directory)?;
            let connection = rows::database(&directory.path().join("plain.duckdb"), "swaps")?;
            let mut done = Ok(());
            let took = time(|| done = rows::append(&connection, "swaps", &plain, ROWS_AT_ONCE));
            done?;
            Ok((ours, plain.len() as f64 / took.as_secs_f64()))
        });
        let sides = sides.collect::<Result<Sides, Box<dyn Error>>>()?;
        report.note(format!(
            "P30: {events} events of {POPULAR} contracts; each is a row of its table and one of the view of all events, \
             and counts once. The appender writes rows of 11 columns, each once."
        ));
        report.add(Row::new(
            "P30 rows of a project of events / DuckDB's appender",
            "rows/s",
            sides,
            P30,
        ));
        Ok(())
    }

    fn restart_without_tables(&mut self) -> Result<(), Box<dyn Error>> {
        drop(self.service.take());
        let stored = self.data.path().join("data");
        std::fs::remove_dir_all(stored.join("tables"))?;
        let program = Path::new(env!("CARGO_BIN_EXE_orrery"));
        let service = Service::start_build(program, &stored, self.network)?;
        self.client = service.client(&stored, self.network)?;
        self.service = Some(service);
        Ok(())
    }
}

/// Returns the keys with the largest counts.
fn most(counts: BTreeMap<String, u64>) -> Vec<String> {
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts.into_iter().take(POPULAR).map(|(key, _)| key).collect()
}
