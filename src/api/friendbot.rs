//! `/friendbot`: funds accounts and contracts of a network that this service runs itself, like the
//! friendbots of public test networks.

use std::str::FromStr;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::json;
use stellar_xdr::{Limits, ScAddress, WriteXdr};
use warp::http::StatusCode;

use super::allowance::ReserveError;
use super::answer::Answer;
use super::budgets::{self, RETRY_AFTER};
use super::call::{AsyncCall, Body};
use super::identity::Access;
use super::params::Parameters;
use super::route::{Route, Work};
use super::{ApiError, Deps, body_parameters};
use orrery_ledger::domain::{Funding, NotFunded, excerpt};
use orrery_settings::UnknownParameters;

/// Maximum size of a request body, in bytes.
const LARGEST_BODY: usize = 4096;

/// Public routes of this area.
pub(super) static ROUTES: [Route; 2] =
    [Route { no_store: true, ..route("GET") }, route("POST").with_body(LARGEST_BODY)];

const fn route(method: &'static str) -> Route {
    let route = Route::new(method, PATH, WORK).with_parameters(&[ADDRESS]);
    Route { refuses_foreign_pages: true, ..route }
}

const WORK: Work = Work::asynchronous(Access::Public, answer);

/// Parameter with the address of the account or contract.
const ADDRESS: &str = "addr";

const PATH: &str = "/friendbot";

fn answer<'a>(deps: &'a Deps, call: AsyncCall<'a>) -> BoxFuture<'a, Result<Answer, ApiError>> {
    async move {
        let friendbot = deps.friendbot.as_ref().ok_or_else(|| ApiError::unknown_route(PATH))?;
        let mut query = call.query.clone();
        // Public friendbots read forms, and ignore all other bodies.
        if body_parameters::is_form(call.body) {
            let known = Parameters::Known(&[ADDRESS]);
            let body = Body { unknown: UnknownParameters::Ignore, ..call.body };
            body_parameters::add(&mut query, body, known)?;
        }
        let given = query.get(ADDRESS).unwrap_or_default();
        let address = ScAddress::from_str(given)
            .ok()
            .filter(|address| matches!(address, ScAddress::Account(_) | ScAddress::Contract(_)));
        let Some(address) = address else {
            let problem = format!(
                "is '{}': give the address of an account (G…) or contract (C…)",
                excerpt(given)
            );
            return Err(ApiError::parameter(ADDRESS, problem));
        };
        match friendbot(address).await {
            Ok(given) => {
                let answer = success_response(&given)?;
                call.reading.reserve(answer.body.len()).map_err(no_room)?;
                Ok(answer)
            }
            Err(NotFunded::Exists) => {
                Ok(refused("the account exists already: createAccountAlreadyExist"))
            }
            Err(NotFunded::Refused(reason)) => Ok(refused(reason)),
            Err(NotFunded::Busy) => Err(ApiError::Busy { retry_after: 1 }),
        }
    }
    .boxed()
}

/// Returns the error for a response whose bytes the byte budget refuses.
fn no_room(error: ReserveError) -> ApiError {
    match error {
        ReserveError::NotNow(refusal) => budgets::refused(refusal, "bytes"),
        ReserveError::Never { .. } => ApiError::Busy { retry_after: RETRY_AFTER },
    }
}

fn success_response(given: &Funding) -> Result<Answer, ApiError> {
    let serialization_failed = |error: stellar_xdr::Error| {
        tracing::error!(%error, "a friendbot transaction cannot be encoded as XDR");
        ApiError::Encoding
    };
    let body = json!({
        "successful": true,
        "hash": hex::encode(given.hash),
        "envelope_xdr": given.envelope.to_xdr_base64(Limits::none()).map_err(serialization_failed)?,
        "result_meta_xdr": given.meta.to_xdr_base64(Limits::none()).map_err(serialization_failed)?,
    });
    Ok(Answer::json(body.to_string().into_bytes()))
}

/// Returns a problem report in the form of RFC 7807, like the public friendbots.
fn refused(detail: &str) -> Answer {
    let status = StatusCode::BAD_REQUEST;
    let body = json!({ "title": "Bad Request", "status": status.as_u16(), "detail": detail });
    Answer { status, ..Answer::json(body.to_string().into_bytes()) }
}
