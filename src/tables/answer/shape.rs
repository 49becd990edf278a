//! The type of a result column as answers distinguish it, derived from DuckDB's logical types:
//! Arrow batches alone do not distinguish a HUGEINT from a DECIMAL, nor JSON from text.

use duckdb::core::{LogicalTypeHandle, LogicalTypeId as Id};

/// Type of a result column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// Null only.
    Null,
    /// True or false.
    Boolean,
    /// An integer of at most 32 bits, signed or unsigned.
    Small,
    /// A 64-bit integer, signed or unsigned.
    Long,
    /// A signed 128-bit integer.
    Huge,
    /// An unsigned 128-bit integer.
    UnsignedHuge,
    /// A floating-point number.
    Float,
    /// A decimal with this number of digits after the point.
    Decimal(u8),
    /// Text.
    Text,
    /// JSON as text.
    Json,
    /// Binary data.
    Bytes,
    /// A UUID; batches hold it as text or as 16 bytes.
    Uuid,
    /// A date.
    Date,
    /// A time of day, in microseconds.
    Time,
    /// A timestamp without time zone, with this number of units per second.
    Timestamp(i64),
    /// A timestamp with time zone, in microseconds, UTC.
    Instant,
    /// An interval of months, days and a time.
    Interval,
    /// A value of an ENUM.
    Enum,
    /// A list of values of one type.
    List(Box<Shape>),
    /// A list of fixed length.
    Array(Box<Shape>),
    /// A map, by types of keys and values.
    Map(Box<Shape>, Box<Shape>),
    /// A struct: names and types of its fields.
    Struct(Vec<(String, Shape)>),
    /// A union: names and types of its members, in the order of their type ids.
    Union(Vec<(String, Shape)>),
}

/// A DuckDB type that answers have no representation for, by its name.
#[derive(Debug)]
pub struct UnknownType(pub String);

impl Shape {
    /// Returns the shape of a DuckDB type.
    ///
    /// # Errors
    /// When answers have no representation for the type, or for one inside it.
    pub fn of(kind: &LogicalTypeHandle) -> Result<Self, UnknownType> {
        Ok(match kind.id() {
            Id::SqlNull => Self::Null,
            Id::Boolean => Self::Boolean,
            Id::Tinyint
            | Id::Smallint
            | Id::Integer
            | Id::UTinyint
            | Id::USmallint
            | Id::UInteger => Self::Small,
            Id::Bigint | Id::UBigint => Self::Long,
            Id::Hugeint => Self::Huge,
            Id::UHugeint => Self::UnsignedHuge,
            Id::Float | Id::Double => Self::Float,
            Id::Decimal => Self::Decimal(kind.decimal_scale()),
            Id::Varchar if kind.get_alias().as_deref() == Some("JSON") => Self::Json,
            Id::Varchar => Self::Text,
            Id::Blob => Self::Bytes,
            Id::Uuid => Self::Uuid,
            Id::Date => Self::Date,
            Id::Time => Self::Time,
            Id::TimestampS => Self::Timestamp(1),
            Id::TimestampMs => Self::Timestamp(1_000),
            Id::Timestamp => Self::Timestamp(1_000_000),
            Id::TimestampNs => Self::Timestamp(1_000_000_000),
            Id::TimestampTZ => Self::Instant,
            Id::Interval => Self::Interval,
            Id::Enum => Self::Enum,
            Id::List => Self::List(Box::new(Self::of(&kind.child(0))?)),
            Id::Array => Self::Array(Box::new(Self::of(&kind.child(0))?)),
            Id::Map => {
                Self::Map(Box::new(Self::of(&kind.child(0))?), Box::new(Self::of(&kind.child(1))?))
            }
            Id::Struct => Self::Struct(Self::children(kind)?),
            Id::Union => Self::Union(Self::children(kind)?),
            other => return Err(UnknownType(format!("{other:?}").to_uppercase())),
        })
    }

    /// Returns DuckDB's name of a type in this one that Parquet files have no representation for.
    pub fn outside_of_parquet(&self) -> Option<&'static str> {
        match self {
            Self::Union(_) => Some("UNION"),
            Self::Interval => Some("INTERVAL"),
            Self::List(of) | Self::Array(of) => of.outside_of_parquet(),
            Self::Map(keys, values) => {
                keys.outside_of_parquet().or_else(|| values.outside_of_parquet())
            }
            Self::Struct(fields) => fields.iter().find_map(|(_, shape)| shape.outside_of_parquet()),
            _ => None,
        }
    }

    fn children(kind: &LogicalTypeHandle) -> Result<Vec<(String, Self)>, UnknownType> {
        (0..kind.num_children())
            .map(|at| Ok((kind.child_name(at), Self::of(&kind.child(at))?)))
            .collect()
    }
}
