//! Encodes rows of tables in types that every engine reads. Each SQL type has one such type,
//! whatever the values are, and a column that widens mostly keeps it.
//!
//! | SQL | portable |
//! |---|---|
//! | `INTEGER`, `UINTEGER`, `BIGINT` | signed 64-bit integer |
//! | `UBIGINT` | decimal of 38 digits |
//! | `HUGEINT`, `UHUGEINT` and wider | decimal digits as text: no decimal that all engines read holds 39 of them |
//! | `JSON` | text |
//! | `TIMESTAMP` | microseconds, UTC |
//! | all others | the same |

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{Field as ArrowField, Schema, TimestampMicrosecondType};
use arrow::record_batch::RecordBatch;

use super::changes::Row;
use super::encode::record_batch;
use super::error::TablesError;
use super::names::CLOSED_AT;
use super::schema::TableSchema;
use super::types::{ColumnType, Field};

/// Encoder of a table's rows: see [`PortableTable::batch`].
#[derive(Debug, Clone)]
pub struct PortableTable {
    /// The table with its types replaced by those whose encoding is portable.
    table: TableSchema,
    schema: Arc<Schema>,
}

impl PortableTable {
    /// Creates the encoder for a table.
    ///
    /// # Errors
    /// None are known; encoding an empty batch can fail in principle.
    pub fn new(table: &TableSchema) -> Result<Self, TablesError> {
        let table = table.with_columns(table.columns.iter().map(portable_field).collect());
        let schema = in_utc(&record_batch(&table, &[])?)?.schema();
        Ok(Self { table, schema })
    }

    /// Names and types of the columns.
    pub fn schema(&self) -> Arc<Schema> {
        Arc::clone(&self.schema)
    }

    /// Encodes rows of the table, in order.
    ///
    /// # Errors
    /// When a value does not match the table's schema: such a value was not admitted.
    pub fn batch(&self, rows: &[&Row]) -> Result<RecordBatch, TablesError> {
        in_utc(&record_batch(&self.table, rows)?)
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
    use stellar_xdr::{Int128Parts, ScMap, ScMapEntry, ScSymbol, ScVal};

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
            (vec![ScVal::U64(1), ScVal::I32(-1)], DataType::Utf8, "1"),
            (vec![i128(5)], DataType::Utf8, "5"),
            (vec![i128(i128::MIN)], DataType::Utf8, "-170141183460469231731687303715884105728"),
            (vec![ScVal::Bool(true)], DataType::Boolean, "true"),
            (vec![ScVal::Void], DataType::Utf8, ""),
        ] {
            assert_eq!(encoded(values.clone()), (kind, text.to_owned()), "{values:?}");
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
