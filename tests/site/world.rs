//! Services with data for the pages.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;

use stellar_xdr::ContractEvent;
use tempfile::TempDir;

use orrery::sandbox::network::{FIRST_MARKET_LEDGER, Sandbox};
use orrery_testkit::binary::{Service, run, token};
use orrery_testkit::data::ledgers;
use orrery_testkit::forged::Ledger;
use orrery_testkit::lake_files::{Chain, LakeFiles};
use orrery_testkit::sandbox::local;
use orrery_testkit::wait::wait_until;

/// A demo network with events, programs with rows, and a webhook with deliveries.
pub struct Demo {
    pub service: Service,
    pub token: String,
    /// The contract of the first program.
    pub contract: String,
    pub directory: TempDir,
}

impl Demo {
    /// A demo that goes on.
    pub fn running() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (service, told) = Service::demo(directory.path(), &["--close-time", "500"]);
        let token = told["token"].as_str().unwrap().to_owned();
        let programs = wait_until("it has programs", || {
            let (_, programs) = service.ask("/rest/retroshade/list", Some(&token));
            (programs.as_array()?.len() > 1).then_some(programs)
        });
        let contract = programs[0]["contracts"][0].as_str().unwrap().to_owned();
        let endpoint = receiver();
        let base = format!("{}/rest", service.base);
        let arguments = ["--base", &base, "--jwt", &token];
        let new = ["webhooks", "new", "--contract", &contract, "--endpoint", &endpoint];
        run(directory.path(), &[&new[..], &arguments].concat()).succeeded();
        wait_until("there are events and deliveries", || {
            let delivered = "/rest/webhooks/1/deliveries?status=delivered";
            let (_, deliveries) = service.ask(delivered, Some(&token));
            let ledgers = service.health()["service_latest_ledger"].as_u64().unwrap_or_default();
            (deliveries.as_array()?.len() > 5 && ledgers > 40).then_some(())
        });
        Self { service, token, contract, directory }
    }

    /// A demo that was stopped and is served without a source, so that its data does not change.
    pub fn still() -> Self {
        let Self { service, token, contract, directory } = Self::running();
        wait_until("while it follows, the lag has a history", || {
            let (_, status) = service.ask("/rest/status", None);
            status["history"]["lag_seconds"]
                .as_array()?
                .iter()
                .any(serde_json::Value::is_u64)
                .then_some(())
        });
        service.stop();
        let service = Service::local(directory.path(), &["--no-source"]);
        wait_until("contract sizes are estimated", || {
            let (_, status) = service.ask("/rest/status", None);
            (!status["contracts"]["largest"].as_array()?.is_empty()).then_some(())
        });
        wait_until("the programs have seen everything", || {
            let (_, program) = service.ask("/rest/retroshade/1/status", Some(&token));
            (program["lag_ledgers"] == 0).then_some(())
        });
        // Names are read after the first request that wants them.
        wait_until("the events of the market have their names", || {
            let path = format!("/rest/events/by-contract/{contract}?limit=100&decoded=true");
            let (_, events) = service.ask(&path, Some(&token));
            let has_name = |event: &serde_json::Value| event["decoded"]["name"].is_string();
            events.as_array()?.iter().all(has_name).then_some(())
        });
        Self { service, token, contract, directory }
    }

    pub fn data_dir(&self) -> std::path::PathBuf {
        self.directory.path().join("d")
    }
}

/// A service without a source, whose newest ledgers are crowded with events of one contract.
pub struct Crowded {
    pub service: Service,
    pub token: String,
    _directory: TempDir,
}

/// Imports ledgers of a sandbox network. The last ones have `in_ledger` events of its market each, and `all` together.
pub fn crowded(in_ledger: u64, all: u64) -> Crowded {
    let first = FIRST_MARKET_LEDGER.0 + 20;
    let count = usize::try_from(all.div_ceil(in_ledger)).unwrap();
    // Not every ledger has a call that succeeds.
    let chain = Chain::with_market(1, first + 2 * u32::try_from(count).unwrap() + 20);
    let has_call =
        |sequence: &u32| !Ledger::read(chain.xdr(*sequence)).unwrap().invocations().is_empty();
    let last = (first..).filter(has_call).nth(count - 1).unwrap();
    let event = (2..first).rev().find_map(|sequence| event_of_market(chain.xdr(sequence))).unwrap();
    let events = vec![event; usize::try_from(in_ledger).unwrap()];
    let chain = chain.forged(first, &|ledger| {
        if let Some((position, _)) = ledger.invocations().first() {
            ledger.set_events(*position, events.clone());
        }
    });
    let lake = LakeFiles::with(&chain, 2..=last);
    let directory = tempfile::tempdir().unwrap();
    run(directory.path(), &["import", "--data-dir", "d", "--network", "local", &lake.text()])
        .succeeded();
    let data_dir = directory.path().join("d");
    let service = Service::start(&data_dir);
    let token = token(&data_dir, "owner");
    Crowded { service, token, _directory: directory }
}

/// The last event of the market in a ledger.
fn event_of_market(ledger: &[u8]) -> Option<ContractEvent> {
    let market = Sandbox::market_contract(&local()).unwrap();
    let ledger = Ledger::read(ledger).unwrap();
    let calls = ledger.invocations().into_iter();
    let mut events = calls.flat_map(|(position, _)| ledger.events(position));
    events.rfind(|it| it.contract_id.as_ref().is_some_and(|id| id.0.0 == market.0))
}

/// Ledgers of the public network, served without a source; `None` when they are absent.
pub fn public() -> Option<(Service, TempDir)> {
    let folder = ledgers()?.join("pubnet");
    let directory = tempfile::tempdir().unwrap();
    let import = ["import", "--data-dir", "d", "--network", "mainnet", folder.to_str().unwrap()];
    run(directory.path(), &import).succeeded();
    let service = Service::start(&directory.path().join("d"));
    Some((service, directory))
}

/// Accepts everything that webhooks send; returns its address.
fn receiver() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}/", listener.local_addr().unwrap());
    thread::spawn(move || listener.incoming().flatten().for_each(|it| drop(accept(it))));
    endpoint
}

fn accept(mut connection: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(connection.try_clone()?);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
        if line == "\r\n" || line.is_empty() {
            break;
        }
    }
    reader.read_exact(&mut vec![0; length])?;
    connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
}

/// Where the pictures go, if anywhere.
pub fn pictures(of: &str) -> Option<String> {
    let folder = std::env::var_os("ORRERY_TEST_PICTURES")?;
    Some(Path::new(&folder).join(of).to_string_lossy().into_owned())
}
