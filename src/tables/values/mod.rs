//! Matches emitted values with column types: infers a type without a specification, checks whether
//! a column holds a value, and formats values as text.

use std::collections::HashSet;

use orrery_interfaces::Typed;
use stellar_xdr::{ScMap, ScMapEntry, ScVal};

use super::types::{ColumnType, Field};
use orrery_ledger::domain;

/// Why a column cannot hold a value, even widened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// Path of the mismatch inside the column.
    pub path: String,
    /// Type of the column at that path.
    pub expected: String,
    /// Type of the value at that path.
    pub got: String,
}

/// Infers the type of a value from the value alone.
pub fn infer(value: &ScVal) -> ColumnType {
    match value {
        ScVal::Bool(_) => ColumnType::Boolean,
        ScVal::Void | ScVal::Vec(None) | ScVal::Map(None) => ColumnType::Unknown,
        ScVal::U32(_) => ColumnType::UInt32,
        ScVal::I32(_) => ColumnType::Int32,
        ScVal::U64(_) | ScVal::Timepoint(_) | ScVal::Duration(_) => ColumnType::UInt64,
        ScVal::I64(_) => ColumnType::Int64,
        ScVal::U128(_) => ColumnType::UInt128,
        ScVal::I128(_) => ColumnType::Int128,
        ScVal::U256(_) | ScVal::I256(_) => ColumnType::Digits,
        ScVal::Bytes(_) => ColumnType::Bytes,
        ScVal::String(_) | ScVal::Symbol(_) | ScVal::Address(_) => ColumnType::Text,
        ScVal::Vec(Some(values)) => {
            infer_all(values.iter()).map_or(ColumnType::Json, ColumnType::list)
        }
        ScVal::Map(Some(map)) => infer_map(map).unwrap_or(ColumnType::Json),
        _ => ColumnType::Json,
    }
}

fn infer_all<'a>(values: impl Iterator<Item = &'a ScVal>) -> Option<ColumnType> {
    let mut kind = ColumnType::Unknown;
    for value in values {
        kind = kind.join(&infer(value))?;
    }
    Some(kind)
}

fn infer_map(map: &ScMap) -> Option<ColumnType> {
    let keys = infer_all(map.iter().map(|entry| &entry.key))?;
    let values = infer_all(map.iter().map(|entry| &entry.val))?;
    keys_fit(map).then(|| ColumnType::map(keys, values))
}

/// Whether the keys can be those of a SQL map: none is null, and no two have the same text. Keys of
/// one type that differ as text differ in SQL, and still do after the type is widened. Container
/// keys are irrelevant here, because [`ColumnType::map`] stores such maps in the tagged form.
fn keys_fit(map: &ScMap) -> bool {
    let mut seen = HashSet::with_capacity(map.len());
    map.iter().all(|entry| !is_null(&entry.key) && seen.insert(plain(&entry.key)))
}

/// Whether a value is null in a column.
pub fn is_null(value: &ScVal) -> bool {
    matches!(value, ScVal::Void | ScVal::Vec(None) | ScVal::Map(None))
}

/// Counts the cells that a value fills with nulls for struct fields that it leaves out. They take
/// room in a column and none in the emit. Counting stops soon after `most`.
pub fn absent(kind: &ColumnType, value: &ScVal, most: usize) -> usize {
    match (kind, value) {
        (ColumnType::Struct(_), value) if is_null(value) => kind.width(),
        (ColumnType::Struct(fields), ScVal::Map(Some(map))) => {
            let find = |field: &Field| map.iter().find(|entry| is_named(entry, &field.name));
            let there = fields.iter().filter_map(|field| Some((&field.kind, &find(field)?.val)));
            let missing = fields.iter().filter(|field| find(field).is_none());
            absent_of(there, most) + missing.map(|field| field.kind.width()).sum::<usize>()
        }
        (ColumnType::List(of), ScVal::Vec(Some(items))) => {
            absent_of(items.iter().map(|item| (&**of, item)), most)
        }
        (ColumnType::Map(_, of), ScVal::Map(Some(map))) => {
            absent_of(map.iter().map(|entry| (&**of, &entry.val)), most)
        }
        _ => 0,
    }
}

fn absent_of<'a>(parts: impl Iterator<Item = (&'a ColumnType, &'a ScVal)>, most: usize) -> usize {
    let mut sum = 0;
    for (kind, value) in parts {
        if sum >= most {
            break;
        }
        sum += absent(kind, value, most - sum);
    }
    sum
}

/// Returns the nesting depth: 0 for a scalar, plus 1 for each container around it.
pub fn depth(value: &ScVal) -> usize {
    match value {
        ScVal::Vec(Some(values)) => 1 + values.iter().map(depth).max().unwrap_or(0),
        ScVal::Map(Some(map)) => {
            1 + map.iter().map(|entry| depth(&entry.key).max(depth(&entry.val))).max().unwrap_or(0)
        }
        _ => 0,
    }
}

impl ColumnType {
    /// Whether this type holds the value unchanged.
    pub fn holds(&self, value: &ScVal) -> bool {
        if is_null(value) {
            return true;
        }
        match (self, value) {
            (Self::Json, _) | (Self::Boolean, ScVal::Bool(_)) | (Self::Bytes, ScVal::Bytes(_)) => {
                true
            }
            (Self::Text, ScVal::String(_) | ScVal::Symbol(_) | ScVal::Address(_)) => true,
            (Self::JsonText, ScVal::String(_)) => true,
            (Self::List(of), ScVal::Vec(Some(values))) => {
                values.iter().all(|value| of.holds(value))
            }
            (Self::Map(keys, values), ScVal::Map(Some(map))) => {
                map.iter().all(|entry| keys.holds(&entry.key) && values.holds(&entry.val))
                    && keys_fit(map)
            }
            (Self::Struct(fields), ScVal::Map(Some(map))) => map.iter().all(|entry| {
                field_of(fields, entry).is_some_and(|field| field.kind.holds(&entry.val))
            }),
            (Self::Unknown, _) => false,
            _ => self.holds_number(value),
        }
    }

    fn holds_number(&self, value: &ScVal) -> bool {
        let kind = infer(value);
        match self {
            Self::UInt32
            | Self::Int32
            | Self::UInt64
            | Self::Int64
            | Self::UInt128
            | Self::Int128
            | Self::Digits => self.join(&kind).as_ref() == Some(self),
            _ => false,
        }
    }

    /// Returns the narrowest type that holds the value and everything that this type holds.
    ///
    /// # Errors
    /// When there is no such type.
    pub fn widened(&self, value: &ScVal) -> Result<Self, Misfit> {
        if self.holds(value) {
            return Ok(self.clone());
        }
        match (self, value) {
            (Self::List(of), ScVal::Vec(Some(values))) => {
                let mut kind = Ok((**of).clone());
                for value in values.iter() {
                    kind = kind.and_then(|kind| kind.widened(value));
                }
                self.or_any(value, kind.map(Self::list).map_err(|misfit| misfit.inside("[]")))
            }
            (Self::Map(keys, values), ScVal::Map(Some(map))) => {
                let kind = widened_map(keys, values, map);
                self.or_any(value, kind)
            }
            (Self::Struct(fields), ScVal::Map(Some(map))) => widened_struct(fields, map),
            _ => self.join(&infer(value)).ok_or_else(|| self.misfit(value)),
        }
    }

    /// Allows a column that has had only empty lists or maps to become JSON for a value without a
    /// single type.
    fn or_any(&self, value: &ScVal, kind: Result<Self, Misfit>) -> Result<Self, Misfit> {
        let empty = match self {
            Self::List(of) => **of == Self::Unknown,
            Self::Map(keys, values) => **keys == Self::Unknown && **values == Self::Unknown,
            _ => false,
        };
        match kind {
            Err(_) if empty && infer(value) == Self::Json => Ok(Self::Json),
            kind => kind,
        }
    }

    fn misfit(&self, value: &ScVal) -> Misfit {
        let expected = match self {
            Self::Digits => "a 256-bit integer".to_owned(),
            other => other.to_string(),
        };
        Misfit { path: String::new(), expected, got: kind_of(value) }
    }
}

impl Misfit {
    fn inside(self, step: &str) -> Self {
        Self { path: format!("{step}{}", self.path), ..self }
    }
}

fn widened_map(keys: &ColumnType, values: &ColumnType, map: &ScMap) -> Result<ColumnType, Misfit> {
    let (mut keys, mut values) = (keys.clone(), values.clone());
    for entry in map.iter() {
        keys = keys.widened(&entry.key).map_err(|misfit| misfit.inside("[key]"))?;
        values = values.widened(&entry.val).map_err(|misfit| misfit.inside("[value]"))?;
    }
    if !keys_fit(map) {
        return Err(Misfit {
            path: String::new(),
            expected: "keys that are not null and differ as text".to_owned(),
            got: "others".to_owned(),
        });
    }
    Ok(ColumnType::map(keys, values))
}

fn widened_struct(fields: &[Field], map: &ScMap) -> Result<ColumnType, Misfit> {
    let mut fields = fields.to_vec();
    for entry in map.iter() {
        let Some(at) = fields.iter().position(|field| is_named(entry, &field.name)) else {
            return Err(Misfit {
                path: format!(".{}", plain(&entry.key)),
                expected: "no such field".to_owned(),
                got: kind_of(&entry.val),
            });
        };
        let field = &mut fields[at];
        let step = format!(".{}", field.name);
        field.kind = field.kind.widened(&entry.val).map_err(|misfit| misfit.inside(&step))?;
    }
    Ok(ColumnType::Struct(fields))
}

fn field_of<'a>(fields: &'a [Field], entry: &ScMapEntry) -> Option<&'a Field> {
    fields.iter().find(|field| is_named(entry, &field.name))
}

/// Whether the entry of an emit is the column of that name. The key is a string where the name is
/// longer than a symbol can be.
pub fn is_column(entry: &ScMapEntry, name: &str) -> bool {
    match &entry.key {
        ScVal::String(key) => key.as_slice() == name.as_bytes(),
        _ => is_named(entry, name),
    }
}

/// Whether the map entry is the field of that name.
pub fn is_named(entry: &ScMapEntry, name: &str) -> bool {
    let ScVal::Symbol(symbol) = &entry.key else { return false };
    // This runs for each column of each row, so valid UTF-8 is compared without allocating.
    match std::str::from_utf8(symbol.0.as_slice()) {
        Ok(text) => text == name,
        Err(_) => domain::text(symbol.0.as_slice()) == name,
    }
}

/// Describes the type of a value for error messages.
fn kind_of(value: &ScVal) -> String {
    match infer(value) {
        ColumnType::Json => format!("{} that has no single type", value.name()),
        ColumnType::Digits => "a 256-bit integer".to_owned(),
        kind => kind.to_string(),
    }
}

/// Formats a value as plain text: digits, characters, a strkey; anything else in the tagged form.
/// Values that are equal in a scalar column have the same text.
pub fn plain(value: &ScVal) -> String {
    match value {
        ScVal::U32(number) => number.to_string(),
        ScVal::I32(number) => number.to_string(),
        ScVal::U64(number) => number.to_string(),
        ScVal::I64(number) => number.to_string(),
        ScVal::Timepoint(seconds) => seconds.0.to_string(),
        ScVal::Duration(seconds) => seconds.0.to_string(),
        ScVal::U128(parts) => parts.to_string(),
        ScVal::I128(parts) => parts.to_string(),
        ScVal::U256(parts) => parts.to_string(),
        ScVal::I256(parts) => parts.to_string(),
        ScVal::String(text) => domain::text(text.0.as_slice()),
        ScVal::Symbol(text) => domain::text(text.0.as_slice()),
        ScVal::Address(address) => address.to_string(),
        other => tagged(other),
    }
}

/// Formats a value in the tagged form of SEP-51: 32-bit integers as numbers, wider ones as strings.
pub fn tagged(value: &ScVal) -> String {
    // Serialising to memory fails only for maps with keys that are no strings, and this form has
    // none.
    serde_json::to_string(&Typed(value)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
