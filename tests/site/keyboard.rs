//! With the keyboard alone.

use serde_json::json;

use crate::browser;
use crate::world::Demo;

#[test]
fn the_keyboard_suffices() {
    if browser::modules().is_none() {
        return;
    }
    let demo = Demo::running();
    let Some(told) = browser::run("keyboard.mjs", &demo.service.base, &demo.token, json!({}))
    else {
        return;
    };
    browser::assert_quiet(&told);
    println!("{} keys were pressed", told["presses"]);
    assert_eq!(told["unseen"], json!([]), "the focus is always seen");
    assert_eq!(told["focus_after"], "H1", "the focus is where the new page begins");
    assert_eq!(told["stops"]["stops"], 0, "links of a list that the arrow keys reach");
    assert_eq!(told["kept"], "Show", "a button that was pressed keeps the focus");
    assert!(told["contract"].as_str().unwrap().starts_with("contract/C"));
    assert_eq!(told["replayed"]["status"], 200);
    assert_eq!(told["replayed"]["asked"]["delivery_id"], told["chosen"]);
}
