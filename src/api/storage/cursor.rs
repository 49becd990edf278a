//! The parameter with which a list goes on.

use std::str::FromStr;

use super::super::ApiError;
use super::super::params::Query;

/// Name of the parameter.
pub(super) const CURSOR: &str = "cursor";

/// A text that no answer has as its cursor.
pub(super) struct NotACursor;

/// Parses the cursor of a request; `None` when it is not given.
pub(super) fn cursor<C: FromStr<Err = NotACursor>>(
    query: &Query<'_>,
) -> Result<Option<C>, ApiError> {
    let parse = |text: &str| {
        let problem = "is not one: give the member `cursor` of the answer before, as it is";
        text.parse().map_err(|NotACursor| ApiError::parameter(CURSOR, problem))
    };
    query.get(CURSOR).map(parse).transpose()
}
