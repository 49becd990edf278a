//! Projects of contracts that are not known yet, and subscriptions to other things than events, made in the pages.

use serde_json::json;

use crate::browser;
use crate::world::{Demo, pictures};

/// Widths of the windows, in pixels: a phone, a tablet, a laptop.
const WIDTHS: [u32; 3] = [375, 768, 1280];

#[test]
fn what_is_not_known_yet_is_watched_in_the_pages() {
    if browser::modules().is_none() {
        return;
    }
    let demo = Demo::running();
    let contract = &demo.contract;
    let more = json!({ "contract": contract, "widths": WIDTHS, "pictures": pictures("watching") });
    let Some(told) = browser::run("watching.mjs", &demo.service.base, &demo.token, more) else {
        return;
    };
    browser::assert_quiet(&told);
    assert_eq!((&told["clipped"], &told["violations"]), (&json!([]), &json!([])));

    let done = told["done"].as_object().unwrap();
    for name in [
        "watch by selectors",
        "its page",
        "fields of each kind",
        "preview",
        "preview of messages",
        "subscribe to upgrades",
    ] {
        let outcome = done.get(name).unwrap_or_else(|| panic!("{name}: {done:?}"));
        assert!(*outcome == true || outcome.is_string(), "{name}: {outcome}");
    }
    let message = done["preview of messages"].as_str().unwrap();
    assert!(message.starts_with("<b>") && message.contains("</b> in ledger "), "{message}");
    for (name, parts) in [
        ("a code that is none", &["64 hexadecimal digits"][..]),
        ("a factory without an event", &["Factory 2 needs", "Its event"]),
        ("a condition with a mistake", &["'=='", "at character 8"]),
        ("a message with a mistake", &["at character 4"]),
    ] {
        let said = told["refused"][name].as_str();
        let said = said.unwrap_or_else(|| panic!("{name}: {}", told["refused"][name]));
        assert!(parts.iter().all(|part| said.contains(part)), "{name}: {said}");
    }
    // The field that was refused has the focus, and the place in it is selected.
    let focus = json!({
        "code": "wasm", "factory": "factory_event", "condition": "where =", "message": "message {",
    });
    assert_eq!(told["focus"], focus);

    let shown = &told["shown"];
    let selectors = json!({ "created_by": [contract], "all": ["filled", "transfer"] });
    assert_eq!(shown["selectors"], selectors);
    let contracts = shown["contracts"].as_str().unwrap();
    assert!(contracts.contains("created") && contracts.contains("filled, transfer"), "{contracts}");
    let state = shown["state"].as_str().unwrap();
    assert!(state.contains("Members") && state.contains("Creator not known"), "{state}");
    assert_eq!(shown["hooks"], json!([null]));
    let of_events = "address include_backfill topic1 topic2 topic3 topic4 where";
    let fields = json!({
        "event": of_events,
        "upgrade": "include_backfill",
        "storage": "durability include_backfill key key_name where",
        "ttl": "entries within",
        "failed_call": "functions include_backfill",
        "silence": "address topic1 topic2 topic3 topic4 where within",
    });
    assert_eq!(shown["fields"], fields);
}
