//! What bears meaning is never cut off, and pages do not talk over those who listen to them.

use serde_json::{Value, json};

use orrery_testkit::size;

use crate::browser;
use crate::world::{Demo, pictures, public};

/// Widths of the windows, in pixels: a phone, a tablet, a laptop and a large screen.
const WIDTHS: [u32; 4] = [1920, 1280, 768, 360];
/// Least milliseconds between two changes of live regions.
const BETWEEN: f64 = 9_500.0;

/// Asserts that nothing was cut off, in at least so many places that were measured.
#[track_caller]
fn assert_whole(told: &Value, least: u64) {
    browser::assert_quiet(told);
    assert_eq!(told["clipped"], json!([]));
    let measured: u64 =
        told["measured"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    println!("{measured} numbers, parties and addresses were measured");
    assert!(measured >= least, "{}", told["measured"]);
}

#[test]
fn numbers_and_parties_are_whole_and_news_are_said_seldom() {
    if browser::modules().is_none() {
        return;
    }
    let demo = Demo::running();
    let more = json!({
        "widths": WIDTHS, "listens": size::choose(13, 40), "pictures": pictures("clipped-demo"),
    });
    let Some(told) = browser::run("clipped.mjs", &demo.service.base, &demo.token, more) else {
        return;
    };
    assert_whole(&told, 2_000);
    for (page, changes) in told["spoken"].as_object().unwrap() {
        let at = |change: &Value| change[0].as_f64().unwrap();
        let changes = changes.as_array().unwrap();
        let is_seldom = changes.windows(2).all(|two| at(&two[1]) - at(&two[0]) >= BETWEEN);
        assert!(is_seldom, "{page}: {changes:?}");
        let says_news = |it: &Value| it[1].as_str().unwrap().contains(" new event");
        assert!(changes.iter().all(says_news), "{page}: {changes:?}");
    }
    assert_ne!(told["spoken"]["home"], json!([]), "it is said that events came");
}

#[test]
fn numbers_and_parties_of_the_public_network_are_whole() {
    if browser::modules().is_none() {
        return;
    }
    let Some((service, _directory)) = public() else { return };
    let more = json!({ "widths": WIDTHS, "listens": 0, "pictures": pictures("clipped-public") });
    let Some(told) = browser::run("clipped.mjs", &service.base, service.token(), more) else {
        return;
    };
    assert_whole(&told, 1_000);
}
