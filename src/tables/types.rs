//! Column types: their names in SQL, and which type holds the values of two others without loss.
//! Does not depend on values.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::names;

/// Type of a column or of a value nested in one. Every value may be null.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnType {
    /// Type of columns with only nulls so far, or of the elements of an empty list. Every other
    /// type includes it.
    Unknown,
    /// True or false.
    Boolean,
    /// Unsigned 32-bit integer; also an integer enum.
    UInt32,
    /// Signed 32-bit integer.
    Int32,
    /// Unsigned 64-bit integer; also a timepoint and a duration, in seconds.
    UInt64,
    /// Signed 64-bit integer.
    Int64,
    /// Unsigned 128-bit integer.
    UInt128,
    /// Signed 128-bit integer.
    Int128,
    /// 256-bit integer, wider than any SQL integer, as decimal digits.
    Digits,
    /// Text; also an address as strkey.
    Text,
    /// Binary data.
    Bytes,
    /// List of values of one type.
    List(Box<ColumnType>),
    /// Map from keys of one type, which is never a container (see [`ColumnType::map`]), to values
    /// of one type.
    Map(Box<ColumnType>, Box<ColumnType>),
    /// Struct with these fields.
    Struct(Vec<Field>),
    /// Any value, in the tagged form of an `ScVal` (SEP-51).
    Json,
    /// JSON text: the value is a `String` that holds it.
    JsonText,
}

/// A named value: a struct's field or a table's column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// Name as the program spells it.
    pub name: String,
    /// Type of the value.
    pub kind: ColumnType,
}

/// Width and signedness of an integer type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Integer {
    bits: u16,
    signed: bool,
}

impl ColumnType {
    /// Returns the type of a list with these elements.
    pub fn list(of: Self) -> Self {
        Self::List(Box::new(of))
    }

    /// Returns the type of a map with these keys and values. If keys are lists, maps, structs or
    /// JSON, the map is stored in the tagged form: keys that differ for the contract can be equal
    /// in SQL, which rejects such a map (`[1u32]` and `[1u64]` are the same key of a
    /// `MAP(UBIGINT[], …)`).
    pub fn map(keys: Self, values: Self) -> Self {
        match keys {
            Self::List(_) | Self::Map(..) | Self::Struct(_) | Self::Json => Self::Json,
            keys => Self::Map(Box::new(keys), Box::new(values)),
        }
    }

    /// Whether values of this type can be converted to `new` in place, without the emits that they
    /// came from.
    pub fn grows_into(&self, new: &Self) -> bool {
        match (self, new) {
            (old, new) if old == new => true,
            (Self::Unknown, _) => true,
            (old, Self::Json) => old.is_blank(),
            (Self::List(old), Self::List(new)) => old.grows_into(new),
            (Self::Map(old_keys, old), Self::Map(new_keys, new)) => {
                old_keys.grows_into(new_keys) && old.grows_into(new)
            }
            (Self::Struct(old), Self::Struct(new)) => {
                old.len() == new.len()
                    && old
                        .iter()
                        .zip(new)
                        .all(|(old, new)| old.name == new.name && old.kind.grows_into(&new.kind))
            }
            (old, new) => old.integer().is_some() && old.join(new).as_ref() == Some(new),
        }
    }

    /// Returns the nesting depth: 0 for a scalar, plus 1 for each container around it.
    pub fn depth(&self) -> usize {
        match self {
            Self::List(of) => 1 + of.depth(),
            Self::Map(keys, values) => 1 + keys.depth().max(values.depth()),
            Self::Struct(fields) => {
                1 + fields.iter().map(|field| field.kind.depth()).max().unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Returns the minimum number of cells that a value occupies: a struct has one for each field,
    /// even if the field is null.
    pub fn width(&self) -> usize {
        match self {
            Self::Struct(fields) => fields.iter().map(|field| field.kind.width()).sum(),
            _ => 1,
        }
    }

    /// Whether the column has had only nulls, empty lists and empty maps.
    pub fn is_blank(&self) -> bool {
        match self {
            Self::Unknown => true,
            Self::List(of) => of.is_blank(),
            Self::Map(keys, values) => keys.is_blank() && values.is_blank(),
            _ => false,
        }
    }

    /// Returns the narrowest type that holds the values of both unchanged: integers widen, and an
    /// unknown type becomes the other one. `None` when no type does.
    pub fn join(&self, other: &Self) -> Option<Self> {
        if let (Some(a), Some(b)) = (self.integer(), other.integer()) {
            return Some(a.join(b).into());
        }
        match (self, other) {
            (Self::Unknown, kind) | (kind, Self::Unknown) => Some(kind.clone()),
            (Self::List(a), Self::List(b)) => Some(Self::list(a.join(b)?)),
            (Self::Map(a, x), Self::Map(b, y)) => Some(Self::map(a.join(b)?, x.join(y)?)),
            (Self::Json, blank) | (blank, Self::Json) if blank.is_blank() => Some(Self::Json),
            (a, b) if a == b => Some(a.clone()),
            _ => None,
        }
    }

    fn integer(&self) -> Option<Integer> {
        let (bits, signed) = match self {
            Self::UInt32 => (32, false),
            Self::Int32 => (32, true),
            Self::UInt64 => (64, false),
            Self::Int64 => (64, true),
            Self::UInt128 => (128, false),
            Self::Int128 => (128, true),
            Self::Digits => (256, true),
            _ => return None,
        };
        Some(Integer { bits, signed })
    }
}

impl Integer {
    fn join(self, other: Self) -> Self {
        if self.signed == other.signed {
            return Self { bits: self.bits.max(other.bits), ..self };
        }
        let (signed, unsigned) = if self.signed { (self, other) } else { (other, self) };
        Self { bits: signed.bits.max(unsigned.bits * 2), signed: true }
    }
}

impl From<Integer> for ColumnType {
    fn from(integer: Integer) -> Self {
        match (integer.bits, integer.signed) {
            (32, false) => Self::UInt32,
            (32, true) => Self::Int32,
            (64, false) => Self::UInt64,
            (64, true) => Self::Int64,
            (128, false) => Self::UInt128,
            (128, true) => Self::Int128,
            _ => Self::Digits,
        }
    }
}

/// Writes the type's name in SQL.
impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean => f.write_str("BOOLEAN"),
            Self::UInt32 => f.write_str("UINTEGER"),
            Self::Int32 => f.write_str("INTEGER"),
            Self::UInt64 => f.write_str("UBIGINT"),
            Self::Int64 => f.write_str("BIGINT"),
            Self::UInt128 => f.write_str("UHUGEINT"),
            Self::Int128 => f.write_str("HUGEINT"),
            Self::Digits | Self::Text => f.write_str("VARCHAR"),
            Self::Bytes => f.write_str("BLOB"),
            Self::List(of) => write!(f, "{of}[]"),
            Self::Map(keys, values) => write!(f, "MAP({keys}, {values})"),
            Self::Struct(fields) => {
                f.write_str("STRUCT(")?;
                for (number, field) in fields.iter().enumerate() {
                    let comma = if number > 0 { ", " } else { "" };
                    write!(f, "{comma}{} {}", names::quoted(&field.name), field.kind)?;
                }
                f.write_str(")")
            }
            Self::Unknown | Self::Json | Self::JsonText => f.write_str("JSON"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ColumnType::*;
    use super::*;

    const SCALARS: [ColumnType; 11] =
        [Boolean, UInt32, Int32, UInt64, Int64, UInt128, Int128, Digits, Text, Bytes, Json];

    #[test]
    fn integers_widen_to_the_smallest_common_type() {
        for (a, b, both) in [
            (UInt32, Int32, Int64),
            (UInt32, UInt64, UInt64),
            (UInt64, Int32, Int128),
            (UInt64, Int128, Int128),
            (UInt32, Int64, Int64),
            (UInt128, Int32, Digits),
            (Int128, Digits, Digits),
            (Int32, Int128, Int128),
        ] {
            assert_eq!(a.join(&b), Some(both.clone()), "{a:?} {b:?}");
            assert_eq!(b.join(&a), Some(both), "{b:?} {a:?}");
        }
    }

    #[test]
    fn only_numeric_types_widen() {
        for a in &SCALARS {
            assert_eq!(a.join(a), Some(a.clone()));
            assert_eq!(a.join(&Unknown), Some(a.clone()));
            for b in SCALARS.iter().filter(|b| *b != a) {
                let numbers = a.integer().is_some() && b.integer().is_some();
                assert_eq!(a.join(b).is_some(), numbers, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn containers_widen_by_their_elements() {
        let list = |of| ColumnType::list(of);
        assert_eq!(list(UInt32).join(&list(Int128)), Some(list(Int128)));
        assert_eq!(list(Unknown).join(&list(Text)), Some(list(Text)));
        assert_eq!(list(Unknown).join(&Json), Some(Json));
        assert_eq!(list(Text).join(&Json), None);
        let map = ColumnType::map(Text, Int32);
        assert_eq!(map.join(&ColumnType::map(Text, Int64)), Some(ColumnType::map(Text, Int64)));
        assert_eq!(map.join(&list(Int32)), None);
    }

    #[test]
    fn maps_with_container_keys_are_stored_as_tagged_json() {
        let list = |of| ColumnType::list(of);
        for keys in [list(UInt32), ColumnType::map(Text, Text), Struct(Vec::new()), Json] {
            assert_eq!(ColumnType::map(keys.clone(), Text), Json, "{keys:?}");
        }
        let plain = ColumnType::map(Bytes, list(Text));
        assert_eq!(plain, Map(Box::new(Bytes), Box::new(list(Text))));
    }

    #[test]
    fn only_empty_containers_can_become_json_in_place() {
        let list = |of| ColumnType::list(of);
        assert!(list(list(Unknown)).grows_into(&list(Json)));
        assert!(ColumnType::map(Text, Unknown).grows_into(&ColumnType::map(Text, list(Json))));
        assert!(UInt32.grows_into(&Digits) && list(UInt32).grows_into(&list(Int128)));
        let maps = list(ColumnType::map(Text, UInt32));
        for (old, new) in [
            (list(UInt32), Json),
            (Digits, UInt32),
            (UInt64, Int64),
            (Text, Json),
            (maps, list(Json)),
        ] {
            assert!(!old.grows_into(&new), "{old:?} {new:?}");
        }
    }

    #[test]
    fn field_names_of_structs_are_quoted_in_sql() {
        let field = |name: &str, kind| Field { name: name.to_owned(), kind };
        let kind = Struct(vec![
            field("select", ColumnType::list(UInt128)),
            field("a\"b", ColumnType::map(Text, Json)),
        ]);
        assert_eq!(kind.to_string(), r#"STRUCT("select" UHUGEINT[], "a""b" MAP(VARCHAR, JSON))"#);
        assert_eq!(kind.depth(), 2);
    }
}
