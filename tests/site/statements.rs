//! The editor of statements: a text area with colours behind it, and marks where a statement is
//! refused.

use serde_json::json;

use crate::browser;
use crate::world::Demo;

#[test]
fn statements_have_colours_and_marks_and_begin_with_own_tables() {
    if browser::modules().is_none() {
        return;
    }
    let demo = Demo::still();
    let Some(told) = browser::run("statements.mjs", &demo.service.base, &demo.token, json!({}))
    else {
        return;
    };
    browser::assert_quiet(&told);
    assert_eq!(told["proposed"], "from demo.events limit 10");
    let examples = told["examples"].as_array().unwrap();
    assert!(examples.iter().all(|it| it.as_str().unwrap().contains("from demo.events")), "{told}");
    assert_eq!((examples.len(), &told["ran"]), (2, &json!(true)));

    let painted = &told["painted"];
    assert_eq!(painted["text"], painted["value"]);
    let kinds = json!({
        "select": "sql-word", "from": "sql-word", "'it''s'": "sql-string", "1.5e3": "sql-number",
        "-- of all": "sql-comment",
    });
    assert_eq!(painted["kinds"], kinds);
    assert_eq!(painted["colour"], "rgba(0, 0, 0, 0)");
    for (name, marked, line) in
        [("parser", ",", "  from, to"), ("binder", "nosuchcolumn", "nosuchcolumn")]
    {
        let refused = &told["refused"][name];
        assert_eq!((&refused["marked"], &refused["invalid"]), (&json!([marked]), &json!("true")));
        let excerpt = refused["excerpt"].as_str().unwrap();
        assert!(excerpt.contains(line) && excerpt.contains('^'), "{excerpt}");
        assert_eq!(refused["after"], json!({ "invalid": null, "marked": 0 }), "{name}");
    }
    assert_eq!(told["long"]["text"], "\n");
    assert_ne!(told["long"]["colour"], "rgba(0, 0, 0, 0)");
}
