//! What pages show equals what the API answers. Values of events are decoded here with the XDR
//! crate, and written by a second formatter.

use serde_json::{Value, json};
use stellar_xdr::{Limits, ReadXdr, ScVal};

use crate::browser;
use crate::world::{Demo, public};

/// Writes a value in the notation of the pages.
fn spelled(value: &ScVal) -> String {
    let list = |values: &[ScVal]| values.iter().map(spelled).collect::<Vec<_>>().join(", ");
    match value {
        ScVal::Bool(value) => value.to_string(),
        ScVal::Void => "void".to_owned(),
        ScVal::U32(value) => value.to_string(),
        ScVal::I32(value) => value.to_string(),
        ScVal::U64(value) => value.to_string(),
        ScVal::I64(value) => value.to_string(),
        ScVal::U128(value) => u128::from(value).to_string(),
        ScVal::I128(value) => i128::from(value).to_string(),
        ScVal::U256(value) => value.to_string(),
        ScVal::I256(value) => value.to_string(),
        ScVal::Bytes(bytes) => format!("0x{}", hex::encode(bytes.as_slice())),
        ScVal::String(text) => serde_json::to_string(&text.to_utf8_string_lossy()).unwrap(),
        ScVal::Symbol(name) => name.to_utf8_string_lossy(),
        ScVal::Address(address) => address.to_string(),
        ScVal::Vec(values) => {
            format!("[{}]", values.as_ref().map(|it| list(it)).unwrap_or_default())
        }
        ScVal::Map(entries) => {
            let entries = entries.iter().flat_map(|entries| entries.iter());
            let entries = entries.map(|it| format!("{}: {}", spelled(&it.key), spelled(&it.val)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
        other => panic!("these ledgers have no {}", other.name()),
    }
}

fn decoded(base64: &Value) -> ScVal {
    ScVal::from_xdr_base64(base64.as_str().unwrap(), Limits::none()).unwrap()
}

/// Writes a number with commas between thousands.
fn grouped(number: &Value) -> String {
    let digits = number.as_u64().unwrap().to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|it| String::from_utf8_lossy(it));
    groups.collect::<Vec<_>>().join(",")
}

/// Writes an amount of the smallest unit of an asset contract (7 decimals), with commas.
fn scaled(text: &str) -> String {
    let amount: i128 = text.parse().unwrap();
    let (whole, rest) = (amount.unsigned_abs() / 10_000_000, amount.unsigned_abs() % 10_000_000);
    let whole = grouped(&json!(u64::try_from(whole).unwrap()));
    let rest = format!("{rest:07}");
    let rest = rest.trim_end_matches('0');
    let sign = if amount < 0 { "-" } else { "" };
    if rest.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{rest}") }
}

/// A time as pages show it to a reader in UTC.
fn utc(time: &Value) -> String {
    let time = time.as_str().unwrap();
    format!("{} UTC", time[..19].replace('T', " "))
}

/// The value beside a name in a list of facts.
#[track_caller]
fn fact<'a>(page: &'a Value, name: &str) -> &'a str {
    let facts = page["facts"].as_array().unwrap();
    let found = facts.iter().find(|it| it[0] == name);
    found.unwrap_or_else(|| panic!("'{name}' is not in {facts:?}"))[1].as_str().unwrap()
}

/// The rows of a table or list.
#[track_caller]
fn rows<'a>(page: &'a Value, kind: &str, label: &str) -> &'a [Value] {
    let all = page[kind].as_array().unwrap();
    let found = all.iter().find(|it| it["label"].as_str().unwrap().starts_with(label));
    found.unwrap_or_else(|| panic!("'{label}' is not in {all:?}"))["rows"].as_array().unwrap()
}

/// All texts of a JSON value, such as those of a parameter that is a list.
fn leaves(value: &Value) -> Vec<String> {
    match value {
        Value::Null => vec![],
        Value::String(text) => vec![text.clone()],
        Value::Array(values) => values.iter().flat_map(leaves).collect(),
        Value::Object(members) => members.values().flat_map(leaves).collect(),
        other => vec![other.to_string()],
    }
}

/// Asserts that the rows of a list are these events, in this order. Returns how many were compared.
#[track_caller]
fn assert_events(rows: &[Value], events: &Value) -> usize {
    for (row, event) in rows.iter().zip(events.as_array().unwrap()) {
        let cells: Vec<_> = row.as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
        let all = cells.join("\n");
        let told = &event["decoded"];
        if let Some(name) = told["name"].as_str() {
            assert!(cells.contains(&name), "{name}: {all}");
        }
        let has = |text: &str| assert!(all.contains(text), "'{text}' is not in {all}: {event}");
        let of_asset = told["params"].get("sep0011_asset").is_some();
        match told["params"].as_object() {
            Some(params) => {
                for (name, value) in params {
                    match (name.as_str(), value) {
                        ("sep0011_asset", _) => {}
                        ("amount", Value::String(amount)) if of_asset => has(&scaled(amount)),
                        _ => leaves(value).iter().for_each(|text| has(text)),
                    }
                }
            }
            None => has(&spelled(&decoded(&event["data"]))),
        }
    }
    rows.len().min(events.as_array().unwrap().len())
}

/// Asserts that a transaction's page shows what the API answers.
#[track_caller]
fn assert_transaction(page: &Value, transaction: &Value) {
    let expected = [
        ("Ledger", transaction["ledger"].to_string()),
        ("Closed", utc(&transaction["ledger_closed_at"])),
        ("Source account", transaction["source_account"].as_str().unwrap().to_owned()),
    ];
    for (name, value) in expected {
        assert_eq!(fact(page, name), value, "{name}");
    }
    let position = format!("No. {} of the ledger", transaction["application_order"]);
    assert_eq!(fact(page, "Position"), position);
    let status = fact(page, "Status");
    assert_eq!(status.starts_with("succeeded"), transaction["successful"] == true, "{status}");
    let fee = format!("{} XLM", scaled(transaction["fee_charged"].as_str().unwrap()));
    assert!(fact(page, "Fee").starts_with(&fee), "{fee}: {page}");
    let text = page["text"].as_str().unwrap();
    assert!(text.contains(transaction["tx"].as_str().unwrap()));
    for contract in transaction["contracts"].as_array().unwrap() {
        assert!(text.contains(contract.as_str().unwrap()), "{contract}: {text}");
    }
}

/// Asserts that an event's page shows what the API answers.
#[track_caller]
fn assert_event(page: &Value, event: &Value) {
    for (name, value) in [
        ("Contract", event["contract_id"].as_str().unwrap().to_owned()),
        ("Transaction", event["tx"].as_str().unwrap().to_owned()),
        ("Ledger", event["ledger"].to_string()),
        ("Closed", utc(&event["ledger_closed_at"])),
        ("Type", event["type"].as_str().unwrap().to_owned()),
    ] {
        assert_eq!(fact(page, name), value, "{name}");
    }
    let topics = (1..=10).map(|topic| event[format!("topic{topic}")].clone());
    for (index, topic) in topics.filter(|topic| !topic.is_null()).enumerate() {
        let shown = fact(page, &format!("topic {}", index + 1));
        let value = spelled(&decoded(&topic));
        assert!(shown.ends_with(&value), "topic {}: {value}: {shown}", index + 1);
    }
    let data = spelled(&decoded(&event["data"]));
    assert!(page["text"].as_str().unwrap().contains(&data), "{data}");
}

/// Asserts that a ledger's page shows what the API answers.
#[track_caller]
fn assert_ledger(page: &Value, ledger: &Value) {
    let (first, last) = (&ledger["range"][0], &ledger["range"][1]);
    for (name, value) in [
        ("Closed", utc(&ledger["closed_at"])),
        ("Protocol", ledger["protocol_version"].to_string()),
        ("Events", grouped(&ledger["events"])),
        ("Stored in the range", format!("{first} to {last}")),
        ("Hash", ledger["hash"].as_str().unwrap().to_owned()),
        ("Previous hash", ledger["previous_hash"].as_str().unwrap().to_owned()),
    ] {
        assert_eq!(fact(page, name), value, "{name}");
    }
    let transactions = fact(page, "Transactions");
    let count = format!("{} of smart contracts", grouped(&ledger["transactions"]));
    assert!(transactions.starts_with(&count), "{transactions}");
    let attested = fact(page, "Attested");
    assert_eq!(attested.starts_with("Yes"), ledger["attested"] == true, "{attested}");
}

#[test]
fn pages_of_a_demo_show_what_the_api_returns() {
    if browser::modules().is_none() {
        return;
    }
    let demo = Demo::still();
    let get = |path: &str| {
        let (status, answer) = demo.service.ask(path, Some(&demo.token));
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    };
    let contract = &demo.contract;
    let of_contract = get(&format!("/rest/events/by-contract/{contract}?limit=100&decoded=true"));
    let event = &of_contract[0];
    let (ledger, transaction) = (&event["ledger"], event["tx"].as_str().unwrap());
    let query = "select _ledger, count(*) as trades, sum(cost) as cash from market_trade \
                 group by _ledger order by _ledger limit 20";
    let more = json!({
        "addresses": {
            "home": "",
            "ledger": format!("ledger/{ledger}"),
            "transaction": format!("tx/{transaction}"),
            "event": format!("event/{}", event["id"]),
            "contract": format!("contract/{contract}"),
            "programs": "programs",
            "program": "programs/1",
            "webhooks": "webhooks",
            "webhook": "webhooks/1",
            "status": "status",
            "trust": "trust",
        },
        "statements": [query, "select nothing from nowhere"],
    });
    let Some(told) = browser::run("values.mjs", &demo.service.base, &demo.token, more) else {
        return;
    };
    browser::assert_quiet(&told);
    let page = |name: &str| &told["pages"][name];

    let newest = get("/rest/events/by-ledger?limit=100&decoded=true");
    assert!(assert_events(rows(page("home"), "lists", "Newest events"), &newest) > 10);
    let status = get("/rest/status");
    let ledgers = status["ledgers"].as_array().unwrap().iter().rev();
    let shown = rows(page("home"), "tables", "Newest ledgers");
    assert!(shown.len() > 5);
    for (row, ledger) in shown.iter().zip(ledgers) {
        let counts = [grouped(&ledger["transactions"]), grouped(&ledger["events"])];
        assert_eq!(row[0], ledger["ledger"].to_string());
        assert_eq!(json!([row[2], row[3]]), json!(counts), "{row}");
    }

    assert_ledger(page("ledger"), &get(&format!("/rest/ledgers/{ledger}")));
    let range = format!("from={ledger}&to={ledger}&order=asc&limit=100&decoded=true");
    let of_ledger = get(&format!("/rest/events/by-ledger?{range}"));
    let shown = rows(page("ledger"), "lists", "Events of the ledger");
    assert!(shown.len() <= of_ledger.as_array().unwrap().len());
    assert!(assert_events(shown, &of_ledger) > 0);
    let transactions = get(&format!("/rest/txs/by-ledger?{range}"));
    for (row, it) in rows(page("ledger"), "lists", "Transactions of the ledger")
        .iter()
        .zip(transactions.as_array().unwrap())
    {
        let fee = format!("{} XLM", scaled(it["fee_charged"].as_str().unwrap()));
        let result = if it["successful"] == true { "succeeded" } else { "failed" };
        let order = it["application_order"].to_string();
        assert_eq!(
            json!([row[0], row[1], row[2], row[5], row[6]]),
            json!([order, it["tx"], result, it["source_account"], fee])
        );
    }

    let details = get(&format!("/rest/txs/by-hash/{transaction}"));
    assert_transaction(page("transaction"), &details[0]);
    let changes = get(&format!("/rest/txs/by-hash/{transaction}/changes"));
    let mut changes = changes["changes"].as_array().unwrap().clone();
    changes.sort_by_key(|change| change["entry"] == "ttl");
    let shown = rows(page("transaction"), "tables", "Changed entries");
    assert_eq!(shown.len(), changes.len());
    for (row, change) in shown.iter().zip(&changes) {
        let entry = match change["entry"].as_str().unwrap() {
            "trustline" => "trust line",
            "contract_data" => "contract data",
            "contract_code" => "contract code",
            "ttl" => "time to live",
            other => other,
        };
        assert_eq!(row[0], change["change"]);
        assert!(row[1].as_str().unwrap().starts_with(entry), "{row:?}: {change}");
    }
    assert_event(page("event"), event);
    let shown = rows(page("contract"), "lists", "Events of this contract");
    assert!(assert_events(shown, &of_contract) > 10);

    let program = get("/rest/retroshade/1/status");
    let runs = grouped(&program["total_executions"]);
    let errors = grouped(&program["total_errors"]);
    let average = format!("{} ms", program["avg_execution_ms"]);
    let row = &rows(page("programs"), "tables", "Your programs")[0];
    assert_eq!(
        json!([row[0], row[2], row[4], row[5], row[6], row[7]]),
        json!([program["project_name"], "running", runs, errors, average, "0"])
    );
    assert_eq!(fact(page("program"), "Errors of these"), errors);
    assert!(fact(page("program"), "Newest runs").starts_with(&format!("{runs};")));
    let executions = get("/rest/retroshade/1/executions?limit=200");
    let shown = rows(page("program"), "lists", "Runs");
    for (row, run) in shown.iter().zip(executions.as_array().unwrap()) {
        assert_eq!(
            json!([row[0], row[1]]),
            json!([run["ledger_sequence"].to_string(), run["tx_hash"]])
        );
        assert_eq!((&row[4], &row[7]), (&run["status"], &run["fidelity"]));
    }

    let hook = &get("/rest/webhooks/list")[0];
    let deliveries = get("/rest/webhooks/1/deliveries?limit=100");
    let deliveries = deliveries.as_array().unwrap();
    let delivered = deliveries.iter().filter(|it| it["status"] == "delivered").count();
    let row = &rows(page("webhooks"), "tables", "Your webhooks")[0];
    assert_eq!(
        json!([row[1], row[2], row[3], row[4]]),
        json!([
            hook["webhook_endpoint"],
            format!("100 % of {delivered}"),
            grouped(&hook["deliveries_waiting"]),
            contract
        ])
    );
    let shown = rows(page("webhook"), "lists", "Deliveries");
    assert!(shown.len() > 5);
    for (row, delivery) in shown.iter().zip(deliveries) {
        assert_eq!(
            json!([row[1], row[2], row[3]]),
            json!([
                delivery["status"],
                delivery["event_id"].to_string(),
                delivery["ledger"].to_string()
            ])
        );
    }

    let health = get("/rest/health");
    let state = page("status");
    assert_eq!(fact(state, "Newest ledger stored"), health["service_latest_ledger"].to_string());
    assert_eq!(fact(state, "Newest attested ledger"), health["attested_ledger"].to_string());
    assert_eq!(fact(state, "Oldest ledger with events"), health["oldest_ledger"].to_string());
    assert_eq!(fact(state, "Events"), grouped(&status["store"]["events"]));
    assert_eq!(fact(state, "Transactions"), grouped(&status["store"]["transactions"]));
    assert_eq!(fact(state, "Version"), env!("CARGO_PKG_VERSION"));
    let completeness = get("/rest/completeness");
    let range = &completeness["ranges"][0];
    let number = |name: &str| range[name].as_u64().unwrap();
    let (first, last) = (number("first_ledger"), number("last_ledger"));
    let count = grouped(&json!(last - first + 1));
    let row = json!([format!("{first} – {last}"), count, "stored", grouped(&range["events"])]);
    assert_eq!(rows(state, "tables", "Stored and missing ledgers"), [row]);
    let largest = status["contracts"]["largest"].as_array().unwrap();
    let shown = rows(state, "tables", "Disk by contract");
    assert_eq!(shown.len(), largest.len());
    for (row, size) in shown.iter().zip(largest) {
        assert_eq!(row[0], size["contract_id"]);
        let share: f64 = row[2].as_str().unwrap().trim_end_matches(" %").parse().unwrap();
        assert!((share - 100.0 * size["share"].as_f64().unwrap()).abs() < 0.06, "{row} {size}");
    }
    let trust = page("trust");
    assert_eq!(fact(trust, "Newest ledger stored"), health["service_latest_ledger"].to_string());
    assert_eq!(fact(trust, "Events"), grouped(&range["events"]));

    let url = format!("{}/rest/retroshade/query", demo.service.base);
    let answer = orrery_testkit::client::HTTP.post(url).bearer_auth(&demo.token);
    let answer: Value = answer.json(&json!({ "query": query })).send().unwrap().json().unwrap();
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let expected = answer.as_array().unwrap().iter();
    let expected: Vec<_> = expected
        .map(|it| json!([text(&it["_ledger"]), text(&it["trades"]), text(&it["cash"])]))
        .collect();
    let shown = told["statements"][0]["grid"].as_array().unwrap();
    assert!(!shown.is_empty() && shown.len() <= expected.len());
    assert_eq!(shown[..], expected[..shown.len()]);
    let wrong = told["statements"][1]["text"].as_str().unwrap();
    assert!(wrong.contains("nowhere") && wrong.contains("does not exist"), "{wrong}");
}

#[test]
fn pages_of_the_public_network_show_what_the_api_returns() {
    if browser::modules().is_none() {
        return;
    }
    let Some((service, _directory)) = public() else { return };
    let mut addresses = serde_json::Map::new();
    let events = service.get("/rest/events/by-ledger?limit=8&decoded=true");
    let events = events.as_array().unwrap();
    for event in events {
        let (id, tx) = (&event["id"], event["tx"].as_str().unwrap());
        addresses.insert(format!("event {id}"), json!(format!("event/{id}")));
        addresses.insert(format!("transaction {tx}"), json!(format!("tx/{tx}")));
        let ledger = &event["ledger"];
        addresses.insert(format!("ledger {ledger}"), json!(format!("ledger/{ledger}")));
    }
    // Calls that failed.
    let transactions = service.get("/rest/txs/by-ledger?limit=100");
    let transactions = transactions.as_array().unwrap();
    let failed = transactions.iter().filter(|it| it["successful"] == false).take(2);
    for transaction in failed {
        let tx = transaction["tx"].as_str().unwrap();
        addresses.insert(format!("transaction {tx}"), json!(format!("tx/{tx}")));
    }
    let more = json!({ "addresses": addresses, "statements": [] });
    let Some(told) = browser::run("values.mjs", &service.base, service.token(), more) else {
        return;
    };
    browser::assert_quiet(&told);
    for (name, page) in told["pages"].as_object().unwrap() {
        let (kind, key) = name.split_once(' ').unwrap();
        match kind {
            "event" => {
                let id = key.parse::<u64>().unwrap();
                assert_event(page, events.iter().find(|it| it["id"] == id).unwrap());
            }
            "transaction" => {
                let found = service.get(&format!("/rest/txs/by-hash/{key}"));
                assert_transaction(page, &found[0]);
            }
            _ => {
                assert_ledger(page, &service.get(&format!("/rest/ledgers/{key}")));
                let range = format!("from={key}&to={key}&order=asc&limit=100&decoded=true");
                let events = service.get(&format!("/rest/events/by-ledger?{range}"));
                if events != json!([]) {
                    let shown = rows(page, "lists", "Events of the ledger");
                    assert!(assert_events(shown, &events) > 0, "{name}");
                }
            }
        }
    }
}
