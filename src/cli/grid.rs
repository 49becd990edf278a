//! Formats JSON for terminals: a list of objects as a table, one object as lines of names and
//! values.

use std::fmt::Write;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::{Failure, escape};

/// Maximum number of characters in a cell; longer text is cut off.
const WIDEST: usize = 64;

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
    let Some(first) = objects.first() else { return "nothing\n".to_owned() };
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
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| shortened(cell)).collect()).collect();
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

/// Formats a value as the text of one cell.
pub fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => escape::control_chars(text).into_owned(),
        Value::Array(values) if values.iter().all(Value::is_string) => {
            values.iter().map(cell).collect::<Vec<_>>().join(",")
        }
        // JSON does not escape all control characters.
        other => escape::control_chars(&other.to_string()).into_owned(),
    }
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
        assert_eq!(draw(b"[]", &[]).unwrap(), "nothing\n");
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
    }
}
