//! Formats JSON for terminals: a list of objects as a table, one object as lines of names and
//! values.

use std::fmt::Write;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::{Failure, escape};

/// Maximum number of characters in a cell; longer text is cut off. The last column may be as wide as
/// its text: it often holds the reason of a failure, which nobody should have to guess.
const WIDEST: usize = 64;
/// Length of an address (C… or G…), and the number of characters at its beginning and end that are
/// shown within a sentence.
const ADDRESS: usize = 56;
const ADDRESS_ENDS: usize = 4;

/// A JSON object that keeps the order of its members.
struct Object(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Object;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Object(members))
            }
        }
        from.deserialize_map(Members)
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Document {
    List(Vec<Object>),
    One(Object),
}

/// Formats a JSON document. For a list, only `columns` are shown; when `columns` is empty, those of
/// its first object.
pub fn draw(json: &[u8], columns: &[&str]) -> Result<String, Failure> {
    let document = serde_json::from_slice(json).map_err(|error| {
        Failure::failed(format!("the service's answer is not as expected: {error}"))
    })?;
    Ok(match document {
        Document::One(object) => lines(&object),
        Document::List(objects) => table(&objects, columns),
    })
}

fn lines(object: &Object) -> String {
    let names: Vec<_> = object.0.iter().map(|(name, _)| escape::control_chars(name)).collect();
    let widest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, (_, value)) in names.iter().zip(&object.0) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:<widest$}  {}", cell(value));
    }
    text
}

fn table(objects: &[Object], columns: &[&str]) -> String {
    let Some(first) = objects.first() else {
        let head = if columns.is_empty() { String::new() } else { grid(columns, &[]) };
        return head + "no rows\n";
    };
    let names: Vec<&str> = match columns {
        [] => first.0.iter().map(|(name, _)| name.as_str()).collect(),
        columns => columns.to_vec(),
    };
    let value = |object: &Object, name: &str| {
        let member = object.0.iter().find(|(known, _)| known == name);
        member.map(|(_, value)| cell(value)).unwrap_or_default()
    };
    let rows: Vec<Vec<String>> = objects
        .iter()
        .map(|object| names.iter().map(|name| value(object, name)).collect())
        .collect();
    grid(&names, &rows)
}

/// Formats a header and rows, with each column as wide as its longest cell.
pub fn grid(names: &[&str], rows: &[Vec<String>]) -> String {
    let head: Vec<String> =
        names.iter().map(|name| escape::control_chars(name).into_owned()).collect();
    let last = names.len().saturating_sub(1);
    let shorten = |(column, cell): (usize, &String)| match column {
        column if column == last => with_short_addresses(cell),
        _ => shortened(&with_short_addresses(cell)),
    };
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().enumerate().map(shorten).collect()).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &[String]| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("{}\n", padded.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().fold(line(&head), |text, row| text + &line(row))
}

/// Formats a list as [`grid`], and says when it has no rows.
pub fn list(names: &[&str], rows: &[Vec<String>]) -> String {
    let table = grid(names, rows);
    if rows.is_empty() { table + "no rows\n" } else { table }
}

/// Formats a value as the text of one cell.
pub fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => escape::control_chars(text).into_owned(),
        Value::Array(values) if values.iter().all(Value::is_string) => {
            values.iter().map(cell).collect::<Vec<_>>().join(",")
        }
        Value::Array(values) if values.iter().all(Value::is_object) => {
            values.iter().map(phrase).collect::<Vec<_>>().join("; ")
        }
        // JSON does not escape all control characters.
        other => escape::control_chars(&other.to_string()).into_owned(),
    }
}

/// Formats an object within a list: its values, in the order of their names.
fn phrase(object: &Value) -> String {
    let members = object.as_object().into_iter().flatten();
    members.map(|(_, value)| cell(value)).collect::<Vec<_>>().join(": ")
}

/// Shortens the addresses in a sentence; an address that is alone stays whole.
fn with_short_addresses(text: &str) -> String {
    if text.len() <= ADDRESS {
        return text.to_owned();
    }
    let is_part = |letter: char| letter.is_ascii_uppercase() || ('2'..='7').contains(&letter);
    let mut short = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(is_part) {
        let (before, from) = rest.split_at(start);
        let (word, after) = from.split_at(from.find(|it| !is_part(it)).unwrap_or(from.len()));
        short.push_str(before);
        if word.len() == ADDRESS && word.starts_with(['C', 'G']) {
            let (begin, end) = (&word[..ADDRESS_ENDS], &word[ADDRESS - ADDRESS_ENDS..]);
            short.push_str(&format!("{begin}…{end}"));
        } else {
            short.push_str(word);
        }
        rest = after;
    }
    short + rest
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(WIDEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_becomes_a_table_in_column_order() {
        let json = br#"[{"z":1,"a":"x"},{"z":22,"a":null}]"#;
        assert_eq!(draw(json, &[]).unwrap(), "z   a\n1   x\n22\n");
        assert_eq!(draw(json, &["a"]).unwrap(), "a\nx\n\n");
        assert_eq!(draw(b"[]", &[]).unwrap(), "no rows\n");
        assert_eq!(draw(b"[]", &["a", "b"]).unwrap(), "a  b\nno rows\n");
    }

    #[test]
    fn a_reason_is_shown_in_full_and_addresses_in_it_are_short() {
        let address = format!("C{}", "DYCP4".repeat(11));
        let reason =
            format!("'place' of {address} failed, because {}: no such function", "x".repeat(90));
        let json =
            serde_json::json!([{ "contract": address, "long": "y".repeat(90), "reason": reason }]);
        let table = draw(json.to_string().as_bytes(), &["contract", "long", "reason"]).unwrap();
        assert!(table.contains("'place' of CDYC…YCP4 failed, because x"), "{table}");
        assert!(table.ends_with("x: no such function\n") && table.contains(&address), "{table}");
        assert!(!table.contains(&"y".repeat(65)), "{table}");
    }

    #[test]
    fn control_characters_in_cells_and_names_are_escaped() {
        let json = r#"[{"a\u001b[2J":"x\ny","b":["\u0007"],"c":{"d":"\u009b"}}]"#;
        let expected = "a\\u001b[2J  b       c\nx\\ny        \\u0007  {\"d\":\"\\u009b\"}\n";
        assert_eq!(draw(json.as_bytes(), &[]).unwrap(), expected);
        assert_eq!(draw(br#"{"\u001b":"\u001b\n"}"#, &[]).unwrap(), "\\u001b  \\u001b\\n\n");
    }

    #[test]
    fn an_object_becomes_lines() {
        assert_eq!(
            draw(br#"{"id":1,"tables":["a","b"]}"#, &[]).unwrap(),
            "id      1\ntables  a,b\n"
        );
        let json = br#"{"without":[{"contract":"CA","reason":"x"},{"contract":"CB","reason":"y"}],"none":[]}"#;
        assert_eq!(draw(json, &[]).unwrap(), "without  CA: x; CB: y\nnone     \n");
    }
}
