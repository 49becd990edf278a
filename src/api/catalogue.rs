//! `/iceberg/v1/…`: the catalogue of the tables that the service exports, as the REST catalogue of Iceberg
//! ([`orrery_iceberg::catalog`]). It hands out metadata, and neither files nor keys to them.

use orrery_iceberg::catalog::{self, Request, Visible};
use warp::http::StatusCode;
use warp::http::header::IF_NONE_MATCH;

use super::answer::Answer;
use super::call::OwnerCall;
use super::exported::ExportedNow;
use super::route::{Route, Work};
use super::{ApiError, Deps};
use orrery_auth::{Area, Right, Scope};
use orrery_tables::CHAIN;

/// Path below which the catalogue is: the base address that clients are given.
const BASE: &str = "/iceberg";

/// Routes of this area.
pub(super) static ROUTES: [Route; 1] = [Route {
    failure,
    ..Route::new("GET", "/iceberg/{*rest}", Work::own_read(READ, answer)).ignoring_parameters()
}];

/// Plans without programs of their own have the tables of events and transactions.
const READ: Right = Right { area: Area::Queries, scope: Scope::Read };

fn answer(deps: &Deps, call: &OwnerCall<'_>) -> Result<Answer, ApiError> {
    let Some(exported) = &deps.exported else {
        return Err(ApiError::NoCatalogue);
    };
    let Some(exported) = exported(&deps.programs.readable(call.owner)) else {
        return Err(ApiError::NotReady(
            "no table is exported yet: ask again when `/rest/health` says that ledgers are"
                .to_owned(),
        ));
    };
    let ExportedNow { lake, namespaces: mut visible } = exported;
    visible.insert(CHAIN.to_owned());
    let tags = call.head.headers.get(IF_NONE_MATCH);
    let request = Request {
        method: call.head.method.as_str(),
        path: call.path.path.strip_prefix(BASE).unwrap_or_default(),
        query: Some(&call.head.query),
        if_none_match: tags.and_then(|tags| tags.to_str().ok()),
    };
    of_catalogue(catalog::answer(&*lake, Visible::Only(&visible), &request))
}

fn of_catalogue(response: catalog::Response) -> Result<Answer, ApiError> {
    let catalog::Response { status, headers, body } = response;
    let status = StatusCode::from_u16(status).map_err(|_| ApiError::Encoding)?;
    let headers = headers.into_iter().filter(|(name, _)| *name != "content-type").collect();
    Ok(Answer { status, headers, ..Answer::json(body.into_bytes()) })
}

/// Formats failures as clients of such a catalogue read them.
fn failure(error: &ApiError) -> Answer {
    let (status, _) = error.status_and_code();
    let kind = match status.as_u16() {
        400 | 414 => "BadRequestException",
        401 => "NotAuthorizedException",
        403 => "ForbiddenException",
        404 => "NotFoundException",
        405 => "UnsupportedOperationException",
        429 => "TooManyRequestsException",
        503 => "ServiceUnavailableException",
        _ => "InternalServerError",
    };
    let response = catalog::error(status.as_u16(), kind, &error.to_string());
    Answer { status, ..Answer::json(response.body.into_bytes()) }
}
