//! Answers in JSON.

use arrow::array::{Array, AsArray};
use arrow::record_batch::RecordBatch;

use super::shape::Shape;
use super::{Column, Result, check_length, columns_of, is_null, text};
use crate::query::Numbers;

/// Largest magnitude of an integer that every JSON reader keeps exact: 2^53 − 1.
const LARGEST_NUMBER: u128 = (1 << 53) - 1;
/// Digits of a decimal that every JSON reader keeps exact.
const MAX_DIGITS: u32 = 15;

/// Collects an array with one object per row.
pub struct Rows {
    bytes: Vec<u8>,
    /// `"name":` of each column, in JSON.
    keys: Vec<Vec<u8>>,
    numbers: Numbers,
}

/// Collects an object with one array per column.
pub struct Columns {
    arrays: Vec<Vec<u8>>,
    keys: Vec<Vec<u8>>,
    numbers: Numbers,
}

fn keys(columns: &[Column]) -> Vec<Vec<u8>> {
    let key = |column: &Column| {
        let mut key = Vec::new();
        quoted(&column.name, &mut key);
        key.push(b':');
        key
    };
    columns.iter().map(key).collect()
}

impl Rows {
    /// Begins an answer with these columns.
    pub fn begin(columns: &[Column], numbers: Numbers) -> Self {
        Self { bytes: vec![b'['], keys: keys(columns), numbers }
    }

    /// Adds a batch.
    pub fn add(&mut self, columns: &[Column], batch: &RecordBatch, most: usize) -> Result<()> {
        for at in 0..batch.num_rows() {
            if self.bytes.len() > 1 {
                self.bytes.push(b',');
            }
            let values = columns_of(columns, batch).zip(&self.keys);
            joined(*b"{}", values, &mut self.bytes, |((column, array), key), to| {
                to.extend_from_slice(key);
                value(&column.shape, array, at, self.numbers, to);
            });
            check_length(self.bytes.len() + 1, most)?;
        }
        Ok(())
    }

    /// Returns the finished answer.
    pub fn end(mut self) -> Vec<u8> {
        self.bytes.push(b']');
        self.bytes
    }
}

impl Columns {
    /// Begins an answer with these columns.
    pub fn begin(columns: &[Column], numbers: Numbers) -> Self {
        Self { arrays: vec![Vec::new(); columns.len()], keys: keys(columns), numbers }
    }

    /// Adds a batch.
    pub fn add(&mut self, columns: &[Column], batch: &RecordBatch, most: usize) -> Result<()> {
        for at in 0..batch.num_rows() {
            let mut length = 0;
            for ((column, array), bytes) in columns_of(columns, batch).zip(&mut self.arrays) {
                if !bytes.is_empty() {
                    bytes.push(b',');
                }
                value(&column.shape, array, at, self.numbers, bytes);
                length += bytes.len();
            }
            check_length(length, most)?;
        }
        Ok(())
    }

    /// Returns the finished answer.
    pub fn end(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        joined(*b"{}", self.keys.iter().zip(&self.arrays), &mut bytes, |(key, array), to| {
            to.extend_from_slice(key);
            to.push(b'[');
            to.extend_from_slice(array);
            to.push(b']');
        });
        bytes
    }
}

/// Writes one value.
pub fn value(shape: &Shape, array: &dyn Array, at: usize, numbers: Numbers, to: &mut Vec<u8>) {
    if is_null(array, at) || matches!(shape, Shape::Null) {
        return to.extend_from_slice(b"null");
    }
    match shape {
        Shape::List(of) | Shape::Array(of) => {
            let Some(items) = items(array, at) else { return to.extend_from_slice(b"null") };
            return joined(*b"[]", 0..items.len(), to, |item, to| {
                value(of, &items, item, numbers, to);
            });
        }
        Shape::Map(keys, values) => return map(keys, values, array, at, numbers, to),
        Shape::Struct(fields) => return object(fields, array, at, numbers, to),
        Shape::Union(members) => return union(members, array, at, numbers, to),
        Shape::Json => {
            // JSON columns hold valid JSON; text that a query only casts to the JSON type may not
            // be valid.
            let json = text::text(array, at).unwrap_or_default();
            match serde_json::from_str::<&serde_json::value::RawValue>(json) {
                Ok(_) => to.extend_from_slice(json.as_bytes()),
                Err(_) => quoted(json, to),
            }
            return;
        }
        _ => {}
    }
    match plain(shape, array, at, numbers) {
        Some((plain, Form::Bare)) => to.extend_from_slice(plain.as_bytes()),
        Some((plain, Form::Quoted)) => quoted(&plain, to),
        None => to.extend_from_slice(b"null"),
    }
}

/// Whether JSON puts quotes around a scalar value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A number, true or false.
    Bare,
    /// Anything else.
    Quoted,
}

/// Formats a scalar value as text; `None` for the null type, for containers, and when the array
/// does not match the shape.
pub fn plain(
    shape: &Shape,
    array: &dyn Array,
    at: usize,
    numbers: Numbers,
) -> Option<(String, Form)> {
    let number = |text: String, fits: bool| {
        let bare = fits && numbers != Numbers::String;
        (text, if bare { Form::Bare } else { Form::Quoted })
    };
    let quoted = |text: String| (text, Form::Quoted);
    Some(match shape {
        Shape::Boolean => (array.as_boolean_opt()?.value(at).to_string(), Form::Bare),
        Shape::Small => (text::integer(array, at)?.to_string(), Form::Bare),
        Shape::Long | Shape::Huge => {
            let value = text::integer(array, at)?;
            number(value.to_string(), value.unsigned_abs() <= LARGEST_NUMBER)
        }
        Shape::UnsignedHuge => {
            // All 128 bits belong to the magnitude.
            let value = text::decimal(array, at)?.cast_unsigned();
            number(value.to_string(), value <= LARGEST_NUMBER)
        }
        Shape::Decimal(scale) => {
            let digits = text::decimal(array, at)?;
            let fits = digits.unsigned_abs() < 10u128.pow(MAX_DIGITS);
            number(text::point(digits, *scale), fits)
        }
        Shape::Float => return float(array, at),
        Shape::Text | Shape::Enum | Shape::Json => quoted(text::text(array, at)?.to_owned()),
        Shape::Uuid => quoted(uuid(array, at)?),
        Shape::Bytes => quoted(hex::encode(text::bytes(array, at)?)),
        Shape::Date => quoted(text::date(array, at)?),
        Shape::Time => quoted(text::time(array, at)?),
        Shape::Timestamp(units) => quoted(text::timestamp(array, at, *units, "")?),
        Shape::Instant => quoted(text::timestamp(array, at, 1_000_000, "Z")?),
        Shape::Interval => quoted(text::interval(array, at)?),
        Shape::Null
        | Shape::List(_)
        | Shape::Array(_)
        | Shape::Map(..)
        | Shape::Struct(_)
        | Shape::Union(_) => return None,
    })
}

fn uuid(array: &dyn Array, at: usize) -> Option<String> {
    if let Some(text) = text::text(array, at) {
        return Some(text.to_owned());
    }
    let digits = hex::encode(text::bytes(array, at)?);
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| digits.get(part));
    Some(parts.into_iter().collect::<Option<Vec<_>>>()?.join("-"))
}

/// Formats a float with the shortest digits that read back as the same number; NaN and infinities
/// become quoted words.
fn float(array: &dyn Array, at: usize) -> Option<(String, Form)> {
    use arrow::datatypes::{Float32Type, Float64Type};
    let (value, text) = match array.as_primitive_opt::<Float64Type>() {
        Some(array) => (array.value(at), serde_json::to_string(&array.value(at)).ok()?),
        None => {
            let value = array.as_primitive_opt::<Float32Type>()?.value(at);
            (f64::from(value), serde_json::to_string(&value).ok()?)
        }
    };
    Some(if value.is_nan() {
        ("NaN".to_owned(), Form::Quoted)
    } else if value.is_infinite() {
        (if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(), Form::Quoted)
    } else {
        (text, Form::Bare)
    })
}

/// Returns the values of one list.
fn items(array: &dyn Array, at: usize) -> Option<arrow::array::ArrayRef> {
    if let Some(lists) = array.as_list_opt::<i32>() {
        return Some(lists.value(at));
    }
    if let Some(lists) = array.as_list_opt::<i64>() {
        return Some(lists.value(at));
    }
    Some(array.as_fixed_size_list_opt()?.value(at))
}

/// Writes items between two brackets, with commas between them.
fn joined<T>(
    [open, close]: [u8; 2],
    items: impl IntoIterator<Item = T>,
    to: &mut Vec<u8>,
    mut write: impl FnMut(T, &mut Vec<u8>),
) {
    to.push(open);
    for (number, item) in items.into_iter().enumerate() {
        if number > 0 {
            to.push(b',');
        }
        write(item, to);
    }
    to.push(close);
}

fn object(
    fields: &[(String, Shape)],
    array: &dyn Array,
    at: usize,
    numbers: Numbers,
    to: &mut Vec<u8>,
) {
    let Some(columns) = array.as_struct_opt() else { return to.extend_from_slice(b"null") };
    let members = fields.iter().zip(columns.columns()).enumerate();
    joined(*b"{}", members, to, |(number, ((name, shape), column)), to| {
        // Unnamed DuckDB structs have empty field names.
        if name.is_empty() {
            quoted(&number.to_string(), to)
        } else {
            quoted(name, to)
        }
        to.push(b':');
        value(shape, column, at, numbers, to);
    });
}

fn map(
    keys: &Shape,
    values: &Shape,
    array: &dyn Array,
    at: usize,
    numbers: Numbers,
    to: &mut Vec<u8>,
) {
    let Some(maps) = array.as_map_opt() else { return to.extend_from_slice(b"null") };
    let entries = maps.value(at);
    let (names, items) = (entries.column(0), entries.column(1));
    joined(*b"{}", 0..entries.len(), to, |entry, to| {
        key(keys, names, entry, to);
        to.push(b':');
        value(values, items, entry, numbers, to);
    });
}

/// Writes a map key, which is text in JSON: a scalar as it is, anything else as the text of its
/// JSON.
fn key(shape: &Shape, array: &dyn Array, at: usize, to: &mut Vec<u8>) {
    match plain(shape, array, at, Numbers::Exact) {
        Some((plain, _)) => quoted(&plain, to),
        None => {
            let mut json = Vec::new();
            value(shape, array, at, Numbers::Exact, &mut json);
            quoted(&String::from_utf8_lossy(&json), to);
        }
    }
}

/// Writes the value alone, without the name of the union's member.
fn union(
    members: &[(String, Shape)],
    array: &dyn Array,
    at: usize,
    numbers: Numbers,
    to: &mut Vec<u8>,
) {
    let Some(unions) = array.as_union_opt() else { return to.extend_from_slice(b"null") };
    let member = unions.type_id(at);
    let shape = usize::try_from(member).ok().and_then(|member| members.get(member));
    match shape {
        Some((_, shape)) => {
            value(shape, unions.child(member), unions.value_offset(at), numbers, to);
        }
        None => to.extend_from_slice(b"null"),
    }
}

fn quoted(text: &str, to: &mut Vec<u8>) {
    // Writing to memory does not fail, and every string can be serialised.
    let _ = serde_json::to_writer(to, text);
}
