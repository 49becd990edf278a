//! Formats rows that are not stored as JSON, as a query would return them.

use orrery_ledger::domain::Emit;
use serde_json::{Map, Value};
use stellar_xdr::{ScMap, ScMapEntry, ScVal};

use super::schema::TableSchema;
use super::types::{ColumnType, Field};
use super::values::{is_column, is_named, is_null, plain, tagged};

/// The largest integer that every reader of JSON keeps exact: 2^53 − 1 (RFC 8259, section 6).
const LARGEST_NUMBER: i128 = (1 << 53) - 1;

/// Returns the program's columns of a row. Values that do not fit their column are shown in the
/// tagged form (SEP-51).
pub fn row(table: &TableSchema, emit: &Emit) -> Value {
    fields(&table.columns, &emit.fields, is_column)
}

/// `is` tells whether an entry is the field of a name.
fn fields(fields: &[Field], map: &ScMap, is: impl Fn(&ScMapEntry, &str) -> bool) -> Value {
    let value = |field: &Field| {
        let entry = map.0.iter().find(|entry| is(entry, &field.name));
        entry.map_or(Value::Null, |entry| show(&field.kind, &entry.val))
    };
    let members = fields.iter().map(|field| (field.name.clone(), value(field)));
    Value::Object(members.collect())
}

fn show(kind: &ColumnType, value: &ScVal) -> Value {
    match (kind, value) {
        (_, value) if is_null(value) => Value::Null,
        (ColumnType::Boolean, ScVal::Bool(value)) => Value::Bool(*value),
        (
            ColumnType::UInt32
            | ColumnType::Int32
            | ColumnType::UInt64
            | ColumnType::Int64
            | ColumnType::UInt128
            | ColumnType::Int128,
            value,
        ) => number(plain(value)),
        (ColumnType::Text | ColumnType::Digits, value) => Value::String(plain(value)),
        (ColumnType::Bytes, ScVal::Bytes(bytes)) => Value::String(hex::encode(bytes.as_slice())),
        (ColumnType::List(of), ScVal::Vec(Some(values))) => {
            values.iter().map(|value| show(of, value)).collect()
        }
        (ColumnType::Map(_, of), ScVal::Map(Some(map))) => {
            let members = map.0.iter().map(|entry| (plain(&entry.key), show(of, &entry.val)));
            Value::Object(members.collect::<Map<_, _>>())
        }
        (ColumnType::Struct(of), ScVal::Map(Some(map))) => fields(of, map, is_named),
        (ColumnType::JsonText, value) => {
            let text = plain(value);
            serde_json::from_str(&text).unwrap_or(Value::String(text))
        }
        (_, value) => serde_json::from_str(&tagged(value)).unwrap_or(Value::Null),
    }
}

/// Converts decimal digits to a number if every JSON reader keeps it exact, otherwise to a string.
fn number(digits: String) -> Value {
    match digits.parse::<i128>() {
        Ok(number) if number.abs() <= LARGEST_NUMBER => match i64::try_from(number) {
            Ok(number) => number.into(),
            Err(_) => Value::String(digits),
        },
        _ => Value::String(digits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_53_bits_are_strings() {
        assert_eq!(number("9007199254740991".to_owned()), Value::from(9_007_199_254_740_991i64));
        assert_eq!(number("9007199254740992".to_owned()), Value::from("9007199254740992"));
        assert_eq!(number("-9007199254740992".to_owned()), Value::from("-9007199254740992"));
        assert_eq!(number(u128::MAX.to_string()), Value::from(u128::MAX.to_string()));
    }
}
