//! The status page in a browser: every panel shows what the API returns, the page sends requests
//! only to the service, and the token is stored nowhere.
//!
//! `ORRERY_TEST_CHROMIUM` names a directory in which `npm install playwright-core` was run; the
//! browser is `/usr/bin/chromium`, or the one that `CHROMIUM` names. Without them the test is
//! skipped.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::thread;

use serde_json::{Value, json};
use stellar_xdr::{Limits, ReadXdr, ScVal};

use crate::network::received;
use orrery_testkit::binary::{Service, run};
use orrery_testkit::wait::wait_until;

/// Formats a value in the notation of the page, decoded independently with the XDR crate.
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
        other => panic!("the demo has no {}", other.name()),
    }
}

fn decoded(base64: &Value) -> String {
    spelled(&ScVal::from_xdr_base64(base64.as_str().unwrap(), Limits::none()).unwrap())
}

/// Events as the page must show them.
fn shown(events: &Value) -> Value {
    let event = |event: &Value| {
        let topics = (1..=10).map(|topic| &event[format!("topic{topic}")]);
        let topics: Vec<_> = topics.filter(|topic| !topic.is_null()).map(decoded).collect();
        json!({ "topics": topics, "data": decoded(&event["data"]) })
    };
    events.as_array().unwrap().iter().map(event).collect()
}

/// Formats a number with commas between thousands.
fn grouped(number: &Value) -> String {
    let digits = number.as_u64().unwrap().to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|it| String::from_utf8_lossy(it));
    groups.collect::<Vec<_>>().join(",")
}

fn texts(values: &[&Value]) -> Value {
    let text = |value: &&Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => "–".to_owned(),
        other => other.to_string(),
    };
    values.iter().map(text).collect::<Vec<_>>().into()
}

/// Fills a data directory with events, a program with rows, and a webhook with successful
/// deliveries. Returns the owner's token and the program's contract.
fn prepare(directory: &Path) -> (String, String) {
    let (demo, commands) = Service::demo(directory, &["--close-time", "200"]);
    let token = commands[1].split("Bearer ").nth(1).unwrap().split('\'').next().unwrap().to_owned();
    let (_, programs) = demo.ask("/rest/retroshade/list", Some(&token));
    let contract = programs[0]["contracts"][0].as_str().unwrap().to_owned();
    let receiver = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}/", receiver.local_addr().unwrap());
    thread::spawn(move || receiver.incoming().flatten().for_each(|it| drop(received(it))));
    let base = format!("http://{}/rest", demo.address);
    let arguments = ["--base", &base, "--jwt", &token];
    let new = ["webhooks", "new", "--contract", &contract, "--endpoint", &endpoint];
    assert_eq!(run(directory, &[&new[..], &arguments].concat()).code, 0);
    wait_until("two pages of events and some deliveries", || {
        let (_, deliveries) =
            demo.ask("/rest/webhooks/1/deliveries?status=delivered", Some(&token));
        let ledgers = demo.health()["service_latest_ledger"].as_u64().unwrap_or_default();
        (deliveries.as_array()?.len() > 5 && ledgers > 40).then_some(())
    });
    wait_until("while it follows, the lag has a history", || {
        let (_, status) = demo.ask("/rest/status", None);
        status["history"]["lag_seconds"].as_array()?.iter().any(Value::is_u64).then_some(())
    });
    demo.stop();
    (token, contract)
}

#[test]
fn a_service_estimates_contract_sizes() {
    let directory = tempfile::tempdir().unwrap();
    let (demo, _) = Service::demo(directory.path(), &[]);
    let contracts = wait_until("contracts with events", || {
        let (_, status) = demo.ask("/rest/status", None);
        let contracts = &status["contracts"];
        (!contracts["largest"].as_array()?.is_empty()).then(|| contracts.clone())
    });
    assert_eq!(contracts["sampled_ledgers"], contracts["of_ledgers"]);
    let largest = contracts["largest"].as_array().unwrap();
    let shares = largest.iter().map(|it| it["share"].as_f64().unwrap());
    assert!((0.5..1.001).contains(&shares.sum::<f64>()), "{contracts}");
    demo.stop();
}

#[test]
fn a_browser_shows_what_the_api_returns() {
    let Some(modules) = std::env::var_os("ORRERY_TEST_CHROMIUM") else {
        println!("skipped: ORRERY_TEST_CHROMIUM names no directory");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let (token, contract) = prepare(directory.path());
    // No source is followed now, so that the compared data does not change.
    let service = Service::start_in(directory.path(), &["--data-dir", "d", "--network", "local"]);
    let get = |path: &str| {
        let (status, answer) = service.ask(path, Some(&token));
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    };
    wait_until("contract sizes are estimated", || {
        let (_, status) = service.ask("/rest/status", None);
        (!status["contracts"]["largest"].as_array()?.is_empty()).then_some(())
    });
    wait_until("the programs have seen everything", || {
        let (status, program) = service.ask("/rest/retroshade/1/status", Some(&token));
        let (_, waiting) = service.ask("/rest/webhooks/list", Some(&token));
        let done =
            program["lag_ledgers"] == 0 && waiting[0]["deliveries_waiting"].as_u64() < Some(1000);
        status == 200 && done
    });
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/clients/status_page.mjs");
    let base = format!("http://{}/", service.address);
    let mut node = Command::new("node");
    let ran = match node.arg(script).arg(modules).args([&base, &token, &contract]).output() {
        Ok(ran) => ran,
        Err(error) => {
            println!("skipped: Node cannot be run: {error}");
            return;
        }
    };
    let errors = String::from_utf8_lossy(&ran.stderr);
    if errors.contains("Executable doesn't exist") || errors.contains("ENOENT") {
        println!("skipped: there is no Chromium: {errors}");
        return;
    }
    assert!(ran.status.success(), "{errors}");
    let page: Value = serde_json::from_slice(&ran.stdout).unwrap();

    let requests = page["requests"].as_array().unwrap();
    let here = |url: &Value| url.as_str().unwrap().starts_with(&base) || url == "data:,";
    assert!(requests.len() > 20 && requests.iter().all(here), "{requests:?}");
    assert_eq!(page["complaints"], json!([]));

    let health = get("/rest/health");
    let text = page["without_scripts"]["text"].as_str().unwrap();
    for part in
        ["up", "Everything works", &health["service_latest_ledger"].to_string(), "retention"]
    {
        assert!(text.contains(part), "'{part}' is not in {text}");
    }
    assert_eq!(page["without_scripts"]["hidden"], true);
    assert!(page["without_scripts"]["note"].as_str().unwrap().contains("need scripts"));

    assert_eq!(
        (&page["health"]["state"], &page["health"]["network"]),
        (&json!("up"), &json!("local"))
    );
    let figures = page["health"]["figures"].as_object().unwrap();
    assert_eq!(figures.len(), 7);
    for (name, figure) in figures {
        assert_eq!(json!([figure]), texts(&[&health[name]]), "{name}");
    }
    let components = health["components"].as_object().unwrap().iter().map(|(name, it)| {
        let detail = it.get("reason").or(it.get("detail")).cloned().unwrap_or(json!(""));
        json!([name, it["status"], detail])
    });
    assert_eq!(page["health"]["components"], components.collect::<Value>());
    assert!(page["lag"].as_str().unwrap().contains("No source is followed"));

    let completeness = get("/rest/completeness");
    let range = &completeness["ranges"][0];
    let (first, last) =
        (range["first_ledger"].as_u64().unwrap(), range["last_ledger"].as_u64().unwrap());
    let row = json!([
        format!("{first} – {last}"),
        grouped(&json!(last - first + 1)),
        "stored",
        grouped(&range["events"])
    ]);
    assert_eq!(page["ranges"], json!([row]));

    let status = get("/rest/status");
    let ledgers = status["ledgers"].as_array().unwrap();
    let with_events = ledgers.len();
    assert_eq!(page["bars"], with_events);
    let newest = &ledgers[ledgers.len() - 1];
    let sentence = format!(
        "Ledger {}, {}: {} event",
        newest["ledger"],
        newest["closed_at"].as_str().unwrap(),
        newest["events"]
    );
    assert!(
        page["density"].as_str().unwrap().contains(&sentence),
        "{sentence}: {}",
        page["density"]
    );
    let consumers = status["consumers"].as_array().unwrap().iter().map(|it| {
        let name = it["name"].as_str().unwrap().replace('_', " ");
        json!([name, "current", grouped(&it["lag_ledgers"]), grouped(&it["lost_ledgers"])])
    });
    assert_eq!(page["consumers"], consumers.collect::<Value>());
    let disk = page["disk"].as_array().unwrap();
    for (name, value) in [
        ("Events", grouped(&status["store"]["events"])),
        ("Transactions", grouped(&status["store"]["transactions"])),
        (
            "Version, store format",
            format!("{}, {}", env!("CARGO_PKG_VERSION"), status["store_format"].as_str().unwrap()),
        ),
        ("Protocol", status["protocol_version"].to_string()),
    ] {
        assert!(disk.contains(&json!([name, value])), "{name} {value}: {disk:?}");
    }
    let contracts = &status["contracts"];
    let largest = contracts["largest"].as_array().unwrap();
    let rows = page["contracts"]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), largest.len());
    for (row, size) in rows.iter().zip(largest) {
        assert_eq!(row[0], size["contract_id"]);
        let shown: f64 = row[2].as_str().unwrap().trim_end_matches(" %").parse().unwrap();
        assert!((shown - 100.0 * size["share"].as_f64().unwrap()).abs() < 0.06, "{row} {size}");
    }
    let note = page["contracts"]["note"].as_str().unwrap();
    assert!(
        note.starts_with("Of all events and transactions"),
        "all ledgers were looked at: {note}"
    );
    let locked: Vec<_> = page["locked"].as_array().unwrap().iter().collect();
    assert!(locked.len() == 4 && locked.iter().all(|it| **it == "Needs a token."), "{locked:?}");

    let program = get("/rest/retroshade/1/status");
    let row = page["programs"][0].as_array().unwrap();
    let begin = json!([
        program["project_name"],
        "running",
        grouped(&program["total_executions"]),
        grouped(&program["total_errors"]),
        program["avg_execution_ms"].to_string(),
        "0"
    ]);
    assert_eq!(json!(row[..6]), begin);
    let hook = &get("/rest/webhooks/list")[0];
    let deliveries = get("/rest/webhooks/1/deliveries?limit=100");
    let delivered = deliveries.as_array().unwrap().iter().filter(|it| it["status"] == "delivered");
    let row = &page["webhooks"][0];
    assert_eq!(json!([row[0], row[1]]), json!([hook["webhook_endpoint"], contract]));
    assert_eq!(row[3], format!("100 % of {}", delivered.count()));

    assert_eq!(page["newest"], shown(&get("/rest/events/by-ledger?limit=10")));
    assert_eq!(page["older"], shown(&get("/rest/events/by-ledger?limit=20")));
    let filled = "AAAADwAAAAZmaWxsZWQAAA%3D%3D";
    let of_topic = get(&format!("/rest/events/by-contract/{contract}?limit=10&topics={filled}"));
    assert_eq!(of_topic.as_array().unwrap().len(), 10);
    assert_eq!(page["of_topic"], shown(&of_topic));
    assert_eq!(page["of_nobody"], json!([[], "There are no such events."]));
    assert!(page["nonsense"].as_str().unwrap().contains("is not a contract"));

    let query = "select _ledger, count(*) as trades, sum(cost) as cash from market_trade group by _ledger \
                 order by _ledger limit 300";
    let url = format!("http://{}/rest/retroshade/query", service.address);
    let answer = orrery_testkit::client::HTTP.post(url).bearer_auth(&token);
    let answer: Value = answer.json(&json!({ "query": query })).send().unwrap().json().unwrap();
    let rows = answer.as_array().unwrap().iter();
    let rows = rows.map(|it| texts(&[&it["_ledger"], &it["trades"], &it["cash"]]));
    assert_eq!(page["by_ledger"]["rows"], rows.collect::<Value>());
    assert_eq!((&page["by_ledger"]["drawn"], &page["by_time"]["drawn"]), (&json!(1), &json!(1)));
    let hostile = json!([["<img src=x onerror=alert(1)>", "null", "12345678901234567890"]]);
    assert_eq!((&page["hostile"]["rows"], &page["images"]), (&hostile, &json!(0)));
    assert_eq!((&page["hostile"]["drawn"], &page["wrong"]["rows"]), (&json!(0), &json!([])));
    assert!(page["wrong"]["said"].as_str().unwrap().contains("nowhere"), "{}", page["wrong"]);

    assert_eq!(page["wider_than_the_screen"], 0);
    let kept = &page["kept"];
    for name in ["local", "session", "databases"] {
        assert_eq!(kept[name], 0, "{name}");
    }
    assert_eq!(
        (&kept["cookies"], &kept["url"], &kept["field"]),
        (&json!(""), &json!(base), &json!(""))
    );
    assert_eq!((&page["token_in_page"], &page["addresses_with_token"]), (&json!(false), &json!(0)));
    assert_eq!(page["after"], json!(["Needs a token.", "Needs a token.", "", ""]));
    let refused = page["refused"].as_str().unwrap();
    assert!(refused.starts_with("This token cannot be used: "), "{refused}");
    let address = page["address_after"].as_str().unwrap();
    assert!(!address.contains("token"), "{address}");
    assert!(page["stopped"]["title"].as_str().unwrap().starts_with("? "), "{}", page["stopped"]);
    assert!(page["stopped"]["badge"].as_str().unwrap().starts_with("unknown"));
}

/// Runs without a browser: Node imports the page's module.
#[test]
fn the_page_encodes_addresses_as_topics() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api/status_page/scval.js");
    std::fs::copy(source, at.join("scval.mjs")).unwrap();
    let addresses = [
        "CDYCP4CTXHKI2L3SHW33BXRFCHMVPD5J2SQIAMO3QYLX2SG3NQ5ANS3T",
        "GAVJCNS3N4CAFWHEATMIHULVAYEOQBK53DESOGNL5GCZKINA6SGQRXVP",
    ];
    // The last letter is wrong, and so is the checksum.
    let wrong = "CDYCP4CTXHKI2L3SHW33BXRFCHMVPD5J2SQIAMO3QYLX2SG3NQ5ANS3X";
    let script = "import { addressValue } from './scval.mjs';
        console.log(JSON.stringify(process.argv.slice(1).map(addressValue)));";
    let mut node = Command::new("node");
    node.args(["--input-type=module", "--eval", script]).args(addresses).arg(wrong);
    let ran = match node.current_dir(at).output() {
        Ok(ran) => ran,
        Err(error) => {
            println!("skipped: Node cannot be run: {error}");
            return;
        }
    };
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let values: Value = serde_json::from_slice(&ran.stdout).unwrap();
    for (address, value) in addresses.iter().zip(values.as_array().unwrap()) {
        assert_eq!(decoded(value), *address);
    }
    assert_eq!(values[2], Value::Null);
}
