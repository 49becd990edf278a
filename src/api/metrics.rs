//! `/metrics`: passes on the text that the operator's side of the process hands out.

use warp::http::StatusCode;

use super::answer::Answer;
use super::router::{Access, Call, Route, Verb, Work};
use super::{ApiError, Deps};

/// Text format 0.0.4 of Prometheus.
const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Routes of this area.
pub(super) const ROUTES: [Route; 1] = [Route {
    template: "/metrics",
    verb: Verb::Get,
    access: Access::Operator,
    work: Work::Memory(metrics),
}];

fn metrics(deps: &Deps, _: &Call<'_>) -> Result<Answer, ApiError> {
    let text = deps.metrics.as_ref().ok_or_else(|| ApiError::unknown_route("/metrics"))?;
    Ok(Answer { status: StatusCode::OK, media_type: MEDIA_TYPE, body: text().into_bytes() })
}
