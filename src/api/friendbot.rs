//! `/friendbot`: gives coins of a network that this service makes itself, as the friendbots of public test networks do.

use std::str::FromStr;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::json;
use stellar_xdr::{Limits, ScAddress, TransactionEnvelope, TransactionMeta, WriteXdr};
use warp::http::StatusCode;

use super::answer::Answer;
use super::params::Query;
use super::route::{Access, Call, Route, Work};
use super::{ApiError, Deps};
use crate::domain::excerpt;

/// Bytes of a body, which is not looked at.
const LARGEST_BODY: usize = 4096;

/// For everybody.
pub(super) static ROUTES: [Route; 2] = [
    Route { of_the_moment: true, ..Route::new("GET", PATH, Access::Public, Work::Waiting(answer)) },
    Route::new("POST", PATH, Access::Public, Work::Waiting(answer)).with_body(LARGEST_BODY),
];

const PATH: &str = "/friendbot";

/// Gives coins.
pub trait Friendbot: Send + Sync {
    /// Has an account made with coins in it, or a contract given some.
    fn fund(&self, address: ScAddress) -> BoxFuture<'_, Result<Given, NotGiven>>;
}

/// Coins that were given.
#[derive(Debug, Clone)]
pub struct Given {
    /// Hash of the transaction.
    pub hash: [u8; 32],
    /// The transaction.
    pub envelope: TransactionEnvelope,
    /// What it did.
    pub meta: TransactionMeta,
}

/// Why nothing was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotGiven {
    /// The account is there already.
    Exists,
    /// Too many wait.
    Busy,
    /// It cannot be, for the reason of this sentence.
    Refused(&'static str),
}

fn answer<'a>(deps: &'a Deps, call: &'a Call<'a>) -> BoxFuture<'a, Result<Answer, ApiError>> {
    async move {
        let friendbot =
            deps.friendbot.as_deref().ok_or_else(|| ApiError::UnknownRoute(PATH.to_owned()))?;
        let query = Query::parse(call.query, &["addr"])?;
        let given = query.get("addr").unwrap_or_default();
        let address = ScAddress::from_str(given)
            .ok()
            .filter(|address| matches!(address, ScAddress::Account(_) | ScAddress::Contract(_)));
        let Some(address) = address else {
            let problem = format!(
                "is '{}': give the address of an account (G…) or contract (C…)",
                excerpt(given)
            );
            return Err(ApiError::parameter("addr", problem));
        };
        match friendbot.fund(address).await {
            Ok(given) => told(&given),
            Err(NotGiven::Exists) => {
                Ok(refused("the account exists already: createAccountAlreadyExist"))
            }
            Err(NotGiven::Refused(reason)) => Ok(refused(reason)),
            Err(NotGiven::Busy) => Err(ApiError::Busy { retry_after: 1 }),
        }
    }
    .boxed()
}

fn told(given: &Given) -> Result<Answer, ApiError> {
    let unspelled = |error: stellar_xdr::Error| {
        tracing::error!(%error, "a transaction of the friendbot cannot be written as XDR");
        ApiError::Panic
    };
    let told = json!({
        "successful": true,
        "hash": hex::encode(given.hash),
        "envelope_xdr": given.envelope.to_xdr_base64(Limits::none()).map_err(unspelled)?,
        "result_meta_xdr": given.meta.to_xdr_base64(Limits::none()).map_err(unspelled)?,
    });
    Ok(Answer::json(told.to_string().into_bytes()))
}

/// In the form of RFC 7807, as the public friendbots spell it.
fn refused(detail: &str) -> Answer {
    let status = StatusCode::BAD_REQUEST;
    let told = json!({ "title": "Bad Request", "status": status.as_u16(), "detail": detail });
    Answer { status, ..Answer::json(told.to_string().into_bytes()) }
}
