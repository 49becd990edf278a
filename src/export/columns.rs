//! Columns of tables between Arrow, in which rows are, and [`orrery_iceberg`], which gives them ids. A reader
//! that goes by ids never takes a column for another: a column is known by its name, its type and what it
//! means.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, TimeUnit};
use orrery_iceberg::{Column, Columns, Type};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use sha2::{Digest, Sha256};

/// Name of the elements of a list, the entries of a map, and their keys and values, as the Parquet format
/// prescribes them.
const ELEMENT: &str = "element";
const ENTRIES: &str = "key_value";
const KEY: &str = "key";
const VALUE: &str = "value";

/// Creates the columns of a table that these texts distinguish from all others, without any yet.
pub(super) fn of_table(distinguished_by: &[&str]) -> Columns {
    Columns { uuid: uuid(distinguished_by), ..Columns::default() }
}

/// Returns the columns of this schema; `exact_of` names the column of which one has the digits.
pub(super) fn columns_of<'a>(
    schema: &'a Schema,
    exact_of: impl Fn(&'a str) -> Option<&'a str>,
) -> Vec<Column> {
    let column = |field: &'a FieldRef| Column {
        name: field.name().clone(),
        kind: type_of(field.data_type()),
        text: field.data_type().to_string(),
        exact_of: exact_of(field.name()).map(str::to_owned),
    };
    schema.fields().iter().map(column).collect()
}

/// Returns the schema with the ids of its columns, as files have it.
pub(super) fn numbered(columns: &Columns, schema: &Schema) -> Schema {
    let fields = schema.fields().iter().map(|field| {
        match columns.current().find(|known| known.name == *field.name()) {
            Some(known) => {
                let mut id = known.id;
                Arc::new(numbered_field(field, &mut id))
            }
            None => Arc::clone(field),
        }
    });
    Schema::new(fields.collect::<Vec<_>>())
}

/// Returns the schema with ids of a table with these columns, in this order.
pub(super) fn schema_of(columns: &Columns, now: &[Column]) -> Schema {
    let field = |column: &Column| Field::new(&column.name, arrow_type(&column.kind), true);
    numbered(columns, &Schema::new(now.iter().map(field).collect::<Vec<_>>()))
}

/// Returns a field with this id, and its parts with those that follow.
fn numbered_field(field: &Field, id: &mut u32) -> Field {
    let own = HashMap::from([(PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_string())]);
    *id += 1;
    let kind = match field.data_type() {
        DataType::List(of) => DataType::List(Arc::new(numbered_field(of, id))),
        DataType::Struct(fields) => DataType::Struct(all_numbered(fields, id)),
        DataType::Map(entries, sorted) => match entries.data_type() {
            DataType::Struct(pair) => {
                let pair = DataType::Struct(all_numbered(pair, id));
                // The entries themselves have no id.
                DataType::Map(Arc::new(entries.as_ref().clone().with_data_type(pair)), *sorted)
            }
            _ => field.data_type().clone(),
        },
        other => other.clone(),
    };
    field.clone().with_data_type(kind).with_metadata(own)
}

fn all_numbered(fields: &Fields, id: &mut u32) -> Fields {
    fields.iter().map(|field| Arc::new(numbered_field(field, id))).collect()
}

/// Returns the type of a column of a Parquet file with this Arrow type.
fn type_of(kind: &DataType) -> Type {
    match kind {
        DataType::Boolean => Type::Boolean,
        DataType::Int64 => Type::Long,
        DataType::Decimal128(digits, _) => Type::Decimal(*digits),
        DataType::Timestamp(_, Some(_)) => Type::Timestamptz,
        DataType::Timestamp(_, None) => Type::Timestamp,
        DataType::Binary => Type::Binary,
        DataType::List(of) => Type::list(type_of(of.data_type())),
        DataType::Struct(fields) => {
            let field = |field: &FieldRef| (field.name().clone(), type_of(field.data_type()));
            Type::Struct(fields.iter().map(field).collect())
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(pair) => match pair.iter().collect::<Vec<_>>()[..] {
                [keys, values] => Type::map(type_of(keys.data_type()), type_of(values.data_type())),
                _ => Type::String,
            },
            _ => Type::String,
        },
        _ => Type::String,
    }
}

/// Returns the Arrow type of a column of this type.
fn arrow_type(kind: &Type) -> DataType {
    match kind {
        Type::Boolean => DataType::Boolean,
        Type::Long => DataType::Int64,
        Type::Decimal(digits) => DataType::Decimal128(*digits, 0),
        Type::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
        Type::Timestamptz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        Type::String => DataType::Utf8,
        Type::Binary => DataType::Binary,
        Type::List(of) => DataType::List(Arc::new(Field::new(ELEMENT, arrow_type(of), true))),
        Type::Map(keys, values) => {
            let pair = vec![
                Field::new(KEY, arrow_type(keys), false),
                Field::new(VALUE, arrow_type(values), true),
            ];
            let entries = Field::new(ENTRIES, DataType::Struct(pair.into()), false);
            DataType::Map(Arc::new(entries), false)
        }
        Type::Struct(fields) => {
            let field = |(name, kind): &(String, Type)| Field::new(name, arrow_type(kind), true);
            DataType::Struct(fields.iter().map(field).collect())
        }
    }
}

/// Quotes a name for SQL.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns a UUID (RFC 9562, version 8) that these texts determine: an export that was killed and
/// continued is that of one run.
fn uuid(texts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text);
    }
    let hash = hash.finalize();
    let mut bytes: [u8; 16] = std::array::from_fn(|at| hash[at]);
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let text = hex::encode(bytes);
    let parts = [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]];
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds the names and ids of a field and its parts.
    fn add_ids(field: &Field, found: &mut Vec<(String, String)>) {
        let id = field.metadata().get(PARQUET_FIELD_ID_META_KEY);
        found.push((field.name().clone(), id.cloned().unwrap_or_default()));
        match field.data_type() {
            DataType::List(of) | DataType::Map(of, _) => add_ids(of, found),
            DataType::Struct(fields) => fields.iter().for_each(|field| add_ids(field, found)),
            _ => {}
        }
    }

    fn schema() -> Schema {
        let entries = Fields::from(vec![
            Field::new("keys", DataType::Utf8, false),
            Field::new("values", DataType::new_list(DataType::Int64, true), true),
        ]);
        let entries = Field::new("entries", DataType::Struct(entries), false);
        let map = DataType::Map(Arc::new(entries), false);
        let number = DataType::Decimal128(38, 0);
        let fields = Fields::from(vec![Field::new("x", map, true), Field::new("y", number, true)]);
        let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        Schema::new(vec![
            Field::new("s", DataType::Struct(fields), true),
            Field::new("t", time, true),
        ])
    }

    #[test]
    fn parts_of_a_column_have_the_ids_that_follow() {
        let schema = schema();
        let mut table = Columns::default();
        table.set(&columns_of(&schema, |_| None));
        let ids: Vec<_> = table.current().map(|field| (&*field.name, field.id)).collect();
        assert_eq!(ids, [("s", 1), ("t", 7)]);
        let sql = r#"STRUCT("x" MAP(VARCHAR, BIGINT[]), "y" DECIMAL(38, 0))"#;
        assert_eq!(table.fields[0].sql_type, sql);
        let found = |schema: &Schema| {
            let mut found = Vec::new();
            schema.fields().iter().for_each(|field| add_ids(field, &mut found));
            found
        };
        let names = ["s", "x", "entries", "keys", "values", "item", "y", "t"];
        let ids = ["1", "2", "", "3", "4", "5", "6", "7"];
        let expected = names.iter().zip(ids).map(|(name, id)| ((*name).to_owned(), id.to_owned()));
        assert_eq!(found(&numbered(&table, &schema)), expected.collect::<Vec<_>>());
        // The schema that is made of the columns alone has the same ids and types.
        let now: Vec<_> = table.current().map(orrery_iceberg::KnownColumn::column).collect();
        assert_eq!(now, columns_of(&schema, |_| None));
        let made = schema_of(&table, &now);
        let ids: Vec<_> = found(&made).into_iter().map(|(_, id)| id).collect();
        assert_eq!(ids, ["1", "2", "", "3", "4", "5", "6", "7"]);
        let kinds = |schema: &Schema| columns_of(schema, |_| None).into_iter().map(|it| it.kind);
        assert!(kinds(&made).eq(kinds(&schema)));
    }

    #[test]
    fn tables_have_uuids_of_their_own() {
        let of = |texts: &[&str]| of_table(texts).uuid;
        let one = of(&["a", "bc"]);
        assert_eq!(one, of(&["a", "bc"]));
        assert!(one != of(&["ab", "c"]) && one.len() == 36 && one.as_bytes()[14] == b'8', "{one}");
    }
}
