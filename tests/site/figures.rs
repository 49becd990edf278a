//! Figures, printed. The bounds are generous, because other work slows the machine down.

use serde_json::json;

use orrery_testkit::size;

use crate::browser;
use crate::world::Demo;

/// Events of the ledger that is read: as many as a fully loaded network could produce.
const EVENTS: u64 = 12_400;

#[test]
fn pages_are_soon_there_and_long_ledgers_do_not_stop_them() {
    if browser::modules().is_none() {
        return;
    }
    let demo = Demo::still();
    let more = json!({ "repetitions": size::choose(1, 9), "events": size::choose(2_000, EVENTS) });
    let Some(told) = browser::run("figures.mjs", &demo.service.base, &demo.token, more) else {
        return;
    };
    browser::assert_quiet(&told);
    println!("first contentful paint, ms: {}", told["first_contentful_paint"]);
    println!("largest contentful paint, ms: {}", told["largest_contentful_paint"]);
    println!("first rows of events, ms: {}", told["first_rows"]);
    println!("a ledger of many events: {}", told["tasks"]);
    for page in ["home", "contract"] {
        let paint = told["first_contentful_paint"][page].as_f64().unwrap();
        assert!(paint < 20_000.0, "{page}: {paint} ms");
    }
    let tasks = &told["tasks"];
    assert!(tasks["longest"].as_f64() < Some(2_000.0), "{tasks}");
    // Only the rows in sight are elements.
    assert!(tasks["elements"].as_u64() < Some(5_000), "{tasks}");
}
