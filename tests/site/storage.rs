//! What contracts hold, on the pages of contracts and transactions.

use serde_json::{Value, json};

use crate::browser;
use crate::world::{Demo, pictures};

/// Widths of the windows, in pixels: a phone, a tablet, a laptop.
const WIDTHS: [u32; 3] = [375, 768, 1280];
/// Changes of a history that the script has on a page.
const CHANGES: u64 = 3;

#[test]
fn what_contracts_hold_is_on_their_pages() {
    if browser::modules().is_none() {
        return;
    }
    let demo = Demo::still();
    let contract = &demo.contract;
    let answer = |path: &str| {
        let path = format!("/rest/contracts/{contract}/storage{path}");
        demo.service.ask(&path, Some(&demo.token)).1
    };
    let whole = answer("?decoded=true&limit=1000");
    let newest = whole["ledger"].as_u64().unwrap();
    let more = json!({
        "contract": contract, "widths": WIDTHS, "earlier": newest - 10, "pictures": pictures("storage"),
    });
    let Some(told) = browser::run("storage.mjs", &demo.service.base, &demo.token, more) else {
        return;
    };
    browser::assert_quiet(&told);
    assert_eq!((&told["clipped"], &told["violations"]), (&json!([]), &json!([])));

    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{value}")).to_owned();
    let shown = text(&told["text"]);
    assert!(shown.contains(&format!("This is all that it holds at the end of ledger {newest}")));
    assert!(shown.contains("Balances of accounts (G…)"), "{shown}");
    assert_eq!(told["names"], json!(["Instance", "Account", "Offer"]));
    let offers = whole["instance"]["storage"][0]["value"].as_str().unwrap();
    assert!(shown.contains(&format!("offers\t{offers}\t")), "{shown}");

    let history = &told["history"];
    assert_eq!((&history["expanded"], &history["isFocused"]), (&json!("true"), &json!(true)));
    assert_eq!(history["rows"], CHANGES);
    assert!(text(&history["text"]).contains("no change is missing"), "{history}");

    let earlier = (newest - 10).to_string();
    assert_eq!(told["chosen"]["query"], json!({ "name": "Account", "at": earlier }));
    assert_eq!(told["chosen"]["names"], json!(["Account"]));

    let states = &told["states"];
    for (state, parts) in [
        ("none", &["It holds nothing under the name Nothing at the end of ledger"][..]),
        ("not_stored", &["Ledger 1 is not stored", "give a ledger of the nearest stored range"]),
        (
            "archived",
            &["archived", "temporary", "not known", "This may not be all", "Without a name"],
        ),
        (
            "unknown",
            &["is not known: the stored ledgers do not tell", "known in the ledgers 3 to 7"],
        ),
        ("failed", &["The index contract_data is not ready: ask again later."]),
        ("loading", &["Reading what it holds"]),
    ] {
        let said = text(&states[state]);
        assert!(parts.iter().all(|part| said.contains(part)), "{state}: {said}");
    }
    assert_eq!(told["refusals"], json!(["404"]));

    let changed = &told["changed"];
    assert!(changed["rows"].as_u64() > Some(0), "{changed}");
    assert!(text(&changed["text"]).contains("Account"), "{changed}");
}
