//! Walks the JSON serialisation of a statement that DuckDB has parsed. A statement may be nested
//! deeper than JSON parsers allow, so this one keeps its own stack. It does not depend on the kinds
//! of statements, only on objects and their string and number members.

use std::str::FromStr;

use duckdb::Connection;

/// Returns the JSON serialisation of a statement.
///
/// # Errors
/// When DuckDB cannot serialise it. A text that cannot be parsed is no error: the answer says so.
pub fn parsed(parser: &Connection, sql: &str) -> duckdb::Result<String> {
    let serialize = "SELECT json_serialize_sql(?::VARCHAR, skip_null := true)";
    parser.query_row(serialize, [sql], |row| row.get(0))
}

/// Depth of the objects that are statements: elements of a list in the outermost object.
pub const STATEMENT: usize = 2;

/// String and number members of a JSON object.
#[derive(Debug, Default)]
pub struct Object {
    /// Name under which the object is a member of another object; `None` for others.
    key: Option<String>,
    members: Vec<(String, String)>,
}

impl Object {
    /// Whether the object is a member of another object under that name.
    pub fn is_member(&self, name: &str) -> bool {
        self.key.as_deref() == Some(name)
    }

    /// Returns the member of that name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.members.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Calls `see` for every object, innermost first, with the number of objects and lists around it.
/// Returns false when the text is not complete JSON.
pub fn objects(json: &str, mut see: impl FnMut(usize, &Object)) -> bool {
    let mut open: Vec<Option<Object>> = Vec::new();
    let mut key: Option<String> = None;
    let mut rest = json;
    while let Some(c) = rest.chars().next() {
        match c {
            '{' | '[' => {
                let object = Object { key: key.take(), members: Vec::new() };
                open.push((c == '{').then_some(object));
                rest = &rest[1..];
            }
            '}' | ']' => {
                let depth = open.len();
                match open.pop() {
                    Some(Some(object)) if c == '}' => see(depth - 1, &object),
                    Some(None) if c == ']' => {}
                    _ => return false,
                }
                rest = &rest[1..];
            }
            '"' => {
                let Some((text, after)) = string(rest) else { return false };
                let is_key = after.starts_with(':') && matches!(open.last(), Some(Some(_)));
                rest = if is_key { &after[1..] } else { after };
                match (is_key, open.last_mut()) {
                    (true, _) => key = Some(text),
                    (false, Some(Some(object))) => {
                        let Some(key) = key.take() else { return false };
                        object.members.push((key, text));
                    }
                    (false, _) => {}
                }
            }
            '-' | '0'..='9' => {
                let end = rest.find([',', '}', ']']).unwrap_or(rest.len());
                if let (Some(Some(object)), Some(key)) = (open.last_mut(), key.take()) {
                    object.members.push((key, rest[..end].to_owned()));
                }
                rest = &rest[end..];
            }
            _ => rest = &rest[c.len_utf8()..],
        }
    }
    open.is_empty()
}

/// Parses the string at the beginning, and returns it with the rest of the text.
fn string(json: &str) -> Option<(String, &str)> {
    let bytes = json.as_bytes();
    let mut end = 1;
    while *bytes.get(end)? != b'"' {
        end += if bytes[end] == b'\\' { 2 } else { 1 };
    }
    let (text, rest) = json.split_at_checked(end + 1)?;
    let value = serde_json::Value::from_str(text).ok()?;
    Some((value.as_str()?.to_owned(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_visited_with_their_members_and_depths() {
        let json = r#"{"error":false,"statements":[{"node":{"type":"SELECT_NODE","q\"":"a,}\\\"{"},
            "n":-12},{"list":["x","y"],"u":"\u00fc"}]}"#;
        let mut seen = Vec::new();
        assert!(objects(json, |depth, object| {
            seen.push((depth, object.members.clone()));
        }));
        let own = |members: &[(&str, &str)]| -> Vec<(String, String)> {
            members.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
        };
        assert_eq!(
            seen,
            [
                (3, own(&[("type", "SELECT_NODE"), ("q\"", "a,}\\\"{")])),
                (STATEMENT, own(&[("n", "-12")])),
                (STATEMENT, own(&[("u", "ü")])),
                (0, own(&[])),
            ]
        );
    }

    #[test]
    fn truncated_json_is_refused() {
        let json = r#"{"a":[{"b":"c"}]}"#;
        assert!(objects(json, |_, _| {}));
        for end in 1..json.len() {
            assert!(!objects(&json[..end], |_, _| {}), "{}", &json[..end]);
        }
    }
}
