//! Parses request bodies of the webhook routes: which members they have, and what they mean.

use super::super::ApiError;
use super::super::call::Body;
use super::super::members::Members;
use orrery_ledger::domain::{ContractId, LedgerRange, ParseError};
use orrery_webhooks::Secret;
use orrery_webhooks::filter::{ADDRESS_FIELD, Filter, TOPIC_FIELDS};
use orrery_webhooks::manage::NewSubscriptions;
use orrery_webhooks::rotation::Rotation;
use orrery_webhooks::target::{Endpoint, EndpointError};

/// Maximum number of contract IDs in one request, repeated ones included.
const MAX_CONTRACTS: usize = 200;

const ENDPOINT: &str = "webhook_endpoint";
const CONTRACTS: &str = "contract_ids";

/// What to replay.
pub(super) enum Replay {
    /// One delivery.
    Delivery(String),
    /// All matching events of these ledgers.
    Ledgers(LedgerRange),
}

/// Converts the error of an invalid endpoint.
pub(super) fn endpoint_error(error: &EndpointError) -> ApiError {
    ApiError::body(format!("'{ENDPOINT}' {error}"))
}

/// Parses `{webhook_endpoint, contract_ids, webhook_secret?, topic1?, …, topic4?, address?,
/// include_backfill?}`. With an address, `contract_ids` may be missing or empty.
pub(super) fn wanted(body: Body<'_>) -> Result<NewSubscriptions, ApiError> {
    let [topic1, topic2, topic3, topic4] = TOPIC_FIELDS;
    let known = [
        ENDPOINT,
        CONTRACTS,
        "webhook_secret",
        topic1,
        topic2,
        topic3,
        topic4,
        ADDRESS_FIELD,
        "include_backfill",
    ];
    let body = Members::of_json(body, &known)?;
    let endpoint = body.required(ENDPOINT, Members::text)?;
    let endpoint: Endpoint = endpoint.parse().map_err(|error| endpoint_error(&error))?;
    let mut topics: [Option<String>; 4] = Default::default();
    for (topic, name) in topics.iter_mut().zip(TOPIC_FIELDS) {
        *topic = body.text(name)?;
    }
    let address = body.text(ADDRESS_FIELD)?;
    let filter = Filter::parse(None, topics.each_ref().map(Option::as_deref), address.as_deref());
    let contracts = match (body.list(CONTRACTS)?, &address) {
        (None, Some(_)) => Vec::new(),
        (given, address) => contracts(given, address.is_some())?,
    };
    Ok(NewSubscriptions {
        endpoint,
        contracts,
        filter: filter.map_err(|error| ApiError::body(error.to_string()))?,
        address,
        secret: chosen(&body)?,
        include_backfill: body.flag("include_backfill")?.unwrap_or(false),
    })
}

fn contracts(given: Option<Vec<String>>, has_address: bool) -> Result<Vec<ContractId>, ApiError> {
    let Some(given) = given else {
        return Err(ApiError::body(format!("'{CONTRACTS}' is missing: add it to the body")));
    };
    if given.is_empty() && !has_address {
        return Err(ApiError::body(format!(
            "'{CONTRACTS}' is empty: give one contract ID or more"
        )));
    }
    if given.len() > MAX_CONTRACTS {
        let count = given.len();
        return Err(ApiError::body(format!(
            "'{CONTRACTS}' holds {count} contract IDs: give {MAX_CONTRACTS} at the most"
        )));
    }
    let parse = |text: &String| {
        text.parse().map_err(|error: ParseError| ApiError::body(format!("'{CONTRACTS}': {error}")))
    };
    given.iter().map(parse).collect()
}

/// Parses `{webhook_secret?, end_previous?}`.
pub(super) fn rotation(body: Body<'_>) -> Result<Rotation, ApiError> {
    let body = Members::of_json(body, &["webhook_secret", "end_previous"])?;
    Ok(Rotation {
        secret: chosen(&body)?,
        end_previous: body.flag("end_previous")?.unwrap_or(false),
    })
}

fn chosen(body: &Members<'_>) -> Result<Option<Secret>, ApiError> {
    let secret = body.secret("webhook_secret")?.map(Secret::chosen);
    secret.transpose().map_err(|error| ApiError::body(error.to_string()))
}

/// Parses `{delivery_id}` or `{from, to}`.
pub(super) fn replay(body: Body<'_>) -> Result<Replay, ApiError> {
    let body = Members::of_json(body, &["delivery_id", "from", "to"])?;
    match (body.text("delivery_id")?, body.whole("from")?, body.whole("to")?) {
        (Some(delivery), None, None) => Ok(Replay::Delivery(delivery)),
        (None, Some(from), Some(to)) if from > to => {
            Err(ApiError::body(format!("'from' {from} is after 'to' {to}: swap them")))
        }
        (None, Some(from), Some(to)) => Ok(Replay::Ledgers(LedgerRange::new(from, to))),
        (None, None, None) => Err(ApiError::body(
            "there is nothing to replay: give 'delivery_id', or 'from' and 'to'",
        )),
        (None, from, _) => {
            let missing = if from.is_none() { "from" } else { "to" };
            Err(ApiError::body(format!("'{missing}' is missing: add it to the body")))
        }
        (Some(_), _, _) => Err(ApiError::body(
            "'delivery_id' and 'from', 'to' exclude each other: give the one or the others",
        )),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::*;

    const CONTRACT: &str = "CAS3J7GYLGXMF6TDJBBYYSE3HQ6BBSMLNUQ34T6TZMYMW2EVH34XOWMA";

    fn sentence<T>(read: fn(Body<'_>) -> Result<T, ApiError>, body: &serde_json::Value) -> String {
        let body = Bytes::from(body.to_string());
        read(Body::new(&body, None)).err().map_or(String::new(), |it| it.to_string())
    }

    #[test]
    fn errors_name_the_invalid_member() {
        let whole = json!({ "webhook_endpoint": "https://a.example", "contract_ids": [CONTRACT] });
        assert_eq!(sentence(wanted, &whole), "");
        for (name, value, expected) in [
            ("webhook_endpoint", json!(null), "'webhook_endpoint' is missing"),
            (
                "webhook_endpoint",
                json!("ftp://a.example"),
                "'webhook_endpoint' has the scheme 'ftp'",
            ),
            ("contract_ids", json!(null), "'contract_ids' is missing"),
            ("contract_ids", json!([]), "'contract_ids' is empty"),
            ("contract_ids", json!(CONTRACT), "give a list of texts"),
            ("contract_ids", json!(format!("{CONTRACT},{CONTRACT}")), "give a list of texts"),
            ("contract_ids", json!([1]), "give a list of texts"),
            ("contract_ids", json!(["C"]), "'contract_ids': 'C' is not a contract ID"),
            ("contract_ids", json!(vec![CONTRACT; 201]), "holds 201 contract IDs"),
            ("webhook_secret", json!(""), "'webhook_secret' is empty"),
            ("webhook_secret", json!(["hush"]), "'webhook_secret' is not a text"),
            ("topic2", json!("?"), "'topic2' holds '?', which is neither a symbol"),
            ("address", json!("me"), "'address' is malformed"),
            ("include_backfill", json!("yes"), "'include_backfill' is"),
        ] {
            let mut body = whole.clone();
            body[name] = value;
            let error = sentence(wanted, &body);
            assert!(error.contains(expected) && !error.contains("hush"), "{error}");
        }
        let by_address = json!({
            "webhook_endpoint": "https://a.example",
            "address": CONTRACT,
        });
        assert_eq!(sentence(wanted, &by_address), "");
    }

    #[test]
    fn a_replay_takes_either_a_delivery_or_a_ledger_range() {
        for (body, expected) in [
            (json!({ "delivery_id": "x" }), ""),
            (json!({ "from": 1, "to": 1 }), ""),
            (json!({}), "there is nothing to replay"),
            (json!({ "from": 1 }), "'to' is missing"),
            (json!({ "to": 1 }), "'from' is missing"),
            (json!({ "from": 2, "to": 1 }), "'from' 2 is after 'to' 1"),
            (json!({ "delivery_id": "x", "from": 1, "to": 2 }), "exclude each other"),
            (json!({ "delivery_id": 7 }), "'delivery_id' is 7"),
        ] {
            let error = sentence(replay, &body);
            assert!(error.contains(expected) && error.is_empty() == expected.is_empty(), "{error}");
        }
    }
}
