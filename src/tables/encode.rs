//! Encodes emits as columns: the rows of one table become one Arrow record batch.
//!
//! Arrow has no 128-bit integers. They are sent as decimals of 38 digits, or as text when a value
//! of the batch has more digits; DuckDB's appender converts either into the column's type without
//! loss.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Decimal128Array, Int64Array, ListArray, MapArray,
    PrimitiveArray, StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{
    ArrowPrimitiveType, Field as ArrowField, Fields, Int32Type, Int64Type, Schema, UInt32Type,
    UInt64Type,
};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use stellar_xdr::{Int128Parts, ScVal, UInt128Parts};

use super::error::TablesError;
use super::row::Row;
use super::schema::TableSchema;
use super::types::{ColumnType, Field};
use super::{names, values};
use orrery_ledger::domain;

/// Largest magnitude of a decimal of 38 digits.
pub(crate) const LARGEST_DECIMAL: u128 = 10u128.pow(38) - 1;

/// Encodes the rows of a table, in order. The columns that every table has come first, because
/// columns that a program gains later are appended at the end.
///
/// # Errors
/// When a value does not match the schema: such a value was not admitted.
pub fn record_batch(table: &TableSchema, rows: &[&Row]) -> Result<RecordBatch, TablesError> {
    let text = |of: &dyn Fn(&Row) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(rows.iter().map(|row| of(row))))
    };
    let ledgers = Int64Array::from_iter_values(rows.iter().map(|row| i64::from(row.ledger.0)));
    let closed = rows.iter().map(|row| row.closed_at.microseconds());
    let mut columns: Vec<ArrayRef> = vec![
        text(&|row| row.emit.contract.to_string()),
        text(&|row| row.transaction.to_string()),
        text(&|row| row.event_id.to_string()),
        Arc::new(ledgers),
        Arc::new(TimestampMicrosecondArray::from_iter_values(closed)),
    ];
    for column in &table.columns {
        let values: Vec<Option<&ScVal>> = rows.iter().map(|row| value_of(row, column)).collect();
        columns.push(array(&column.kind, &values).map_err(|error| {
            let (target, column) = (&table.target, &column.name);
            TablesError::Refused(format!(
                "column '{column}' of '{target}' cannot hold this value: {error}"
            ))
        })?);
    }
    let names = names::INJECTED.iter().map(|(name, _)| *name);
    let names = names.chain(table.columns.iter().map(|column| column.name.as_str()));
    let fields: Vec<ArrowField> = names
        .zip(&columns)
        .map(|(name, column)| ArrowField::new(name, column.data_type().clone(), true))
        .collect();
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

fn value_of<'a>(row: &'a Row, column: &Field) -> Option<&'a ScVal> {
    let entry = row.emit.fields.iter().find(|entry| values::is_column(entry, &column.name))?;
    present(&entry.val)
}

fn present(value: &ScVal) -> Option<&ScVal> {
    (!values::is_null(value)).then_some(value)
}

/// Whether a column of this type is sent as text.
pub(crate) fn is_text(kind: &ColumnType) -> bool {
    use ColumnType::{Digits, Json, JsonText, Text};
    matches!(kind, Digits | Text | Json | JsonText)
}

/// Returns a value as a column that is sent as text has it; `None` when it cannot hold the value.
pub(crate) fn text_of(kind: &ColumnType, value: &ScVal) -> Option<String> {
    match (kind, value) {
        (ColumnType::Digits, value) => {
            let kind = values::infer(value);
            kind.join(&ColumnType::Digits).is_some().then(|| values::plain(value))
        }
        (ColumnType::Text, value) => {
            (values::infer(value) == ColumnType::Text).then(|| values::plain(value))
        }
        (ColumnType::Json, value) => Some(values::tagged(value)),
        (ColumnType::JsonText, ScVal::String(text)) => Some(domain::text(text.as_slice())),
        _ => None,
    }
}

/// Builds an array of values of one type; `None` stands for null.
pub(crate) fn array(kind: &ColumnType, values: &[Option<&ScVal>]) -> Result<ArrayRef, ArrowError> {
    Ok(match kind {
        ColumnType::Boolean => Arc::new(
            collect(values, |value| match value {
                ScVal::Bool(value) => Some(*value),
                _ => None,
            })?
            .into_iter()
            .collect::<BooleanArray>(),
        ),
        ColumnType::UInt32 => integers::<UInt32Type>(values)?,
        ColumnType::Int32 => integers::<Int32Type>(values)?,
        ColumnType::UInt64 => integers::<UInt64Type>(values)?,
        ColumnType::Int64 => integers::<Int64Type>(values)?,
        ColumnType::UInt128 | ColumnType::Int128 => wide_integers(values)?,
        ColumnType::Digits | ColumnType::Text | ColumnType::Json | ColumnType::JsonText => {
            strings(values, |value| text_of(kind, value))?
        }
        ColumnType::Unknown => strings(values, |_| None)?,
        ColumnType::Bytes => Arc::new(BinaryArray::from(collect(values, |value| match value {
            ScVal::Bytes(bytes) => Some(bytes.as_slice()),
            _ => None,
        })?)),
        ColumnType::List(of) => lists(of, values)?,
        ColumnType::Map(keys, of) => maps(keys, of, values)?,
        ColumnType::Struct(fields) => structs(fields, values)?,
    })
}

/// Reads each value; fails when `read` does not accept one.
fn collect<'a, T>(
    values: &[Option<&'a ScVal>],
    read: impl Fn(&'a ScVal) -> Option<T>,
) -> Result<Vec<Option<T>>, ArrowError> {
    let read = |value: &Option<&'a ScVal>| match value {
        None => Ok(None),
        Some(value) => read(value).map(Some).ok_or_else(|| unexpected(value)),
    };
    values.iter().map(read).collect()
}

fn unexpected(value: &ScVal) -> ArrowError {
    ArrowError::InvalidArgumentError(format!("a value of type {} is not expected", value.name()))
}

fn strings(
    values: &[Option<&ScVal>],
    read: impl Fn(&ScVal) -> Option<String>,
) -> Result<ArrayRef, ArrowError> {
    Ok(Arc::new(StringArray::from(collect(values, read)?)))
}

fn integers<T: ArrowPrimitiveType>(values: &[Option<&ScVal>]) -> Result<ArrayRef, ArrowError>
where
    T::Native: TryFrom<i128>,
{
    let values = collect(values, |value| T::Native::try_from(integer(value)?).ok())?;
    Ok(Arc::new(values.into_iter().collect::<PrimitiveArray<T>>()))
}

/// Returns the number as a signed 128-bit integer; `None` when it is larger or the value is not a
/// number.
pub fn integer(value: &ScVal) -> Option<i128> {
    Some(match value {
        ScVal::U32(number) => i128::from(*number),
        ScVal::I32(number) => i128::from(*number),
        ScVal::U64(number) => i128::from(*number),
        ScVal::I64(number) => i128::from(*number),
        ScVal::Timepoint(seconds) => i128::from(seconds.0),
        ScVal::Duration(seconds) => i128::from(seconds.0),
        ScVal::U128(UInt128Parts { hi, lo }) => {
            i128::try_from(u128::from(*hi) << 64 | u128::from(*lo)).ok()?
        }
        ScVal::I128(Int128Parts { hi, lo }) => i128::from(*hi) << 64 | i128::from(*lo),
        _ => return None,
    })
}

fn wide_integers(values: &[Option<&ScVal>]) -> Result<ArrayRef, ArrowError> {
    let fits = |value: &&ScVal| {
        integer(value).is_some_and(|number| number.unsigned_abs() <= LARGEST_DECIMAL)
    };
    if values.iter().flatten().all(fits) {
        let numbers: Decimal128Array = collect(values, integer)?.into_iter().collect();
        return Ok(Arc::new(numbers.with_precision_and_scale(38, 0)?));
    }
    strings(values, |value| {
        let number = integer(value).is_some() || matches!(value, ScVal::U128(_));
        number.then(|| values::plain(value))
    })
}

fn lists(of: &ColumnType, values: &[Option<&ScVal>]) -> Result<ArrayRef, ArrowError> {
    let lists = collect(values, |value| match value {
        ScVal::Vec(Some(items)) => Some(items.as_slice()),
        _ => None,
    })?;
    let items: Vec<Option<&ScVal>> =
        lists.iter().flatten().flat_map(|items| items.iter().map(present)).collect();
    let items = array(of, &items)?;
    let lengths = lists.iter().map(|items| items.map_or(0, <[ScVal]>::len));
    let field = Arc::new(ArrowField::new("item", items.data_type().clone(), true));
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(ListArray::try_new(field, offsets, items, nulls(&lists))?))
}

fn maps(
    keys: &ColumnType,
    of: &ColumnType,
    values: &[Option<&ScVal>],
) -> Result<ArrayRef, ArrowError> {
    let maps = collect(values, |value| match value {
        ScVal::Map(Some(map)) => Some(map.as_slice()),
        _ => None,
    })?;
    let entries = || maps.iter().flatten().flat_map(|entries| entries.iter());
    let keys = array(keys, &entries().map(|entry| Some(&entry.key)).collect::<Vec<_>>())?;
    let of = array(of, &entries().map(|entry| present(&entry.val)).collect::<Vec<_>>())?;
    let fields = Fields::from(vec![
        ArrowField::new("keys", keys.data_type().clone(), false),
        ArrowField::new("values", of.data_type().clone(), true),
    ]);
    let length = keys.len();
    let entries = StructArray::try_new_with_length(fields, vec![keys, of], None, length)?;
    let field = Arc::new(ArrowField::new("entries", entries.data_type().clone(), false));
    let offsets = OffsetBuffer::from_lengths(maps.iter().map(|map| map.map_or(0, |map| map.len())));
    Ok(Arc::new(MapArray::try_new(field, offsets, entries, nulls(&maps), false)?))
}

fn structs(fields: &[Field], values: &[Option<&ScVal>]) -> Result<ArrayRef, ArrowError> {
    let maps = collect(values, |value| match value {
        ScVal::Map(Some(map)) => Some(map.as_slice()),
        _ => None,
    })?;
    let mut arrays = Vec::with_capacity(fields.len());
    let mut types = Vec::with_capacity(fields.len());
    for field in fields {
        let inner: Vec<Option<&ScVal>> = maps
            .iter()
            .map(|map| {
                let mut entries = map.as_ref()?.iter();
                let entry = entries.find(|entry| values::is_named(entry, &field.name))?;
                present(&entry.val)
            })
            .collect();
        let inner = array(&field.kind, &inner)?;
        types.push(ArrowField::new(&field.name, inner.data_type().clone(), true));
        arrays.push(inner);
    }
    let types = Fields::from(types);
    Ok(Arc::new(StructArray::try_new_with_length(types, arrays, nulls(&maps), maps.len())?))
}

fn nulls<T>(values: &[Option<T>]) -> Option<NullBuffer> {
    let present = NullBuffer::from_iter(values.iter().map(Option::is_some));
    (present.null_count() > 0).then_some(present)
}
