//! Webhooks in a running service: loads subscriptions with the operator's settings, and starts the
//! delivery threads.

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::StdRng;

use super::{Node, READER_OFF, ServiceError, secrets};
use crate::auth;
use crate::config::Config;
use crate::steady::elapsed_ms;
use crate::steady::unix_now_ms;
use crate::webhooks::Sealer;
use crate::webhooks::delivery::{self, DeliveryDeps, DeliveryThreads};
use crate::webhooks::manage::{WebhookDeps, Webhooks};
use crate::webhooks::target::{Policy, Sender, Timeouts, system_lookup};
use crate::webhooks::time::Clocks;

/// Name under which webhooks report to health.
const WEBHOOKS: &str = "webhooks";

/// The running webhooks of a service.
pub(super) struct RunningWebhooks {
    /// Operations on behalf of the subscriptions' owners.
    pub management: Arc<Webhooks>,
    /// The delivery threads; `None` in a reader, whose writer delivers.
    pub delivering: Option<DeliveryThreads>,
}

/// Loads subscriptions and starts the delivery threads, unless the data directory is a reader.
pub(super) fn start(node: &Node, config: &Config) -> Result<RunningWebhooks, ServiceError> {
    let (store, registry) = (node.store(), node.webhooks());
    let sealer = Sealer::new(&auth::webhook_key(&secrets(store.directory()))?)?;
    let clocks = Clocks { machine: Arc::new(unix_now_ms), elapsed: elapsed_ms() };
    registry.open(store, sealer, config.webhooks.clone(), &clocks)?;
    if let Some(url) = config.http.public_url.as_option() {
        registry.link_to(url);
    }
    let policy = Policy { allowed: config.webhooks.allow_subnets.clone() };
    let management = Webhooks::new(WebhookDeps {
        store: Arc::clone(store),
        registry: Arc::clone(registry),
        sender: Sender::new(policy, system_lookup(), Timeouts::default()),
        clock: Arc::new(unix_now_ms),
    });
    if node.reader().is_some() {
        node.health().up_with(WEBHOOKS, READER_OFF);
        return Ok(RunningWebhooks { management: Arc::new(management), delivering: None });
    }
    let runtime = delivery::runtime()?;
    let delivering = management.deliver(|post| DeliveryDeps {
        store: Arc::clone(store),
        registry: Arc::clone(registry),
        post,
        clock: Arc::new(unix_now_ms),
        runtime,
        health: Arc::clone(node.health()),
        metrics: Arc::clone(node.metrics()),
        rng: Box::new(StdRng::from_os_rng()),
    })?;
    node.health().up_by_default(WEBHOOKS);
    Ok(RunningWebhooks { management: Arc::new(management), delivering: Some(delivering) })
}
