//! Rows of a table of the chain from one place: a file, or memory. Values come as DuckDB takes them, and a column that
//! the place lacks is null.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, new_null_array};
use arrow::compute::{cast, filter_record_batch};
use arrow::datatypes::{DataType, TimestampMicrosecondType};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowPredicate, ArrowPredicateFn, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
    RowFilter,
};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::statistics::Statistics;

use super::condition::{Condition, Constant, Span};
use super::files::DataFile;
use super::held::HeldRows;
use crate::chain::{ChainColumn, ChainType, MAX_BATCH_ROWS};
use crate::names::LEDGER_OF_CHAIN;

/// What is read of a table.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The columns of the table.
    pub columns: Arc<Vec<ChainColumn>>,
    /// Places of those that are read.
    pub read: Vec<usize>,
    /// What holds for the rows that are read; `None` for all.
    pub condition: Option<Arc<Condition>>,
}

/// Rows from one place, as batches of at most [`MAX_BATCH_ROWS`].
pub enum Reading {
    /// From a file.
    File(Box<ParquetRecordBatchReader>),
    /// From memory: the batches and the next one of them.
    Held(Arc<HeldRows>, usize),
}

/// What is known of the ledgers of rows.
pub fn span_of_ledgers(
    columns: &[ChainColumn],
    (first, last): (u32, u32),
) -> impl Fn(usize) -> Option<Span> {
    let ledger = columns.iter().position(|column| column.name == LEDGER_OF_CHAIN);
    let of = |ledger: u32| Constant::Integer(ledger.into());
    move |at| (Some(at) == ledger).then(|| Span { least: of(first), greatest: of(last) })
}

impl Reading {
    /// Begins to read a file; of its groups of rows only those for which `is_needed` returns true.
    ///
    /// # Errors
    /// When the file is not what its footer says.
    pub fn of_file(
        file: &DataFile,
        wanted: &Wanted,
        is_needed: impl Fn(&dyn Fn(usize) -> Option<Span>) -> bool,
    ) -> Result<Self, ArrowError> {
        let schema = file.footer.parquet_schema();
        let roots = schema.root_schema().get_fields();
        let mask = |columns: &[usize]| {
            let names = columns.iter().filter_map(|at| wanted.columns.get(*at));
            let root = |column: &ChainColumn| roots.iter().position(|it| it.name() == column.name);
            ProjectionMask::roots(schema, names.filter_map(root))
        };
        let groups = file.footer.metadata().row_groups();
        let needed = (0..groups.len()).filter(|at| {
            let span = |column: usize| span_of(&groups[*at], wanted.columns.get(column)?);
            let condition = wanted.condition.as_ref();
            condition.is_none_or(|condition| condition.may_hold(&span)) && is_needed(&span)
        });
        let needed: Vec<usize> = needed.collect();
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(
            file.bytes.clone(),
            file.footer.clone(),
        );
        let mut reader = reader
            .with_batch_size(MAX_BATCH_ROWS)
            .with_row_groups(needed)
            .with_projection(mask(&wanted.read));
        if let Some(condition) = &wanted.condition {
            let (columns, condition) = (Arc::clone(&wanted.columns), Arc::clone(condition));
            let mask = mask(&condition.columns());
            let holds = move |batch: RecordBatch| {
                condition.holds(batch.num_rows(), &|at| value(&batch, columns.get(at)))
            };
            let predicate: Box<dyn ArrowPredicate> = Box::new(ArrowPredicateFn::new(mask, holds));
            reader = reader.with_row_filter(RowFilter::new(vec![predicate]));
        }
        Ok(Self::File(Box::new(reader.build()?)))
    }

    /// Returns the next rows, of which there may be none; `None` after the last.
    ///
    /// # Errors
    /// When the file is damaged.
    pub fn next(&mut self, wanted: &Wanted) -> Result<Option<(Vec<ArrayRef>, usize)>, ArrowError> {
        let batch = match self {
            Self::File(reader) => reader.next().transpose()?,
            Self::Held(rows, at) => {
                let batch = rows.batches.get(*at);
                *at += 1;
                match (batch, &wanted.condition) {
                    (Some(batch), Some(condition)) => {
                        let of = |at: usize| value(batch, wanted.columns.get(at));
                        let holds = condition.holds(batch.num_rows(), &of)?;
                        Some(filter_record_batch(batch, &holds)?)
                    }
                    (batch, _) => batch.cloned(),
                }
            }
        };
        let Some(batch) = batch else { return Ok(None) };
        let values = wanted.read.iter().map(|at| value(&batch, wanted.columns.get(*at)));
        Ok(Some((values.collect::<Result<_, _>>()?, batch.num_rows())))
    }
}

/// Returns the values of a column as DuckDB takes them.
fn value(batch: &RecordBatch, column: Option<&ChainColumn>) -> Result<ArrayRef, ArrowError> {
    let no_column = || ArrowError::SchemaError("no such column".to_owned());
    let column = column.ok_or_else(no_column)?;
    let wanted = column.kind.arrow();
    let Some(values) = batch.column_by_name(&column.name) else {
        return Ok(new_null_array(&wanted, batch.num_rows()));
    };
    match (values.data_type(), &wanted) {
        (DataType::Timestamp(unit, _), DataType::Timestamp(same, _)) if unit == same => {
            let times = values.as_primitive::<TimestampMicrosecondType>().clone();
            Ok(Arc::new(times.with_timezone_opt(None::<Arc<str>>)))
        }
        (DataType::List(of), DataType::List(_)) if *of.data_type() == DataType::Utf8 => {
            Ok(Arc::clone(values))
        }
        (kind, wanted) if kind == wanted => Ok(Arc::clone(values)),
        _ => cast(values, &wanted),
    }
}

/// Returns what the footer of a file says of the values of a column in a group of rows.
fn span_of(group: &RowGroupMetaData, column: &ChainColumn) -> Option<Span> {
    let of = |it: &&parquet::file::metadata::ColumnChunkMetaData| matches!(it.column_path().parts(), [name] if *name == column.name);
    let statistics = group.columns().iter().find(of)?.statistics()?;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok().map(Constant::Text);
    let (least, greatest) = match (statistics, column.kind) {
        (Statistics::Int64(of), ChainType::Integer | ChainType::Time) => {
            (Constant::Integer(*of.min_opt()?), Constant::Integer(*of.max_opt()?))
        }
        (Statistics::ByteArray(of), ChainType::Text) => {
            (text(of.min_opt()?.data())?, text(of.max_opt()?.data())?)
        }
        _ => return None,
    };
    Some(Span { least, greatest })
}
