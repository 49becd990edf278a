//! Dependencies of the HTTP interface of a running service.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::{
    Node, RunningSandbox, Service, ServiceError, attested, consumers, node, rpc, unix_now,
};
use crate::api::{ApiSettings, Deps, MetricsText, RequestObserver, Tunables};
use crate::auth::Tokens;
use crate::config::Config;
use crate::store::ContractSizes;

/// Returns the dependencies of the HTTP interface at `address`.
///
/// # Errors
/// Those of setting up JSON-RPC.
pub(super) async fn of(
    service: &Service,
    tokens: Arc<Tokens>,
    config: &Config,
    address: SocketAddr,
    contract_sizes: watch::Receiver<Option<Arc<ContractSizes>>>,
) -> Result<Deps, ServiceError> {
    let Service { node, programs, interfaces, webhooks, sandbox, running } = service;
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
            indexed_as: node::indexed_as(config),
            tunables: Tunables::default(),
        },
        clock: Arc::new(unix_now),
        programs: Arc::clone(programs),
        interfaces: Arc::clone(&interfaces.interfaces),
        rpc: rpc::start(node, config, sandbox.clone(), running.as_ref(), address).await?,
        friendbot: sandbox.clone().map(RunningSandbox::friendbot),
        webhooks: Arc::clone(&webhooks.management),
        contract_sizes,
        metrics: metrics_text(node),
        on_request: request_observer(node),
    })
}

fn metrics_text(node: &Node) -> MetricsText {
    let (store, health) = (Arc::clone(node.store()), Arc::clone(node.health()));
    let (metrics, webhooks) = (Arc::clone(node.metrics()), Arc::clone(node.webhooks()));
    let attestation = Arc::clone(node.attestation());
    Arc::new(move |usages| {
        usages.iter().for_each(|usage| metrics.set_budget(usage));
        metrics.set_cache_bytes(store.cache_bytes());
        consumers::report(&store, &metrics, &health);
        attested::report_health(&attestation, &store, &metrics, &health);
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
