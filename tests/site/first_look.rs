//! What pages show at the first look.

use serde_json::json;

use orrery_testkit::binary::token;

use crate::browser;
use crate::world::Demo;

/// Highest head of a page on a phone, in pixels.
const HIGHEST_HEAD: f64 = 140.0;

#[test]
fn pages_show_data_names_and_the_next_step_first() {
    if browser::modules().is_none() {
        return;
    }
    let demo = Demo::running();
    let more = json!({ "other": token(&demo.data_dir(), "somebody") });
    let Some(told) = browser::run("first_look.mjs", &demo.service.base, &demo.token, more) else {
        return;
    };
    browser::assert_quiet(&told);
    assert_eq!(told["columns"], json!(["from", "to", "sep0011_asset", "amount"]));
    assert!(told["below_plot"].as_f64() > Some(4.0), "{}", told["below_plot"]);
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let hint = text(&told["token"]);
    assert!(hint.contains("orrery token issue --data-dir d --sub NAME"), "{hint}");

    let native = &told["native"];
    assert!(text(&native["heading"]).starts_with("XLM"), "{native}");
    assert!(text(&native["text"]).contains("7 events in 16 forms"), "{native}");
    assert_eq!(told["account"], "Events that name it");
    assert_eq!(told["tables_first"], "Tables of its events");
    let tables = text(&told["tables"]);
    assert!(tables.contains("made_here.placed") && tables.contains("made_here.filled"), "{tables}");

    assert!(told["delivery"].is_string(), "{}", told["delivery"]);
    assert!(told["documents"].as_u64() > Some(1), "{}", told["documents"]);
    assert_eq!(told["paths"], false, "no document is named by its file");
    let phone = &told["phone"];
    assert!(phone["height"].as_f64() < Some(HIGHEST_HEAD), "{phone}");
    assert_eq!((&phone["lines"], &phone["isFree"]), (&json!(1), &json!(true)), "{phone}");
}
