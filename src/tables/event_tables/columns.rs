//! Columns of tables of events, by their names as SQL folds them, and the types of observed values.

use std::collections::HashMap;

use stellar_xdr::ScVal;

use crate::names::folded;
use crate::types::{ColumnType, Field};
use crate::values::infer;

/// Maximum number of columns for the values of an event.
pub(super) const MOST_COLUMNS: usize = 100;
/// Maximum nesting of lists, maps and structs in a column that is not JSON.
pub(super) const DEEPEST: usize = 8;

/// Columns in order, found by their names.
#[derive(Debug, Clone, Default)]
pub(super) struct Columns {
    fields: Vec<Field>,
    /// Position of each name.
    by_name: HashMap<String, usize>,
}

impl Columns {
    /// Takes the columns in order, up to `most`.
    pub fn new(fields: &[Field], most: usize) -> Self {
        let mut columns = Self::default();
        columns.merge(fields, most);
        columns
    }

    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    pub fn get(&self, name: &str) -> Option<&Field> {
        self.by_name.get(&folded(name)).map(|at| &self.fields[*at])
    }

    /// Memory that the columns take, in bytes: an estimate.
    pub fn bytes(&self) -> usize {
        let column = |field: &Field| OF_COLUMN + field.name.len() + bytes_of(field);
        self.fields.iter().map(column).sum()
    }

    /// Whether each column that both have can hold the values of both.
    pub fn join(&self, others: &[Field]) -> bool {
        others.iter().all(|other| {
            self.get(&other.name).is_none_or(|own| own.kind.join(&other.kind).is_some())
        })
    }

    /// Adds columns behind the existing ones, as long as there are fewer than `most`. Common columns
    /// get a type that holds the values of both.
    pub fn merge(&mut self, others: &[Field], most: usize) {
        for other in others {
            let name = folded(&other.name);
            match self.by_name.get(&name) {
                Some(at) => {
                    let own = &mut self.fields[*at];
                    own.kind = joined(&own.kind, &other.kind);
                }
                None if self.fields.len() < most => {
                    self.by_name.insert(name, self.fields.len());
                    self.fields.push(other.clone());
                }
                None => {}
            }
        }
    }
}

/// Memory of a column's entry among the names, and of a part of a type, in bytes.
const OF_COLUMN: usize = 64;
const OF_PART: usize = 64;

/// Returns about how many bytes a field takes in memory or as JSON. The depth of types is limited.
pub(super) fn bytes_of(field: &Field) -> usize {
    field.name.len() + bytes_of_kind(&field.kind)
}

fn bytes_of_kind(kind: &ColumnType) -> usize {
    OF_PART
        + match kind {
            ColumnType::List(of) => bytes_of_kind(of),
            ColumnType::Map(keys, values) => bytes_of_kind(keys) + bytes_of_kind(values),
            ColumnType::Struct(fields) => fields.iter().map(bytes_of).sum(),
            _ => 0,
        }
}

/// Returns the type that holds the values of both: JSON where no narrower one does. Any number of
/// types give the same one in every order and grouping.
pub(super) fn joined(a: &ColumnType, b: &ColumnType) -> ColumnType {
    a.join(b).unwrap_or(ColumnType::Json)
}

/// Returns the type of a value without a declared one.
pub(super) fn observed(value: &ScVal) -> ColumnType {
    if is_deep(value) { ColumnType::Json } else { infer(value) }
}

/// Whether a value is nested more deeply than a column may be. Does not recurse, because values may
/// have hundreds of levels.
pub(super) fn is_deep(value: &ScVal) -> bool {
    let mut open = vec![(value, 0)];
    while let Some((value, level)) = open.pop() {
        match value {
            ScVal::Vec(Some(_)) | ScVal::Map(Some(_)) if level == DEEPEST => return true,
            ScVal::Vec(Some(items)) => open.extend(items.iter().map(|item| (item, level + 1))),
            ScVal::Map(Some(entries)) => {
                let parts = entries.iter().flat_map(|entry| [&entry.key, &entry.val]);
                open.extend(parts.map(|part| (part, level + 1)));
            }
            _ => {}
        }
    }
    false
}
