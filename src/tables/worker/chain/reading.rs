//! Rows of a table of the chain from one place: a file, or memory. Values come as DuckDB takes them, and a column that
//! the place lacks is null.
//!
//! The groups of rows of a file are read one after the other, each only if its rows are still needed then.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, new_null_array};
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

/// Bytes of values that are read from a file at a time.
const BATCH_BYTES: usize = 8 << 20;
/// Minimum number of rows that are read at a time. DuckDB collects those of chunks of 64 or fewer until they are 2048.
const MIN_BATCH_ROWS: usize = 80;

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
    File(FileReading),
    /// From memory: the batches and the next one of them.
    Held(Arc<HeldRows>, usize),
}

/// Rows from a file.
pub struct FileReading {
    file: Arc<DataFile>,
    /// Groups of rows that are to be read, in this order.
    groups: VecDeque<usize>,
    /// The group that is being read.
    reader: Option<Box<ParquetRecordBatchReader>>,
}

/// Tells whether rows are needed of whose columns this is known.
pub type IsNeeded<'a> = &'a dyn Fn(&dyn Fn(usize) -> Option<Span>) -> bool;

/// What is known of the ledgers of rows.
pub fn span_of_ledgers(
    columns: &[ChainColumn],
    (first, last): (u32, u32),
) -> impl Fn(usize) -> Option<Span> {
    let ledger = columns.iter().position(|column| column.name == LEDGER_OF_CHAIN);
    let of = |ledger: u32| Constant::Integer(ledger.into());
    move |at| (Some(at) == ledger).then(|| Span { least: of(first), greatest: of(last) })
}

impl Wanted {
    /// Returns how many columns are read, those of the condition included.
    pub fn width(&self) -> usize {
        let of_condition = self.condition.as_ref().map(|it| it.columns()).unwrap_or_default();
        let others = of_condition.iter().filter(|column| !self.read.contains(column));
        self.read.len() + others.count()
    }
}

impl Reading {
    /// Begins to read a file, the last groups of rows first if the newest ledgers come first.
    pub fn of_file(file: Arc<DataFile>, newest_first: bool) -> Self {
        let groups = 0..file.footer.metadata().num_row_groups();
        let groups = match newest_first {
            true => groups.rev().collect(),
            false => groups.collect(),
        };
        Self::File(FileReading { file, groups, reader: None })
    }

    /// Returns the name of the file that is read, or where else the rows are.
    pub fn place(&self) -> &str {
        match self {
            Self::File(reading) => &reading.file.name,
            Self::Held(..) => "rows in memory",
        }
    }

    /// Whether a file is read.
    pub fn is_of_file(&self) -> bool {
        matches!(self, Self::File(_))
    }

    /// Returns the next rows, of which there may be none; `None` after the last.
    ///
    /// # Errors
    /// When the file is damaged.
    pub fn next(
        &mut self,
        wanted: &Wanted,
        is_needed: IsNeeded<'_>,
    ) -> Result<Option<(Vec<ArrayRef>, usize)>, ArrowError> {
        let batch = match self {
            Self::File(reading) => reading.next(wanted, is_needed)?,
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

impl FileReading {
    fn next(
        &mut self,
        wanted: &Wanted,
        is_needed: IsNeeded<'_>,
    ) -> Result<Option<RecordBatch>, ArrowError> {
        loop {
            if let Some(reader) = &mut self.reader {
                if let Some(batch) = reader.next().transpose()? {
                    return Ok(Some(batch));
                }
                self.reader = None;
            }
            let Some(group) = self.groups.pop_front() else { return Ok(None) };
            let known = self.file.footer.metadata().row_group(group);
            let span = |column: usize| span_of(known, wanted.columns.get(column)?);
            let condition = wanted.condition.as_ref();
            if condition.is_none_or(|condition| condition.may_hold(&span)) && is_needed(&span) {
                self.reader = Some(Box::new(self.open(group, wanted)?));
            }
        }
    }

    /// Begins to read a group of rows.
    fn open(&self, group: usize, wanted: &Wanted) -> Result<ParquetRecordBatchReader, ArrowError> {
        let DataFile { bytes, footer, .. } = &*self.file;
        let schema = footer.parquet_schema();
        let roots = schema.root_schema().get_fields();
        let mask = |columns: &[usize]| {
            let names = columns.iter().filter_map(|at| wanted.columns.get(*at));
            let root = |column: &ChainColumn| roots.iter().position(|it| it.name() == column.name);
            ProjectionMask::roots(schema, names.filter_map(root))
        };
        let (read, mut all) = (mask(&wanted.read), mask(&wanted.read));
        all.union(&mask(&wanted.condition.as_ref().map(|it| it.columns()).unwrap_or_default()));
        let reader =
            ParquetRecordBatchReaderBuilder::new_with_metadata(bytes.clone(), footer.clone());
        let mut reader = reader
            .with_batch_size(rows_at_a_time(footer.metadata().row_group(group), &all))
            .with_row_groups(vec![group])
            .with_projection(read);
        if let Some(condition) = &wanted.condition {
            let (columns, condition) = (Arc::clone(&wanted.columns), Arc::clone(condition));
            let mask = mask(&condition.columns());
            let holds = move |batch: RecordBatch| {
                condition.holds(batch.num_rows(), &|at| value(&batch, columns.get(at)))
            };
            let predicate: Box<dyn ArrowPredicate> = Box::new(ArrowPredicateFn::new(mask, holds));
            reader = reader.with_row_filter(RowFilter::new(vec![predicate]));
        }
        Ok(reader.build()?)
    }
}

/// Returns how many rows of a group are read at a time: fewer than [`MAX_BATCH_ROWS`] if they are large.
fn rows_at_a_time(group: &RowGroupMetaData, read: &ProjectionMask) -> usize {
    let leaves = group.columns().iter().enumerate().filter(|(leaf, _)| read.leaf_included(*leaf));
    // Those of a dictionary are stored once, and read as often as they occur.
    let bytes = leaves.map(|(_, column)| {
        column.uncompressed_size().max(column.unencoded_byte_array_data_bytes().unwrap_or(0))
    });
    let bytes = bytes.fold(0i64, i64::saturating_add) / group.num_rows().max(1);
    let rows = BATCH_BYTES / usize::try_from(bytes).unwrap_or_default().max(1);
    rows.clamp(MIN_BATCH_ROWS, MAX_BATCH_ROWS)
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
        // Files and memory name elements differently.
        (DataType::List(of), DataType::List(element)) if *of.data_type() == DataType::Utf8 => {
            let (_, offsets, texts, nulls) = values.as_list::<i32>().clone().into_parts();
            Ok(Arc::new(ListArray::try_new(Arc::clone(element), offsets, texts, nulls)?))
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
