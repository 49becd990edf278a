//! `/friendbot`: funds accounts and contracts of a network that this service runs itself, like the
//! friendbots of public test networks.

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

/// Maximum size of a request body, in bytes. The body is ignored.
const LARGEST_BODY: usize = 4096;

/// Public routes of this area.
pub(super) static ROUTES: [Route; 2] = [
    Route { no_store: true, ..Route::new("GET", PATH, Access::Public, Work::Waiting(answer)) },
    Route::new("POST", PATH, Access::Public, Work::Waiting(answer)).with_body(LARGEST_BODY),
];

const PATH: &str = "/friendbot";

/// Funds accounts and contracts.
pub trait Friendbot: Send + Sync {
    /// Creates an account with coins, or sends coins to a contract. Completes when the transaction
    /// was applied.
    fn fund(&self, address: ScAddress) -> BoxFuture<'_, Result<FundedTransaction, FundingError>>;
}

/// A successful funding transaction.
#[derive(Debug, Clone)]
pub struct FundedTransaction {
    /// Hash of the transaction.
    pub hash: [u8; 32],
    /// Envelope of the transaction.
    pub envelope: TransactionEnvelope,
    /// Metadata of the transaction: the changes that it made.
    pub meta: TransactionMeta,
}

/// Reason why no coins were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FundingError {
    /// The account already exists.
    Exists,
    /// Too many requests are waiting, or the transaction was not applied in time.
    Busy,
    /// The request cannot be met. Contains the sentence for the client.
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
            Ok(given) => success_response(&given),
            Err(FundingError::Exists) => {
                Ok(refused("the account exists already: createAccountAlreadyExist"))
            }
            Err(FundingError::Refused(reason)) => Ok(refused(reason)),
            Err(FundingError::Busy) => Err(ApiError::Busy { retry_after: 1 }),
        }
    }
    .boxed()
}

fn success_response(given: &FundedTransaction) -> Result<Answer, ApiError> {
    let serialization_failed = |error: stellar_xdr::Error| {
        tracing::error!(%error, "a friendbot transaction cannot be encoded as XDR");
        ApiError::Panic
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
