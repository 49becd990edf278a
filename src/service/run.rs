//! Runs a service: its requests, its tasks and its sources, until it is stopped.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};

use super::control_service::Controlled;
use super::following::{Following, follow};
use super::pruning::RETENTION;
use super::sockets::ListeningSockets;
use super::stop::stopped;
use super::{
    Backfills, Node, OpenSources, Service, ServiceError, contract_sizes, exporting, http_deps,
    status_messages, supervisor,
};
use crate::api;
use crate::auth::Tokens;
use crate::config::Config;

/// Name under which programs report to health.
const PROGRAMS: &str = "programs";

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
    let exporting = {
        let (node, config, stop) = (Arc::clone(&node), config.clone(), stop.clone());
        let open = move || exporting::open(&node, &config, stop);
        spawn_blocking(open).await.map_err(ServiceError::Start)??
    };
    let backfills = Arc::new(Backfills::new(Arc::clone(&node), open_sources));
    let mut tasks = JoinSet::new();
    let controlled = Controlled { node: Arc::clone(&node), backfills: Arc::clone(&backfills) };
    tasks.spawn(control.serve(Arc::new(controlled), stop.clone()));
    let stop_backfills = stop.clone();
    tasks.spawn(async move { backfills.serve(stop_backfills).await });
    service.spawn_upkeep(&mut tasks, &stop);
    let (estimates, contract_sizes) = watch::channel(None);
    tasks.spawn(contract_sizes::estimate(Arc::clone(&node), estimates, stop.clone()));
    if let Some(exporting) = exporting {
        tasks.spawn(exporting.run());
    }
    if !targets.is_empty() {
        let follows = following.is_some();
        tasks.spawn(status_messages::post(Arc::clone(&node), targets, follows, stop.clone()));
    }
    node.health().up_by_default(PROGRAMS);
    node.health().up_by_default(RETENTION);
    if let Some(following) = following {
        node.health().set_follows_source();
        tasks.spawn(follow(Arc::clone(&node), following, stop.clone()));
    }
    let deps = http_deps::of(&service, tokens, config, address, contract_sizes).await?;
    // Runs until this function returns, so that the supervisor does not take a long stop for a
    // stuck service.
    let mut supervised = JoinSet::new();
    supervised.spawn(supervisor::notify_supervisor(node, stop.clone()));
    let served = api::serve(deps, http, stopped(stop)).await;
    if served.is_ok() {
        while tasks.join_next().await.is_some() {}
    }
    service.stop().await;
    Ok(served?)
}
