//! Which columns a table has and had, and the ids that they have in its files. A column is known by its
//! name, its type and what it means; it keeps its id for ever, and no id is given to another one. So a
//! reader that goes by ids, as Iceberg's do, never takes a column for another.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// What a table is to readers that know it by numbers and not by names.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TableIdentity {
    /// UUID of the table. It stays when its rows are written anew.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uuid: String,
    /// The greatest id that a column or a part of one was given.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub last_column_id: u32,
    /// Every column that the table has or had, in the order of ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<ExportedField>,
}

/// A column with its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportedField {
    /// Id of the column. Its elements, keys, values and fields have the ids that follow, in the order of
    /// the schema.
    pub id: u32,
    /// Name of the column.
    pub name: String,
    /// Arrow type of the column.
    #[serde(rename = "type")]
    pub kind: String,
    /// DuckDB's name of the type.
    pub sql_type: String,
    /// Name of the column of which this one has the digits; `None` for any other column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact_of: Option<String>,
    /// Name of the column in the files of earlier versions, if it is another one there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier_name: Option<String>,
    /// Whether the table does not have the column any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dropped: bool,
}

impl ExportedField {
    fn is(&self, field: &Field, exact_of: Option<&str>) -> bool {
        self.name == *field.name()
            && self.exact_of.as_deref() == exact_of
            && self.kind == field.data_type().to_string()
    }
}

impl TableIdentity {
    /// Creates the identity of a table that these texts distinguish from all others.
    pub(super) fn new(distinguished_by: &[&str]) -> Self {
        Self { uuid: uuid(distinguished_by), ..Self::default() }
    }

    /// Returns the columns that the table has.
    pub fn current(&self) -> impl Iterator<Item = &ExportedField> {
        self.fields.iter().filter(|field| !field.dropped)
    }

    /// Makes these the columns of the table. New ones get ids; those of which `exact_of` names a column
    /// have its digits.
    pub(super) fn set<'a>(
        &mut self,
        schema: &'a Schema,
        exact_of: impl Fn(&'a str) -> Option<&'a str>,
    ) {
        self.fields.iter_mut().for_each(|field| field.dropped = true);
        for field in schema.fields() {
            let exact_of = exact_of(field.name());
            match self.fields.iter_mut().find(|known| known.is(field, exact_of)) {
                Some(known) => known.dropped = false,
                None => self.add(field, exact_of, None),
            }
        }
    }

    /// Gives ids to the columns of files that an earlier version has written, given the columns of the
    /// table now; `None` when the table has a column no more, or with another type. Such a version wrote
    /// a column of 128-bit integers as text; that is now the column with the digits.
    pub(super) fn of_earlier<'a>(
        mut self,
        columns: &[(String, String)],
        schema: &'a Schema,
        exact_of: impl Fn(&'a str) -> Option<&'a str>,
    ) -> Option<Self> {
        let text = DataType::Utf8.to_string();
        for (name, kind) in columns {
            let digits = schema.fields().iter().find(|it| exact_of(it.name()) == Some(&**name));
            if let Some(digits) = digits.filter(|_| *kind == text) {
                self.add(digits, Some(name), Some(name));
                continue;
            }
            let same = |it: &&FieldRef| it.name() == name && it.data_type().to_string() == *kind;
            let field = schema.fields().iter().find(same)?;
            self.add(field, exact_of(field.name()), None);
        }
        Some(self)
    }

    fn add(&mut self, field: &Field, exact_of: Option<&str>, earlier_name: Option<&str>) {
        let id = self.last_column_id + 1;
        self.last_column_id = id + parts(field.data_type());
        self.fields.push(ExportedField {
            id,
            name: field.name().clone(),
            kind: field.data_type().to_string(),
            sql_type: sql_type(field.data_type()),
            exact_of: exact_of.map(str::to_owned),
            earlier_name: earlier_name.map(str::to_owned),
            dropped: false,
        });
    }

    /// Returns whether rows with the columns `now` can be added to the files: the table still has each of
    /// its columns, and the digits of a column are in all files that have the column as a number.
    pub(super) fn can_become(&self, now: &Self) -> bool {
        let has = |of: &Self, name: &str, exact_of: Option<&str>, kind: &str| {
            of.current()
                .any(|it| it.name == name && it.exact_of.as_deref() == exact_of && it.kind == kind)
        };
        let stays =
            |field: &ExportedField| has(now, &field.name, field.exact_of.as_deref(), &field.kind);
        let digits_are_there = |digits: &ExportedField| {
            let Some(of) = digits.exact_of.as_deref() else { return true };
            let mut numbers = now.current().filter(|it| it.name == of && it.exact_of.is_none());
            let is_old = numbers.any(|it| has(self, of, None, &it.kind));
            !is_old || has(self, &digits.name, Some(of), &digits.kind)
        };
        self.current().all(stays) && now.current().all(digits_are_there)
    }

    /// Returns the schema with the ids of its columns, as files have it.
    pub(super) fn numbered(&self, schema: &Schema) -> Schema {
        let fields = schema.fields().iter().map(|field| {
            match self.current().find(|known| known.name == *field.name()) {
                Some(known) => {
                    let mut id = known.id;
                    Arc::new(numbered(field, &mut id))
                }
                None => Arc::clone(field),
            }
        });
        Schema::new(fields.collect::<Vec<_>>())
    }
}

/// Returns a field with this id, and its parts with those that follow.
fn numbered(field: &Field, id: &mut u32) -> Field {
    let own = HashMap::from([(PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_string())]);
    *id += 1;
    let kind = match field.data_type() {
        DataType::List(of) => DataType::List(Arc::new(numbered(of, id))),
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
    fields.iter().map(|field| Arc::new(numbered(field, id))).collect()
}

/// Returns the number of parts of a type that have ids.
fn parts(kind: &DataType) -> u32 {
    match kind {
        DataType::List(of) => 1 + parts(of.data_type()),
        DataType::Struct(fields) => fields.iter().map(|field| 1 + parts(field.data_type())).sum(),
        DataType::Map(entries, _) => parts(entries.data_type()),
        _ => 0,
    }
}

/// Returns the type that DuckDB gives a column of a Parquet file with this Arrow type.
fn sql_type(kind: &DataType) -> String {
    match kind {
        DataType::Boolean => "BOOLEAN".to_owned(),
        DataType::Int64 => "BIGINT".to_owned(),
        DataType::Decimal128(digits, scale) => format!("DECIMAL({digits}, {scale})"),
        DataType::Timestamp(_, Some(_)) => "TIMESTAMP WITH TIME ZONE".to_owned(),
        DataType::Timestamp(_, None) => "TIMESTAMP".to_owned(),
        DataType::Binary => "BLOB".to_owned(),
        DataType::List(of) => format!("{}[]", sql_type(of.data_type())),
        DataType::Struct(fields) => {
            let field = |field: &FieldRef| {
                format!("{} {}", quoted(field.name()), sql_type(field.data_type()))
            };
            format!("STRUCT({})", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(pair) => {
                let pair = pair.iter().map(|part| sql_type(part.data_type()));
                format!("MAP({})", pair.collect::<Vec<_>>().join(", "))
            }
            _ => "VARCHAR".to_owned(),
        },
        _ => "VARCHAR".to_owned(),
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

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(columns: &[(&str, DataType)]) -> Schema {
        let field = |(name, kind): &(&str, DataType)| Field::new(*name, kind.clone(), true);
        Schema::new(columns.iter().map(field).collect::<Vec<_>>())
    }

    fn decimal() -> DataType {
        DataType::Decimal128(38, 0)
    }

    /// Columns of 128-bit integers are those that have digits.
    fn exact_of(name: &str) -> Option<&str> {
        name.strip_suffix("_exact")
    }

    fn ids(table: &TableIdentity) -> Vec<(&str, u32)> {
        table.current().map(|field| (&*field.name, field.id)).collect()
    }

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

    #[test]
    fn an_id_is_never_given_to_another_column() {
        let mut table = TableIdentity::new(&["a network", "events"]);
        let list = DataType::new_list(DataType::Utf8, true);
        table.set(&schema(&[("a", DataType::Int64), ("l", list), ("b", DataType::Utf8)]), exact_of);
        assert_eq!((ids(&table), table.last_column_id), (vec![("a", 1), ("l", 2), ("b", 4)], 4));
        let before = table.clone();
        // Another type is another column; what is there again has its id.
        table.set(&schema(&[("a", DataType::Utf8), ("b", DataType::Utf8)]), exact_of);
        assert_eq!(ids(&table), [("b", 4), ("a", 5)]);
        assert!(!before.can_become(&table));
        table.set(&schema(&[("a", DataType::Int64), ("c", DataType::Utf8)]), exact_of);
        assert_eq!((ids(&table), table.last_column_id), (vec![("a", 1), ("c", 6)], 6));
        // Digits are another column than one that the program has.
        let digits = [("a", decimal()), ("a_exact", DataType::Utf8)];
        table.set(&schema(&digits), exact_of);
        assert_eq!(ids(&table), [("a", 7), ("a_exact", 8)]);
        let before = table.clone();
        table.set(&schema(&digits), |_| None);
        assert_eq!(ids(&table), [("a", 7), ("a_exact", 9)]);
        assert!(!before.can_become(&table) && !table.can_become(&before));
        assert_eq!(table.uuid, before.uuid);
    }

    #[test]
    fn parts_of_a_column_have_the_ids_that_follow() {
        let entries = Fields::from(vec![
            Field::new("keys", DataType::Utf8, false),
            Field::new("values", DataType::new_list(DataType::Int64, true), true),
        ]);
        let entries = Field::new("entries", DataType::Struct(entries), false);
        let map = DataType::Map(Arc::new(entries), false);
        let fields =
            Fields::from(vec![Field::new("x", map, true), Field::new("y", decimal(), true)]);
        let schema = schema(&[("s", DataType::Struct(fields)), ("t", DataType::Utf8)]);
        let mut table = TableIdentity::default();
        table.set(&schema, |_| None);
        assert_eq!(ids(&table), [("s", 1), ("t", 7)]);
        let sql = r#"STRUCT("x" MAP(VARCHAR, BIGINT[]), "y" DECIMAL(38, 0))"#;
        assert_eq!(table.fields[0].sql_type, sql);
        let numbered = table.numbered(&schema);
        let mut found = Vec::new();
        numbered.fields().iter().for_each(|field| add_ids(field, &mut found));
        let found: Vec<_> = found.iter().map(|(name, id)| (&**name, &**id)).collect();
        let expected = [
            ("s", "1"),
            ("x", "2"),
            ("entries", ""),
            ("keys", "3"),
            ("values", "4"),
            ("item", "5"),
            ("y", "6"),
            ("t", "7"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn text_of_earlier_files_is_the_digits() {
        let now = schema(&[
            ("id", DataType::Utf8),
            ("v", decimal()),
            ("u", decimal()),
            ("v_exact", DataType::Utf8),
        ]);
        let earlier = |columns: &[(&str, DataType)]| {
            let columns: Vec<_> =
                columns.iter().map(|(name, kind)| ((*name).to_owned(), kind.to_string())).collect();
            TableIdentity::default().of_earlier(&columns, &now, exact_of)
        };
        let mut table =
            earlier(&[("id", DataType::Utf8), ("v", DataType::Utf8), ("u", decimal())]).unwrap();
        assert_eq!(ids(&table), [("id", 1), ("v_exact", 2), ("u", 3)]);
        assert_eq!(table.fields[1].earlier_name.as_deref(), Some("v"));
        let before = table.clone();
        table.set(&now, exact_of);
        assert_eq!(ids(&table), [("id", 1), ("v_exact", 2), ("u", 3), ("v", 4)]);
        assert!(before.can_become(&table));
        assert!(earlier(&[("gone", DataType::Utf8)]).is_none());
        // Such a number had no digits yet.
        let before = earlier(&[("id", DataType::Utf8), ("v", decimal())]).unwrap();
        assert!(!before.can_become(&table));
    }

    #[test]
    fn tables_have_uuids_of_their_own() {
        let of = |texts: &[&str]| TableIdentity::new(texts).uuid;
        let one = of(&["a", "bc"]);
        assert_eq!(one, of(&["a", "bc"]));
        assert!(one != of(&["ab", "c"]) && one.len() == 36 && one.as_bytes()[14] == b'8', "{one}");
    }
}
