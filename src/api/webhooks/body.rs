//! Parses request bodies of the webhook routes: which members they have, and what they mean.

use super::super::ApiError;
use super::super::call::Body;
use super::super::members::Members;
use super::on;
use orrery_ledger::domain::{ContractId, LedgerRange, ParseError, excerpt};
use orrery_webhooks::Secret;
use orrery_webhooks::filter::{ADDRESS_FIELD, Filter, TOPIC_FIELDS};
use orrery_webhooks::judging::{self, WHERE};
use orrery_webhooks::manage::NewSubscriptions;
use orrery_webhooks::message::Message;
use orrery_webhooks::message::format::Format;
use orrery_webhooks::rotation::Rotation;
use orrery_webhooks::target::{Endpoint, EndpointError, chat};

/// Maximum number of contract IDs in one request, repeated ones included.
const MAX_CONTRACTS: usize = 200;

const ENDPOINT: &str = "webhook_endpoint";
const CONTRACTS: &str = "contract_ids";
const PROJECT: &str = "project";
const FORMAT: &str = "format";
const MESSAGE: &str = "message";

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

/// Default and maximum number of ledgers that a preview looks through.
const PREVIEWED: u32 = 1_000;
const MOST_PREVIEWED: u32 = 100_000;

const LAST: &str = "last";
/// The endpoint of what is only previewed (RFC 2606: a name that leads nowhere).
const NOWHERE: &str = "https://nowhere.invalid/";

/// Parses `{webhook_endpoint, contract_ids, project?, webhook_secret?, topic1?, …, topic4?, address?, where?,
/// include_backfill?, format?, message?, on?}` and what its `on` takes. With an address, `contract_ids` may be missing or empty.
pub(super) fn wanted(body: Body<'_>) -> Result<NewSubscriptions, ApiError> {
    let members = Members::of_json(body, &MEMBERS)?;
    subscriptions(&members, endpoint)
}

/// Parses the same, of which the endpoint may be missing, and `last?`, the number of ledgers to look through.
pub(super) fn previewed(body: Body<'_>) -> Result<(NewSubscriptions, u32), ApiError> {
    let known: Vec<&'static str> = MEMBERS.into_iter().chain([LAST]).collect();
    let members = Members::of_json(body, &known)?;
    let last = members.whole(LAST)?.unwrap_or(PREVIEWED);
    if !(1..=MOST_PREVIEWED).contains(&last) {
        return Err(ApiError::body(format!(
            "'{LAST}' is {last}: give 1 to {MOST_PREVIEWED} ledgers"
        )));
    }
    Ok((subscriptions(&members, endpoint_or_nowhere)?, last))
}

const MEMBERS: [&str; 20] = {
    let [topic1, topic2, topic3, topic4] = TOPIC_FIELDS;
    [
        ENDPOINT,
        CONTRACTS,
        PROJECT,
        "webhook_secret",
        topic1,
        topic2,
        topic3,
        topic4,
        ADDRESS_FIELD,
        WHERE,
        "include_backfill",
        on::ON,
        on::WITHIN,
        on::ENTRIES,
        on::KEY_NAME,
        on::KEY,
        on::DURABILITY,
        on::FUNCTIONS,
        FORMAT,
        MESSAGE,
    ]
};

fn subscriptions(
    body: &Members<'_>,
    endpoint: impl Fn(&Members<'_>, Format) -> Result<Endpoint, ApiError>,
) -> Result<NewSubscriptions, ApiError> {
    let trigger = on::trigger(body)?;
    let message = message(body)?;
    let endpoint = endpoint(body, message.as_ref().map_or(Format::Service, Message::format))?;
    let mut topics: [Option<String>; 4] = Default::default();
    for (topic, name) in topics.iter_mut().zip(TOPIC_FIELDS) {
        *topic = body.text(name)?;
    }
    let address = body.text(ADDRESS_FIELD)?;
    let condition = body
        .text(WHERE)?
        .map(|text| judging::condition(&text).map_err(|problem| format!("'{WHERE}' {problem}")));
    let filter = Filter::parse(None, topics.each_ref().map(Option::as_deref), address.as_deref());
    let has_address = address.as_ref().filter(|_| trigger.is_by_events());
    let project = body.text(PROJECT)?;
    let contracts = match (body.list(CONTRACTS)?, has_address) {
        (Some(_), _) if project.is_some() => {
            return Err(ApiError::body(format!(
                "'{PROJECT}' is given beside '{CONTRACTS}': leave one of them out"
            )));
        }
        (None, _) if project.is_some() => Vec::new(),
        (None, Some(_)) => Vec::new(),
        (given, address) => contracts(given, address.is_some())?,
    };
    Ok(NewSubscriptions {
        endpoint,
        message,
        contracts,
        project,
        filter: filter.map_err(|error| ApiError::body(error.to_string()))?,
        address,
        condition: condition.transpose().map_err(ApiError::body)?,
        trigger,
        secret: chosen(body)?,
        include_backfill: body.flag("include_backfill")?.unwrap_or(false),
    })
}

fn message(body: &Members<'_>) -> Result<Option<Message>, ApiError> {
    let format = body.text(FORMAT)?;
    let named = |name: String| {
        let words = Format::WORDS;
        let found = words.into_iter().find(|(word, _)| *word == name).map(|(_, format)| format);
        let known = words.map(|(word, _)| word).join(", ");
        let unknown = || format!("'{FORMAT}' is '{}': give one of {known}", excerpt(&name));
        found.ok_or_else(|| ApiError::body(unknown()))
    };
    let format = format.map_or(Ok(Format::Service), named)?;
    match body.text(MESSAGE)? {
        None if format.is_service() => Ok(None),
        None => Err(ApiError::body(format!(
            "'{MESSAGE}' is missing: a subscription with '{FORMAT}' {} needs what it says, such as \
             \"{{name}} in ledger {{ledger}}\"",
            format.name()
        ))),
        Some(_) if format.is_service() => Err(ApiError::body(format!(
            "'{MESSAGE}' is given without '{FORMAT}': give 'slack', 'discord', 'telegram' or 'text' as \
             '{FORMAT}', or leave it out"
        ))),
        Some(text) => {
            let message = Message::parse(format, &text);
            message.map(Some).map_err(|error| ApiError::body(format!("'{MESSAGE}' {error}")))
        }
    }
}

/// Parses the endpoint of what nobody sends, which need not be given.
fn endpoint_or_nowhere(body: &Members<'_>, format: Format) -> Result<Endpoint, ApiError> {
    match body.secret(ENDPOINT)? {
        Some(_) => endpoint(body, format),
        None => NOWHERE.parse().map_err(|error| endpoint_error(&error)),
    }
}

/// Parses the endpoint. Errors do not show that of a chat, which is a secret.
fn endpoint(body: &Members<'_>, format: Format) -> Result<Endpoint, ApiError> {
    let read = if format.is_chat() { Members::secret } else { Members::text };
    let text = body.required(ENDPOINT, read)?;
    let endpoint: Endpoint = match text.parse() {
        Err(_) if format.is_chat() => {
            return Err(ApiError::body(format!(
                "'{ENDPOINT}' is not a URL: {}",
                chat::form(format)
            )));
        }
        parsed => parsed.map_err(|error| endpoint_error(&error))?,
    };
    match chat::has_form(format, &endpoint) {
        true => Ok(endpoint),
        false => {
            let problem = "is none of such a chat";
            Err(ApiError::body(format!("'{ENDPOINT}' {problem}: {}", chat::form(format))))
        }
    }
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
        // A preview needs no endpoint, and of a chat none of its form.
        let nowhere = json!({ "contract_ids": [CONTRACT], "format": "slack", "message": "{name}" });
        assert_eq!(sentence(previewed, &nowhere), "");
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
            ("where", json!(5), "'where' is"),
            ("where", json!("a == 1"), "'where' is not understood: '==' is not known"),
            ("format", json!("teams"), "'format' is 'teams': give one of service, slack, discord"),
            ("format", json!("slack"), "'message' is missing"),
            ("message", json!("{name}"), "'message' is given without 'format'"),
            ("project", json!("pools"), "'project' is given beside 'contract_ids': leave one"),
            ("project", json!(5), "'project' is 5"),
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
        for on in ["event", "upgrade", "storage", "ttl", "failed_call", "silence"] {
            let mut of_project = json!({
                "webhook_endpoint": "https://a.example", "project": "pools", "on": on,
            });
            if ["ttl", "silence"].contains(&on) {
                of_project["within"] = 5.into();
            }
            assert_eq!(sentence(wanted, &of_project), "", "{on}");
        }
    }

    #[test]
    fn a_preview_looks_through_some_ledgers() {
        let mut body =
            json!({ "webhook_endpoint": "https://a.example", "contract_ids": [CONTRACT] });
        assert_eq!(sentence(previewed, &body), "");
        for (last, expected) in [
            (json!(1), ""),
            (json!(100_000), ""),
            (json!(0), "'last' is 0: give 1 to 100000 ledgers"),
            (json!(100_001), "give 1 to 100000"),
            (json!("x"), "'last' is"),
        ] {
            body["last"] = last;
            let error = sentence(previewed, &body);
            assert!(error.contains(expected) && error.is_empty() == expected.is_empty(), "{error}");
        }
    }

    #[test]
    fn messages_and_endpoints_of_chats_are_checked_and_never_shown() {
        const HUSH: &str = "hush-hush-hush";
        for (format, endpoint, message, expected) in [
            ("slack", format!("https://a.example/services/{HUSH}"), "{name}", ""),
            (
                "slack",
                format!("ftp://a.example/services/{HUSH}"),
                "{name}",
                "'webhook_endpoint' is not a URL",
            ),
            ("slack", "https://a.example/".to_owned(), "{name}", "is none of such a chat"),
            ("discord", format!("https://a.example/api/webhooks/1/{HUSH}"), "{name}", ""),
            (
                "discord",
                format!("https://a.example/api/webhooks/1/{HUSH}/slack"),
                "{name}",
                "is none of such",
            ),
            (
                "discord",
                format!("https://a.example/{HUSH}"),
                "{name}",
                "is none of such a chat: give",
            ),
            (
                "telegram",
                format!("https://a.example/bot{HUSH}/sendMessage?chat_id=-1"),
                "{name}",
                "",
            ),
            ("telegram", format!("https://a.example/bot{HUSH}/sendMessage"), "{name}", "chat_id"),
            (
                "telegram",
                format!("https://a.example/bot{HUSH}/getMe?chat_id=1"),
                "{name}",
                "sendMessage",
            ),
            (
                "text",
                format!("https://a.example/{HUSH}"),
                "{name",
                "'message' has a '{' at character 1",
            ),
            ("text", format!("https://a.example/{HUSH}"), "{name|upper}", "has the filter 'upper'"),
        ] {
            let body = json!({
                "webhook_endpoint": endpoint, "contract_ids": [CONTRACT], "format": format, "message": message,
            });
            let error = sentence(wanted, &body);
            assert!(error.contains(expected) && error.is_empty() == expected.is_empty(), "{error}");
            assert!(!error.contains("hush"), "{error}");
        }
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
