//! What all requests share.

use std::sync::Arc;

use crate::blocking::Watch;
use crate::budgets::Budgets;
use crate::consumer_wait::ConsumerWait;
use crate::limits::{Limits, RateLimit};
use crate::metrics::MetricsCache;
use crate::names_wait::NamesWait;
use crate::reach::Reach;
use crate::response_cache::ResponseCache;
use crate::shared_limit::SharedLimit;
use crate::streams::context::Streams;
use crate::{ApiError, ApiSettings, Deps};

/// What all requests share.
pub(super) struct Resources {
    pub deps: Deps,
    pub reach: Reach,
    pub limits: Limits,
    pub forwarding: SharedLimit,
    pub budgets: Arc<Budgets>,
    pub watch: Arc<Watch>,
    pub streams: Streams,
    pub cache: ResponseCache,
    pub consumer_wait: ConsumerWait,
    pub names_wait: Arc<NamesWait>,
    pub metrics: MetricsCache,
}

impl Resources {
    pub(super) fn new(deps: Deps, reach: Reach) -> Result<Self, ApiError> {
        let (budgets, watch) = (Arc::new(Budgets::new(&deps.settings)), Arc::default());
        let names_wait = Arc::new(NamesWait::of(&deps.interfaces));
        let (own, forwarded) = rate_limits(&deps.settings);
        Ok(Self {
            limits: Limits::new(own),
            forwarding: SharedLimit::new(forwarded),
            consumer_wait: ConsumerWait::of(&deps.store),
            streams: Streams::new(&deps, &budgets, &watch, &names_wait)?,
            names_wait,
            budgets,
            deps,
            reach,
            watch,
            cache: ResponseCache::new(),
            metrics: MetricsCache::default(),
        })
    }
}

/// Returns the rate limits of one client, and of the calls of all clients that are forwarded.
fn rate_limits(settings: &ApiSettings) -> (Option<RateLimit>, Option<RateLimit>) {
    let ApiSettings { limits, rpc, tunables, .. } = settings;
    let forwarded = rpc.upstream_requests_per_second;
    (
        RateLimit::from_setting(limits.requests_per_second, limits.burst),
        RateLimit::from_setting(forwarded, forwarded.saturating_mul(tunables.forwarding_burst)),
    )
}
