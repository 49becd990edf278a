//! A running service: puts store, pipeline, source, HTTP interface and control socket together, and
//! stops them together. Knows which parts there are, and leaves what they do to them.

mod backfill;
mod consumers;
mod contract_sizes;
mod controlled;
mod exporting;
mod http_settings;
mod ingest;
mod lag_history;
mod ledger_entries;
mod ledgers;
mod room;
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

pub use backfill::{BackfillError, Backfills, Older, OpenSources, OrderFile};
pub use consumers::lost_ranges;
pub use exporting::{ExportRole, export_place};
pub use ingest::{Ended, Ingestion};
pub use ledger_entries::{AskedEntries, EntriesServer};
pub use ledgers::Ledgers;
pub use room::DiskRoom;
pub use sandbox::RunningSandbox;

use self::running_core::RunningCore;
use self::webhooks::RunningWebhooks;
use controlled::Controlled;

use crate::api::{self, ApiError, ApiSettings, Deps};
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
/// Between two looks for what retention no longer keeps.
const PRUNE_EVERY: Duration = Duration::from_secs(10);
/// Between two measurements of the store's size, in prunings.
const MEASURE_EVERY: u32 = 6;

/// Why a service could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The data directory.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Keys and tokens.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// A public key's file.
    #[error("cannot read the public key {}: {source}", path.display())]
    PublicKey {
        /// PEM file.
        path: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The control socket.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The HTTP interface.
    #[error("the HTTP interface failed: {0}")]
    Api(#[from] ApiError),
    /// The metrics.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// Custom indexing programs.
    #[error("indexing programs cannot be run: {0}")]
    Programs(#[from] ProgramError),
    /// Webhooks.
    #[error("webhooks cannot be delivered: {0}")]
    Webhooks(#[from] WebhookError),
    /// The export.
    #[error("the export cannot begin: {0}")]
    Export(#[from] ExportError),
    /// A part could not be started.
    #[error("a part of the service ended while it was started: {0}")]
    Start(tokio::task::JoinError),
    /// Who is asked for entries of the ledger.
    #[error("entries of the ledger cannot be asked for: {0}")]
    Entries(sources::SourcesError),
    /// The stellar-core that this process runs.
    #[error("stellar-core cannot be asked: {0}")]
    Core(crate::source::http::HttpError),
    /// Who is handed calls of JSON-RPC.
    #[error("rpc.upstream cannot be used: {0}")]
    RpcUpstream(String),
    /// Where status messages go.
    #[error("status messages: {0}")]
    Status(#[from] TargetError),
    /// The address for the HTTP interface.
    #[error("cannot listen on {address}: {reason}")]
    Listen {
        /// Where it should have listened.
        address: SocketAddr,
        /// Why not, and what to do.
        reason: String,
    },
}

/// Where a service is reached. Both are open before it says that it listens.
pub struct Entrances {
    http: TcpListener,
    /// Address of the HTTP interface.
    pub address: SocketAddr,
    control: Listener,
}

/// Opens the address of the HTTP interface, and the control socket of a data directory.
///
/// # Errors
/// [`ServiceError::Listen`], [`ServiceError::Control`]
pub async fn listen(address: SocketAddr, data_dir: &Path) -> Result<Entrances, ServiceError> {
    let http = bind(address).await?;
    let unknown =
        |error: std::io::Error| ServiceError::Listen { address, reason: error.to_string() };
    let address = http.local_addr().map_err(unknown)?;
    Ok(Entrances { http, address, control: Listener::bind(data_dir)? })
}

async fn bind(address: SocketAddr) -> Result<TcpListener, ServiceError> {
    TcpListener::bind(address).await.map_err(|error| {
        let reason = match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                "another process uses it: stop that, or choose another with --listen".to_owned()
            }
            _ => error.to_string(),
        };
        ServiceError::Listen { address, reason }
    })
}

/// Where the keys and tokens of a data directory are.
pub fn secrets(data_dir: &Path) -> PathBuf {
    data_dir.join(SECRETS)
}

/// Opens the keys and tokens of a data directory.
///
/// # Errors
/// When a file cannot be read or is not what it should be.
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

/// Where ledgers come from while the service runs.
pub struct Following {
    /// The usual source first, then those that are asked for what it does not yield.
    pub sources: Vec<Candidate>,
    /// Where an empty store begins.
    pub start: StartPoint,
}

impl Following {
    /// Names of the sources.
    pub fn names(&self) -> Vec<String> {
        self.sources.iter().map(|candidate| candidate.source.name()).collect()
    }
}

/// A service whose programs are ready, and that takes no requests and follows nothing yet.
pub struct Service {
    ledgers: Arc<Ledgers>,
    /// Its indexing programs, which run on ledgers as they are stored.
    pub programs: Arc<Programs>,
    webhooks: RunningWebhooks,
    sandbox: Option<Arc<RunningSandbox>>,
}

impl Service {
    /// With a network that is made here.
    #[must_use]
    pub fn with_sandbox(self, sandbox: RunningSandbox) -> Self {
        Self { sandbox: Some(Arc::new(sandbox)), ..self }
    }

    /// Makes the programs of a data directory ready and begins to run them, until `stop` turns true.
    ///
    /// # Errors
    /// [`ServiceError::Programs`], [`ServiceError::Entries`]
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
}

/// Serves what is stored, stores what the sources yield, and fills in older ledgers from what
/// `open_sources` opens, until `stop` turns true. Then requests, imports and ledgers at hand are finished.
///
/// # Errors
/// When a part cannot start. A source that fails is reported by health and ends nothing.
pub async fn run(
    ledgers: Arc<Ledgers>,
    tokens: Arc<Tokens>,
    config: &Config,
    entrances: Entrances,
    following: Option<Following>,
    open_sources: OpenSources,
    stop: watch::Receiver<bool>,
) -> Result<(), ServiceError> {
    let service = Service::open(ledgers, config, stop.clone()).await?;
    run_opened(service, tokens, config, entrances, following, open_sources, stop).await
}

/// As [`run`], of a service that is open.
///
/// # Errors
/// As [`run`].
pub async fn run_opened(
    service: Service,
    tokens: Arc<Tokens>,
    config: &Config,
    entrances: Entrances,
    following: Option<Following>,
    open_sources: OpenSources,
    stop: watch::Receiver<bool>,
) -> Result<(), ServiceError> {
    let Service { ledgers, programs, webhooks, sandbox } = service;
    let entrances_address = entrances.address;
    let Entrances { http, control, .. } = entrances;
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
    tasks.spawn(prune_regularly(Arc::clone(&ledgers), stop.clone()));
    tasks.spawn(lag_history::record(Arc::clone(&ledgers), stop.clone()));
    let (estimates, contract_sizes) = watch::channel(None);
    tasks.spawn(contract_sizes::estimate(Arc::clone(&ledgers), estimates, stop.clone()));
    tasks.spawn(consumers::drive(Arc::clone(&ledgers), stop.clone()));
    tasks.spawn(running_programs::prune_records(Arc::clone(&programs), stop.clone()));
    tasks.spawn(webhooks::sweep_regularly(Arc::clone(&webhooks.asked), stop.clone()));
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
        ledgers.health().begins(component);
    }
    if let Some(following) = following {
        ledgers.health().follows_a_source();
        tasks.spawn(follow(Arc::clone(&ledgers), following, stop.clone()));
    }
    let mut deps = Deps {
        rpc: Some(rpc::start(&ledgers, config, sandbox.clone(), entrances_address).await?),
        webhooks: Some(Arc::clone(&webhooks.asked)),
        contract_sizes,
        ..dependencies(&ledgers, &programs, tokens, config)
    };
    if let Some(sandbox) = sandbox {
        deps.settings.has_friendbot = true;
        deps.friendbot = Some(sandbox);
    }
    // Goes on until this function returns, so that a long stop does not look like a stuck service.
    let mut supervised = JoinSet::new();
    supervised.spawn(supervisor::tell(Arc::clone(&ledgers), stop.clone()));
    let served = api::serve(deps, http, stopped(stop)).await;
    if served.is_ok() {
        while tasks.join_next().await.is_some() {}
    }
    // What is not noted by then is sent again after the next start.
    let mut delivering = webhooks.delivering;
    if spawn_blocking(move || delivering.stop()).await.is_err() {
        tracing::error!("webhooks could not be stopped in order");
    }
    // Ledgers at hand are stored by now; what programs have not seen of them comes after the next start.
    if spawn_blocking(move || programs.stop()).await.is_err() {
        tracing::error!("the programs could not be stopped in order");
    }
    Ok(served?)
}

fn dependencies(
    ledgers: &Ledgers,
    programs: &Arc<Programs>,
    tokens: Arc<Tokens>,
    config: &Config,
) -> Deps {
    let (rendered, counted) = (Arc::clone(ledgers.metrics()), Arc::clone(ledgers.metrics()));
    let (store, health) = (Arc::clone(ledgers.store()), Arc::clone(ledgers.health()));
    let webhooks = Arc::clone(ledgers.webhooks());
    Deps {
        store: Arc::clone(ledgers.store()),
        tokens,
        health: Arc::clone(ledgers.health()),
        network: ledgers.store().network().clone(),
        settings: ApiSettings {
            indexed_as: ledgers::indexed_as(config),
            ..http_settings::of(config)
        },
        clock: Arc::new(unix_now),
        programs: Some(Arc::clone(programs)),
        rpc: None,
        friendbot: None,
        webhooks: None,
        contract_sizes: watch::channel(None).1,
        metrics: Some(Arc::new(move |usages| {
            usages.iter().for_each(|usage| rendered.budget_is(usage));
            rendered.cache_bytes_are(store.cache_bytes());
            consumers::report(&store, &rendered, &health);
            ledgers::report_health(&store, &rendered, &health);
            let (subscriptions, waiting) = webhooks.counts();
            rendered.webhooks_are(subscriptions, waiting);
            rendered.render().unwrap_or_else(|error| format!("# {error}\n"))
        })),
        on_request: Some(Arc::new(move |request| {
            let duration = Duration::from_secs_f64(request.seconds.max(0.0));
            counted.http_answered(request.route, request.status, duration);
            if let Some(was_kept) = request.was_kept {
                counted.list_answered(was_kept);
            }
        })),
    }
}

/// Follows sources into the store, from the ledger after the newest one that is stored.
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
        Arc::clone(store) as _,
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
        Ended::GivenUp(error) => tracing::error!("following has ended: {error}"),
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
                tracing::error!("what is too old could not be removed: {error}");
                let reason = "what is too old could not be removed: the log says why";
                ledgers.health().down(RETENTION, reason);
            }
        }
        tokio::select! {
            () = tokio::time::sleep(PRUNE_EVERY) => {}
            () = stopped(stop.clone()) => return,
        }
    }
}

/// Returns when `stop` turns true, or can never do so any more.
async fn stopped(mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// UNIX milliseconds now.
pub fn unix_now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_millis() as u64)
}

/// UNIX seconds now.
pub fn unix_now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}
