//! The documents and the reference of the HTTP interface in a browser.

use serde_json::json;

use crate::browser;
use crate::world::{Demo, pictures};

/// Most bytes of a page.
const LARGEST: u64 = 150_000;

#[test]
fn documents_are_accessible_small_and_searched() {
    if browser::modules().is_none() {
        return;
    }
    let demo = Demo::running();
    let moved = json!({
        "get-resteventsby-ledger": "docs/api/events",
        "record-event": "docs/api/records",
        "errors": "docs/api",
        "in-general": "docs/api",
    });
    let more = json!({
        "widths": [360, 768, 1280, 1920], "pictures": pictures("documents"), "moved": moved,
    });
    let Some(told) = browser::run("documents.mjs", &demo.service.base, &demo.token, more) else {
        return;
    };
    browser::assert_quiet(&told);
    assert_eq!(told["wide"], json!([]), "no page is wider than its window");
    if told["axe"] == true {
        assert_eq!(told["violations"], json!([]));
    }
    for (page, bytes) in told["bytes"].as_object().unwrap() {
        assert!(bytes.as_u64() < Some(LARGEST), "{page}: {bytes} bytes");
    }
    assert_eq!(told["moved"].as_object().unwrap().len(), moved.as_object().unwrap().len());
    assert_eq!(told["found"], "docs/api/events#post-resteventsstreamticket");
    assert_eq!(told["current"], json!(["API"]));
    let copied = told["copied"].as_str().unwrap();
    assert!(copied.starts_with("curl -s -X POST") && copied.ends_with("ticket'"), "{copied}");
}
