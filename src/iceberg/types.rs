//! Types of columns: those of Iceberg (table specification, *Schemas and Data Types*) that an export has.
//! Every engine reads these.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Type of a column or of a part of one. Every value may be null.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Type {
    /// True or false.
    Boolean,
    /// Signed 64-bit integer.
    Long,
    /// Decimal of so many digits, with none after the point.
    Decimal(u8),
    /// Microseconds, without a time zone.
    Timestamp,
    /// Microseconds since the UNIX epoch.
    Timestamptz,
    /// Text.
    String,
    /// Bytes.
    Binary,
    /// List of elements of one type.
    List(Box<Type>),
    /// Map from keys, which are never null, to values.
    Map(Box<Type>, Box<Type>),
    /// Struct with these fields.
    Struct(Vec<(String, Type)>),
}

impl Type {
    /// Returns the type of a list with these elements.
    pub fn list(of: Self) -> Self {
        Self::List(Box::new(of))
    }

    /// Returns the type of a map with these keys and values.
    pub fn map(keys: Self, values: Self) -> Self {
        Self::Map(Box::new(keys), Box::new(values))
    }

    /// Returns the number of parts of the type that have ids: elements, keys, values and fields.
    pub fn parts(&self) -> u32 {
        match self {
            Self::List(of) => 1 + of.parts(),
            Self::Map(keys, values) => 2 + keys.parts() + values.parts(),
            Self::Struct(fields) => fields.iter().map(|(_, kind)| 1 + kind.parts()).sum(),
            _ => 0,
        }
    }

    /// Returns DuckDB's name of the type.
    pub fn sql(&self) -> String {
        match self {
            Self::Boolean => "BOOLEAN".to_owned(),
            Self::Long => "BIGINT".to_owned(),
            Self::Decimal(digits) => format!("DECIMAL({digits}, 0)"),
            Self::Timestamp => "TIMESTAMP".to_owned(),
            Self::Timestamptz => "TIMESTAMP WITH TIME ZONE".to_owned(),
            Self::String => "VARCHAR".to_owned(),
            Self::Binary => "BLOB".to_owned(),
            Self::List(of) => format!("{}[]", of.sql()),
            Self::Map(keys, values) => format!("MAP({}, {})", keys.sql(), values.sql()),
            Self::Struct(fields) => {
                let field = |(name, kind): &(String, Self)| {
                    format!("\"{}\" {}", name.replace('"', "\"\""), kind.sql())
                };
                format!("STRUCT({})", fields.iter().map(field).collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// Returns the type in Iceberg's JSON (table specification, appendix C). `id` is that of the column or
    /// part; those of its parts follow it, and it is the last one given afterwards.
    pub(crate) fn json(&self, id: &mut u32) -> Value {
        match self {
            Self::Boolean => json!("boolean"),
            Self::Long => json!("long"),
            Self::Decimal(digits) => json!(format!("decimal({digits},0)")),
            Self::Timestamp => json!("timestamp"),
            Self::Timestamptz => json!("timestamptz"),
            Self::String => json!("string"),
            Self::Binary => json!("binary"),
            Self::List(of) => {
                let own = next(id);
                let element = of.json(id);
                json!({"type": "list", "element-id": own, "element-required": false, "element": element})
            }
            Self::Map(keys, values) => {
                let (key_id, key) = (next(id), keys.json(id));
                let (value_id, value) = (next(id), values.json(id));
                json!({"type": "map", "key-id": key_id, "key": key,
                       "value-id": value_id, "value-required": false, "value": value})
            }
            Self::Struct(fields) => {
                let field = |(name, kind): &(String, Self)| {
                    let own = next(id);
                    json!({"id": own, "name": name, "required": false, "type": kind.json(id)})
                };
                json!({"type": "struct", "fields": fields.iter().map(field).collect::<Vec<_>>()})
            }
        }
    }

    /// Returns the names of the parts with their ids (table specification, *Column Projection*), counted
    /// as in [`Self::json`].
    pub(crate) fn name_mapping(&self, id: &mut u32) -> Vec<Value> {
        let mut part = |name: &str, kind: &Self| {
            let own = next(id);
            mapped(own, &[name], kind.name_mapping(id))
        };
        match self {
            Self::List(of) => vec![part("element", of)],
            Self::Map(keys, values) => vec![part("key", keys), part("value", values)],
            Self::Struct(fields) => fields.iter().map(|(name, kind)| part(name, kind)).collect(),
            _ => Vec::new(),
        }
    }
}

/// Returns an entry of a name mapping.
pub(crate) fn mapped(id: u32, names: &[&str], parts: Vec<Value>) -> Value {
    let mut entry = json!({"field-id": id, "names": names});
    if !parts.is_empty() {
        entry["fields"] = Value::Array(parts);
    }
    entry
}

fn next(id: &mut u32) -> u32 {
    *id += 1;
    *id
}
