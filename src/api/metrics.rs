//! `/metrics`: serves the metrics text, which another part of the process produces.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Deps;
use super::answer::{Answer, Finished};
use super::budgets::Budgets;
use super::compression::finish;
use super::route::{Route, Work};
use orrery_runtime::budget::Usage;

/// Media type of the Prometheus text format 0.0.4.
const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Routes of this area.
pub(super) static ROUTES: [Route; 1] =
    [Route::new("GET", "/metrics", Work::metrics()).ignoring_parameters()];

/// Returns the metrics, including the usage of the budgets of requests and of programs.
fn text(deps: &Deps, budgets: &Budgets) -> Answer {
    let mut usages: Vec<Usage> = budgets.usages().into();
    usages.extend(deps.programs.usages());
    Answer { media_type: MEDIA_TYPE, ..Answer::json((deps.metrics)(&usages).into_bytes()) }
}

/// Time for which the text is cached.
const CACHE_TTL: Duration = Duration::from_secs(1);

/// Cached metrics responses: uncompressed and compressed.
#[derive(Default)]
pub(super) struct MetricsCache([Mutex<Option<(Instant, Finished)>>; 2]);

impl MetricsCache {
    /// Returns the metrics, produced anew when the cached ones are older than [`CACHE_TTL`].
    pub(super) fn get(&self, deps: &Deps, budgets: &Budgets, wants_gzip: bool) -> Finished {
        let mut kept = self.0[usize::from(wants_gzip)].lock();
        if let Some((made, answer)) = &*kept
            && made.elapsed() < CACHE_TTL
        {
            return answer.clone();
        }
        let answer = finish(text(deps, budgets), wants_gzip);
        *kept = Some((Instant::now(), answer.clone()));
        answer
    }
}
