//! Cells that the tables of entries and of changes share.

use serde_json::Value;

use super::super::grid;

/// Returns the durabilities in which it is not known what a key holds.
pub(super) fn unknown_in(answer: &Value) -> String {
    let all = answer["unknown"].as_array().into_iter().flatten();
    all.filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
}

/// Returns what follows the name in the key of an entry, or the key if it has no name.
pub(super) fn key_of(entry: &Value) -> String {
    match entry["args"].as_array() {
        Some(args) => args.iter().map(grid::cell).collect::<Vec<_>>().join(", "),
        None => grid::cell(&entry["key"]),
    }
}

/// Returns the last ledger in which an entry is live, and whether it is archived.
pub(super) fn life_of(entry: &Value) -> String {
    let disputed = match entry["archived_value"].as_str() {
        Some(what) => format!(", its value {what}"),
        None => String::new(),
    };
    match (&entry["live_until_ledger"], &entry["archived"]) {
        (Value::Null, Value::Bool(true)) => format!("archived{disputed}"),
        (Value::Null, _) => "not known".to_owned(),
        (until, Value::Bool(true)) => format!("{until}, archived{disputed}"),
        (until, _) => until.to_string(),
    }
}
