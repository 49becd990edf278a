//! Figures, printed. The bounds are generous, because other work slows the machine down.

use serde_json::json;

use orrery_testkit::size;

use crate::browser;
use crate::world;

/// Events of a ledger: as many as a fully loaded network could produce.
const EVENTS: u64 = 12_400;
/// Events of the contract.
const ALL: u64 = 1_000_000;

#[test]
fn pages_are_soon_there_and_long_ledgers_do_not_stop_them() {
    if browser::modules().is_none() {
        return;
    }
    let [in_ledger, all] = [size::choose(2_000, EVENTS), size::choose(20_000, ALL)];
    let crowded = world::crowded(in_ledger, all);
    let more = json!({ "repetitions": size::choose(1, 9), "events": in_ledger });
    let (base, token) = (&crowded.service.base, &crowded.token);
    let Some(told) = browser::run("figures.mjs", base, token, more) else {
        return;
    };
    browser::assert_quiet(&told);
    println!("events of the contract: {all}");
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
