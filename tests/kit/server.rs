//! The real API server on a free port, with a store in a temporary directory.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use orrery::api::{self, ApiError, ApiSettings, Deps, Tunables};
use orrery::attestation::Attestation;
use orrery::auth::{IssueRequest, Tokens};
use orrery::contract_data::{self, ContractData};
use orrery::executables::{self, ExecutableIndex, Interfaces};
use orrery::programs::{ProgramDeps, Programs, storage};
use orrery::rpc::{self, Rpc};
use orrery::settings::{self, Limits, Queries};
use orrery::webhooks::manage::{WebhookDeps, Webhooks};
use orrery::webhooks::target::{Policy, Sender, Timeouts as AttemptTimeouts, system_lookup};
use orrery_ledger::domain::Network;
use orrery_ledger::validators::Validators;
use orrery_runtime::budget::Usage;
use orrery_runtime::observe::health::Health;
use orrery_store::{Extensions, LedgerConsumer, Store};
use orrery_tables::{Tables, TablesSettings};
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::http::{Answer, Connection};
use super::program;
use super::wait::wait_until;

/// A store and its temporary directory.
pub struct TempStore {
    pub store: Arc<Store>,
    pub directory: TempDir,
}

impl TempStore {
    /// A store without consumers that nobody drives.
    pub fn new(network: &Network) -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { store: open(directory.path(), Some(network), &[]), directory }
    }

    /// A store with the index of what contracts run, which a server that is started on it drives once.
    pub fn with_names(network: &Network) -> Self {
        Self::with_consumers(network, &[Arc::new(ExecutableIndex)])
    }

    /// As [`Self::with_names`], also with the index of what contracts hold.
    pub fn with_storage(network: &Network) -> Self {
        Self::with_consumers(network, &[Arc::new(ExecutableIndex), Arc::new(ContractData)])
    }

    fn with_consumers(network: &Network, consumers: &[Arc<dyn LedgerConsumer>]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { store: open(directory.path(), Some(network), consumers), directory }
    }

    /// Drives the indexes that the store has until they have processed all ledgers.
    pub fn index(&self) {
        // Some tests open their store without them.
        if self.store.consumer(executables::CONSUMER).is_some() {
            while self.store.step(&ExecutableIndex).unwrap() {}
        }
        if self.store.consumer(contract_data::CONSUMER).is_some() {
            while self.store.step(&ContractData).unwrap() {}
        }
    }

    /// Reopens the directory, which moves the content of the memtables and the WAL into tables.
    pub fn reopened(self) -> Self {
        let Self { store, directory } = self;
        let mut consumers: Vec<Arc<dyn LedgerConsumer>> = Vec::new();
        if store.consumer(executables::CONSUMER).is_some() {
            consumers.push(Arc::new(ExecutableIndex));
        }
        if store.consumer(contract_data::CONSUMER).is_some() {
            consumers.push(Arc::new(ContractData));
        }
        drop(store);
        Self { store: open(directory.path(), None, &consumers), directory }
    }
}

fn open(
    directory: &Path,
    network: Option<&Network>,
    consumers: &[Arc<dyn LedgerConsumer>],
) -> Arc<Store> {
    let extensions = Extensions::for_consumers(consumers).with_kind(storage::KIND);
    Arc::new(Store::open_with(directory, network, extensions).unwrap())
}

/// Dependencies of a server on a store: the network's known validators are trusted, no program or webhook is registered, the metrics text is
/// empty, nobody observes requests, and there is no rate limit.
fn idle_deps(store: &TempStore) -> Deps {
    let network = store.store.network().clone();
    let executable = program::orrery;
    let tables = Tables::open(TablesSettings {
        directory: store.directory.path().join("tables"),
        worker: executable(),
        queries: Queries { allow_unconfined: true, ..Queries::default() },
        chain: None,
        tunables: orrery_tables::Tunables::default(),
    });
    let programs = Programs::start(ProgramDeps {
        store: Arc::clone(&store.store),
        tables: tables.unwrap(),
        interfaces: Interfaces::new(Arc::clone(&store.store), None),
        health: Arc::default(),
        settings: settings::Programs::default(),
        index: settings::Index::default(),
        upstream: None,
        clock: Arc::new(|| now() * 1000),
        compiler: executable(),
        code_key: [7; 32],
    });
    let webhooks = Webhooks::new(WebhookDeps {
        store: Arc::clone(&store.store),
        registry: Arc::default(),
        sender: Sender::new(Policy::default(), system_lookup(), AttemptTimeouts::default()),
        clock: Arc::new(|| now() * 1000),
    });
    let validators = Validators::of_network(&network).map(Arc::new);
    Deps {
        store: Arc::clone(&store.store),
        tokens: Arc::new(Tokens::open(&store.directory.path().join("secrets"), &network).unwrap()),
        health: Arc::default(),
        attestation: Arc::new(Attestation::new(validators)),
        network,
        settings: ApiSettings {
            limits: Limits { requests_per_second: 0, ..Limits::default() },
            tunables: Tunables { stop_timeout: Duration::from_millis(100), ..Tunables::default() },
            ..ApiSettings::default()
        },
        clock: Arc::new(now),
        programs: Arc::new(programs.unwrap()),
        interfaces: Interfaces::new(Arc::clone(&store.store), None),
        rpc: Arc::new(Rpc::new(Arc::clone(&store.store), rpc::Settings::default(), Arc::new(now))),
        friendbot: None,
        example_token: None,
        exported: None,
        webhooks: Arc::new(webhooks),
        contract_sizes: tokio::sync::watch::channel(None).1,
        metrics: Arc::new(|_| String::new()),
        on_request: Arc::new(|_| {}),
    }
}

/// A running server. Stops when dropped.
pub struct Server {
    pub address: SocketAddr,
    pub tokens: Arc<Tokens>,
    pub health: Arc<Health>,
    /// A token that may read everything.
    pub token: String,
    programs: Arc<Programs>,
    stop: Option<oneshot::Sender<()>>,
    served: Option<tokio::task::JoinHandle<Result<(), ApiError>>>,
    runtime: tokio::runtime::Runtime,
}

impl Server {
    /// Serves a store without rate limits.
    pub fn start(store: &TempStore) -> Self {
        Self::start_with(store, |_| {})
    }

    /// Serves a store; `adjust` changes the dependencies and settings of the server.
    pub fn start_with(store: &TempStore, adjust: impl FnOnce(&mut Deps)) -> Self {
        store.index();
        let mut deps = idle_deps(store);
        let (tokens, health) = (Arc::clone(&deps.tokens), Arc::clone(&deps.health));
        let token = tokens.issue(&IssueRequest::for_owner("tests")).unwrap().token;
        adjust(&mut deps);
        let programs = Arc::clone(&deps.programs);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind(("127.0.0.1", 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let served = runtime.spawn(api::serve(deps, listener, async {
            let _ = stopped.await;
        }));
        let (stop, served) = (Some(stop), Some(served));
        Self { address, tokens, health, token, programs, stop, served, runtime }
    }

    pub fn connect(&self) -> Connection {
        Connection::open(self.address)
    }

    /// Sends a GET request without a token.
    pub fn get_public(&self, target: &str) -> Answer {
        self.connect().request("GET", target, &[])
    }

    /// Sends a GET request with a token that may read everything.
    pub fn get(&self, target: &str) -> Answer {
        self.get_with(target, &self.token)
    }

    /// Sends a GET request with this token.
    pub fn get_with(&self, target: &str, token: &str) -> Answer {
        let authorization = format!("Bearer {token}");
        self.connect().request("GET", target, &[("authorization", &authorization)])
    }

    /// Asks the server to stop.
    pub fn begin_stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    /// Waits until the server has stopped.
    pub fn finish_stop(&mut self) {
        self.runtime.block_on(self.served.take().unwrap()).unwrap().unwrap();
    }
}

impl Drop for Server {
    /// Waits for the server's threads: the process may exit next, and RocksDB aborts a process that
    /// exits while one of them reads.
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // The server may have failed already.
            let _ = stop.send(());
        }
        if let Some(served) = self.served.take() {
            let _ = self.runtime.block_on(served);
        }
        self.programs.stop();
    }
}

/// Use of a server's budgets, at the last time its metrics were rendered.
#[derive(Clone, Default)]
pub struct BudgetUsage(Arc<Mutex<HashMap<&'static str, Usage>>>);

impl BudgetUsage {
    pub fn watch(&self, deps: &mut Deps) {
        let seen = Arc::clone(&self.0);
        deps.metrics = Arc::new(move |usages: &[Usage]| {
            seen.lock().unwrap().extend(usages.iter().map(|usage| (usage.name, *usage)));
            String::new()
        });
    }

    /// Requests metrics, and returns the use of a budget.
    pub fn of(&self, server: &Server, name: &str) -> Usage {
        assert_eq!(server.get_public("/metrics").status, 200);
        self.0.lock().unwrap()[name]
    }

    /// Requests metrics until a budget satisfies the condition.
    #[track_caller]
    pub fn wait_for(&self, server: &Server, name: &str, is_it: impl Fn(&Usage) -> bool) -> Usage {
        wait_until(name, || {
            let usage = self.of(server, name);
            if is_it(&usage) { Ok(usage) } else { Err(usage) }
        })
    }
}

/// Current UNIX time in seconds.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}
