//! Runs a service: opens its parts, serves its requests, runs its tasks and follows its sources, until
//! it is stopped.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::consumers::{self, ConsumerThreads};
use super::control_service::verbs;
use super::following::{Followed, Following, INGESTION, follow};
use super::http::ListeningSockets;
use super::interfaces::RunningInterfaces;
use super::network_node::RunningCore;
use super::recorded_storage::{self, WATCHED_STORAGE};
use super::tasks::{Tasks, stopped};
use super::upkeep::{self, CONTRACT_SIZES, RETENTION};
use super::webhooks::RunningWebhooks;
use super::{
    Backfills, Node, OpenSources, RunningSandbox, ServiceError, StateBackfills, attestation,
    exporting, interfaces, kept_records, ledger_entries, rpc, running_programs, sinking,
    status_messages, supervisor, webhooks,
};
use crate::api::{self, AddressNames, ApiSettings, Deps, MetricsText, RequestObserver, Tunables};
use crate::auth::Tokens;
use crate::config::Config;
use crate::control::Listener;
use crate::notify::Target;
use crate::priority::Priority;
use crate::programs::Programs;
use crate::sinks::Sinks;
use crate::steady::unix_now;
use crate::store::{ContractSizes, LedgerConsumer};

/// Name under which programs report to health.
const PROGRAMS: &str = "programs";
/// Names of tasks that report to health only failures.
const CONTROL: &str = "control";
const BACKFILL: &str = "backfill";
const READER: &str = "reader";
const STATUS_MESSAGES: &str = "status_messages";
const SUPERVISOR: &str = "supervisor";
const LAG_HISTORY: &str = "lag_history";
const PROGRAM_RECORDS: &str = "program_records";
const WEBHOOK_RECORDS: &str = "webhook_records";

/// A service whose programs and webhooks are running, before it takes requests and follows sources.
pub struct Service {
    pub(super) node: Arc<Node>,
    /// Indexing programs, which run on ledgers as they are stored.
    pub programs: Arc<Programs>,
    pub(super) interfaces: RunningInterfaces,
    pub(super) webhooks: RunningWebhooks,
    pub(super) sandbox: Option<Arc<RunningSandbox>>,
    /// The stellar-core that is followed, if one is.
    pub(super) running: Option<RunningCore>,
    /// Token that the documents show to clients on this machine.
    pub(super) example_token: Option<Arc<str>>,
}

impl Service {
    /// Adds a sandbox network, which this process runs.
    #[must_use]
    pub fn with_sandbox(self, sandbox: RunningSandbox) -> Self {
        Self { sandbox: Some(Arc::new(sandbox)), ..self }
    }

    /// Adds a token that the documents show to clients on this machine, for their examples.
    #[must_use]
    pub fn with_example_token(self, token: &str) -> Self {
        Self { example_token: Some(token.into()), ..self }
    }

    /// Opens the programs and webhooks of a data directory and starts them; `running` is the
    /// stellar-core that will be followed, if one will be. Lookups of ledger entries at the upstream
    /// server end when `stop` turns true.
    pub async fn open(
        node: Arc<Node>,
        config: &Config,
        running: Option<RunningCore>,
        stop: watch::Receiver<bool>,
    ) -> Result<Self, ServiceError> {
        let (programs, interfaces) = {
            let core = running.clone().unwrap_or_default();
            let (node, config) = (Arc::clone(&node), config.clone());
            let runtime = tokio::runtime::Handle::current();
            let start = move || {
                let upstream = ledger_entries::upstream(&node, &config, &core, runtime, stop)?;
                let interfaces = interfaces::start(&node, upstream.clone())?;
                let names = Arc::clone(&interfaces.interfaces);
                let chain = exporting::live_chain(&node, &config, &names)?;
                let programs = running_programs::start(&node, &config, names, chain, upstream)?;
                Ok::<_, ServiceError>((programs, interfaces))
            };
            spawn_blocking(start).await.map_err(ServiceError::start)??
        };
        node.webhooks().name_events_by(Arc::clone(&interfaces.interfaces));
        node.webhooks().follow(Arc::clone(&programs) as _);
        let webhooks = {
            let (node, config) = (Arc::clone(&node), config.clone());
            let start = move || webhooks::start(&node, &config);
            spawn_blocking(start).await.map_err(ServiceError::start)??
        };
        Ok(Self {
            node,
            programs,
            interfaces,
            webhooks,
            sandbox: None,
            running,
            example_token: None,
        })
    }

    /// Starts the tasks that keep data of a bounded size and record the lag.
    fn spawn_upkeep(&self, tasks: &mut Tasks) {
        let (node, own) = (Arc::clone(&self.node), tasks.stop());
        tasks.spawn(RETENTION, move || upkeep::prune_regularly(Arc::clone(&node), own.clone()));
        let (node, own) = (Arc::clone(&self.node), tasks.stop());
        tasks.spawn(LAG_HISTORY, move || upkeep::record_lag(Arc::clone(&node), own.clone()));
        let (programs, own) = (Arc::clone(&self.programs), tasks.stop());
        // The time by which webhooks keep deliveries is stored, and not one reading of a clock.
        let webhooks = Arc::clone(self.node.webhooks());
        tasks.spawn(PROGRAM_RECORDS, move || {
            let webhooks = Arc::clone(&webhooks);
            let now = Arc::new(move || webhooks.now().kept);
            upkeep::prune_program_records(Arc::clone(&programs), now, own.clone())
        });
        if self.node.reader().is_some() {
            // What waited in the snapshot stays as it is until somebody delivers it.
            return;
        }
        let (management, own) = (Arc::clone(&self.webhooks.management), tasks.stop());
        tasks.spawn(WEBHOOK_RECORDS, move || {
            upkeep::sweep_webhooks(Arc::clone(&management), own.clone())
        });
    }

    /// Stops the threads of webhooks and programs after their current work.
    pub(super) async fn stop(self) {
        let Self { programs, mut interfaces, webhooks, .. } = self;
        if spawn_blocking(move || interfaces.stop()).await.is_err() {
            tracing::error!("the reader of interfaces did not stop cleanly");
        }
        // Deliveries whose outcome is not recorded by then are repeated after the next start.
        if let Some(mut delivering) = webhooks.delivering
            && spawn_blocking(move || delivering.stop()).await.is_err()
        {
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
    node: Arc<Node>,
    tokens: Arc<Tokens>,
    config: &Config,
    sockets: ListeningSockets,
    following: Option<Following>,
    open_sources: OpenSources,
    stop: watch::Receiver<bool>,
) -> Result<(), ServiceError> {
    let running = following.as_ref().and_then(|following| following.running.clone());
    let service = Service::open(node, config, running, stop.clone()).await?;
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
    let node = Arc::clone(&service.node);
    let ListeningSockets { http, address, control } = sockets;
    let mut targets = status_messages::targets(&config.status)?;
    if let Some(reader) = node.reader() {
        tracing::info!("this data directory is {}", reader.words());
        node.health().up_with(READER, reader.words());
        targets.clear();
    }
    let mut tasks = Tasks::new(node.health(), &stop);
    let exporting = {
        let (node, config, stop) = (Arc::clone(&node), config.clone(), tasks.stop());
        let interfaces = Arc::clone(&service.interfaces.interfaces);
        let open = move || exporting::open(&node, &config, &interfaces, stop);
        spawn_blocking(open).await.map_err(ServiceError::start)??
    };
    let mut consumers =
        ConsumerThreads::start(node.store(), &running_consumers(&node), node.health())?;
    let sinks = start_sinks(&service, config, &tasks).await?;
    spawn_control(&mut tasks, &node, control, open_sources, &sinks);
    service.spawn_upkeep(&mut tasks);
    let (estimates, contract_sizes) = watch::channel(None);
    spawn_estimates(&mut tasks, &node, estimates)?;
    if recorded_storage::is_watched(node.store())? {
        let (node, programs) = (Arc::clone(&node), Arc::clone(&service.programs));
        let stop = tasks.stop();
        tasks.spawn_thread(WATCHED_STORAGE, Priority::Background, move || {
            let sources = (&*programs, &**node.webhooks());
            recorded_storage::watch_regularly(node.store(), sources, node.health(), &stop);
        })?;
    }
    if let Some(exporting) = exporting {
        exporting.start(&mut tasks, config)?;
    }
    if !targets.is_empty() {
        spawn_status_messages(&mut tasks, &node, targets, following.is_some());
    }
    node.health().up_by_default(PROGRAMS);
    node.health().up_by_default(RETENTION);
    if let Some(following) = following {
        node.health().set_follows_source();
        let followed = Arc::new(Followed::from(following));
        let (node, stop) = (Arc::clone(&node), tasks.stop());
        tasks.spawn(INGESTION, move || {
            follow(Arc::clone(&node), Arc::clone(&followed), stop.clone())
        });
    }
    let deps = http_dependencies(&service, tokens, config, address, contract_sizes).await?;
    // Runs until this function returns, so that the supervisor does not take a long stop for a
    // stuck service.
    let (_runs, never) = watch::channel(false);
    let mut until_the_end = Tasks::new(node.health(), &never);
    until_the_end.spawn(SUPERVISOR, {
        let stop = stop.clone();
        move || supervisor::notify_supervisor(Arc::clone(node.store()), stop.clone())
    });
    let served = api::serve(deps, http, stopped(stop)).await;
    tasks.end().await;
    if spawn_blocking(move || sinks.join()).await.is_err() {
        tracing::error!("the sinks did not stop cleanly");
    }
    if spawn_blocking(move || consumers.stop()).await.is_err() {
        tracing::error!("the consumers did not stop cleanly");
    }
    service.stop().await;
    Ok(served?)
}

/// Starts the sinks of the settings.
async fn start_sinks(
    service: &Service,
    config: &Config,
    tasks: &Tasks,
) -> Result<Arc<Sinks>, ServiceError> {
    let (node, programs) = (Arc::clone(&service.node), Arc::clone(&service.programs));
    let (config, stop, runtime) = (config.clone(), tasks.stop(), Handle::current());
    let start = move || sinking::start(&node, &config, &programs, stop, runtime);
    spawn_blocking(start).await.map_err(ServiceError::start)?
}

/// Returns the consumers that process ledgers: a reader's webhooks stay at the last ledger whose deliveries the
/// snapshot knew, until they are promoted.
fn running_consumers(node: &Node) -> Vec<Arc<dyn LedgerConsumer>> {
    let mut running = node.consumers().to_vec();
    if node.reader().is_some() {
        node.store().set_active(crate::webhooks::CONSUMER, false);
        running.retain(|consumer| consumer.spec().name != crate::webhooks::CONSUMER);
    }
    running
}

/// Starts the tasks behind the control socket, and backfills, which it orders.
fn spawn_control(
    tasks: &mut Tasks,
    node: &Arc<Node>,
    listener: Listener,
    open_sources: OpenSources,
    sinks: &Arc<Sinks>,
) {
    let backfills = Arc::new(Backfills::new(Arc::clone(node), open_sources));
    let states = StateBackfills::new(Arc::clone(node), Handle::current(), tasks.stop());
    let verbs = Arc::new(verbs(node, &backfills, &Arc::new(states), sinks));
    let (listener, stop) = (Arc::new(listener), tasks.stop());
    tasks.spawn(CONTROL, move || Arc::clone(&listener).serve(Arc::clone(&verbs), stop.clone()));
    let stop = tasks.stop();
    tasks.spawn(BACKFILL, move || {
        let (backfills, stop) = (Arc::clone(&backfills), stop.clone());
        async move { backfills.serve(stop).await }
    });
}

/// Starts the thread that estimates how much space contracts take.
fn spawn_estimates(
    tasks: &mut Tasks,
    node: &Arc<Node>,
    estimates: watch::Sender<Option<Arc<ContractSizes>>>,
) -> Result<(), ServiceError> {
    let (node, stop, runtime) = (Arc::clone(node), tasks.stop(), Handle::current());
    let estimate = move || upkeep::estimate_contract_sizes(&node, &estimates, &stop, &runtime);
    tasks.spawn_thread(CONTRACT_SIZES, Priority::Background, estimate)
}

/// Starts the task that posts status messages to `targets`.
fn spawn_status_messages(tasks: &mut Tasks, node: &Arc<Node>, targets: Vec<Target>, follows: bool) {
    let (node, stop) = (Arc::clone(node), tasks.stop());
    tasks.spawn(STATUS_MESSAGES, move || {
        status_messages::post(Arc::clone(&node), targets.clone(), follows, stop.clone())
    });
}

/// Returns the dependencies of the HTTP interface at `address`.
///
/// # Errors
/// Those of setting up JSON-RPC.
async fn http_dependencies(
    service: &Service,
    tokens: Arc<Tokens>,
    config: &Config,
    address: SocketAddr,
    contract_sizes: watch::Receiver<Option<Arc<ContractSizes>>>,
) -> Result<Deps, ServiceError> {
    let Service { node, programs, interfaces, webhooks, sandbox, running, example_token } = service;
    Ok(Deps {
        store: Arc::clone(node.store()),
        tokens,
        health: Arc::clone(node.health()),
        attestation: Arc::clone(node.attestation()),
        network: node.store().network().clone(),
        settings: ApiSettings {
            http: config.http.clone(),
            limits: config.limits.clone(),
            queries: config.queries.clone(),
            rpc: config.rpc.clone(),
            indexers: config.indexers.clone(),
            indexed_as: kept_records::indexed_as(config),
            names: Arc::new(address_names(&config.site.labels)?),
            data_dir: named_in_commands(&config.data_dir),
            tunables: Tunables::default(),
        },
        clock: Arc::new(unix_now),
        programs: Arc::clone(programs),
        interfaces: Arc::clone(&interfaces.interfaces),
        rpc: rpc::start(node, config, sandbox.clone(), running.as_ref(), address).await?,
        friendbot: sandbox.clone().map(|sandbox| sandbox.friendbot(node.store())),
        example_token: example_token.clone(),
        exported: exporting::exported_tables(node, config),
        webhooks: Arc::clone(&webhooks.management),
        contract_sizes,
        metrics: metrics_text(node),
        on_request: request_observer(node),
    })
}

/// Checks the files of `[site]`, which a start reads.
///
/// # Errors
/// When one cannot be read, or holds a mistake.
pub fn check_files(config: &Config) -> Result<(), ServiceError> {
    address_names(&config.site.labels).map(drop)
}

/// Reads the operator's names of addresses, if there is a file of them.
fn address_names(path: &Path) -> Result<AddressNames, ServiceError> {
    if path.as_os_str().is_empty() {
        return Ok(AddressNames::default());
    }
    AddressNames::read(path)
        .map_err(|error| ServiceError::Other(format!("site.labels, {}: {error}", path.display())))
}

/// Returns a data directory as a command in the same working directory names it, without quotes.
fn named_in_commands(data_dir: &Path) -> Option<String> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._/-".contains(letter);
    let text = data_dir.to_str()?;
    let is_option = text.starts_with('-');
    (data_dir.is_relative() && !is_option && text.chars().all(is_plain)).then(|| text.to_owned())
}

fn metrics_text(node: &Node) -> MetricsText {
    let (store, health) = (Arc::clone(node.store()), Arc::clone(node.health()));
    let (metrics, webhooks) = (Arc::clone(node.metrics()), Arc::clone(node.webhooks()));
    let attestation = Arc::clone(node.attestation());
    Arc::new(move |usages| {
        usages.iter().for_each(|usage| metrics.set_budget(usage));
        metrics.set_cache_bytes(store.cache_bytes());
        consumers::report(&store, &metrics, &health);
        attestation::report_health(&attestation, &store, &metrics, &health);
        let (subscriptions, waiting) = webhooks.counts();
        metrics.set_webhooks(subscriptions, waiting);
        metrics.render().unwrap_or_else(|error| format!("# {error}\n"))
    })
}

fn request_observer(node: &Node) -> RequestObserver {
    let metrics = Arc::clone(node.metrics());
    Arc::new(move |request| {
        let duration = Duration::from_secs_f64(request.seconds.max(0.0));
        metrics.http_answered(request.route, request.status, duration);
        if let Some(from_cache) = request.from_cache {
            metrics.list_answered(from_cache);
        }
    })
}
