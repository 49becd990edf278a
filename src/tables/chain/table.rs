//! What a table of the chain is: its name and its columns.

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use serde::{Deserialize, Serialize};

use crate::names::{CHAIN, quoted};

/// A table of the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainTable {
    /// Its name in the schema of these tables.
    pub name: String,
    /// Its columns.
    pub columns: Vec<ChainColumn>,
}

/// A column of a table of the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainColumn {
    /// Name of the column.
    pub name: String,
    /// Its type.
    pub kind: ChainType,
}

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChainType {
    /// Truth values.
    Boolean,
    /// Integers of 64 bits with a sign.
    Integer,
    /// Texts.
    Text,
    /// Lists of texts.
    Texts,
    /// Microseconds since the UNIX epoch.
    Time,
}

impl ChainType {
    /// Returns the type of a column that has this one in files; `None` when there is none.
    pub fn of(kind: &DataType) -> Option<Self> {
        Some(match kind {
            DataType::Boolean => Self::Boolean,
            DataType::Int64 => Self::Integer,
            DataType::Utf8 => Self::Text,
            DataType::Timestamp(TimeUnit::Microsecond, _) => Self::Time,
            DataType::List(of) if *of.data_type() == DataType::Utf8 => Self::Texts,
            _ => return None,
        })
    }

    /// Returns the name of the type in SQL.
    pub fn sql(self) -> &'static str {
        match self {
            Self::Boolean => "BOOLEAN",
            Self::Integer => "BIGINT",
            Self::Text => "VARCHAR",
            Self::Texts => "VARCHAR[]",
            // In UTC, as the times of all other tables.
            Self::Time => "TIMESTAMP",
        }
    }

    /// Returns the type with which values are given to DuckDB.
    pub fn arrow(self) -> DataType {
        match self {
            Self::Boolean => DataType::Boolean,
            Self::Integer => DataType::Int64,
            Self::Text => DataType::Utf8,
            Self::Texts => DataType::new_list(DataType::Utf8, true),
            Self::Time => DataType::Timestamp(TimeUnit::Microsecond, None),
        }
    }
}

impl ChainTable {
    /// Returns the table of this name whose files have these columns; `None` when one of them has a type of another
    /// kind.
    pub fn of(name: &str, schema: &Schema) -> Option<Self> {
        let column = |field: &Field| {
            Some(ChainColumn {
                name: field.name().clone(),
                kind: ChainType::of(field.data_type())?,
            })
        };
        let columns = schema.fields().iter().map(|field| column(field)).collect::<Option<_>>()?;
        Some(Self { name: name.to_owned(), columns })
    }

    /// Returns the name as a query writes it.
    pub fn in_query(&self) -> String {
        format!("{CHAIN}.{}", self.name)
    }

    /// Whether a query with this text may read the table. A text that names it has both words: SQL knows no other
    /// way to write the letters of a name.
    pub fn may_be_in(&self, sql: &str) -> bool {
        let has = |word: &str| {
            let (text, word) = (sql.as_bytes(), word.as_bytes());
            text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
        };
        has(CHAIN) && has(&self.name)
    }

    /// Returns the names of the columns for a query.
    pub(crate) fn selected(&self) -> String {
        let names = self.columns.iter().map(|column| quoted(&column.name));
        names.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_names_a_table_is_recognised() {
        let table = ChainTable { name: "events".to_owned(), columns: Vec::new() };
        for sql in [
            "select * from chain.events",
            "FROM \"Chain\"/* */.\"EVENTS\"",
            "with chain as (select 1) select * from events",
        ] {
            assert!(table.may_be_in(sql), "{sql}");
        }
        for sql in ["select * from xlm.events", "select chain", "", "chai", "chain.event"] {
            assert!(!table.may_be_in(sql), "{sql}");
        }
    }

    #[test]
    fn types_are_those_of_files() {
        let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let element = Field::new("element", DataType::Utf8, false);
        let texts = DataType::List(element.into());
        let kinds = [DataType::Boolean, DataType::Int64, DataType::Utf8, texts, utc];
        let fields: Vec<_> = (0..)
            .zip(&kinds)
            .map(|(at, kind)| Field::new(format!("c{at}"), kind.clone(), true))
            .collect();
        let table = ChainTable::of("t", &Schema::new(fields)).unwrap();
        let sql: Vec<_> = table.columns.iter().map(|column| column.kind.sql()).collect();
        assert_eq!(sql, ["BOOLEAN", "BIGINT", "VARCHAR", "VARCHAR[]", "TIMESTAMP"]);
        assert_eq!(table.selected(), r#""c0", "c1", "c2", "c3", "c4""#);
        let other = Schema::new(vec![Field::new("x", DataType::Float64, true)]);
        assert_eq!(ChainTable::of("t", &other), None);
    }
}
