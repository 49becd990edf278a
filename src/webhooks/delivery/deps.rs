//! What the delivery threads are given.

use std::sync::Arc;

use rand::RngCore;

use super::attempt::Post;
use crate::Clock;
use crate::registry::Registry;
use orrery_runtime::observe::health::Health;
use orrery_runtime::observe::metrics::Metrics;
use orrery_runtime::priority::PromptRuntime;
use orrery_store::Store;

/// Dependencies of the delivery threads.
pub struct DeliveryDeps {
    /// Store that holds the deliveries.
    pub store: Arc<Store>,
    /// Subscriptions that the deliveries belong to.
    pub registry: Arc<Registry>,
    /// Makes an attempt.
    pub post: Post,
    /// Current UNIX time in milliseconds, which attempts are signed with.
    pub clock: Clock,
    /// Runtime on which attempts run.
    pub runtime: PromptRuntime,
    /// Set to down when the queue cannot be read or outcomes cannot be written.
    pub health: Arc<Health>,
    /// Receives outcomes and the number of attempts in progress.
    pub metrics: Arc<Metrics>,
    /// Random source of the retry jitter.
    pub rng: Box<dyn RngCore + Send>,
}
