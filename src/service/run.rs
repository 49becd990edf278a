//! Runs a service: its requests, its tasks and its sources, until it is stopped.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::consumers::ConsumerThreads;
use super::contract_sizes::{self, CONTRACT_SIZES};
use super::control_service::verbs;
use super::following::{Followed, Following, INGESTION, follow};
use super::pruning::RETENTION;
use super::sockets::ListeningSockets;
use super::stop::stopped;
use super::tasks::Tasks;
use super::{
    Backfills, Node, OpenSources, Service, ServiceError, exporting, http_deps, status_messages,
    supervisor,
};
use crate::api;
use crate::auth::Tokens;
use crate::config::Config;
use crate::control::Listener;
use crate::notify::Target;
use crate::priority::Priority;
use crate::store::ContractSizes;

/// Name under which programs report to health.
const PROGRAMS: &str = "programs";
/// Names of tasks that report to health only failures.
const CONTROL: &str = "control";
const BACKFILL: &str = "backfill";
const STATUS_MESSAGES: &str = "status_messages";
const SUPERVISOR: &str = "supervisor";

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
    let targets = status_messages::targets(&config.status)?;
    let mut tasks = Tasks::new(node.health(), &stop);
    let exporting = {
        let (node, config, stop) = (Arc::clone(&node), config.clone(), tasks.stop());
        let interfaces = Arc::clone(&service.interfaces.interfaces);
        let open = move || exporting::open(&node, &config, &interfaces, stop);
        spawn_blocking(open).await.map_err(ServiceError::start)??
    };
    let mut consumers = ConsumerThreads::start(&node)?;
    spawn_control(&mut tasks, &node, control, open_sources);
    service.spawn_upkeep(&mut tasks);
    let (estimates, contract_sizes) = watch::channel(None);
    spawn_estimates(&mut tasks, &node, estimates)?;
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
    let deps = http_deps::of(&service, tokens, config, address, contract_sizes).await?;
    // Runs until this function returns, so that the supervisor does not take a long stop for a
    // stuck service.
    let (_runs, never) = watch::channel(false);
    let mut until_the_end = Tasks::new(node.health(), &never);
    until_the_end.spawn(SUPERVISOR, {
        let stop = stop.clone();
        move || supervisor::notify_supervisor(Arc::clone(&node), stop.clone())
    });
    let served = api::serve(deps, http, stopped(stop)).await;
    tasks.end().await;
    if spawn_blocking(move || consumers.stop()).await.is_err() {
        tracing::error!("the consumers did not stop cleanly");
    }
    service.stop().await;
    Ok(served?)
}

/// Starts the tasks behind the control socket, and backfills, which it orders.
fn spawn_control(
    tasks: &mut Tasks,
    node: &Arc<Node>,
    listener: Listener,
    open_sources: OpenSources,
) {
    let backfills = Arc::new(Backfills::new(Arc::clone(node), open_sources));
    let verbs = Arc::new(verbs(node, &backfills));
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
    let estimate = move || contract_sizes::estimate(&node, &estimates, &stop, &runtime);
    tasks.spawn_thread(CONTRACT_SIZES, Priority::Background, estimate)
}

/// Starts the task that posts status messages to `targets`.
fn spawn_status_messages(tasks: &mut Tasks, node: &Arc<Node>, targets: Vec<Target>, follows: bool) {
    let (node, stop) = (Arc::clone(node), tasks.stop());
    tasks.spawn(STATUS_MESSAGES, move || {
        status_messages::post(Arc::clone(&node), targets.clone(), follows, stop.clone())
    });
}
