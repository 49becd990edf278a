//! Texts that came from the network, or from other owners, never become markup, code or addresses.

use serde_json::json;

use orrery_testkit::size;

use crate::browser;
use crate::world::Demo;

#[test]
fn hostile_texts_stay_texts() {
    if browser::modules().is_none() {
        return;
    }
    let texts = size::choose(200, 10_000);
    let demo = Demo::still();
    let more = json!({ "texts": texts, "seed": 1 });
    let Some(told) = browser::run("hostile.mjs", &demo.service.base, &demo.token, more) else {
        return;
    };
    println!(
        "{} hostile texts were shown, of {} that were delivered, in {} pages and {} s: {}",
        told["texts"], told["delivered"], told["loads"], told["seconds"], told["per_page"]
    );
    browser::assert_quiet(&told);
    for kind in ["found", "failed", "wide"] {
        assert_eq!(told[kind], json!([]), "{kind}");
    }
    assert!(told["texts"].as_u64() >= Some(texts));
    assert!(told["per_page"].as_object().unwrap().values().all(|texts| texts.as_u64() > Some(0)));
}
