//! A running service: starts store, pipeline, source, HTTP interface and control socket together,
//! and stops them together. Contains none of their logic.

mod backfill;
mod consumers;
mod contract_sizes;
mod control_service;
mod disk_space;
mod exporting;
mod http_deps;
mod http_settings;
mod ingest;
mod lag_history;
mod ledger_entries;
mod ledgers;
mod rpc;
mod running_core;
mod running_programs;
mod sandbox;
pub mod sources;
mod status_messages;
mod stored_ledgers;
mod supervisor;
mod webhooks;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};

pub use backfill::{BackfillError, BackfillSources, Backfills, OpenSources, OrderFile};
pub use consumers::lost_ranges;
pub use disk_space::DiskSpace;
pub use exporting::{ExportRole, export_destination};
pub use ingest::{Ended, Ingestion};
pub use ledger_entries::{EntriesServer, UpstreamEntries};
pub use ledgers::Ledgers;
pub use sandbox::RunningSandbox;

use self::running_core::RunningCore;
use self::webhooks::RunningWebhooks;
use control_service::Controlled;

use crate::api::{self, ApiError};
use crate::auth::{AuthError, PublicKey, Tokens};
use crate::config::{Auth, Config, PublicKeyFile};
use crate::control::{ControlError, Listener};
use crate::domain::{Network, StartPoint};
use crate::export::ExportError;
use crate::notify::TargetError;
use crate::observe::metrics::MetricsError;
use crate::programs::{ProgramError, Programs};
use crate::source::follow::{COMPONENT, Candidate, Follower, Reports, Task, Timing};
use crate::store::{Durability, StoreError};
use crate::webhooks::WebhookError;

/// Name under which ingestion reports to health.
const INGESTION: &str = "ingestion";
/// Name under which programs report to health.
const PROGRAMS: &str = "programs";
/// Name under which retention reports to health.
const RETENTION: &str = "retention";
/// Directory of keys and tokens in the data directory.
const SECRETS: &str = "secrets";
/// Interval between two prunes.
const PRUNE_EVERY: Duration = Duration::from_secs(10);
/// Number of prunes between two measurements of the store's size.
const MEASURE_EVERY: u32 = 6;

/// Why a service could not start or continue.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The data directory cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Keys or tokens cannot be used.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// The file of a public key cannot be read.
    #[error("cannot read the public key {}: {source}", path.display())]
    PublicKey {
        /// Path of the PEM file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The control socket failed.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The HTTP interface failed.
    #[error("the HTTP interface failed: {0}")]
    Api(#[from] ApiError),
    /// The metrics cannot be created.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// Indexing programs cannot be run.
    #[error("indexing programs cannot be run: {0}")]
    Programs(#[from] ProgramError),
    /// Webhooks cannot be delivered.
    #[error("webhooks cannot be delivered: {0}")]
    Webhooks(#[from] WebhookError),
    /// The export cannot be opened.
    #[error("the export cannot start: {0}")]
    Export(#[from] ExportError),
    /// A task that starts a part of the service panicked or was cancelled.
    #[error("a task failed while the service was starting: {0}")]
    Start(tokio::task::JoinError),
    /// The server that is asked for ledger entries cannot be set up.
    #[error("ledger entries cannot be requested: {0}")]
    Entries(sources::SourcesError),
    /// The client for the stellar-core that this process runs cannot be set up.
    #[error("requests to stellar-core cannot be sent: {0}")]
    Core(crate::net::http::HttpError),
    /// The upstream of JSON-RPC calls is invalid or of another network.
    #[error("rpc.upstream cannot be used: {0}")]
    RpcUpstream(String),
    /// The destination of status messages is invalid.
    #[error("status messages: {0}")]
    Status(#[from] TargetError),
    /// The address of the HTTP interface cannot be bound.
    #[error("cannot listen on {address}: {reason}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not, and what to do.
        reason: String,
    },
}

/// The listening sockets of a service. Both are open before it reports that it listens.
pub struct ListeningSockets {
    http: TcpListener,
    /// Address of the HTTP interface.
    pub address: SocketAddr,
    control: Listener,
}

/// Opens the HTTP address and the control socket of a data directory.
///
/// # Errors
/// [`ServiceError::Listen`], [`ServiceError::Control`]
pub async fn listen(
    address: SocketAddr,
    data_dir: &Path,
) -> Result<ListeningSockets, ServiceError> {
    let http = bind(address).await?;
    let unknown =
        |error: std::io::Error| ServiceError::Listen { address, reason: error.to_string() };
    let address = http.local_addr().map_err(unknown)?;
    Ok(ListeningSockets { http, address, control: Listener::bind(data_dir)? })
}

async fn bind(address: SocketAddr) -> Result<TcpListener, ServiceError> {
    TcpListener::bind(address).await.map_err(|error| {
        let reason = match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                "another process uses it: stop that process, or choose another address with --listen".to_owned()
            }
            _ => error.to_string(),
        };
        ServiceError::Listen { address, reason }
    })
}

/// Returns the directory of the keys and tokens of a data directory.
pub fn secrets(data_dir: &Path) -> PathBuf {
    data_dir.join(SECRETS)
}

/// Opens the keys and tokens of a data directory.
///
/// # Errors
/// When a file cannot be read or is invalid.
pub fn open_tokens(
    data_dir: &Path,
    network: &Network,
    auth: &Auth,
) -> Result<Tokens, ServiceError> {
    let keys = auth.public_keys.iter().map(read_key).collect::<Result<Vec<_>, _>>()?;
    Ok(Tokens::open_with_keys(&secrets(data_dir), network, &keys)?)
}

fn read_key(file: &PublicKeyFile) -> Result<PublicKey, ServiceError> {
    let pem = std::fs::read_to_string(&file.path)
        .map_err(|source| ServiceError::PublicKey { path: file.path.clone(), source })?;
    let PublicKeyFile { kid, algorithm, sub_prefix, .. } = file.clone();
    Ok(PublicKey { kid, algorithm, pem, sub_prefix })
}

/// The sources of ledgers while the service runs.
pub struct Following {
    /// The usual source first, then the sources that fill its gaps.
    pub sources: Vec<Candidate>,
    /// Where an empty store begins.
    pub start: StartPoint,
}

impl Following {
    /// Returns the names of the sources.
    pub fn names(&self) -> Vec<String> {
        self.sources.iter().map(|candidate| candidate.source.name()).collect()
    }
}

/// A service whose programs and webhooks are running, before it takes requests and follows sources.
pub struct Service {
    ledgers: Arc<Ledgers>,
    /// Indexing programs, which run on ledgers as they are stored.
    pub programs: Arc<Programs>,
    webhooks: RunningWebhooks,
    sandbox: Option<Arc<RunningSandbox>>,
}

impl Service {
    /// Adds a sandbox network, which this process runs.
    #[must_use]
    pub fn with_sandbox(self, sandbox: RunningSandbox) -> Self {
        Self { sandbox: Some(Arc::new(sandbox)), ..self }
    }

    /// Opens the programs and webhooks of a data directory and starts them. Lookups of ledger
    /// entries at the upstream server end when `stop` turns true.
    ///
    /// # Errors
    /// [`ServiceError::Programs`], [`ServiceError::Webhooks`], [`ServiceError::Auth`],
    /// [`ServiceError::Entries`], [`ServiceError::Start`]
    pub async fn open(
        ledgers: Arc<Ledgers>,
        config: &Config,
        stop: watch::Receiver<bool>,
    ) -> Result<Self, ServiceError> {
        let programs = {
            let (ledgers, config) = (Arc::clone(&ledgers), config.clone());
            let runtime = tokio::runtime::Handle::current();
            let start = move || running_programs::start(&ledgers, &config, runtime, stop);
            spawn_blocking(start).await.map_err(ServiceError::Start)??
        };
        let webhooks = {
            let (ledgers, config) = (Arc::clone(&ledgers), config.clone());
            let start = move || webhooks::start(&ledgers, &config);
            spawn_blocking(start).await.map_err(ServiceError::Start)??
        };
        Ok(Self { ledgers, programs, webhooks, sandbox: None })
    }

    /// Starts the tasks that keep data of a bounded size and consumers moving, until `stop` turns
    /// true.
    fn spawn_upkeep(&self, tasks: &mut JoinSet<()>, stop: &watch::Receiver<bool>) {
        let Self { ledgers, programs, webhooks, .. } = self;
        tasks.spawn(prune_regularly(Arc::clone(ledgers), stop.clone()));
        tasks.spawn(lag_history::record(Arc::clone(ledgers), stop.clone()));
        tasks.spawn(consumers::drive(Arc::clone(ledgers), stop.clone()));
        tasks.spawn(running_programs::prune_records(Arc::clone(programs), stop.clone()));
        tasks.spawn(webhooks::sweep_regularly(Arc::clone(&webhooks.management), stop.clone()));
    }

    /// Stops the threads of webhooks and programs after their current work.
    async fn stop(self) {
        let Self { programs, webhooks, .. } = self;
        // Deliveries whose outcome is not recorded by then are repeated after the next start.
        let mut delivering = webhooks.delivering;
        if spawn_blocking(move || delivering.stop()).await.is_err() {
            tracing::error!("webhooks did not stop cleanly");
        }
        // All ledgers in flight are stored by now; programs run on those they have not seen after
        // the next start.
        if spawn_blocking(move || programs.stop()).await.is_err() {
            tracing::error!("the programs did not stop cleanly");
        }
    }
}

/// Serves the API, stores what the sources yield, and backfills older ledgers from the sources that
/// `open_sources` opens, until `stop` turns true. Then requests, imports and ledgers in flight are
/// finished.
///
/// # Errors
/// When a part cannot start, or the HTTP interface fails. The failure of a source is reported to
/// health and ends nothing.
pub async fn run(
    ledgers: Arc<Ledgers>,
    tokens: Arc<Tokens>,
    config: &Config,
    sockets: ListeningSockets,
    following: Option<Following>,
    open_sources: OpenSources,
    stop: watch::Receiver<bool>,
) -> Result<(), ServiceError> {
    let service = Service::open(ledgers, config, stop.clone()).await?;
    run_opened(service, tokens, config, sockets, following, open_sources, stop).await
}

/// As [`run`], for a service that is open.
///
/// # Errors
/// As [`run`].
pub async fn run_opened(
    service: Service,
    tokens: Arc<Tokens>,
    config: &Config,
    sockets: ListeningSockets,
    following: Option<Following>,
    open_sources: OpenSources,
    stop: watch::Receiver<bool>,
) -> Result<(), ServiceError> {
    let ledgers = Arc::clone(&service.ledgers);
    let ListeningSockets { http, address, control } = sockets;
    let targets = status_messages::targets(&config.status)?;
    let exporting = {
        let (ledgers, config, stop) = (Arc::clone(&ledgers), config.clone(), stop.clone());
        let open = move || exporting::open(&ledgers, &config, stop);
        spawn_blocking(open).await.map_err(ServiceError::Start)??
    };
    let backfills = Arc::new(Backfills::new(Arc::clone(&ledgers), open_sources));
    let controlled =
        Controlled { ledgers: Arc::clone(&ledgers), backfills: Arc::clone(&backfills) };
    let mut tasks = JoinSet::new();
    tasks.spawn(control.serve(Arc::new(controlled), stop.clone()));
    service.spawn_upkeep(&mut tasks, &stop);
    let (estimates, contract_sizes) = watch::channel(None);
    tasks.spawn(contract_sizes::estimate(Arc::clone(&ledgers), estimates, stop.clone()));
    tasks.spawn({
        let stop = stop.clone();
        async move { backfills.serve(stop).await }
    });
    if let Some(exporting) = exporting {
        tasks.spawn(exporting.run());
    }
    if !targets.is_empty() {
        let follows = following.is_some();
        tasks.spawn(status_messages::post(Arc::clone(&ledgers), targets, follows, stop.clone()));
    }
    for component in [PROGRAMS, RETENTION] {
        ledgers.health().up_by_default(component);
    }
    if let Some(following) = following {
        ledgers.health().set_follows_source();
        tasks.spawn(follow(Arc::clone(&ledgers), following, stop.clone()));
    }
    let deps = http_deps::of(&service, tokens, config, address, contract_sizes).await?;
    // Runs until this function returns, so that the supervisor does not take a long stop for a
    // stuck service.
    let mut supervised = JoinSet::new();
    supervised.spawn(supervisor::notify_supervisor(ledgers, stop.clone()));
    let served = api::serve(deps, http, stopped(stop)).await;
    if served.is_ok() {
        while tasks.join_next().await.is_some() {}
    }
    service.stop().await;
    Ok(served?)
}

/// Stores the ledgers of the sources, from the one after the newest stored ledger on.
async fn follow(ledgers: Arc<Ledgers>, following: Following, stop: watch::Receiver<bool>) {
    let store = ledgers.store();
    let status = store.status();
    for pair in status.ranges.windows(2) {
        let (from, to) = (pair[0].last.0.saturating_add(1), pair[1].first.0.saturating_sub(1));
        tracing::info!(
            "ledgers {from} to {to} are missing between stored ones: `orrery backfill --from {from} \
             --to {to}` fetches them"
        );
    }
    let next = status.latest().and_then(|latest| latest.next());
    let task = Task { next, start: following.start, last: None };
    let mut follower = Follower::new(
        following.sources,
        task,
        store.network().clone(),
        ingest::range_of(store),
        Reports {
            health: Arc::clone(ledgers.health()),
            metrics: Arc::clone(ledgers.metrics()),
            component: COMPONENT,
        },
        Timing::default(),
        StdRng::from_os_rng(),
    );
    let ingestion = Ingestion {
        ledgers: &ledgers,
        durability: Durability::Synced,
        older_up_to: None,
        component: INGESTION,
        stored: Arc::new(|_| {}),
    };
    match ingestion.run(&mut follower, stop).await {
        Ended::Followed(end) => tracing::info!(?end, "the source ended"),
        Ended::Failed(error) => tracing::error!("following has ended: {error}"),
        Ended::Stopped => {}
    }
}

async fn prune_regularly(ledgers: Arc<Ledgers>, stop: watch::Receiver<bool>) {
    for round in 0u32.. {
        let work = Arc::clone(&ledgers);
        let done = spawn_blocking(move || {
            work.prune()?;
            work.report_consumers();
            if round % MEASURE_EVERY == 0 { work.measure() } else { Ok(()) }
        });
        let failure = match done.await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        match failure {
            None => ledgers.health().up(RETENTION),
            Some(error) => {
                tracing::error!("retention could not remove old data: {error}");
                let reason = "old data could not be removed: the log says why";
                ledgers.health().down(RETENTION, reason);
            }
        }
        tokio::select! {
            () = tokio::time::sleep(PRUNE_EVERY) => {}
            () = stopped(stop.clone()) => return,
        }
    }
}

/// Returns when `stop` turns true or its sender is dropped.
async fn stopped(mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Returns the UNIX time in milliseconds.
pub fn unix_now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_millis() as u64)
}

/// Returns the UNIX time in seconds.
pub fn unix_now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}
