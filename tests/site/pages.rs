//! Every page: from its address alone, by the search field, by links, and by the browser's history.

use serde_json::{Value, json};

use orrery_testkit::size;

use crate::browser;
use crate::world::{Demo, pictures, public};

/// Routes that tell whether a contract is an account, by the status 404, which the browser notes by
/// itself. Pages ask them only without a token: with one, the contract's own route tells it.
const MAY_BE_ABSENT: [&str; 2] =
    ["/smart-account-indexer/api/contract/", "/passkey-indexer/api/wallet/"];

/// Asserts what holds of all pages. `least` is the number of pages.
#[track_caller]
fn assert_fine(told: &Value, least: usize) {
    browser::assert_quiet(told);
    assert_eq!(told["wide"], json!([]), "no page is wider than its window");
    if told["axe"] == true {
        assert_eq!(told["violations"], json!([]));
    } else {
        println!("skipped in part: axe-core is not installed beside playwright-core");
    }
    assert_eq!(told["refusals"], json!([]));
    let refusals =
        told["refusals_without_token"].as_array().unwrap().iter().map(|it| it.as_str().unwrap());
    for refusal in refusals {
        let is_absence = MAY_BE_ABSENT.iter().any(|route| refusal.contains(route));
        assert!(refusal.starts_with("404") && is_absence, "{refusal}");
    }
    let pages = told["pages"].as_object().unwrap();
    assert!(pages.len() >= least, "{pages:?}");
    for (name, page) in pages {
        assert!(page["heading"].is_string(), "{name}: {page}");
        let problems = page["problems"].as_array().unwrap();
        assert!(problems.iter().all(|it| *it == ""), "{name}: {page}");
        let title = told["titles"][name].as_str().unwrap();
        assert!(title.contains("Orrery"), "{name}: {title}");
        assert!(!page["address"].as_str().unwrap().contains("token"), "{name}: {page}");
    }
    for (name, text) in told["half_written"].as_object().unwrap() {
        assert_eq!(text, "half a tok", "{name}");
    }
    for (name, page) in told["without_token"].as_object().unwrap() {
        assert!(page["heading"].is_string(), "{name}: {page}");
        let failed = page["failed"].as_array().unwrap();
        assert!(failed.iter().all(|it| *it == ""), "{name}: {page}");
        let needs_token = !["status", "trust", "search"].contains(&name.as_str());
        assert_eq!(page["locked"].as_u64() > Some(0), needs_token, "{name}: {page}");
    }
}

/// Widths of the windows. Pictures and the full size have one more.
fn widths(pictures: Option<&str>) -> Value {
    let wide = pictures.is_some() || size::choose(0, 1) == 1;
    if wide { json!([360, 1280, 1920]) } else { json!([360, 1280]) }
}

#[test]
fn every_page_of_a_demo_opens_and_is_accessible() {
    if browser::modules().is_none() {
        return;
    }
    let demo = Demo::still();
    let pictures = pictures("demo");
    let more = json!({ "widths": widths(pictures.as_deref()), "pictures": pictures });
    let Some(told) = browser::run("pages.mjs", &demo.service.base, &demo.token, more) else {
        return;
    };
    println!("{} requests, {} of them to others", told["requests"], told["foreign"]);
    assert_fine(&told, 16);
    let titles = &told["titles"];
    let home = titles["home"].as_str().unwrap();
    assert!(home.starts_with("Orrery"), "{home}");
    for name in ["programs", "webhooks", "sql", "status", "trust"] {
        let title = titles[name].as_str().unwrap().to_lowercase();
        assert!(title.starts_with(name), "{title}");
    }
    let unique: std::collections::BTreeSet<_> =
        titles.as_object().unwrap().values().map(Value::to_string).collect();
    assert!(unique.len() >= 14, "{titles}");
}

#[test]
fn every_page_of_the_public_network_opens_and_is_accessible() {
    if browser::modules().is_none() {
        return;
    }
    let Some((service, _directory)) = public() else { return };
    let pictures = pictures("public");
    let more = json!({ "widths": widths(pictures.as_deref()), "pictures": pictures });
    let Some(told) = browser::run("pages.mjs", &service.base, service.token(), more) else {
        return;
    };
    assert_fine(&told, 10);
}

#[test]
fn pages_are_reached_by_search_links_and_history() {
    if browser::modules().is_none() {
        return;
    }
    let demo = Demo::still();
    let Some(told) = browser::run("ways.mjs", &demo.service.base, &demo.token, json!({})) else {
        return;
    };
    browser::assert_quiet(&told);
    let (found, places) = (&told["searched"], &told["where"]);
    for (text, place) in [
        ("ledger", "ledger"),
        ("ledger_with_spaces", "ledger"),
        ("transaction", "transaction"),
        ("transaction_upper_case", "transaction"),
        ("contract", "contract"),
    ] {
        assert_eq!(found[text]["at"], places[place], "{text}");
    }
    assert!(found["account"]["at"].as_str().unwrap().starts_with("account/G"));
    for text in ["nothing", "no_ledger", "no_transaction", "no_contract"] {
        let said = found[text]["text"].as_str().unwrap();
        let is_said =
            ["not stored", "Nothing", "no ", "No "].iter().any(|part| said.contains(part));
        assert!(is_said, "{text}: {said}");
    }
    for (name, way) in told["followed"].as_object().unwrap() {
        assert_eq!(way["at"], places[name], "{name}: {way}");
        assert_eq!(way["focus"], "H1", "{name}: {way}");
    }
    assert_eq!(told["loads"]["isSame"], true, "links do not load the site anew");
    let history: Vec<_> = told["history"].as_array().unwrap().iter().collect();
    let expected = [
        &json!("sql"),
        &places["contract"],
        &places["ledger"],
        &json!(""),
        &places["ledger"],
        &places["contract"],
    ];
    assert_eq!(history.iter().map(|it| &it["at"]).collect::<Vec<_>>(), expected);
    assert!(history.iter().all(|it| it["token"] == 0), "the token stays: {history:?}");
    // The token is in the memory of the page only, unless the reader wants it kept.
    assert!(told["reloaded"]["locked"].as_u64() > Some(0), "{}", told["reloaded"]);
}
