//! The whole service in this process, as `orrery serve` runs it: HTTP API, consumers of the feed,
//! and webhook delivery.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orrery::auth::{IssueRequest, Tokens};
use orrery::config::Config;
use orrery::domain::{LedgerSeq, Network, RawLedger};
use orrery::service::{self, Node, sources};
use orrery::settings::SourceKind;
use orrery::store::{Durability, Store};
use orrery::webhooks::CONSUMER;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::client::Client;
use super::indexing::raw;

const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Timeout for a wait. A repetition usually takes seconds.
const TIMEOUT: Duration = Duration::from_secs(300);

/// A service with its own data directory.
pub struct Running {
    pub data: TempDir,
    pub address: SocketAddr,
    node: Arc<Node>,
    tokens: Arc<Tokens>,
    stop: watch::Sender<bool>,
    served: JoinHandle<Result<(), String>>,
    runtime: Runtime,
}

impl Running {
    /// Starts a service that follows no source unless `adjust` configures one. It has no rate limit
    /// and indexes events of classic operations.
    pub fn start(
        network: &Network,
        parent: &Path,
        adjust: impl FnOnce(&mut Config),
    ) -> Result<Self, Box<dyn Error>> {
        Self::over(tempfile::tempdir_in(parent)?, network, adjust)
    }

    /// Like [`Running::start`], with a data directory that may have something in it.
    pub fn over(
        data: TempDir,
        network: &Network,
        adjust: impl FnOnce(&mut Config),
    ) -> Result<Self, Box<dyn Error>> {
        let mut config = Config { data_dir: data.path().to_owned(), ..Config::default() };
        config.index.classic_events = true;
        config.limits.requests_per_second = 0;
        config.limits.burst = 0;
        config.source.kind = SourceKind::None;
        adjust(&mut config);
        let node = Node::open(&config, Some(network))?;
        let node = Arc::new(node.with_program(env!("CARGO_BIN_EXE_orrery")));
        let (stop, stopped) = watch::channel(false);
        let runtime = Runtime::new()?;
        let (sockets, following) = runtime.block_on(async {
            let sockets = service::listen(([127, 0, 0, 1], 0).into(), data.path()).await?;
            let following = sources::following(&config, &node).await;
            Ok::<_, Box<dyn Error>>((sockets, following.map_err(|error| error.to_string())?))
        })?;
        let address = sockets.address;
        let tokens = Arc::new(service::open_tokens(data.path(), network, &config.auth)?);
        let served = runtime.spawn({
            let (node, tokens) = (Arc::clone(&node), Arc::clone(&tokens));
            async move {
                let opener = sources::opener(&config, &node);
                let ran = service::run(node, tokens, &config, sockets, following, opener, stopped);
                ran.await.map_err(|error| error.to_string())
            }
        });
        Ok(Self { data, address, node, tokens, stop, served, runtime })
    }

    /// Returns the store.
    pub fn store(&self) -> &Store {
        self.node.store()
    }

    /// Issues a token for an owner.
    pub fn token(&self, owner: &str) -> Result<String, Box<dyn Error>> {
        Ok(self.tokens.issue(&IssueRequest::for_owner(owner))?.token)
    }

    /// Opens a connection with a new token of an owner.
    pub fn client(&self, owner: &str) -> Result<Client, Box<dyn Error>> {
        Ok(Client::connect(self.address, &self.token(owner)?)?)
    }

    /// Stores ledgers as a network closes them, each durably before the next.
    pub fn ingest(
        &self,
        ledgers: impl Iterator<Item = RawLedger>,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        let ledgers = ledgers.map(Ok::<_, Infallible>);
        Ok(self.node.store_all(ledgers, Durability::Synced, |_| {})?)
    }

    /// Like [`Running::ingest`], for the XDR of ledgers. Returns the duration in seconds.
    pub fn seconds_to_ingest(&self, ledgers: &[Vec<u8>]) -> Result<f64, Box<dyn Error>> {
        let ledgers: Vec<_> = ledgers.iter().map(|xdr| raw(xdr)).collect();
        let begun = Instant::now();
        self.ingest(ledgers.into_iter()).map_err(|error| error.to_string())?;
        Ok(begun.elapsed().as_secs_f64())
    }

    /// Waits until a ledger is stored.
    pub fn wait_until_stored(&self, ledger: LedgerSeq) -> Result<(), Box<dyn Error>> {
        let is_stored = || self.store().status().latest().is_some_and(|latest| latest >= ledger);
        wait_until(&format!("ledger {ledger} is stored"), is_stored)
    }

    /// Waits until the webhook consumer has created the deliveries of all stored ledgers.
    pub fn wait_until_deliveries_created(&self) -> Result<(), Box<dyn Error>> {
        let is_done = || self.store().consumer(CONSUMER).is_some_and(|it| it.lag == 0);
        wait_until("all deliveries are made", is_done)
    }

    /// Stops the service.
    pub fn stop(self) -> Result<(), Box<dyn Error>> {
        self.stop_and_keep().map(drop)
    }

    /// Stops the service, and returns its data directory, which nothing uses any more.
    pub fn stop_and_keep(self) -> Result<TempDir, Box<dyn Error>> {
        let Self { data, node, tokens, stop, served, runtime, .. } = self;
        stop.send(true)?;
        runtime.block_on(served)??;
        drop((runtime, node, tokens));
        Ok(data)
    }
}

/// Waits until `condition` returns true, checking it periodically. `what` describes it in the error
/// after a timeout.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) -> Result<(), Box<dyn Error>> {
    let begun = Instant::now();
    while !condition() {
        if begun.elapsed() > TIMEOUT {
            return Err(format!("in vain: {what}").into());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}
