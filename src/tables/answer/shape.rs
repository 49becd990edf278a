//! What is in a column of a result, told from the types that DuckDB names: its Arrow batches alone do not
//! tell a HUGEINT from a DECIMAL, nor JSON from text.

use duckdb::core::{LogicalTypeHandle, LogicalTypeId as Id};

/// What is in a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// Nothing but null.
    Null,
    /// True or false.
    Boolean,
    /// An integer of at most 32 bits.
    Small,
    /// An integer of 64 bits.
    Long,
    /// An integer of 128 bits with a sign.
    Huge,
    /// An integer of 128 bits without a sign.
    UnsignedHuge,
    /// A floating-point number.
    Float,
    /// A decimal with so many digits after the point.
    Decimal(u8),
    /// Text.
    Text,
    /// JSON as text.
    Json,
    /// Bytes.
    Bytes,
    /// A UUID, as text.
    Uuid,
    /// A day.
    Date,
    /// A time of day, in microseconds.
    Time,
    /// A point in time without a zone, with so many units in a second.
    Timestamp(i64),
    /// A point in time, in microseconds.
    Instant,
    /// Months, days and a time.
    Interval,
    /// A name out of a list.
    Enum,
    /// Values in order.
    List(Box<Shape>),
    /// A fixed number of values.
    Array(Box<Shape>),
    /// Values under keys.
    Map(Box<Shape>, Box<Shape>),
    /// Named values.
    Struct(Vec<(String, Shape)>),
    /// One of several, by number.
    Union(Vec<(String, Shape)>),
}

/// A type that is none of those.
#[derive(Debug)]
pub struct UnknownType(pub String);

impl Shape {
    /// What a type of DuckDB is.
    ///
    /// # Errors
    /// When answers have no form for it.
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

    fn children(kind: &LogicalTypeHandle) -> Result<Vec<(String, Self)>, UnknownType> {
        (0..kind.num_children())
            .map(|at| Ok((kind.child_name(at), Self::of(&kind.child(at))?)))
            .collect()
    }
}
