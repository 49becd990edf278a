//! What the command line can do to programs and webhooks can be done in the pages, and what is
//! refused is said there.

use std::path::Path;

use serde_json::json;

use orrery_testkit::binary::{token, token_with};

use crate::browser;
use crate::world::Demo;

#[test]
fn programs_and_webhooks_are_operated_in_the_pages() {
    if browser::modules().is_none() {
        return;
    }
    let demo = Demo::running();
    let module = "src/sandbox/network/market/market_program.wasm";
    let list = demo.service.ask("/rest/retroshade/list", Some(&demo.token)).1;
    let events = list.as_array().unwrap().iter().find(|it| it["kind"] == "events").unwrap();
    let contracts = events["contracts"].as_array().unwrap();
    let further = contracts.iter().find(|it| **it != demo.contract.as_str()).unwrap();
    let more = json!({
        "module": Path::new(env!("CARGO_MANIFEST_DIR")).join(module),
        "contract": demo.contract,
        "further": further,
        "other": token(&demo.data_dir(), "somebody"),
        "reading": token_with(&demo.data_dir(), "demo", &["--scope", "read"]),
    });
    let Some(told) = browser::run("operate.mjs", &demo.service.base, &demo.token, more) else {
        return;
    };
    browser::assert_quiet(&told);
    let done = told["done"].as_object().unwrap();
    for (name, outcome) in done {
        let is_done = *outcome == true || *outcome == 200 || outcome.is_string();
        assert!(is_done, "{name}: {outcome}");
    }
    for name in [
        "try",
        "deploy",
        "watch",
        "make tables of a contract's events",
        "subscribe",
        "unsubscribe",
        "pause",
        "resume",
        "append",
        "backfill",
        "delete a program",
        "subscribe an endpoint",
        "test",
        "replay of a range",
        "replay of a delivery",
        "replay of dead deliveries",
        "no new secret",
        "a new secret",
        "a new secret, and none before it",
        "a secret is shown once",
        "subscribe to a contract",
        "enable",
        "delete a webhook",
    ] {
        assert!(done.contains_key(name), "{name}");
    }
    for (name, parts) in [
        ("deploy twice", &["browser", "replace"][..]),
        ("deploy no module", &["not a WebAssembly module"]),
        ("watch no contract", &["not a contract"]),
        (
            "make the same tables again",
            &["a project of yours already", "choose another name", "on the page Programs"],
        ),
        ("subscribe to nobody", &["no public project"]),
        ("append no contract", &["not a contract"]),
        ("backfill of the future", &["after the newest ledger"]),
        ("delete with another name", &["Nothing was deleted"]),
        ("subscribe without an endpoint", &["endpoint"]),
        ("subscribe with a wrong scheme", &["javascript", "https://"]),
        ("subscribe an endpoint without a scheme", &["has to be a URL"]),
        ("subscribe to no contract", &["not a contract"]),
        ("replay of no range", &["first and the last ledger"]),
        ("replay of a range that is not stored", &["not stored"]),
        ("a delivery that is gone", &["no such delivery any more", "30"]),
        ("read only: pause", &["does not permit", "deploy"]),
        ("read only: deploy", &["does not permit", "deploy"]),
        ("read only: a webhook", &["does not permit", "webhooks"]),
        ("read only: the webhooks", &["does not permit", "webhooks"]),
        ("another owner's program", &["There is no program"]),
        ("another owner's webhook", &["There is no webhook"]),
    ] {
        let said = told["refused"][name].as_str();
        let said = said.unwrap_or_else(|| panic!("{name}: {}", told["refused"][name]));
        assert!(parts.iter().all(|part| said.contains(part)), "{name}: {said}");
    }
    // What was pressed keeps the focus, or what took its place has it.
    let focus = json!({
        "pause": "Resume", "test": "Send a test", "tables": "Tables of its events",
        "mistake": "webhook_endpoint",
    });
    assert_eq!(told["focus"], focus);
}
