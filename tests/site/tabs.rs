//! Many tabs of one browser, and tabs that are hidden.

use serde_json::json;

use crate::browser;
use crate::world::Demo;

/// A browser opens six connections to one host over HTTP/1.1.
const TABS: u32 = 10;

#[test]
fn tabs_share_the_connections_of_their_browser() {
    if browser::modules().is_none() {
        return;
    }
    let demo = Demo::running();
    let more = json!({ "tabs": TABS });
    let Some(told) = browser::run("tabs.mjs", &demo.service.base, &demo.token, more) else {
        return;
    };
    browser::assert_quiet(&told);
    assert_eq!(told["behind"], json!([]), "every tab shows new events");
    assert_eq!(told["outages"], json!([]), "a busy browser is no dead service");
    assert!(told["streams"].as_u64() < Some(4), "{} streams", told["streams"]);
    assert_eq!(told["answered"], "42");
    assert_eq!(told["let_go"], true, "a hidden tab has no stream");
    assert_eq!(told["hidden_changed"], false);
    assert_eq!(told["in_order"], true, "no event is shown twice or out of order");
}
