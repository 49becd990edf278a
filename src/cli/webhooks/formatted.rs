//! What the server answers of subscriptions and deliveries, as people read it.

use serde_json::Value;
use stellar_xdr::{Limits, ReadXdr, ScVal};

use super::listen::without_type;
use crate::cli::{grid, output};

/// Maximum nesting depth of a topic.
const TOPIC_DEPTH: u32 = 500;

/// Formats subscriptions as a table, each with its state, since when it fails, and why: first those
/// that fail or are disabled.
pub fn subscriptions(listed: &Value) -> String {
    const COLUMNS: [&str; 11] = [
        "id",
        "state",
        "on",
        "failing_since",
        "deliveries_waiting",
        "webhook_endpoint",
        "contract_id",
        "project",
        "topics",
        "address",
        "cause",
    ];
    const ENABLED: &str = "enabled";
    let state = |subscription: &Value| {
        let is_failing = !subscription["failing_since"].is_null();
        match subscription["enabled"] == true {
            false => "disabled",
            true if is_failing => "failing",
            true => ENABLED,
        }
    };
    let row = |subscription: &Value| -> Vec<String> {
        let causes = [
            &subscription["disabled_reason"],
            &subscription["failing_reason"],
            &subscription["where_misfit"]["reason"],
        ];
        let causes: Vec<_> = causes.into_iter().filter_map(Value::as_str).collect();
        COLUMNS
            .map(|name| match name {
                "state" => state(subscription).to_owned(),
                "topics" => grid::cell(&topics(subscription).into()),
                "cause" => grid::cell(&causes.join(": ").into()),
                name => grid::cell(&subscription[name]),
            })
            .into()
    };
    let mut all: Vec<_> = listed.as_array().into_iter().flatten().collect();
    all.sort_by_key(|subscription| state(subscription) == ENABLED);
    let rows: Vec<_> = all.into_iter().map(row).collect();
    let table = grid::grid(&COLUMNS, &rows);
    if rows.is_empty() { table + "no rows\n" } else { table }
}

/// Returns the topics that an event must have, with `*` for any: symbols, addresses, texts and numbers as
/// they are, other values as JSON.
fn topics(subscription: &Value) -> String {
    let topic = |name: &str| match subscription[name].as_str() {
        None => "*".to_owned(),
        Some(xdr) => ScVal::from_xdr_base64(xdr, Limits { depth: TOPIC_DEPTH, len: xdr.len() })
            .ok()
            .and_then(|value| serde_json::to_string(&value).ok())
            .map_or_else(|| xdr.to_owned(), |json| without_type(&json)),
    };
    let topics = ["topic1", "topic2", "topic3", "topic4"].map(topic);
    let last = topics.iter().rposition(|topic| topic != "*");
    last.map_or_else(String::new, |last| topics[..=last].join(" "))
}

/// Says what a subscription would have sent of the newest ledgers, of which so many were asked for. If these were
/// looked through forward, the newest may be left.
pub fn would_have_sent(previewed: &Value, asked: u32, is_forward: bool) -> String {
    let grouped = |number: &Value| output::count(number.as_u64().unwrap_or(0));
    let ledgers = grouped(&previewed["ledgers"]);
    let is_cut = previewed["ledgers"].as_u64() < Some(asked.into());
    let which = if is_forward && is_cut { "" } else { "the last " };
    let mut text =
        format!("would have sent {} in {which}{ledgers} ledgers", grouped(&previewed["matched"]));
    if let (true, Some(from), Some(to)) =
        (is_cut, previewed["from"].as_u64(), previewed["to"].as_u64())
    {
        text.push_str(&format!(
            ", {from} to {to}: others are not stored, or were not read in the time of one request"
        ));
    }
    text.push('\n');
    if let Some(unjudged) = previewed["unjudged"].as_u64().filter(|events| *events > 0) {
        let count = output::count(unjudged);
        text.push_str(&format!("of {count} events it is not known what their contracts declare\n"));
    }
    for body in previewed["first"].as_array().into_iter().flatten() {
        text.push_str(&format!("{body}\n"));
    }
    text
}

/// Formats deliveries as a table, each with the answer to its last attempt, or why it got none.
pub fn deliveries(listed: &Value) -> String {
    const COLUMNS: [&str; 7] =
        ["delivery_id", "ledger", "status", "created_at", "next_attempt_at", "answer", "error"];
    let row = |delivery: &Value| -> Vec<String> {
        let last = delivery["attempts"].as_array().and_then(|attempts| attempts.last());
        let last = last.unwrap_or(&Value::Null);
        let texts = [&last["error"], &delivery["reason"], &last["excerpt"]].into_iter();
        let error = texts.filter(|_| delivery["status"] != "delivered");
        let error = error.filter_map(Value::as_str).find(|text| !text.is_empty());
        COLUMNS
            .map(|name| match name {
                "answer" => grid::cell(&last["status"]),
                "error" => grid::cell(&error.into()),
                name => grid::cell(&delivery[name]),
            })
            .into()
    };
    let rows: Vec<_> = listed.as_array().into_iter().flatten().map(row).collect();
    let table = grid::grid(&COLUMNS, &rows);
    if rows.is_empty() { table + "no rows\n" } else { table }
}

/// Says of each attempt when it was, what the endpoint answered, and how long it took.
pub fn attempts(delivery: &Value) -> String {
    let attempt = |it: &Value| {
        let answer = match (it["status"].as_u64(), it["error"].as_str()) {
            (Some(status), _) => format!("answered {status}"),
            (None, error) => error.unwrap_or("not answered").to_owned(),
        };
        format!("{}, {answer}, {} ms", grid::cell(&it["at"]), it["duration_ms"])
    };
    let all = delivery["attempts"].as_array().into_iter().flatten().map(attempt);
    all.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_table_of_subscriptions_begins_with_those_that_fail_since_when_and_why() {
        const TRANSFER: &str = "AAAADwAAAAh0cmFuc2Zlcg==";
        let subscription = |id: u32,
                            enabled: bool,
                            disabled: Option<&str>,
                            failing: [Option<&str>; 2]| {
            let [since, reason] = failing;
            json!({
                "id": id, "webhook_endpoint": "http://e/", "contract_id": "C", "address": null,
                "enabled": enabled, "disabled_reason": disabled, "failing_since": since,
                "failing_reason": reason, "deliveries_waiting": 4, "topic1": TRANSFER,
                "topic2": null, "topic3": if id == 1 { json!("AAAABQAAAAAAAAAH") } else { Value::Null },
            })
        };
        let refused = [Some("t"), Some("Connection refused")];
        let listed = json!([
            subscription(1, true, None, [None, None]),
            subscription(2, true, None, refused),
            subscription(3, false, Some("no delivery has arrived for five days"), refused),
            subscription(4, false, Some("its endpoint answered 410"), [None, None]),
        ]);
        let expected = "\
id  state     on  failing_since  deliveries_waiting  webhook_endpoint  contract_id  project  topics        address  cause
2   failing       t              4                   http://e/         C                     transfer               Connection refused
3   disabled      t              4                   http://e/         C                     transfer               no delivery has arrived for five days: Connection refused
4   disabled                     4                   http://e/         C                     transfer               its endpoint answered 410
1   enabled                      4                   http://e/         C                     transfer * 7
";
        assert_eq!(subscriptions(&listed), expected);
        assert!(subscriptions(&json!([])).ends_with("cause\nno rows\n"));
        assert_eq!(topics(&json!({ "topic1": null })), "");
        assert_eq!(topics(&json!({ "topic2": "?" })), "* ?");
    }

    #[test]
    fn a_table_of_deliveries_has_the_answer_or_the_reason() {
        let attempt = |status: Option<u16>, error: Option<&str>| json!({ "at": "t", "status": status, "duration_ms": 1, "error": error, "excerpt": "oops" });
        let listed = json!([
            { "delivery_id": "a-1", "ledger": 7, "status": "retrying", "created_at": "c",
              "next_attempt_at": "n", "reason": null,
              "attempts": [attempt(Some(500), None), attempt(None, Some("Connection refused"))] },
            { "delivery_id": "a-2", "ledger": 8, "status": "dead", "created_at": "c",
              "next_attempt_at": null, "reason": null, "attempts": [attempt(Some(500), None)] },
            { "delivery_id": "a-3", "ledger": 9, "status": "delivered", "created_at": "c",
              "next_attempt_at": null, "reason": null, "attempts": [attempt(Some(200), None)] },
            { "delivery_id": "a-4", "ledger": 9, "status": "pending", "created_at": "c",
              "next_attempt_at": null, "reason": null, "attempts": [] },
        ]);
        let expected = "\
delivery_id  ledger  status     created_at  next_attempt_at  answer  error
a-1          7       retrying   c           n                        Connection refused
a-2          8       dead       c                            500     oops
a-3          9       delivered  c                            200
a-4          9       pending    c
";
        assert_eq!(deliveries(&listed), expected);
        assert_eq!(attempts(&listed[0]), "t, answered 500, 1 ms; t, Connection refused, 1 ms");
        assert_eq!(attempts(&listed[3]), "");
        assert!(deliveries(&json!([])).ends_with("error\nno rows\n"));
    }
}
