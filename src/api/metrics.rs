//! `/metrics`: passes on the text that the operator's side of the process hands out.

use super::answer::Answer;
use super::budgets::Budgets;
use super::route::{Access, Route, Work};
use super::{ApiError, Deps};
use crate::budget::Usage;

/// Text format 0.0.4 of Prometheus.
const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Routes of this area.
pub(super) static ROUTES: [Route; 1] =
    [Route::new("GET", "/metrics", Access::Operator, Work::Metrics)];

/// The metrics, with what is taken of the budgets of requests and of programs.
pub(super) fn text(deps: &Deps, budgets: &Budgets) -> Result<Answer, ApiError> {
    let text = deps.metrics.as_ref().ok_or_else(|| ApiError::unknown_route("/metrics"))?;
    let mut usages: Vec<Usage> = budgets.usages().into();
    usages.extend(deps.programs.iter().flat_map(|programs| programs.usages()));
    Ok(Answer { media_type: MEDIA_TYPE, ..Answer::json(text(&usages).into_bytes()) })
}
