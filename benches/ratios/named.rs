//! P31 and the list of an address: decoded pages beside plain ones, and pages by address beside pages
//! by contract. With the built binary, over HTTP.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::amplify;
use super::client::Client;
use super::http::{REQUESTS, REQUESTS_IN_TURN, get, respelled};
use super::measure::{REPETITIONS, Sides, micros, quantile, sized};
use super::process::Service;
use super::recorded::{Recorded, write_record};
use super::report::{Goal, Report, Row};
use super::running::wait_until;

const P31: Goal = Goal::at_most(3.0, 2.0);
const P31_TIME: Goal = Goal::at_most(1_000.0, 500.0);
const BY_ADDRESS: Goal = Goal::at_most(1.3, 1.0);

/// Copies of the recorded ledgers that are stored.
const COPIES: u64 = sized(40, 1);
/// Contracts and addresses whose pages are requested: those with the most events.
const POPULAR: usize = 10;
/// Events from which they are found.
const SAMPLED: usize = 1_000;

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
    Ok(())
}

/// A service that has stored the ledgers.
struct Scene {
    _service: Service,
    client: Client,
    /// Contracts, and addresses that stand in topics, as strkeys.
    contracts: Vec<String>,
    addresses: Vec<String>,
    _data: TempDir,
}

impl Scene {
    fn new(recorded: &Recorded, directory: &Path) -> Result<Self, Box<dyn Error>> {
        let data = tempfile::tempdir_in(directory)?;
        let mut stream = Vec::new();
        for ledger in amplify::chain(recorded, COPIES) {
            write_record(&mut stream, &ledger)?;
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
        Ok(Self { _service: service, client, contracts, addresses, _data: data })
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
}

/// Returns the keys with the largest counts.
fn most(counts: BTreeMap<String, u64>) -> Vec<String> {
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts.into_iter().take(POPULAR).map(|(key, _)| key).collect()
}
