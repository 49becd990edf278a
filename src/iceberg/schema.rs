//! Which columns a table has and had, and their ids. A column is known by its name, its type and what it
//! means; it keeps its id for ever, and no id is given to another one. So a reader that goes by ids never
//! takes a column for another (Iceberg table specification, *Schema Evolution* and *Column Projection*).

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::types::{Type, mapped};

/// A column as the table has it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Name of the column.
    pub name: String,
    /// Type of the column.
    pub kind: Type,
    /// What the writer of the files calls the type. A column with another one is another column.
    pub text: String,
    /// Name of the column of which this one has the digits; `None` for any other column.
    pub exact_of: Option<String>,
}

impl Column {
    /// Creates a column of which the writer calls the type as SQL does.
    pub fn new(name: &str, kind: Type) -> Self {
        Self { name: name.to_owned(), text: kind.sql(), kind, exact_of: None }
    }
}

/// What a table is to readers that know it by numbers and not by names.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Columns {
    /// UUID of the table. It stays when its rows are written anew.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uuid: String,
    /// The greatest id that a column or a part of one was given.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub last_column_id: u32,
    /// Every column that the table has or had, in the order of ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<KnownColumn>,
}

/// A column that a table has or had, with its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownColumn {
    /// Id of the column. Its elements, keys, values and fields have the ids that follow, in the order of
    /// the schema.
    pub id: u32,
    /// Name of the column.
    pub name: String,
    /// What the writer of the files calls the type.
    #[serde(rename = "type")]
    pub text: String,
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

impl KnownColumn {
    /// Returns the column as a table with it has it. A type that no version has written is text.
    pub fn column(&self) -> Column {
        Column {
            name: self.name.clone(),
            kind: Type::of_sql(&self.sql_type).unwrap_or(Type::String),
            text: self.text.clone(),
            exact_of: self.exact_of.clone(),
        }
    }

    fn is(&self, column: &Column) -> bool {
        self.name == column.name && self.exact_of == column.exact_of && self.text == column.text
    }
}

impl Columns {
    /// Returns the columns that the table has.
    pub fn current(&self) -> impl Iterator<Item = &KnownColumn> {
        self.fields.iter().filter(|field| !field.dropped)
    }

    /// Makes these the columns of the table. Those that it had before keep their ids, new ones get ids.
    pub fn set(&mut self, columns: &[Column]) {
        self.fields.iter_mut().for_each(|field| field.dropped = true);
        for column in columns {
            match self.fields.iter_mut().find(|known| known.is(column)) {
                Some(known) => known.dropped = false,
                None => self.add(column, None),
            }
        }
    }

    /// Gives ids to the columns of files that an earlier version has written, given their names and what
    /// it called their types, and the columns of the table `now`; `None` when the table has a column no
    /// more, or with another type. Such a version wrote a column of 128-bit integers as `text`; that is now
    /// the column with the digits.
    pub fn of_earlier(
        mut self,
        columns: &[(String, String)],
        now: &[Column],
        text: &str,
    ) -> Option<Self> {
        for (name, kind) in columns {
            let digits = now.iter().find(|it| it.exact_of.as_ref() == Some(name));
            match digits.filter(|_| kind == text) {
                Some(digits) => self.add(digits, Some(name)),
                None => {
                    let same = |it: &&Column| it.name == *name && it.text == *kind;
                    self.add(now.iter().find(same)?, None);
                }
            }
        }
        Some(self)
    }

    fn add(&mut self, column: &Column, earlier_name: Option<&str>) {
        let id = self.last_column_id + 1;
        self.last_column_id = id + column.kind.parts();
        self.fields.push(KnownColumn {
            id,
            name: column.name.clone(),
            text: column.text.clone(),
            sql_type: column.kind.sql(),
            exact_of: column.exact_of.clone(),
            earlier_name: earlier_name.map(str::to_owned),
            dropped: false,
        });
    }

    /// Returns whether rows with the columns `now` can be added to the files: the table still has each of
    /// its columns, and the digits of a column are in all files that have the column as a number.
    pub fn can_become(&self, now: &Self) -> bool {
        let has = |of: &Self, name: &str, exact_of: Option<&str>, text: &str| {
            of.current()
                .any(|it| it.name == name && it.exact_of.as_deref() == exact_of && it.text == text)
        };
        let stays =
            |field: &KnownColumn| has(now, &field.name, field.exact_of.as_deref(), &field.text);
        let digits_are_there = |digits: &KnownColumn| {
            let Some(of) = digits.exact_of.as_deref() else { return true };
            let mut numbers = now.current().filter(|it| it.name == of && it.exact_of.is_none());
            let is_old = numbers.any(|it| has(self, of, None, &it.text));
            !is_old || has(self, &digits.name, Some(of), &digits.text)
        };
        self.current().all(stays) && now.current().all(digits_are_there)
    }

    /// Returns the fields of a schema with these columns, which [`Self::set`] has made those of the table.
    /// A column that it does not know has no field.
    pub fn fields_of(&self, columns: &[Column]) -> Vec<Field> {
        let field = |column: &Column| {
            let known = self.fields.iter().find(|known| known.is(column))?;
            Some(Field { id: known.id, name: column.name.clone(), kind: column.kind.clone() })
        };
        columns.iter().filter_map(field).collect()
    }

    /// Returns the property `schema.name-mapping.default` for these fields: which column has which id in
    /// files without ids, which earlier versions have written (table specification, *Name Mapping
    /// Serialization*).
    pub(crate) fn name_mapping(&self, fields: &[Field]) -> Value {
        let earlier = |id: u32| {
            let known = self.fields.iter().find(|known| known.id == id);
            known.and_then(|known| known.earlier_name.as_deref())
        };
        let is_taken = |name: &str| fields.iter().any(|other| earlier(other.id) == Some(name));
        let entry = |field: &Field| {
            let names = match earlier(field.id) {
                Some(name) => vec![name],
                // The text with this name is that of the column with the digits.
                None if is_taken(&field.name) => Vec::new(),
                None => vec![field.name.as_str()],
            };
            mapped(field.id, &names, field.kind.name_mapping(&mut field.id.clone()))
        };
        Value::Array(fields.iter().map(entry).collect())
    }
}

/// A column of a schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// Id of the column; those of its parts follow it.
    pub id: u32,
    /// Name of the column.
    pub name: String,
    /// Type of the column.
    #[serde(rename = "type")]
    pub kind: Type,
}

/// Columns that a table has or had at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    /// Id of the schema in its table.
    pub id: u32,
    /// Its columns, in their order.
    pub fields: Vec<Field>,
}

impl Schema {
    /// Returns the schema in Iceberg's JSON (table specification, appendix C). Files may lack columns that
    /// the table gained after they were written, so none is required.
    pub(crate) fn json(&self) -> Value {
        let field = |field: &Field| {
            let kind = field.kind.json(&mut field.id.clone());
            json!({"id": field.id, "name": field.name, "required": false, "type": kind})
        };
        let fields: Vec<Value> = self.fields.iter().map(field).collect();
        json!({"type": "struct", "schema-id": self.id, "fields": fields})
    }

    /// Returns the id of the column of this name and type.
    pub(crate) fn id_of(&self, name: Option<&str>, kind: &Type) -> Option<u32> {
        let field = self.fields.iter().find(|it| Some(&*it.name) == name && it.kind == *kind);
        field.map(|field| field.id)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBER: Type = Type::Decimal(38);

    /// Columns of 128-bit integers are those that have digits.
    fn columns(columns: &[(&str, Type)]) -> Vec<Column> {
        let column = |(name, kind): &(&str, Type)| {
            let exact_of = name.strip_suffix("_exact").map(str::to_owned);
            Column { exact_of, ..Column::new(name, kind.clone()) }
        };
        columns.iter().map(column).collect()
    }

    fn ids(table: &Columns) -> Vec<(&str, u32)> {
        table.current().map(|field| (&*field.name, field.id)).collect()
    }

    #[test]
    fn an_id_is_never_given_to_another_column() {
        let mut table = Columns::default();
        let list = Type::list(Type::String);
        table.set(&columns(&[("a", Type::Long), ("l", list), ("b", Type::String)]));
        assert_eq!((ids(&table), table.last_column_id), (vec![("a", 1), ("l", 2), ("b", 4)], 4));
        let before = table.clone();
        // Another type is another column; what is there again has its id.
        table.set(&columns(&[("a", Type::String), ("b", Type::String)]));
        assert_eq!(ids(&table), [("b", 4), ("a", 5)]);
        assert!(!before.can_become(&table));
        table.set(&columns(&[("a", Type::Long), ("c", Type::String)]));
        assert_eq!((ids(&table), table.last_column_id), (vec![("a", 1), ("c", 6)], 6));
        // Digits are another column than one that the program has.
        let digits = columns(&[("a", NUMBER), ("a_exact", Type::String)]);
        table.set(&digits);
        assert_eq!(ids(&table), [("a", 7), ("a_exact", 8)]);
        let before = table.clone();
        let own: Vec<_> = digits.into_iter().map(|it| Column { exact_of: None, ..it }).collect();
        table.set(&own);
        assert_eq!(ids(&table), [("a", 7), ("a_exact", 9)]);
        assert!(!before.can_become(&table) && !table.can_become(&before));
    }

    #[test]
    fn parts_of_a_column_have_the_ids_that_follow() {
        let map = Type::map(Type::String, Type::list(Type::Long));
        let fields = vec![("x".to_owned(), map), ("y".to_owned(), NUMBER)];
        let now = columns(&[("s", Type::Struct(fields)), ("t", Type::String)]);
        let mut table = Columns::default();
        table.set(&now);
        assert_eq!(ids(&table), [("s", 1), ("t", 7)]);
        let schema = Schema { id: 3, fields: table.fields_of(&now) };
        let value_list =
            json!({"type": "list", "element-id": 5, "element-required": false, "element": "long"});
        let map = json!({"type": "map", "key-id": 3, "key": "string",
                         "value-id": 4, "value-required": false, "value": value_list});
        let of_struct = json!({"type": "struct", "fields": [
            {"id": 2, "name": "x", "required": false, "type": map},
            {"id": 6, "name": "y", "required": false, "type": "decimal(38,0)"},
        ]});
        let expected = json!({"type": "struct", "schema-id": 3, "fields": [
            {"id": 1, "name": "s", "required": false, "type": of_struct},
            {"id": 7, "name": "t", "required": false, "type": "string"},
        ]});
        assert_eq!(schema.json(), expected);
        let expected = json!([
            {"field-id": 1, "names": ["s"], "fields": [
                {"field-id": 2, "names": ["x"], "fields": [
                    {"field-id": 3, "names": ["key"]},
                    {"field-id": 4, "names": ["value"], "fields": [
                        {"field-id": 5, "names": ["element"]}]}]},
                {"field-id": 6, "names": ["y"]}]},
            {"field-id": 7, "names": ["t"]},
        ]);
        assert_eq!(table.name_mapping(&schema.fields), expected);
    }

    #[test]
    fn text_of_earlier_files_is_the_digits() {
        let now = columns(&[
            ("id", Type::String),
            ("v", NUMBER),
            ("u", NUMBER),
            ("v_exact", Type::String),
        ]);
        let text = Type::String.sql();
        let earlier = |columns: &[(&str, Type)]| {
            let columns: Vec<_> =
                columns.iter().map(|(name, kind)| ((*name).to_owned(), kind.sql())).collect();
            Columns::default().of_earlier(&columns, &now, &text)
        };
        let mut table =
            earlier(&[("id", Type::String), ("v", Type::String), ("u", NUMBER)]).unwrap();
        assert_eq!(ids(&table), [("id", 1), ("v_exact", 2), ("u", 3)]);
        let before = table.clone();
        table.set(&now);
        assert_eq!(ids(&table), [("id", 1), ("v_exact", 2), ("u", 3), ("v", 4)]);
        assert!(before.can_become(&table));
        let expected = json!([
            {"field-id": 1, "names": ["id"]},
            {"field-id": 4, "names": []},
            {"field-id": 3, "names": ["u"]},
            {"field-id": 2, "names": ["v"]},
        ]);
        assert_eq!(table.name_mapping(&table.fields_of(&now)), expected);
        assert!(earlier(&[("gone", Type::String)]).is_none());
        // Such a number had no digits yet.
        let before = earlier(&[("id", Type::String), ("v", NUMBER)]).unwrap();
        assert!(!before.can_become(&table));
    }
}
