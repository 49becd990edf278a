//! What readers paste, aim at, come back to, and are sent.

use serde_json::{Value, json};

use crate::browser;
use crate::world::Demo;

/// A secret seed: that of the key `07 07 …`.
const SEED: &str = "SADQOBYHA4DQOBYHA4DQOBYHA4DQOBYHA4DQOBYHA4DQOBYHA4DQP54X";

#[test]
fn readers_find_keep_and_are_asked() {
    if browser::modules().is_none() {
        return;
    }
    let demo = Demo::running();
    let more = json!({ "seed": SEED });
    let Some(told) = browser::run("readers.mjs", &demo.service.base, &demo.token, more) else {
        return;
    };
    browser::assert_quiet(&told);
    for (name, found) in told["searched"].as_object().unwrap() {
        assert_eq!(*found, true, "{name}");
    }
    for (name, seen) in told["secrets"].as_object().unwrap() {
        assert_eq!(seen["isSeen"], false, "{name}: {seen}");
        assert!(seen["text"].as_str().unwrap().contains("secret seed"), "{name}: {seen}");
    }
    assert_eq!((&told["back"], &told["back_again"]), (&json!(true), &json!(true)));
    let lists = &told["lists"];
    for name in ["pointed", "goes_on", "focused"] {
        assert_eq!(lists[name], true, "{name}: {}", lists[name]);
    }
    assert_eq!(lists["statuses"], json!([]), "a list that grows is not read out each time");
    assert_filled_in(&told["filled_in"]);
    assert_eq!(told["own"], true);
    let token = &told["token"];
    assert_eq!((&token["used"], &token["at"]), (&json!(0), &json!("programs")), "{token}");
    assert!(token["question"].as_str().unwrap().contains("a token of demo"), "{token}");
    assert!(token["locked"].as_u64() > Some(0), "{token}");
    assert_eq!(token["focus"], "H1", "the question is gone, and the focus is at the page");
    assert_eq!(told["documents"]["text"], "webhooks listen");
}

/// Who sends a link chooses its statement.
fn assert_filled_in(told: &Value) {
    assert_eq!((&told["text"], &told["asked"]), (&json!("select 4711"), &json!(0)), "{told}");
    assert!(told["said"].as_str().unwrap().contains("press Run"), "{told}");
}
