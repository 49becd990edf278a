//! Types of columns: those of Iceberg (table specification, *Schemas and Data Types*) that an export has,
//! and the type of each column of SQL in them. Every engine reads these.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::schema::Column;

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

/// Type of a column in SQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SqlType {
    /// `BOOLEAN`.
    Boolean,
    /// `INTEGER`, `UINTEGER` or `BIGINT`.
    Int64,
    /// `UBIGINT`.
    UInt64,
    /// `HUGEINT` or `UHUGEINT`.
    Int128,
    /// Digits of an integer that is wider than any SQL integer, of 256 bits.
    Digits,
    /// `VARCHAR` or `JSON`.
    Text,
    /// `BLOB`.
    Bytes,
    /// `TIMESTAMP` of a ledger, in UTC.
    Time,
    /// List of elements of one type.
    List(Box<SqlType>),
    /// Map from keys to values.
    Map(Box<SqlType>, Box<SqlType>),
    /// Struct with these fields.
    Struct(Vec<(String, SqlType)>),
}

/// Digits of the widest decimal that all engines read. It does not hold all integers of 128 bits, which
/// have up to 39.
const WIDEST: u8 = 38;
/// End of the name of the column with the digits of a column of 128-bit integers.
const EXACT: &str = "_exact";

impl SqlType {
    /// Returns the type of the column in the lake. Inside of lists, maps and structs, integers of 128 bits
    /// are texts; a column of them is two ([`columns`]).
    pub fn portable(&self) -> Type {
        match self {
            Self::Boolean => Type::Boolean,
            Self::Int64 => Type::Long,
            Self::UInt64 => Type::Decimal(WIDEST),
            Self::Int128 | Self::Digits | Self::Text => Type::String,
            Self::Bytes => Type::Binary,
            Self::Time => Type::Timestamptz,
            Self::List(of) => Type::list(of.portable()),
            Self::Map(keys, values) => Type::map(keys.portable(), values.portable()),
            Self::Struct(fields) => {
                let field = |(name, kind): &(String, Self)| (name.clone(), kind.portable());
                Type::Struct(fields.iter().map(field).collect())
            }
        }
    }
}

/// Returns the columns of a table in the lake. A column of 128-bit integers is a decimal, null where a value
/// has 39 digits, and another column, last in the table, has the digits as text: `NAME_exact`, with as many
/// `_` at its end as make it differ from all others. `folded` makes names equal that SQL takes for equal.
pub fn columns(sql: &[(String, SqlType)], folded: impl Fn(&str) -> String) -> Vec<Column> {
    let mut taken: Vec<String> = sql.iter().map(|(name, _)| folded(name)).collect();
    let (mut columns, mut digits) = (Vec::new(), Vec::new());
    for (name, kind) in sql {
        if *kind != SqlType::Int128 {
            columns.push(Column::new(name, kind.portable()));
            continue;
        }
        let mut exact = format!("{name}{EXACT}");
        while taken.contains(&folded(&exact)) {
            exact.push('_');
        }
        taken.push(folded(&exact));
        columns.push(Column::new(name, Type::Decimal(WIDEST)));
        digits.push(Column { exact_of: Some(name.clone()), ..Column::new(&exact, Type::String) });
    }
    columns.append(&mut digits);
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(columns: &[(&str, SqlType)]) -> Vec<(String, SqlType)> {
        columns.iter().map(|(name, kind)| ((*name).to_owned(), kind.clone())).collect()
    }

    #[test]
    fn each_sql_type_has_one_that_every_engine_reads() {
        let fields = named(&[("a", SqlType::Int128), ("b", SqlType::UInt64)]);
        for (sql, portable) in [
            (SqlType::Boolean, "BOOLEAN"),
            (SqlType::Int64, "BIGINT"),
            (SqlType::UInt64, "DECIMAL(38, 0)"),
            (SqlType::Digits, "VARCHAR"),
            (SqlType::Text, "VARCHAR"),
            (SqlType::Bytes, "BLOB"),
            (SqlType::Time, "TIMESTAMP WITH TIME ZONE"),
            (SqlType::List(Box::new(SqlType::Int128)), "VARCHAR[]"),
            (
                SqlType::Map(Box::new(SqlType::Text), Box::new(SqlType::Digits)),
                "MAP(VARCHAR, VARCHAR)",
            ),
            (SqlType::Struct(fields), r#"STRUCT("a" VARCHAR, "b" DECIMAL(38, 0))"#),
        ] {
            assert_eq!(sql.portable().sql(), portable, "{sql:?}");
        }
    }

    #[test]
    fn integers_of_128_bits_are_numbers_and_digits() {
        let names = |sql: &[(&str, SqlType)]| -> Vec<(String, String, Option<String>)> {
            let columns = columns(&named(sql), str::to_lowercase);
            columns.into_iter().map(|it| (it.name, it.kind.sql(), it.exact_of)).collect()
        };
        let row = |name: &str, kind: &str, of: Option<&str>| {
            (name.to_owned(), kind.to_owned(), of.map(str::to_owned))
        };
        let sql = [("v", SqlType::Int128), ("t", SqlType::Text), ("V_Exact", SqlType::Int128)];
        assert_eq!(
            names(&sql),
            [
                row("v", "DECIMAL(38, 0)", None),
                row("t", "VARCHAR", None),
                row("V_Exact", "DECIMAL(38, 0)", None),
                row("v_exact_", "VARCHAR", Some("v")),
                row("V_Exact_exact", "VARCHAR", Some("V_Exact")),
            ]
        );
    }
}
