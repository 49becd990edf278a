//! P7, P8 and P9 over HTTP. Client and server share the processors, so times are compared with a
//! no-op route on the same server and connection.
//!
//! The goals are about pages as clients poll them: the same pages in every repetition, without a
//! new ledger in between, so that the server answers them from its cache. The time for pages that
//! no client has requested since the newest ledger is reported beside it. SQLite serves the same
//! paths.

use std::error::Error;
use std::hint::black_box;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use orrery::api::{ApiSettings, Deps, serve};
use orrery::auth::{IssueRequest, Tokens};
use orrery::domain::{ContractId, TxHash};
use orrery::executables::Interfaces;
use orrery::observe::health::Health;
use orrery::programs::Programs;
use orrery::rpc::{self, Rpc};
use orrery::settings::Limits;
use orrery::store::Store;
use orrery::webhooks::manage::{WebhookDeps, Webhooks};
use orrery::webhooks::target::{Policy, Sender, Timeouts, system_lookup};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use warp::Filter;

use super::baseline::sqlite::Sqlite;
use super::client::Client;
use super::indexing::start_programs;
use super::many::Generator;
use super::measure::{REPETITIONS, Sides, micros, quantile, sized};
use super::pages::{self, P9};
use super::report::{Goal, Report, Row};
use super::rows::tables;
use super::stores::{Filled, QuerySample, of_contract};

const P7: Goal = Goal::at_most(1.3, 1.1);
const P8: Goal = Goal::at_most(4.0, 2.0);

/// Requests per repetition.
pub const REQUESTS: usize = sized(2_000, 100);
/// Consecutive requests to one side before the other side's turn.
pub const REQUESTS_IN_TURN: usize = 50;
pub const NO_OP: &str = "/rest/health/live";

/// Whether pages have been requested since the newest ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cached {
    /// Every page was requested before.
    Yes,
    /// No page was requested before, because each query is spelled in its own way.
    No,
}

impl Cached {
    /// Returns the suffix for the name of a row.
    fn name(self) -> &'static str {
        match self {
            Self::Yes => "asked again",
            Self::No => "asked first",
        }
    }

    /// Returns the paths of one repetition.
    fn paths(self, paths: &[String]) -> Vec<String> {
        match self {
            Self::Yes => paths.to_vec(),
            Self::No => paths.iter().map(|path| respelled(path)).collect(),
        }
    }
}

/// Returns a path whose query means the same, and was not sent before: those of its letters and
/// digits are percent-encoded that the bits of a number say. Responses are kept by queries as they
/// were sent.
pub fn respelled(path: &str) -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let (path, query) = path.split_once('?').unwrap_or((path, "decoded=false"));
    let mut bits = NUMBER.fetch_add(1, Ordering::Relaxed);
    let spelled = query.bytes().map(|byte| {
        if !byte.is_ascii_alphanumeric() {
            return char::from(byte).to_string();
        }
        let is_encoded = bits & 1 == 1;
        bits >>= 1;
        if is_encoded { format!("%{byte:02X}") } else { char::from(byte).to_string() }
    });
    format!("{path}?{}", spelled.collect::<String>())
}

/// Number of responses from the cache, and of computed ones.
#[derive(Debug, Default)]
pub struct Answered {
    kept: AtomicU64,
    made: AtomicU64,
}

impl Answered {
    /// Returns the percentage of responses from the cache since the last call.
    fn share_kept(&self) -> f64 {
        let [kept, made] = [&self.kept, &self.made].map(|n| n.swap(0, Ordering::Relaxed) as f64);
        100.0 * kept / (kept + made)
    }
}

/// A server in this process, stopped when dropped.
pub struct Server {
    pub address: SocketAddr,
    pub token: String,
    pub answered: Arc<Answered>,
    runtime: Option<Runtime>,
    _stop: oneshot::Sender<()>,
}

impl Server {
    /// Serves the API over a store and its programs, without a rate limit.
    pub fn start(store: Arc<Store>, programs: Arc<Programs>) -> Result<Self, Box<dyn Error>> {
        let network = store.network().clone();
        let tokens = Tokens::open(&store.directory().join("secrets"), &network)?;
        let token = tokens.issue(&IssueRequest::for_owner("ratios"))?.token;
        let answered = Arc::new(Answered::default());
        let count = Arc::clone(&answered);
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let rpc = Rpc::new(Arc::clone(&store), rpc::Settings::default(), Arc::new(now));
        let webhooks = Webhooks::new(WebhookDeps {
            store: Arc::clone(&store),
            registry: Arc::default(),
            sender: Sender::new(Policy::default(), system_lookup(), Timeouts::default()),
            clock: Arc::new(move || now() * 1000),
        });
        let interfaces = Interfaces::new(Arc::clone(&store), None);
        let deps = Deps {
            store,
            interfaces,
            tokens: Arc::new(tokens),
            health: Arc::new(Health::default()),
            attestation: Arc::default(),
            network,
            programs,
            rpc: Arc::new(rpc),
            friendbot: None,
            example_token: None,
            exported: None,
            webhooks: Arc::new(webhooks),
            contract_sizes: tokio::sync::watch::channel(None).1,
            settings: ApiSettings {
                limits: Limits { requests_per_second: 0, ..Limits::default() },
                ..ApiSettings::default()
            },
            clock: Arc::new(now),
            metrics: Arc::new(|_| String::new()),
            on_request: Arc::new(move |request| {
                let counter = match request.from_cache {
                    Some(true) => &count.kept,
                    Some(false) => &count.made,
                    None => return,
                };
                counter.fetch_add(1, Ordering::Relaxed);
            }),
        };
        Self::run(token, answered, |listener, stop| async move {
            if let Err(error) = serve(deps, listener, async { drop(stop.await) }).await {
                eprintln!("the server stopped: {error}");
            }
        })
    }

    /// Serves SQLite with the same HTTP library and the same JSON, but without tokens, limits or
    /// logs.
    pub fn start_sqlite(sqlite: Sqlite) -> Result<Self, Box<dyn Error>> {
        let sqlite = Arc::new(Mutex::new(sqlite));
        let route =
            warp::path!("rest" / "events" / "by-contract" / String).map(move |id: String| {
                let body = match id.parse::<ContractId>() {
                    Ok(contract) => pages::sqlite_json(&sqlite.lock(), &of_contract(contract)),
                    Err(error) => error.to_string().into_bytes(),
                };
                warp::reply::with_header(body, "content-type", "application/json")
            });
        Self::run(String::new(), Arc::default(), |listener, stop| async move {
            let server = warp::serve(route).incoming(listener);
            server.graceful(async { drop(stop.await) }).run().await;
        })
    }

    /// Runs a server of any kind.
    pub fn run<F: Future<Output = ()> + Send + 'static>(
        token: String,
        answered: Arc<Answered>,
        server: impl FnOnce(TcpListener, oneshot::Receiver<()>) -> F,
    ) -> Result<Self, Box<dyn Error>> {
        let runtime = Runtime::new()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        runtime.spawn(server(listener, stopped));
        Ok(Self { address, token, answered, runtime: Some(runtime), _stop: stop })
    }

    /// Opens a connection to the server.
    pub fn client(&self) -> Result<Client, Box<dyn Error>> {
        Ok(Client::connect(self.address, &self.token)?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

pub fn get(client: &mut Client, path: &str) {
    black_box(client.get(path).expect("an answer"));
}

/// Measures both sides in turn, several requests at a time. The round trip time depends on which
/// processors the threads run on and whether these were asleep, which changes every second. A side
/// that is requested only occasionally finds the processor caches full of the other side's data.
/// Returns the medians of each repetition, in microseconds.
fn medians(
    cached: Cached,
    paths: &[String],
    mut ours: impl FnMut(&str),
    mut baseline: impl FnMut(&str),
) -> Sides {
    let mut repetition = || {
        let mut times = (Vec::with_capacity(paths.len()), Vec::with_capacity(paths.len()));
        for paths in cached.paths(paths).chunks(REQUESTS_IN_TURN) {
            times.0.extend(micros(paths, |path| ours(path)));
            times.1.extend(micros(paths, |path| baseline(path)));
        }
        (quantile(&times.0, 0.5), quantile(&times.1, 0.5))
    };
    // The first repetition is a warm-up.
    repetition();
    (0..REPETITIONS).map(|_| repetition()).collect()
}

fn by_contract(contract: &ContractId) -> String {
    format!("/rest/events/by-contract/{contract}?limit=100")
}

/// Measures P7 and P8.
pub fn against_no_op(
    filled: &Filled,
    questions: &QuerySample,
    wanted: impl Fn(&str) -> bool,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let programs = start_programs(&filled.store, tables(&filled.path().join("tables"))?, None)?;
    let server = Server::start(Arc::clone(&filled.store), Arc::clone(&programs))?;
    let client = std::cell::RefCell::new(server.client()?);
    if wanted("P8") {
        let popular = questions.contracts.iter().take(REQUESTS).copied().map(of_contract);
        let uniform = questions.distinct_contracts().into_iter().take(REQUESTS).map(of_contract);
        let queries = [popular.collect::<Vec<_>>(), uniform.collect()];
        for (which, queries) in ["popular", "uniform"].into_iter().zip(queries) {
            let name = format!("P8 by-contract limit=100, {which} contracts");
            pages::note_reads(&filled.store, &name, &queries, report);
        }
    }
    let mut compare = |name: &str, cached: Cached, paths: &[String], goal: Option<Goal>| {
        let paths: Vec<_> = paths.iter().cycle().take(REQUESTS).cloned().collect();
        let ours = |path: &str| get(&mut client.borrow_mut(), path);
        let sides = medians(cached, &paths, ours, |_| get(&mut client.borrow_mut(), NO_OP));
        let name = format!("{name}, {} / no-op", cached.name());
        let kept = server.answered.share_kept();
        report.note(format!(
            "{name}: {kept:.0} % of the answers had been kept, the warm-up counted in."
        ));
        report.add(Row { name, unit: "µs", sides, goal });
    };
    if wanted("P7") {
        let by_tx = |hashes: &[TxHash]| -> Vec<String> {
            hashes.iter().map(|hash| format!("/rest/events/by-tx/{hash}")).collect()
        };
        let of_contracts = questions.contracts.iter();
        let pages = [
            ("P7 by-tx, recent", by_tx(&questions.recent_transactions)),
            ("P7 by-ledger limit=1", vec!["/rest/events/by-ledger?limit=1".to_owned()]),
            (
                "P7 by-contract limit=1",
                of_contracts.map(|id| format!("/rest/events/by-contract/{id}?limit=1")).collect(),
            ),
        ];
        for (name, paths) in pages {
            compare(name, Cached::Yes, &paths, Some(P7));
            compare(name, Cached::No, &paths, None);
        }
        compare("P7 by-tx, anywhere", Cached::No, &by_tx(&questions.transactions), None);
    }
    if wanted("P8") {
        let popular: Vec<_> = questions.contracts.iter().map(by_contract).collect();
        let uniform: Vec<_> = questions.distinct_contracts().iter().map(by_contract).collect();
        let name = "P8 by-contract limit=100, popular contracts";
        compare(name, Cached::Yes, &popular, Some(P8));
        compare(name, Cached::No, &popular, None);
        compare("P8 by-contract limit=100, uniform contracts", Cached::No, &uniform, None);
    }
    programs.stop();
    Ok(())
}

/// Measures P9, in process and over HTTP, on the same events in both databases.
pub fn against_sqlite(
    generator: &Generator<'_>,
    network: &orrery::domain::Network,
    events: u64,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let filled = Filled::new(generator, network, events, directory, report);
    let path = filled.path().join("sqlite");
    let mut sqlite = Sqlite::create(&path)?;
    sqlite.never_sync()?;
    for number in 0..filled.ledgers {
        sqlite.insert(&generator.ledger(number).view())?;
    }
    let questions = filled.sample();
    pages::against_sqlite(&filled.store, &sqlite, &questions, report);

    let programs = start_programs(&filled.store, tables(&filled.path().join("tables"))?, None)?;
    let ours = Server::start(Arc::clone(&filled.store), Arc::clone(&programs))?;
    let theirs = Server::start_sqlite(sqlite)?;
    let (mut ours_client, mut theirs_client) = (ours.client()?, theirs.client()?);
    let paths: Vec<_> = questions.contracts.iter().take(REQUESTS).map(by_contract).collect();
    for (cached, goal) in [(Cached::Yes, Some(P9)), (Cached::No, None)] {
        let ours_get = |path: &str| get(&mut ours_client, path);
        let sides = medians(cached, &paths, ours_get, |path| get(&mut theirs_client, path));
        let kept = ours.answered.share_kept();
        let cached = cached.name();
        let name =
            format!("P9 by-contract limit=100 / SQLite, over HTTP, popular contracts, {cached}");
        report.note(format!(
            "{name}: {kept:.0} % of our answers had been kept, the warm-up counted in."
        ));
        report.add(Row { name, unit: "pages/s", sides: sides.to_rates(1e6), goal });
    }
    programs.stop();
    Ok(())
}
