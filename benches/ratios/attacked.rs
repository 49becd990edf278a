//! What a contract costs others whose interface was made to cost much: deliveries and pages of another
//! tenant, ingestion, and the time to stop, against the same events of a contract with an ordinary
//! interface. The built binary follows a lake, in which ledgers appear one after the other, then many at
//! once.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use orrery::domain::{ContractId, sequence_of};
use orrery::sandbox::network::Request;
use orrery_testkit::account_events::Made;
use orrery_testkit::binary::{Service, token_with};
use orrery_testkit::client::HTTP;
use orrery_testkit::costly_interface;
use orrery_testkit::engine_world::module;
use orrery_testkit::lake_files::LakeFiles;
use orrery_testkit::sandbox::{local, sandbox};
use orrery_testkit::signal::Signal;
use orrery_testkit::specs::{SingleValue, Type, event, vec};
use orrery_testkit::upgraded::with_interface;
use orrery_testkit::values::symbol;
use serde_json::{Value, json};
use stellar_xdr::{LedgerCloseMeta, Limits, ReadXdr, ScSpecEntry, ScVal};

use super::client::Client;
use super::http::respelled;
use super::lookups::contract_event;
use super::measure::{Sample, Sides, quantile, sized};
use super::packed;
use super::pushes::subscribe;
use super::recorded::Recorded;
use super::report::{Goal, Report, Row};
use super::sink::Sink;

/// 99th percentile of the time from a ledger to its delivery, against the usual one.
const DELAY: Goal = Goal::at_most(1.2, 1.0);
/// Milliseconds of a page.
const PAGE: Goal = Goal::at_most(50.0, 5.0);
const INGESTION: Goal = Goal::at_least(0.95, 1.0);
/// Seconds from SIGTERM to the end of the process.
const STOP: Goal = Goal::at_most(5.0, 1.0);

/// Costly events of a ledger, beside which there is one of another contract.
const EVENTS: usize = sized(100, 5);
/// Measurements of either side.
const REPETITIONS: usize = sized(2, 1);
/// Part of the ledgers that appear one after the other.
const PACED: f64 = 0.4;
const CLOSE_INTERVAL: Duration = sized(Duration::from_millis(600), Duration::from_millis(100));
/// How long ingestion may take, and how often the service is asked.
const TIMEOUT: Duration = Duration::from_secs(1800);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Pause between two pages of the tenant.
const PAUSE: Duration = Duration::from_millis(20);
/// Clients that ask for pages of the costly events without a pause.
const READERS: usize = 2;
const SALTS: [[u8; 32]; 2] = [[1; 32], [2; 32]];

/// Measures both sides in turn, with this number of ledgers that have such events.
pub fn run(ledgers: u64, directory: &Path, report: &mut Report) -> Result<(), Box<dyn Error>> {
    let ordinary = [event("e", &["e"], &[], SingleValue, &[("a", vec(Type::Val))])];
    let [costly, ordinary] = [&costly_interface::entries()[..], &ordinary].map(|entries| {
        Load::new(entries, ledgers).map_err(|error| format!("the load cannot be made: {error}"))
    });
    let (costly, ordinary) = (costly?, ordinary?);
    let mut measured = Vec::new();
    for _ in 0..REPETITIONS {
        measured.push((costly.measure(directory)?, ordinary.measure(directory)?));
        let (costly, ordinary) = &measured[measured.len() - 1];
        report.note(format!("Attacked: {costly}. Beside an ordinary interface: {ordinary}."));
    }
    let sides = |of: &dyn Fn(&Measured) -> f64| {
        measured.iter().map(|(costly, ordinary)| (of(costly), of(ordinary))).collect::<Sides>()
    };
    report.note(format!(
        "Attacked: {ledgers} ledgers with {EVENTS} events of 16 KB of a contract whose 1,000 declarations each of them \
         nearly fits; one event of another contract. The attacker has a subscription to them, a project, and {READERS} \
         clients that ask for decoded pages; the ordinary interface declares a vector."
    ));
    let p99 = |times: &[f64]| quantile(times, 0.99);
    let beside = "beside a costly interface / an ordinary one";
    let name = format!("Ledger in the lake to delivery of another's event, p99, {beside}");
    report.add(Row::new(name, "ms", sides(&|it| p99(&it.delays)), DELAY));
    let name = format!("Event of another in a stream to its delivery, p99, {beside}");
    report.add(Row::information(name, "ms", sides(&|it| p99(&it.after_stream))));
    let name = format!("A tenant's page, p99, {beside}");
    report.add(Row::information(name, "ms", sides(&|it| p99(&it.pages))));
    let pages = Sample::from(measured.iter().map(|(it, _)| p99(&it.pages)).collect::<Vec<_>>());
    report.add(Row::absolute("A tenant's page beside a costly interface, p99", "ms", pages, PAGE));
    let name = format!("Ingestion {beside}");
    report.add(Row::new(name, "ledgers/s", sides(&|it| it.ledgers_per_second), INGESTION));
    let stops = Sample::from(measured.iter().map(|(it, _)| it.stop).collect::<Vec<_>>());
    report.add(Row::absolute("SIGTERM to exit beside a costly interface", "s", stops, STOP));
    Ok(())
}

/// Ledgers in files, which a service has to follow.
struct Load {
    files: LakeFiles,
    /// First ledger with costly events, and the last.
    first: u32,
    last: u32,
    attacker: ContractId,
    market: ContractId,
}

/// What one side measured.
struct Measured {
    /// Milliseconds from a ledger in the lake to the delivery of the other contract's event.
    delays: Vec<f64>,
    /// Milliseconds from that event in a stream to its delivery; negative where the delivery came first.
    after_stream: Vec<f64>,
    /// Milliseconds of the tenant's pages.
    pages: Vec<f64>,
    ledgers_per_second: f64,
    /// Seconds from SIGTERM to exit.
    stop: f64,
    /// Answers that the attacker's clients got, and deliveries.
    answers: u64,
    delivered: usize,
}

impl std::fmt::Display for Measured {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = |times: &[f64]| {
            let of = |share| quantile(times, share);
            format!(
                "{:.0} ms at the median, {:.0} at p99, {:.0} at most",
                of(0.5),
                of(0.99),
                of(1.0)
            )
        };
        write!(
            formatter,
            "ledger in the lake to delivery {}; event in a stream to delivery {}; page {}; {:.2} ledgers/s; stopped in \
             {:.2} s; the attacker got {} pages and {} deliveries",
            ms(&self.delays),
            ms(&self.after_stream),
            ms(&self.pages),
            self.ledgers_per_second,
            self.stop,
            self.answers,
            self.delivered,
        )
    }
}

impl Load {
    fn new(entries: &[ScSpecEntry], count: u64) -> Result<Self, Box<dyn Error>> {
        let mut sandbox = sandbox(7, 0..=0);
        let files = LakeFiles::new(&local());
        let mut add = |requests: &[Request]| -> Result<Vec<u8>, Box<dyn Error>> {
            let xdr = sandbox.next_ledger_with(requests)?;
            files.add_xdr(sequence_of(&xdr)?.0, &xdr);
            Ok(xdr)
        };
        // The sandbox's bootstrap.
        (2..=6).try_for_each(|_| add(&[]).map(drop))?;
        let plain = module("(func (export \"f\") (result i64) (i64.const 2))");
        let sold = event("sold", &["sold"], &[], SingleValue, &[("amount", Type::U32)]);
        let codes = [with_interface(plain.clone(), entries), with_interface(plain, &[sold])];
        for (code, salt) in codes.into_iter().zip(SALTS) {
            add(&[Request::Upload { code: code.clone() }])?;
            add(&[Request::Create { code, salt, arguments: Vec::new() }])?;
        }
        let [attacker, market] = SALTS.map(|salt| sandbox.contract(salt));
        let (attacker, market) = (attacker?, market?);
        let call = Request::Call { contract: market, function: "f".to_owned(), arguments: vec![] };
        let called = sandbox.next_ledger_with(&[call])?;
        let LedgerCloseMeta::V2(ledger) = LedgerCloseMeta::from_xdr(&called, Limits::none())?
        else {
            return Err("the sandbox makes another version".into());
        };
        let first = sequence_of(&called)?.0;
        let recorded = Recorded { name: "sandbox", network: local(), ledgers: vec![ledger] };
        let (topics, data) = costly_interface::event_that_nearly_fits();
        let made = |number: u64| match number % (EVENTS as u64 + 1) {
            0 => contract_event(market, Made::new([symbol("sold")], ScVal::U32(number as u32))),
            _ => contract_event(attacker, Made::new(topics.clone(), data.clone())),
        };
        let mut last = first - 1;
        packed::each(&recorded, count, [EVENTS + 1, 1], made, |xdr| {
            last += 1;
            files.add_xdr(last, &xdr);
        });
        Ok(Self { files, first, last, attacker, market })
    }

    fn page(contract: ContractId, limit: u32) -> String {
        format!("/rest/events/by-contract/{contract}?limit={limit}&decoded=true")
    }

    fn measure(&self, directory: &Path) -> Result<Measured, Box<dyn Error>> {
        let (live, data) = (LakeFiles::new(&local()), tempfile::tempdir_in(directory)?);
        let token = |owner| token_with(data.path(), owner, &["--network", "local"]);
        let [tenant, attacker] = ["tenant", "attacker"].map(token);
        let path = live.text();
        let settings = [
            ("ORRERY_SOURCE_KIND", "lake"),
            ("ORRERY_SOURCE_PATH", path.as_str()),
            ("ORRERY_SOURCE_START", "2"),
            ("ORRERY_WEBHOOKS_ALLOW_SUBNETS", "127.0.0.1/32"),
        ];
        (2..self.first).for_each(|sequence| live.link(&self.files, sequence));
        let service = Service::follow(data.path(), &settings);
        service.wait_until_stored(self.first - 1);
        let (sink, attackers) = (Sink::start()?, Sink::start()?);
        let client = |token: &str| -> Result<Client, Box<dyn Error>> {
            Ok(Client::connect(service.address.parse()?, token)?)
        };
        for (token, contract, sink) in
            [(&tenant, self.market, &sink), (&attacker, self.attacker, &attackers)]
        {
            let contracts = [contract.to_string()];
            let wanted = json!({ "webhook_endpoint": sink.url("hook"), "contract_ids": contracts });
            subscribe(&mut client(token)?, &wanted)?;
        }
        let watch = json!({ "project_name": "costly", "contracts": [self.attacker.to_string()] });
        client(&attacker)?.post("/rest/retroshade/watch", watch.to_string().as_bytes())?;
        Scene { load: self, live, tenant, attacker, sink, attackers }.measure(service)
    }
}

/// Ledgers that a service follows, and its clients.
struct Scene<'a> {
    load: &'a Load,
    live: LakeFiles,
    /// Tokens.
    tenant: String,
    attacker: String,
    sink: Sink,
    attackers: Sink,
}

/// When ledgers were there, and what followed.
struct Fed {
    /// When each of those ledgers was in the lake that appear one after the other.
    closed: Vec<Instant>,
    /// When the other contract's event in each of them was delivered.
    came: Vec<Instant>,
    /// Speed at which the service stored those that appear at once.
    ledgers_per_second: f64,
}

impl Scene<'_> {
    fn measure(self, service: Service) -> Result<Measured, Box<dyn Error>> {
        let (done, answers) = (AtomicBool::new(false), AtomicU64::new(0));
        let stream = self.stream(&service)?;
        let address = service.address.parse()?;
        thread::scope(|scope| {
            // Ends when the service does.
            let streamed = scope.spawn(move || stream.collect::<Vec<Instant>>());
            for _ in 0..READERS {
                scope.spawn(|| self.read_without_pause(address, &done, &answers));
            }
            let pages = scope.spawn(|| self.pages(address, &done));
            let fed = self.feed(&service);
            done.store(true, Ordering::Relaxed);
            let pages = pages.join().map_err(|_| "the tenant's client panicked")?;
            let stopping = Instant::now();
            let code = service.end_with(Signal::TERM);
            let stop = stopping.elapsed().as_secs_f64();
            let streamed = streamed.join().map_err(|_| "the stream's client panicked")?;
            let Fed { closed, came, ledgers_per_second } = fed?;
            if code != Some(0) {
                return Err(format!("the service ended with {code:?}").into());
            }
            Ok(Measured {
                delays: milliseconds(&closed, &came),
                after_stream: milliseconds(&streamed, &came),
                pages: pages?,
                ledgers_per_second,
                stop,
                answers: answers.load(Ordering::Relaxed),
                delivered: self.attackers.count(),
            })
        })
    }

    /// Lets ledgers appear, one after the other, then the rest at once.
    fn feed(&self, service: &Service) -> Result<Fed, Box<dyn Error>> {
        let Load { files, first, last, .. } = self.load;
        let rest = first + (f64::from(last + 1 - first) * PACED) as u32;
        let mut closed = Vec::new();
        for sequence in *first..rest {
            thread::sleep(CLOSE_INTERVAL);
            closed.push(Instant::now());
            self.live.link(files, sequence);
        }
        self.sink.wait_for_count(closed.len())?;
        let mut came = self.sink.take();
        came.sort_unstable();
        let begun = Instant::now();
        (rest..=*last).for_each(|sequence| self.live.link(files, sequence));
        wait_until_stored(service, *last)?;
        let ledgers_per_second = f64::from(last + 1 - rest) / begun.elapsed().as_secs_f64();
        Ok(Fed { closed, came, ledgers_per_second })
    }

    /// Follows the other contract's events; returns when each came. Ends with the service.
    fn stream(
        &self,
        service: &Service,
    ) -> Result<impl Iterator<Item = Instant> + Send + use<>, Box<dyn Error>> {
        let url = format!("{}/rest/events/stream?contract_id={}", service.base, self.load.market);
        let request = HTTP.get(url).bearer_auth(&self.tenant).timeout(2 * TIMEOUT);
        let mut lines =
            BufReader::new(request.send()?.error_for_status()?).lines().map_while(Result::ok);
        lines.find(|line| line.starts_with("id: ")).ok_or("the stream ended")?;
        Ok(lines.filter(|line| line.starts_with("data: {")).map(|_| Instant::now()))
    }

    /// Asks for decoded pages of the costly events again and again. The service may refuse one.
    fn read_without_pause(&self, address: SocketAddr, done: &AtomicBool, answers: &AtomicU64) {
        let page = Load::page(self.load.attacker, 10);
        while !done.load(Ordering::Relaxed) {
            let Ok(mut client) = Client::connect(address, &self.attacker) else { return };
            while !done.load(Ordering::Relaxed) && client.get(&respelled(&page)).is_ok() {
                answers.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns the milliseconds of the tenant's pages.
    fn pages(&self, address: SocketAddr, done: &AtomicBool) -> Result<Vec<f64>, String> {
        let page = Load::page(self.load.market, 100);
        let mut client = Client::connect(address, &self.tenant).map_err(|it| it.to_string())?;
        let mut times = Vec::new();
        while !done.load(Ordering::Relaxed) {
            thread::sleep(PAUSE);
            let begun = Instant::now();
            let body = client.get(&respelled(&page)).map_err(|error| format!("{page}: {error}"))?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
            let events: Vec<Value> = serde_json::from_slice(body).map_err(|it| it.to_string())?;
            let is_named = |event: &Value| {
                let decoded = &event["decoded"];
                decoded["name"] == "sold" || decoded["names_pending"] == true
            };
            if let Some(unnamed) = events.iter().find(|event| !is_named(event)) {
                return Err(format!("it has no name: {unnamed}"));
            }
        }
        Ok(times)
    }
}

/// Returns the milliseconds between the moments; negative where the second came first.
fn milliseconds(from: &[Instant], to: &[Instant]) -> Vec<f64> {
    let between = |(from, to): (&Instant, &Instant)| {
        let (after, before) =
            (to.saturating_duration_since(*from), from.saturating_duration_since(*to));
        1e3 * (after.as_secs_f64() - before.as_secs_f64())
    };
    from.iter().zip(to).map(between).collect()
}

fn wait_until_stored(service: &Service, ledger: u32) -> Result<(), Box<dyn Error>> {
    let begun = Instant::now();
    while service.health()["service_latest_ledger"] != ledger {
        if begun.elapsed() > TIMEOUT {
            return Err(format!("ledger {ledger} is not stored: {}", service.health()).into());
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}
