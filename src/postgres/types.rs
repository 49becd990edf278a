//! Tables as the sink is told them: neutral types, which a feeder fills from a project's tables. Nothing here
//! knows where rows come from, or how a server is spoken to.

use std::fmt;

/// Type of a column. Every column may be null.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ColumnType {
    /// `boolean`.
    Boolean,
    /// Signed 32-bit integer: `integer`.
    Int32,
    /// Unsigned 32-bit integer: `bigint`.
    UInt32,
    /// Signed 64-bit integer: `bigint`.
    Int64,
    /// Unsigned 64-bit integer: `numeric(20)`.
    UInt64,
    /// Integer of 128 bits, signed or not: `numeric(39)`.
    Int128,
    /// Integer of 256 bits, signed or not, or one whose type was inferred from values: `numeric(78)`, so that no
    /// column has to be widened.
    Int256,
    /// `text`; U+0000 is written as `\x00`.
    Text,
    /// `bytea`.
    Bytes,
    /// `jsonb`: lists of containers, maps, structs, JSON, and columns without a value so far.
    Json,
    /// Point in time: `timestamptz`.
    Time,
    /// Array of scalars.
    List(Box<ColumnType>),
}

impl ColumnType {
    /// Returns the type of a list: an array of scalars, else JSON.
    pub fn list(of: Self) -> Self {
        match of {
            Self::List(_) | Self::Json => Self::Json,
            of => Self::List(Box::new(of)),
        }
    }

    /// The object identifier of the type in PostgreSQL (`pg_type.dat`), without those of arrays.
    pub(crate) fn oid(&self) -> u32 {
        match self {
            Self::Boolean => 16,
            Self::Bytes => 17,
            Self::UInt32 | Self::Int64 => 20,
            Self::Int32 => 23,
            Self::Text => 25,
            Self::Time => 1184,
            Self::UInt64 | Self::Int128 | Self::Int256 => 1700,
            Self::Json => 3802,
            Self::List(of) => of.oid(),
        }
    }

    /// Returns an expression with the value of `expression`, of this type, as the type of a column of a view that
    /// shows several tables.
    pub(crate) fn converted(&self, to: &Self, expression: &str) -> String {
        let is_wide = matches!(self, Self::Int64 | Self::UInt64 | Self::Int128 | Self::Int256);
        match to {
            to if to == self => expression.to_owned(),
            // Integers of 64 bits and more are texts in JSON.
            Self::Json if is_wide => format!("to_jsonb({expression}::text)"),
            Self::Json => format!("to_jsonb({expression})"),
            to => format!("{expression}::{to}"),
        }
    }
}

/// Writes the type's name in PostgreSQL, as `format_type` does.
impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean => f.write_str("boolean"),
            Self::Int32 => f.write_str("integer"),
            Self::UInt32 | Self::Int64 => f.write_str("bigint"),
            Self::UInt64 => f.write_str("numeric(20,0)"),
            Self::Int128 => f.write_str("numeric(39,0)"),
            Self::Int256 => f.write_str("numeric(78,0)"),
            Self::Text => f.write_str("text"),
            Self::Bytes => f.write_str("bytea"),
            Self::Json => f.write_str("jsonb"),
            Self::Time => f.write_str("timestamp with time zone"),
            Self::List(of) => write!(f, "{of}[]"),
        }
    }
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Name in queries, exactly.
    pub name: String,
    /// Type of the values.
    pub kind: ColumnType,
    /// Type in the contract's declaration, such as `Map<Symbol, i128>`; empty without one. For people: a comment.
    pub declared: String,
    /// What the declaration says of it; empty without.
    pub doc: String,
}

impl Column {
    /// Returns a column without declaration.
    pub fn new(name: &str, kind: ColumnType) -> Self {
        Self { name: name.to_owned(), kind, declared: String::new(), doc: String::new() }
    }
}

/// A table of a project. The column `_row` with the key is not among its columns: every table has it first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// What the table is known by, whatever it is called at the moment: the target of its rows.
    pub target: String,
    /// Its name: the target, or `NAME_v1` where several versions share a view.
    pub name: String,
    /// Columns in order. They may grow at the end.
    pub columns: Vec<Column>,
    /// What it is, in a sentence: a comment.
    pub comment: String,
}

/// A view of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Its name.
    pub name: String,
    /// What it shows.
    pub shows: Shows,
    /// What it is, in a sentence: a comment.
    pub comment: String,
}

/// What a view shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shows {
    /// The rows of all these tables, given by target, in these columns: each is in each of the tables.
    Versions {
        /// Targets of the tables.
        targets: Vec<String>,
        /// Names and types of the columns. Values of other types become these.
        columns: Vec<Column>,
    },
    /// The contracts that are members, from the table of this target with their changes.
    Members(String),
    /// What the contracts hold.
    Storage {
        /// Target of the table with the changes.
        changes: String,
        /// Target of the table with the changes of members, if contracts can leave: what they held before is left out.
        members: Option<String>,
    },
}

/// The tables and views of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// Name of the project.
    pub name: String,
    /// Schema of its tables: see [`names::schema`](crate::names::schema).
    pub schema: String,
    /// The tables.
    pub tables: Vec<Table>,
    /// The views.
    pub views: Vec<View>,
}

impl Project {
    /// Returns the table of a target.
    pub fn table(&self, target: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.target == target)
    }
}

/// Key of a row: its place in the chain, which is the same on every machine and after every replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey {
    /// Ledger.
    pub ledger: u32,
    /// Application order of the transaction in it: 0 for the state before, `u32::MAX` for evictions.
    pub transaction: u32,
    /// Number in the transaction: index of the event, of the emit, of the change.
    pub number: u32,
}

impl RowKey {
    /// Returns the bytes in the column `_row`: the three numbers, big-endian, so that keys sort as the chain does.
    pub fn bytes(&self) -> [u8; 12] {
        let mut bytes = [0; 12];
        let parts = [self.ledger, self.transaction, self.number];
        for (to, part) in bytes.chunks_exact_mut(4).zip(parts) {
            to.copy_from_slice(&part.to_be_bytes());
        }
        bytes
    }
}

/// A value of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Null, in a column of any type.
    Null,
    /// Of a column [`ColumnType::Boolean`].
    Boolean(bool),
    /// Of a column of integers of any width. Those beyond are [`Value::Digits`].
    Integer(i128),
    /// An integer in decimal digits, behind a `-` if it is negative.
    Digits(String),
    /// Of a column [`ColumnType::Text`].
    Text(String),
    /// Of a column [`ColumnType::Bytes`].
    Bytes(Vec<u8>),
    /// JSON text of a column [`ColumnType::Json`]. Integers of 64 bits and more must be texts in it, and maps whose
    /// keys are not different texts arrays of pairs.
    Json(String),
    /// Microseconds since 1970 in UTC, of a column [`ColumnType::Time`].
    Time(i64),
    /// Elements of a column [`ColumnType::List`].
    List(Vec<Value>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_the_chain_does() {
        let key = |ledger, transaction, number| RowKey { ledger, transaction, number };
        let keys =
            [key(1, 0, 2), key(1, 2, 0), key(1, 2, 256), key(1, u32::MAX, 0), key(256, 1, 1)];
        assert!(keys.is_sorted() && keys.map(|key| key.bytes()).is_sorted());
        assert_eq!(key(1, 2, 3).bytes(), [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3]);
    }

    #[test]
    fn lists_of_containers_are_json() {
        let text = || ColumnType::list(ColumnType::Text);
        assert_eq!(text().to_string(), "text[]");
        assert_eq!(ColumnType::list(text()), ColumnType::Json);
    }
}
