//! What somebody may do on purpose to a reader: the page goes on, says what is so, and keeps its token.

use serde_json::{Value, json};

use crate::browser;
use crate::world::Demo;

/// Seconds after which a page does not come any more. What was seen took minutes, or did not end.
const SECONDS: f64 = 60.0;
/// Elements of a page, however large its values are.
const ELEMENTS: u64 = 4_000;

#[test]
fn neither_links_nor_answers_stop_a_page_or_deceive_its_reader() {
    if browser::modules().is_none() {
        return;
    }
    let demo = Demo::still();
    let Some(told) = browser::run("attacks.mjs", &demo.service.base, &demo.token, json!({})) else {
        return;
    };
    browser::assert_quiet(&told);
    println!("seconds: {}", told["seconds"]);
    println!("longest tasks, ms: {}", told["tasks"]);
    println!("elements: {}", told["elements"]);
    let numbers = |of: &str| told[of].as_object().unwrap().clone();
    for (page, seconds) in numbers("seconds") {
        assert!(seconds.as_f64() < Some(SECONDS), "{page}: {seconds} s");
    }
    for (page, elements) in numbers("elements") {
        assert!(elements.as_u64() < Some(ELEMENTS), "{page}: {elements} elements");
    }
    assert_eq!(told["not_shown"], json!([]));
    let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
    let asset = text(&told["foreign_asset"]);
    assert!(asset.contains("not said by this asset's contract"), "{asset}");
    assert!(!asset.contains("1,000,000 USDC"), "the amount of another asset: {asset}");
    // Only texts that a spreadsheet would run begin with an apostrophe; all but numbers are in quotes.
    let cells = [
        "\"'=HYPERLINK(\"\"http://x\"\")\"",
        "\"'@a\"",
        "-1.5",
        "-Infinity",
        "\"'-1+1\"",
        "\"' =1\"",
        "\"a,b\"",
    ];
    assert_eq!(told["csv"], json!(cells));
    let said = text(&told["many_at_once"]);
    assert!(said.contains("more follow"), "{said}");
    let question = text(&told["question"]);
    assert!(question.contains("mallory") && question.contains("demo"), "{question}");
    assert_eq!(told["other_was_used"], false, "a token of the address, unasked");
    assert_eq!(told["refused"], json!([]), "requests with a token that was not checked");
    assert_eq!(told["hash"], "", "a token stays in the address");
    assert_eq!(told["still"], true, "the token in use is still accepted");
}
