//! `/rest/openapi.json`: the API's description. The build script converts `schema/openapi.yaml` to it.

use super::answer::Answer;
use super::call::ReadCall;
use super::identity::Access;
use super::route::{Route, Work};
use super::{ApiError, Deps};

/// Routes of this area.
pub(super) static ROUTES: [Route; 1] =
    [Route::new("GET", "/rest/openapi.json", Work::read(Access::Public, description))];

/// The description in JSON.
const DESCRIPTION: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/openapi.json"));

fn description(_: &Deps, _: &ReadCall<'_>) -> Result<Answer, ApiError> {
    Ok(Answer::json(DESCRIPTION.to_vec()))
}
