//! The real API server on a free port, with a store in a temporary directory.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use orrery::api::{self, ApiError, ApiSettings, Deps};
use orrery::auth::{IssueRequest, Tokens};
use orrery_ledger::domain::Network;
use orrery_runtime::observe::health::Health;
use orrery_store::Store;
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::http::{Answer, Connection};

/// A store and its temporary directory.
pub struct TempStore {
    pub store: Arc<Store>,
    pub directory: TempDir,
}

impl TempStore {
    pub fn new(network: &Network) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(directory.path(), Some(network)).unwrap());
        Self { store, directory }
    }

    /// Reopens the directory, which moves the content of the memtables and the WAL into tables.
    pub fn reopened(self) -> Self {
        let Self { store, directory } = self;
        drop(store);
        let store = Arc::new(Store::open(directory.path(), None).unwrap());
        Self { store, directory }
    }
}

/// A running server. Stops when dropped.
pub struct Server {
    pub address: SocketAddr,
    pub tokens: Arc<Tokens>,
    pub health: Arc<Health>,
    /// A token that may read everything.
    pub token: String,
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
        let network = store.store.network().clone();
        let tokens =
            Arc::new(Tokens::open(&store.directory.path().join("secrets"), &network).unwrap());
        let token = tokens.issue(&IssueRequest::for_owner("tests")).unwrap().token;
        let health = Arc::new(Health::default());
        let mut deps = Deps {
            store: Arc::clone(&store.store),
            tokens: Arc::clone(&tokens),
            health: Arc::clone(&health),
            network,
            programs: None,
            rpc: None,
            friendbot: None,
            webhooks: None,
            contract_sizes: tokio::sync::watch::channel(None).1,
            settings: ApiSettings {
                rate_limit: None,
                stop_timeout: Duration::from_millis(100),
                ..ApiSettings::default()
            },
            clock: Arc::new(now),
            metrics: None,
            on_request: None,
        };
        adjust(&mut deps);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind(("127.0.0.1", 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let served = runtime.spawn(api::serve(deps, listener, async {
            let _ = stopped.await;
        }));
        let (stop, served) = (Some(stop), Some(served));
        Self { address, tokens, health, token, stop, served, runtime }
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
    }
}

/// Current UNIX time in seconds.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}
