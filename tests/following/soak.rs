//! Runs the service for hours: a network ten times as busy as the public one, readers, an owner who
//! deploys and deletes programs, and a stop every few minutes, alternately by SIGKILL and by
//! SIGTERM. Every response in between must be correct, and at the end everything that the network
//! closed must be stored. Memory, open files and response times are printed.
//!
//! Small: 120 ledgers with a stop after every 40. Full: two hours with a stop every ten minutes.
//! `ORRERY_TEST_SOAK_MINUTES` sets another length, `ORRERY_TEST_SOAK_LIFE_MINUTES` another time
//! between stops.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use orrery::decode::{Placement, decode};
use orrery::domain::Network;
use orrery::sandbox::network::{MARKET_PROGRAM, MAX_TRANSACTIONS, Sandbox};
use parking_lot::{Mutex, RwLock};
use reqwest::Method;
use serde_json::{Value, json};

use crate::resources::{Life, ResourceSample};
use orrery_testkit::binary::{Service, token};
use orrery_testkit::client::HTTP;
use orrery_testkit::lake_files::LakeFiles;
use orrery_testkit::sandbox::{local, sandbox_of};
use orrery_testkit::size;
use orrery_testkit::wait::{wait_until, wait_within};

/// With [`MAX_TRANSACTIONS`] per ledger this makes 560 transactions a second; the public network
/// has 50.
const CLOSE_INTERVAL: Duration = Duration::from_millis(80);
/// Ledgers in ten minutes.
const PER_LIFE: u64 = 600_000 / CLOSE_INTERVAL.as_millis() as u64;
/// Number of newest ledgers that stay in the lake.
const KEPT: u32 = 4_000;
/// Number of reader threads.
const READERS: usize = 3;
/// Pause between two requests of a reader.
const PAUSE: Duration = Duration::from_millis(20);
/// Interval between two samples of memory and open files.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Interval between two deployments.
const DEPLOY_EVERY: Duration = Duration::from_secs(20);
/// Maximum number of 503 responses when few requests were made; of many requests, one in 200 may be
/// refused.
const MAX_BUSY: u64 = 5;
/// Limit on the resident memory of the process, in bytes.
const MAX_MEMORY: u64 = 1 << 30;
/// Limit on the number of open files of the process.
const MAX_FILES: usize = 1_000;

/// State shared by all threads.
struct Soak {
    /// Address of the service; `None` while it is stopped.
    address: RwLock<Option<String>>,
    /// Number of starts and stops so far.
    changes: AtomicU64,
    over: AtomicBool,
    /// Newest ledger that the network closed.
    closed: AtomicU32,
    /// Token of the owner who reads, and whose program is never deleted.
    token: String,
    /// Token of the owner who deploys and deletes programs.
    other: String,
    market: String,
    /// Response times in milliseconds, by kind of request.
    times: Mutex<BTreeMap<&'static str, Vec<f64>>>,
    /// Unexpected responses and failures, with their counts.
    wrong: Mutex<BTreeMap<String, u64>>,
    /// Responses with status 503, with their counts.
    busy: Mutex<BTreeMap<String, u64>>,
    deployed: AtomicU64,
}

type Question<'a> = (Method, &'a str, Option<&'a Value>);

fn get(path: &str) -> Question<'_> {
    (Method::GET, path, None)
}

/// Outcome of a request.
enum Outcome {
    /// Status and body of the response.
    Response(u16, Value),
    /// No usable response: the service was stopped, changed state meanwhile, or the request failed.
    NoResponse,
}

impl Soak {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Sleeps, but not beyond the end of the test.
    fn rest(&self, how_long: Duration) {
        let until = Instant::now() + how_long;
        while !self.is_over() && Instant::now() < until {
            thread::sleep(PAUSE.min(how_long));
        }
    }

    fn complain(&self, what: String) {
        *self.wrong.lock().entry(what).or_default() += 1;
    }

    fn ask(&self, kind: &'static str, (method, path, body): Question<'_>) -> Outcome {
        self.ask_as(&self.token, kind, (method, path, body))
    }

    fn ask_as(
        &self,
        token: &str,
        kind: &'static str,
        (method, path, body): Question<'_>,
    ) -> Outcome {
        let changes = self.changes.load(Ordering::SeqCst);
        let Some(address) = self.address.read().clone() else { return Outcome::NoResponse };
        let mut request = HTTP.request(method, format!("http://{address}{path}"));
        request = request.bearer_auth(token);
        if let Some(body) = body {
            request = request.json(body);
        }
        let begun = Instant::now();
        let response = request.send().and_then(|answer| {
            let status = answer.status().as_u16();
            Ok((status, answer.text()?))
        });
        let took = begun.elapsed();
        if self.changes.load(Ordering::SeqCst) != changes {
            return Outcome::NoResponse;
        }
        match response {
            Ok((status, text)) => {
                self.times.lock().entry(kind).or_default().push(took.as_secs_f64() * 1e3);
                let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
                Outcome::Response(status, value)
            }
            Err(error) => {
                self.complain(format!("{kind}: {error}"));
                Outcome::NoResponse
            }
        }
    }

    /// Sends a request, and records every response that `is` rejects.
    fn expect(
        &self,
        token: &str,
        kind: &'static str,
        question: Question<'_>,
        is: impl Fn(u16, &Value) -> bool,
    ) -> Option<Value> {
        match self.ask_as(token, kind, question) {
            Outcome::Response(status, value) if is(status, &value) => Some(value),
            Outcome::Response(status, value) => {
                let text: String = value.to_string().chars().take(1500).collect();
                let what = format!("{kind}: {status} {text}");
                match status {
                    // The load exceeds what two processors can serve; the client may retry.
                    503 => *self.busy.lock().entry(what).or_default() += 1,
                    _ => self.complain(what),
                }
                None
            }
            Outcome::NoResponse => None,
        }
    }

    /// Runs a query. Returns `None` for the refusal that is expected while tables are filled after
    /// a start.
    fn sql(&self, token: &str, query: &str) -> Option<Value> {
        let body = json!({ "query": query });
        let question = (Method::POST, "/rest/retroshade/query", Some(&body));
        let response = self.expect(token, "SQL", question, |status, value| {
            status == 200 || status == 503 && value.to_string().contains("being filled")
        });
        response.filter(Value::is_array)
    }

    fn read(&self, number: usize) {
        let (token, market) = (&self.token, &self.market);
        let is_list = |status: u16, value: &Value| {
            status == 200 && value.as_array().is_some_and(|rows| !rows.is_empty())
        };
        let mut turn = number;
        while !self.is_over() {
            turn += 1;
            let closed = self.closed.load(Ordering::Relaxed);
            match turn % 7 {
                0 => {
                    let path = format!("/rest/events/by-contract/{market}?limit=100");
                    self.expect(token, "events of a contract", get(&path), is_list);
                }
                1 => {
                    let older = closed / 2;
                    let path = format!("/rest/events/by-ledger?from={older}&limit=100");
                    self.expect(token, "events from a ledger on", get(&path), is_list);
                }
                2 => {
                    let path = format!("/rest/txs/by-contract/{market}?limit=20");
                    self.expect(token, "transactions of a contract", get(&path), is_list);
                }
                3 => {
                    self.sql(token, "select count(*) n, max(_ledger) ledger from soak_trade");
                }
                4 => {
                    let filters = [json!({ "type": "contract", "contractIds": [market] })];
                    let body = json!({
                        "jsonrpc": "2.0", "id": 1, "method": "getEvents", "params": {
                            "startLedger": (closed / 2).max(2), "filters": filters,
                            "pagination": { "limit": 100 },
                        },
                    });
                    self.expect(
                        token,
                        "getEvents",
                        (Method::POST, "/rpc", Some(&body)),
                        |status, response| status == 200 && response["result"]["events"].is_array(),
                    );
                }
                5 => {
                    self.expect(token, "status", get("/rest/status"), |status, _| status == 200);
                }
                _ => {
                    let is_up = |status, value: &Value| status == 200 && value["service"] == "up";
                    self.expect(token, "health", get("/rest/health"), is_up);
                }
            }
            self.rest(PAUSE);
        }
    }

    /// Repeatedly deploys a program, waits for a row of it, and deletes it.
    fn deploy_and_delete(&self) {
        let ok = |status: u16, _: &Value| status == 200;
        let (token, mut number) = (&self.other, 0);
        while !self.is_over() {
            // Includes programs that a stop left undeleted.
            let list = self.expect(token, "list", get("/rest/retroshade/list"), ok);
            for program in list.iter().flat_map(|list| list.as_array().into_iter().flatten()) {
                if program["project_name"].as_str().is_some_and(|name| name.starts_with("passing"))
                {
                    let path = format!("/rest/retroshade/{}", program["id"]);
                    self.expect(token, "delete", (Method::DELETE, &path, None), ok);
                }
            }
            number += 1;
            let project = format!("passing{number}");
            let body = deploy(&project, &self.market);
            let question = (Method::POST, "/rest/retroshade/deploy", Some(&body));
            if self.expect(token, "deploy", question, ok).is_some() {
                let changes = self.changes.load(Ordering::SeqCst);
                let begun = Instant::now();
                let query = format!("select count(*) n from {project}_trade");
                while !self.is_over() && self.changes.load(Ordering::SeqCst) == changes {
                    match self.sql(token, &query) {
                        Some(rows) if rows[0]["n"] != 0 => {
                            self.deployed.fetch_add(1, Ordering::Relaxed);
                            break;
                        }
                        _ if begun.elapsed() > Duration::from_secs(60) => {
                            self.complain("a program that was deployed has no rows".to_owned());
                            break;
                        }
                        _ => self.rest(PAUSE),
                    }
                }
            }
            self.rest(DEPLOY_EVERY);
        }
    }
}

fn deploy(project: &str, market: &str) -> Value {
    json!({ "code": MARKET_PROGRAM, "project_name": project, "contracts": [market] })
}

/// Totals of what the network closed.
#[derive(Default)]
struct Closed {
    last: u32,
    events: u64,
    transactions: u64,
}

/// Closes ledgers into the lake, one every [`CLOSE_INTERVAL`].
fn close(soak: &Soak, lake: &LakeFiles, network: &Network, ledgers: u64) -> Closed {
    let sandbox = sandbox_of(network.clone(), 16, MAX_TRANSACTIONS..=MAX_TRANSACTIONS);
    let from = sandbox.latest_ledger();
    let mut sandbox = sandbox.with_market(from);
    let mut closed = Closed::default();
    let begun = Instant::now();
    for number in 0..ledgers {
        let xdr = sandbox.next_ledger().unwrap();
        let view = decode(&xdr, network.id()).unwrap();
        let sequence = view.header.sequence.0;
        let stored = |transaction: usize| {
            let transaction = &view.transactions[transaction];
            transaction.smart_contract && transaction.successful
        };
        let by_operation = view
            .events
            .iter()
            .filter(|event| matches!(event.placement, Placement::Operation { .. }));
        closed.events += by_operation.filter(|event| stored(event.transaction)).count() as u64;
        closed.transactions +=
            view.transactions.iter().filter(|it| it.smart_contract).count() as u64;
        closed.last = sequence;
        lake.add_xdr(sequence, &xdr);
        soak.closed.store(sequence, Ordering::Relaxed);
        if let Some(old) = sequence.checked_sub(KEPT).filter(|old| *old >= 2) {
            lake.remove(old);
        }
        let due = begun + CLOSE_INTERVAL * (number as u32 + 1);
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    println!("{ledgers} ledgers were closed in {:?}", begun.elapsed());
    closed
}

fn start(directory: &Path, lake: &LakeFiles) -> Service {
    // With the settings that a self-hoster begins with.
    Service::local(directory, &["--source", &lake.text()])
}

/// Starts and stops the service until the test is over, and samples its use of resources.
fn run_lives(
    soak: &Soak,
    directory: &Path,
    lake: &LakeFiles,
    per_life: u64,
) -> (Vec<Life>, Service) {
    let mut lives = Vec::new();
    loop {
        let service = start(directory, lake);
        *soak.address.write() = Some(service.address.clone());
        soak.changes.fetch_add(1, Ordering::SeqCst);
        let (began, from) = (Instant::now(), soak.closed.load(Ordering::Relaxed));
        let mut life = Life::default();
        let ends_at = from + per_life as u32;
        while !soak.is_over() && soak.closed.load(Ordering::Relaxed) < ends_at {
            let sample = ResourceSample::measure(service.id(), began.elapsed());
            match sample {
                Some(sample) => life.samples.push(sample),
                None => soak.complain("the service has gone by itself".to_owned()),
            }
            soak.rest(POLL_INTERVAL);
        }
        lives.push(life);
        if soak.is_over() {
            return (lives, service);
        }
        *soak.address.write() = None;
        soak.changes.fetch_add(1, Ordering::SeqCst);
        for line in service.log() {
            if line["level"] == "ERROR" {
                soak.complain(format!("log: {}", line["message"]));
            }
        }
        if lives.len() % 2 == 0 {
            service.stop();
        } else {
            drop(service);
        }
    }
}

#[test]
fn a_long_run_loses_no_data_and_leaks_no_resources() {
    let ledgers_in = |name: &str| {
        let minutes = std::env::var(name).ok()?;
        Some(minutes.parse::<u64>().expect("a number of minutes") * PER_LIFE / 10)
    };
    let chosen = ledgers_in("ORRERY_TEST_SOAK_MINUTES");
    let ledgers = chosen.unwrap_or(size::choose(120, 12 * PER_LIFE));
    let per_life = ledgers_in("ORRERY_TEST_SOAK_LIFE_MINUTES").unwrap_or_else(|| match chosen {
        Some(_) => PER_LIFE.min(ledgers / 3),
        None => size::choose(40, PER_LIFE),
    });
    let network = local();
    let directory = tempfile::tempdir().unwrap();
    let lake = LakeFiles::new(&network);
    let market = Sandbox::market_contract(&network).unwrap().to_string();
    // The first start creates the directory and the token, and deploys the program that is kept.
    let service = start(directory.path(), &lake);
    let soak = Soak {
        address: RwLock::new(Some(service.address.clone())),
        changes: AtomicU64::new(0),
        over: AtomicBool::new(false),
        closed: AtomicU32::new(1),
        token: service.token().to_owned(),
        other: token(&directory.path().join("d"), "other"),
        market: market.clone(),
        times: Mutex::default(),
        wrong: Mutex::default(),
        busy: Mutex::default(),
        deployed: AtomicU64::new(0),
    };
    let post =
        |path: &str, body: &Value| match soak.ask("setting up", (Method::POST, path, Some(body))) {
            Outcome::Response(200, value) => value,
            Outcome::Response(status, value) => panic!("{path}: {status} {value}"),
            Outcome::NoResponse => panic!("{path}: the service has gone"),
        };
    post("/rest/retroshade/deploy", &deploy("soak", &market));
    service.stop();
    *soak.address.write() = None;

    let (closed, (lives, service)) = thread::scope(|scope| {
        let living = scope.spawn(|| run_lives(&soak, directory.path(), &lake, per_life));
        let closing = scope.spawn(|| close(&soak, &lake, &network, ledgers));
        wait_until("the first ledgers are stored", || {
            let address = soak.address.read().clone()?;
            let health = HTTP.get(format!("http://{address}/rest/health")).send().ok()?;
            let health: Value = health.json().ok()?;
            (health["service_latest_ledger"].as_u64()? > 10).then_some(())
        });
        let readers: Vec<_> = (0..READERS)
            .map(|number| {
                let soak = &soak;
                scope.spawn(move || soak.read(number))
            })
            .collect();
        let owner = scope.spawn(|| soak.deploy_and_delete());
        let closed = closing.join();
        soak.over.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|it| it.join().unwrap());
        owner.join().unwrap();
        (closed.unwrap(), living.join().unwrap())
    });

    report(&soak, &lives);
    service.wait_until_stored(closed.last);
    let completeness = service.get("/rest/completeness");
    let ranges = completeness["ranges"].as_array().unwrap();
    assert_eq!((ranges.len(), &completeness["gaps"]), (1, &json!([])), "{completeness}");
    let status = service.get("/rest/status");
    assert_eq!(status["store"]["events"], closed.events);
    assert_eq!(status["store"]["transactions"], closed.transactions);
    assert!(status["consumers"].as_array().unwrap().iter().all(|it| it["lost_ledgers"] == 0));
    same_rows(&soak, &service, closed.last);
    assert_eq!(*soak.wrong.lock(), BTreeMap::new());
    let busy: u64 = soak.busy.lock().values().sum();
    let asked: usize = soak.times.lock().values().map(Vec::len).sum();
    assert!(busy <= MAX_BUSY.max(asked as u64 / 200), "{busy} of {asked} were refused");
    for life in &lives {
        let (memory, files) = (life.most(|it| it.memory), life.most(|it| it.files));
        assert!(memory < MAX_MEMORY && files < MAX_FILES, "{memory} bytes, {files} files");
    }
    service.stop();
}

/// Asserts that the program that ran on the ledgers as they arrived has the same rows as one that
/// runs on them in a backfill.
fn same_rows(soak: &Soak, service: &Service, last: u32) {
    let ok = |what: &str, response: Outcome| match response {
        Outcome::Response(200, value) => value,
        Outcome::Response(status, value) => panic!("{what}: {status} {value}"),
        Outcome::NoResponse => panic!("{what}: no answer"),
    };
    *soak.address.write() = Some(service.address.clone());
    let body = deploy("again", &soak.market);
    let deployed = soak.ask("at the end", (Method::POST, "/rest/retroshade/deploy", Some(&body)));
    let id = ok("deploy", deployed)["id"].clone();
    let body = json!({ "from": 2, "to": last });
    let path = format!("/rest/retroshade/{id}/backfill");
    ok("backfill", soak.ask("at the end", (Method::POST, &path, Some(&body))));
    wait_within(Duration::from_secs(3600), "the backfill is done", || {
        let backfill = service.get(&path);
        if backfill["state"] == "done" { Ok(()) } else { Err(backfill) }
    });
    let rows = |project: &str| {
        let sums = "count(*) n, count(distinct _service_event_id) ids, sum(amount)::varchar goods, \
                    sum(cost)::varchar cash, min(_ledger) first, max(_ledger) last";
        soak.sql(&soak.token, &format!("select {sums} from {project}_trade"))
    };
    let response = wait_until("both have their rows", || {
        let (live, again) = (rows("soak")?, rows("again")?);
        (live[0]["n"] == again[0]["n"]).then_some((live, again))
    });
    assert_eq!(response.0, response.1);
    assert_eq!(response.0[0]["n"], response.0[0]["ids"], "no row is there twice");
    println!("rows of the program: {}", response.0[0]);
}

fn report(soak: &Soak, lives: &[Life]) {
    let mib = |bytes: u64| bytes >> 20;
    println!(
        "life: looks, memory in MiB (by tenths of the life; most, slope an hour), workers' MiB, most files, most threads"
    );
    for (number, life) in lives.iter().enumerate() {
        println!(
            "{number}: {}, {:?} {} {:.1}, {}, {}, {}",
            life.samples.len(),
            life.tenths(|it| mib(it.memory)),
            mib(life.most(|it| it.memory)),
            life.slope(),
            mib(life.median(|it| it.workers)),
            life.most(|it| it.files),
            life.most(|it| it.threads),
        );
    }
    for (kind, times) in soak.times.lock().iter_mut() {
        times.sort_by(f64::total_cmp);
        let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
        println!(
            "{kind}: {} times, {:.1} ms at p50, {:.1} at p99, {:.1} at the most",
            times.len(),
            at(0.5),
            at(0.99),
            at(1.0)
        );
    }
    println!("{} programs were deployed and had rows", soak.deployed.load(Ordering::Relaxed));
    for (what, count) in soak.wrong.lock().iter().chain(soak.busy.lock().iter()) {
        println!("{count} times: {what}");
    }
}
