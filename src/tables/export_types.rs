//! Encodes rows of tables in types that every engine reads. Each SQL type has one such type,
//! whatever the values are, and a column that widens mostly keeps it.
//!
//! | SQL | portable |
//! |---|---|
//! | `INTEGER`, `UINTEGER`, `BIGINT` | signed 64-bit integer |
//! | `UBIGINT` | decimal of 38 digits |
//! | `HUGEINT`, `UHUGEINT` | decimal of 38 digits, null where a value has 39, and a second column with the digits as text: no decimal that all engines read holds 39 |
//! | the same in lists, maps and structs, and wider ones | digits as text |
//! | `JSON` | text |
//! | `TIMESTAMP` | microseconds, UTC |
//! | all others | the same |

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, StringArray};
use arrow::datatypes::{Field as ArrowField, Schema, TimestampMicrosecondType};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;

use super::encode::{LARGEST_DECIMAL, record_batch};
use super::error::TablesError;
use super::names::{CLOSED_AT, INJECTED, folded};
use super::row::Row;
use super::schema::TableSchema;
use super::types::{ColumnType, Field};

/// End of the name of the column that has the digits of a column of 128-bit integers.
const EXACT: &str = "_exact";

/// Returns names of the columns with the digits of the columns `wide`, in their order: `NAME_exact`,
/// with as many `_` at its end as make it differ from those of all `columns`.
pub(crate) fn exact_names<'a>(
    columns: impl IntoIterator<Item = &'a str>,
    wide: impl IntoIterator<Item = &'a str>,
) -> Vec<String> {
    let mut taken: BTreeSet<String> = columns.into_iter().map(folded).collect();
    let exact = wide.into_iter().map(|name| {
        let mut exact = format!("{name}{EXACT}");
        while !taken.insert(folded(&exact)) {
            exact.push('_');
        }
        exact
    });
    exact.collect()
}

/// Returns these integers of 128 bits as decimals of 38 digits; null stands for those that have more.
///
/// # Errors
/// None are known; a decimal array can fail in principle.
pub fn decimals(
    integers: impl Iterator<Item = Option<i128>>,
) -> Result<Decimal128Array, ArrowError> {
    let fits = |number: &i128| number.unsigned_abs() <= LARGEST_DECIMAL;
    let decimals: Decimal128Array = integers.map(|number| number.filter(fits)).collect();
    decimals.with_precision_and_scale(38, 0)
}

/// A column of 128-bit integers.
#[derive(Debug, Clone)]
struct Wide {
    /// Number of the column in the table.
    at: usize,
    name: String,
    /// Name of the column with its digits.
    exact: String,
}

/// Encoder of a table's rows: see [`PortableTable::batch`].
#[derive(Debug, Clone)]
pub struct PortableTable {
    /// The table with its types replaced by those whose encoding is portable; columns of 128-bit
    /// integers are digits.
    table: TableSchema,
    wide: Vec<Wide>,
    schema: Arc<Schema>,
}

impl PortableTable {
    /// Creates the encoder for a table.
    ///
    /// # Errors
    /// None are known; encoding an empty batch can fail in principle.
    pub fn new(table: &TableSchema) -> Result<Self, TablesError> {
        let columns = table.shown_columns();
        let injected = INJECTED.iter().map(|(name, _)| *name);
        let names = injected.chain(columns.iter().map(|column| column.name.as_str()));
        let is_wide =
            |column: &&Field| matches!(column.kind, ColumnType::UInt128 | ColumnType::Int128);
        let wide = || columns.iter().filter(is_wide).map(|column| column.name.as_str());
        let exact = exact_names(names, wide());
        let places = (INJECTED.len()..).zip(columns).filter(|(_, column)| is_wide(column));
        let wide = places.zip(exact).map(|((at, column), exact)| {
            let name = column.name.clone();
            Wide { at, name, exact }
        });
        let wide: Vec<Wide> = wide.collect();
        let table = table.with_columns(columns.iter().map(portable_field).collect());
        let mut portable = Self { table, wide, schema: Arc::new(Schema::empty()) };
        portable.schema = portable.batch(&[])?.schema();
        Ok(portable)
    }

    /// Names and types of the columns. Those with the digits of others come last.
    pub fn schema(&self) -> Arc<Schema> {
        Arc::clone(&self.schema)
    }

    /// Returns the name of the column of which this one has the digits; `None` for any other column.
    pub fn exact_of(&self, column: &str) -> Option<&str> {
        self.wide.iter().find(|wide| wide.exact == column).map(|wide| &*wide.name)
    }

    /// Encodes rows of the table, in order.
    ///
    /// # Errors
    /// When a value does not match the table's schema: such a value was not admitted.
    pub fn batch(&self, rows: &[&Row]) -> Result<RecordBatch, TablesError> {
        Ok(self.with_decimals(&in_utc(&record_batch(&self.table, rows)?)?)?)
    }

    /// Returns the same rows, with digits of 128-bit integers as decimals, and the digits last.
    fn with_decimals(&self, batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let mut fields: Vec<Arc<ArrowField>> = batch.schema().fields().iter().cloned().collect();
        let mut columns = batch.columns().to_vec();
        for Wide { at, name, exact } in &self.wide {
            let digits = Arc::clone(&columns[*at]);
            let texts = digits.as_string_opt::<i32>();
            let texts: &StringArray = texts.ok_or_else(|| {
                ArrowError::SchemaError(format!("the digits of '{name}' are no texts"))
            })?;
            // Digits that are no such number are an unsigned one with 39.
            let numbers = texts.iter().map(|text| text.and_then(|text| text.parse().ok()));
            let numbers: ArrayRef = Arc::new(decimals(numbers)?);
            let kind = numbers.data_type().clone();
            fields[*at] = Arc::new(ArrowField::new(name, kind, true));
            columns[*at] = numbers;
            fields.push(Arc::new(ArrowField::new(exact, digits.data_type().clone(), true)));
            columns.push(digits);
        }
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
    }
}

fn portable_field(field: &Field) -> Field {
    Field { name: field.name.clone(), kind: portable(&field.kind) }
}

/// Returns the type whose encoding is the portable form of `kind`.
fn portable(kind: &ColumnType) -> ColumnType {
    match kind {
        ColumnType::UInt32 | ColumnType::Int32 | ColumnType::Int64 => ColumnType::Int64,
        // Encoded as decimals, because every 64-bit number has fewer than 38 digits.
        ColumnType::UInt64 => ColumnType::Int128,
        ColumnType::UInt128 | ColumnType::Int128 | ColumnType::Digits => ColumnType::Digits,
        ColumnType::List(of) => ColumnType::List(Box::new(portable(of))),
        ColumnType::Map(keys, values) => {
            ColumnType::Map(Box::new(portable(keys)), Box::new(portable(values)))
        }
        ColumnType::Struct(fields) => {
            ColumnType::Struct(fields.iter().map(portable_field).collect())
        }
        other => other.clone(),
    }
}

/// Returns the same rows, with the close time marked as UTC.
fn in_utc(batch: &RecordBatch) -> Result<RecordBatch, TablesError> {
    let schema = batch.schema();
    let changed = schema.fields().iter().zip(batch.columns()).map(|(field, column)| {
        let times = column.as_primitive_opt::<TimestampMicrosecondType>();
        match times.filter(|_| field.name() == CLOSED_AT) {
            None => (Arc::clone(field), Arc::clone(column)),
            Some(times) => {
                let times: ArrayRef = Arc::new(times.clone().with_timezone("UTC"));
                let kind = times.data_type().clone();
                (Arc::new(ArrowField::new(CLOSED_AT, kind, true)), times)
            }
        }
    });
    let (fields, columns): (Vec<_>, Vec<_>) = changed.unzip();
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType;
    use stellar_xdr::{
        Int128Parts, Int256Parts, ScMap, ScMapEntry, ScSymbol, ScVal, ScVec, UInt128Parts,
    };

    use super::*;
    use crate::schema::{ProgramSchema, SchemaLimits};
    use orrery_ledger::domain::{CloseTime, ContractId, Emit, Hash32, LedgerSeq, TxHash};

    fn row(value: ScVal) -> Row {
        let key = ScVal::Symbol(ScSymbol("v".try_into().unwrap()));
        let fields = ScMap(vec![ScMapEntry { key, val: value }].try_into().unwrap());
        Row {
            emit: Emit { contract: ContractId([1; 32]), target: "t".to_owned(), fields },
            transaction: TxHash::from([2; 32]),
            event_id: Hash32([3; 32]),
            ledger: LedgerSeq(7),
            closed_at: CloseTime::Seconds(1_700_000_000),
        }
    }

    fn i128(number: i128) -> ScVal {
        let hi = i64::try_from(number >> 64).unwrap();
        ScVal::I128(Int128Parts { hi, lo: (number & i128::from(u64::MAX)) as u64 })
    }

    fn i256(number: u64) -> ScVal {
        ScVal::I256(Int256Parts { hi_hi: 0, hi_lo: 0, lo_hi: 0, lo_lo: number })
    }

    fn list(item: ScVal) -> ScVal {
        ScVal::Vec(Some(ScVec(vec![item].try_into().unwrap())))
    }

    /// Returns the type of a column with these values, and the first value as text.
    fn encoded(values: Vec<ScVal>) -> (DataType, String) {
        let rows: Vec<_> = values.into_iter().map(row).collect();
        let schema = rows.iter().fold(ProgramSchema::default(), |schema, row| {
            let grown = schema.admit(std::slice::from_ref(&row.emit), SchemaLimits::default());
            grown.unwrap().unwrap_or(schema)
        });
        let table = PortableTable::new(schema.table("t").unwrap()).unwrap();
        let batch = table.batch(&rows.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(batch.schema(), table.schema());
        let column = batch.column_by_name("v").unwrap();
        let text = arrow::util::display::array_value_to_string(column, 0).unwrap();
        (column.data_type().clone(), text)
    }

    #[test]
    fn portable_types_do_not_depend_on_the_values() {
        for (values, kind, text) in [
            (vec![ScVal::U32(u32::MAX)], DataType::Int64, "4294967295"),
            (vec![ScVal::I32(-1), ScVal::I64(i64::MIN)], DataType::Int64, "-1"),
            (vec![ScVal::U64(u64::MAX)], DataType::Decimal128(38, 0), "18446744073709551615"),
            (vec![ScVal::U64(1), ScVal::I32(-1)], DataType::Decimal128(38, 0), "1"),
            (vec![i256(7)], DataType::Utf8, "7"),
            (vec![list(i128(7))], DataType::new_list(DataType::Utf8, true), "[7]"),
            (vec![i128(5)], DataType::Decimal128(38, 0), "5"),
            (vec![i128(i128::MIN)], DataType::Decimal128(38, 0), ""),
            (vec![ScVal::Bool(true)], DataType::Boolean, "true"),
            (vec![ScVal::Void], DataType::Utf8, ""),
        ] {
            assert_eq!(encoded(values.clone()), (kind, text.to_owned()), "{values:?}");
        }
    }

    #[test]
    fn integers_of_128_bits_are_numbers_and_digits() {
        let table = |names: &[&str]| {
            let field = |name: &&str| Field { name: (*name).to_owned(), kind: ColumnType::Int128 };
            PortableTable::new(&TableSchema::known("t", names.iter().map(field).collect())).unwrap()
        };
        let names = |table: &PortableTable| -> Vec<String> {
            let schema = table.schema();
            schema.fields()[INJECTED.len()..].iter().map(|field| field.name().clone()).collect()
        };
        assert_eq!(names(&table(&["v", "w"])), ["v", "w", "v_exact", "w_exact"]);
        let taken = table(&["v", "V_EXACT", "v_exact_"]);
        let expected = ["v", "V_EXACT", "v_exact_", "v_exact__", "V_EXACT_exact", "v_exact__exact"];
        assert_eq!(names(&taken), expected);
        assert_eq!((taken.exact_of("v_exact__"), taken.exact_of("v_exact_")), (Some("v"), None));

        let largest = i128::try_from(LARGEST_DECIMAL).unwrap();
        let u128 = |number: u128| {
            let (hi, lo) = ((number >> 64) as u64, number as u64);
            ScVal::U128(UInt128Parts { hi, lo })
        };
        for (value, number) in [
            (i128(largest), true),
            (i128(-largest), true),
            (i128(largest + 1), false),
            (i128(i128::MIN), false),
            (u128(u128::MAX), false),
            (u128(LARGEST_DECIMAL), true),
            (ScVal::Void, false),
        ] {
            let row = row(value.clone());
            let grown = ProgramSchema::default()
                .admit(std::slice::from_ref(&row.emit), SchemaLimits::default());
            let schema = grown.unwrap().unwrap();
            let table = PortableTable::new(schema.table("t").unwrap()).unwrap();
            let batch = table.batch(&[&row]).unwrap();
            let text = |name: &str| {
                let column = batch.column_by_name(name).filter(|column| column.is_valid(0))?;
                arrow::util::display::array_value_to_string(column, 0).ok()
            };
            let exact = (value != ScVal::Void).then(|| crate::values::plain(&value));
            assert_eq!(text("v_exact"), exact, "{value:?}");
            assert_eq!(text("v"), exact.filter(|_| number), "{value:?}");
        }
    }

    #[test]
    fn the_time_of_a_ledger_is_in_utc() {
        let table = PortableTable::new(
            ProgramSchema::default()
                .admit(&[row(ScVal::U32(1)).emit], SchemaLimits::default())
                .unwrap()
                .unwrap()
                .table("t")
                .unwrap(),
        );
        let schema = table.unwrap().schema();
        let kind = schema.field_with_name(CLOSED_AT).unwrap().data_type().to_string();
        assert!(kind.contains("UTC"), "{kind}");
    }
}
