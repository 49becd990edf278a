//! `/rest/openapi.json`: the API's description, `schema/openapi.yaml` converted to JSON.

use std::sync::LazyLock;

use super::access::Access;
use super::answer::Answer;
use super::call::ReadCall;
use super::route::{Route, Work};
use super::{ApiError, Deps};

/// Routes of this area.
pub(super) static ROUTES: [Route; 1] =
    [Route::new("GET", "/rest/openapi.json", Work::read(Access::Public, description))];

static DESCRIPTION: LazyLock<Result<Vec<u8>, String>> = LazyLock::new(|| {
    let yaml: serde_yaml_ng::Value =
        serde_yaml_ng::from_str(include_str!("../../schema/openapi.yaml"))
            .map_err(|error| error.to_string())?;
    serde_json::to_vec(&yaml).map_err(|error| error.to_string())
});

/// Converts the description, or returns the cached conversion. Called at startup, so that an
/// invalid description prevents the server from starting.
pub(super) fn prepare() -> Result<&'static [u8], ApiError> {
    match &*DESCRIPTION {
        Ok(json) => Ok(json),
        Err(error) => Err(ApiError::Start(format!("its description is invalid ({error})"))),
    }
}

fn description(_: &Deps, _: &ReadCall<'_>) -> Result<Answer, ApiError> {
    Ok(Answer::json(prepare()?.to_vec()))
}
