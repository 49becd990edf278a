//! Without scripts.

use serde_json::json;

use crate::browser;
use crate::world::Demo;

#[test]
fn health_can_be_read_without_scripts() {
    if browser::modules().is_none() {
        return;
    }
    let demo = Demo::still();
    let addresses = ["", "status", "ledger/5", "programs/1"];
    let more = json!({ "addresses": addresses });
    let base = &demo.service.base;
    let Some(told) = browser::run("plain.mjs", base, &demo.token, more) else { return };
    browser::assert_quiet(&told);
    let health = demo.service.health();
    for address in ["", "status"] {
        let page = &told["pages"][address];
        let text = page["text"].as_str().unwrap();
        let latest = health["service_latest_ledger"].to_string();
        let version = health["version"].as_str().unwrap();
        for part in ["up", latest.as_str(), version, "retention", "needs scripts"] {
            assert!(text.contains(part), "'{part}' is not in {text}");
        }
    }
    for address in addresses {
        let page = &told["pages"][address];
        assert!(page["badge"].as_str().unwrap().starts_with("up"), "{page}");
        assert_eq!((&page["search"], &page["wide"]), (&json!(true), &json!(false)), "{address}");
        // Commands in the pages name the data directory as the service was told it.
        assert_eq!(page["directory"], "d", "{address}");
        // Relative links lead to the same pages from every depth.
        let links = page["links"].as_array().unwrap();
        for path in ["/programs", "/webhooks", "/sql", "/trust", "/status", "/rest/health"] {
            assert!(
                links.contains(&json!(format!("{base}{path}"))),
                "{address}: {path}: {links:?}"
            );
        }
    }
}
