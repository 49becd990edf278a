//! Pages of what retention has removed.

use serde_json::json;

use orrery_testkit::binary::{Service, configure};

use crate::browser;

#[test]
fn pages_say_what_retention_has_removed() {
    if browser::modules().is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let settings =
        "[retention]\nevents = 25\ntransactions = 25\nraw_ledgers = 25\nwait_for_consumers = 0\n";
    let config = configure(directory.path(), settings);
    let (demo, told) =
        Service::demo(directory.path(), &[&["--close-time", "500"][..], &config].concat());
    let token = told["token"].as_str().unwrap();
    demo.wait_for_health("there are events", |it| it["service_latest_ledger"].as_u64() > Some(40));
    let Some(told) = browser::run("retention.mjs", &demo.base, token, json!({})) else { return };
    browser::assert_quiet(&told);
    for state in ["open", "after"] {
        for (page, seen) in told[state].as_object().unwrap() {
            let text = seen["text"].as_str().unwrap();
            assert!(
                text.to_lowercase().contains("retention has removed"),
                "{state}, {page}: {text}"
            );
            assert!(seen["heading"].is_string(), "{state}, {page}");
        }
    }
    // The header of the ledger stays.
    let ledger = told["after"]["ledger"]["text"].as_str().unwrap();
    assert!(ledger.contains("Previous hash"), "{ledger}");
}
