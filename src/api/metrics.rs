//! `/metrics`: passes on the text that the operator's side of the process hands out.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::answer::{Answer, Finished};
use super::budgets::Budgets;
use super::compression::finish;
use super::route::{Access, Route, Work};
use super::{ApiError, Deps};
use crate::budget::Usage;

/// Text format 0.0.4 of Prometheus.
const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Routes of this area.
pub(super) static ROUTES: [Route; 1] =
    [Route::new("GET", "/metrics", Access::Operator, Work::Metrics)];

/// The metrics, with what is taken of the budgets of requests and of programs.
fn text(deps: &Deps, budgets: &Budgets) -> Result<Answer, ApiError> {
    let text = deps.metrics.as_ref().ok_or_else(|| ApiError::unknown_route("/metrics"))?;
    let mut usages: Vec<Usage> = budgets.usages().into();
    usages.extend(deps.programs.iter().flat_map(|programs| programs.usages()));
    Ok(Answer { media_type: MEDIA_TYPE, ..Answer::json(text(&usages).into_bytes()) })
}

/// How long the text is handed out before it is made anew.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// The metrics as they were handed out last: plain, and compressed.
#[derive(Default)]
pub(super) struct Kept([Mutex<Option<(Instant, Finished)>>; 2]);

impl Kept {
    /// The metrics, made anew when they are older than a moment.
    pub(super) fn get(
        &self,
        deps: &Deps,
        budgets: &Budgets,
        wants_gzip: bool,
    ) -> Result<Finished, ApiError> {
        let mut kept = self.0[usize::from(wants_gzip)].lock();
        if let Some((made, answer)) = &*kept
            && made.elapsed() < KEPT_FOR
        {
            return Ok(answer.clone());
        }
        let answer = finish(text(deps, budgets)?, wants_gzip);
        *kept = Some((Instant::now(), answer.clone()));
        Ok(answer)
    }
}
