//! Reads the rows of several files of a table in the order of their ledgers, as the table has its columns now.
//! Rows of one ledger stay in the order of the files, and in a file in its order. At most some ledgers are in
//! memory at a time: those whose rows are about [`RANGE_BYTES`].

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, AsArray, UInt32Array, make_array, new_null_array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::{DataType, Int64Type, SchemaRef};
use arrow::error::ArrowError;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use orrery_iceberg::{Column, Columns};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection,
    RowSelector,
};

use super::error::{ExportError, Result};
use orrery_tables::export_types::decimals;

/// Size in bytes of the rows that are sorted in memory, as far as one ledger has no more.
const RANGE_BYTES: u64 = 32 << 20;
/// Number of rows that are read at a time.
const BATCH_ROWS: usize = 4096;

/// Columns of a table whose files are read.
pub struct Shape<'a> {
    /// Every column that it has or had.
    pub columns: &'a Columns,
    /// Those that it has, in their order.
    pub now: &'a [Column],
    /// Their schema with ids.
    pub schema: SchemaRef,
    /// Name of the column with the ledger.
    pub ledger: &'static str,
}

/// Where the values of a column of the table are in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// In the column with this number.
    At(usize),
    /// Their digits, in the column with this number.
    DigitsAt(usize),
    /// The file does not have the column.
    Nowhere,
}

/// A file whose rows are read.
pub struct Input {
    file: File,
    metadata: ArrowReaderMetadata,
    sources: Vec<Source>,
    /// Ledgers of the rows, each with the number of rows that follow each other.
    runs: Vec<(u32, usize)>,
    /// Size in bytes of a row, about.
    row_bytes: u64,
}

impl Shape<'_> {
    /// Opens a file of the table; `has_ids` says whether its columns have ids.
    pub fn open(&self, file: File, has_ids: bool) -> Result<Input> {
        let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new())?;
        let sources = self.sources(metadata.schema(), has_ids);
        let rows = metadata.metadata().file_metadata().num_rows().max(1).cast_unsigned();
        let groups = metadata.metadata().row_groups().iter();
        let bytes: u64 = groups.map(|it| it.total_byte_size().max(0).cast_unsigned()).sum();
        let runs = self.runs(&file, &metadata)?;
        Ok(Input { file, metadata, sources, runs, row_bytes: bytes / rows + 1 })
    }

    /// Returns where the values of each column of the table are in a file with this schema.
    fn sources(&self, schema: &SchemaRef, has_ids: bool) -> Vec<Source> {
        let named = |name: &str| schema.index_of(name).ok();
        let earlier_names: Vec<&str> =
            self.columns.current().filter_map(|it| it.earlier_name.as_deref()).collect();
        let source = |column: &Column| {
            let known = self.columns.current().find(|it| it.name == column.name)?;
            if has_ids {
                let id = known.id.to_string();
                let is_it = |field: &arrow::datatypes::FieldRef| {
                    field.metadata().get(PARQUET_FIELD_ID_META_KEY) == Some(&id)
                };
                return schema.fields().iter().position(is_it).map(Source::At);
            }
            match known.earlier_name.as_deref() {
                Some(name) => named(name).map(Source::At),
                // The text with this name is that of the column with the digits.
                None if earlier_names.contains(&&*column.name) => {
                    named(&column.name).map(Source::DigitsAt)
                }
                None => named(&column.name).map(Source::At),
            }
        };
        self.now.iter().map(|column| source(column).unwrap_or(Source::Nowhere)).collect()
    }

    /// Returns the ledgers of the rows of a file.
    fn runs(&self, file: &File, metadata: &ArrowReaderMetadata) -> Result<Vec<(u32, usize)>> {
        let schema = metadata.metadata().file_metadata().schema_descr();
        let at = schema.root_schema().get_fields().iter().position(|it| it.name() == self.ledger);
        let at = at.ok_or_else(|| self.no_ledgers())?;
        let mask = ProjectionMask::roots(schema, [at]);
        let reader = reader(file, metadata)?.with_projection(mask).build()?;
        let mut runs = Vec::<(u32, usize)>::new();
        for batch in reader {
            let batch = batch?;
            let ledgers = batch.column(0).as_primitive_opt::<Int64Type>();
            let ledgers = ledgers.filter(|it| it.null_count() == 0);
            for ledger in ledgers.ok_or_else(|| self.no_ledgers())?.values() {
                let ledger = u32::try_from(*ledger).map_err(|_| self.no_ledgers())?;
                match runs.last_mut() {
                    Some((last, rows)) if *last == ledger => *rows += 1,
                    _ => runs.push((ledger, 1)),
                }
            }
        }
        Ok(runs)
    }

    fn no_ledgers(&self) -> ExportError {
        ExportError::Unmerged(format!("its column '{}' has no ledgers", self.ledger))
    }

    /// Calls `visit` with the rows of all files, in the order of their ledgers.
    pub fn visit(
        &self,
        inputs: &[Input],
        visit: impl FnMut(&RecordBatch, RangeInclusive<u32>) -> Result<()>,
    ) -> Result<()> {
        self.visit_within(inputs, RANGE_BYTES, visit)
    }

    fn visit_within(
        &self,
        inputs: &[Input],
        range_bytes: u64,
        mut visit: impl FnMut(&RecordBatch, RangeInclusive<u32>) -> Result<()>,
    ) -> Result<()> {
        for ledgers in ranges(inputs, range_bytes) {
            let mut batches = Vec::new();
            for input in inputs {
                self.read(input, &ledgers, &mut batches)?;
            }
            let rows = self.sorted(&concat_batches(&self.schema, &batches)?)?;
            drop(batches);
            let mut first = 0;
            while first < rows.num_rows() {
                let count = BATCH_ROWS.min(rows.num_rows() - first);
                visit(&rows.slice(first, count), ledgers.clone())?;
                first += count;
            }
        }
        Ok(())
    }

    /// Reads the rows of these ledgers in a file.
    fn read(
        &self,
        input: &Input,
        ledgers: &RangeInclusive<u32>,
        batches: &mut Vec<RecordBatch>,
    ) -> Result<()> {
        if !input.runs.iter().any(|(ledger, _)| ledgers.contains(ledger)) {
            return Ok(());
        }
        let selector = |(ledger, rows): &(u32, usize)| match ledgers.contains(ledger) {
            true => RowSelector::select(*rows),
            false => RowSelector::skip(*rows),
        };
        let selection: RowSelection = input.runs.iter().map(selector).collect::<Vec<_>>().into();
        let reader = reader(&input.file, &input.metadata)?.with_row_selection(selection).build()?;
        for batch in reader {
            batches.push(self.fitted(&batch?, &input.sources)?);
        }
        Ok(())
    }

    fn fitted(&self, batch: &RecordBatch, sources: &[Source]) -> Result<RecordBatch, ArrowError> {
        let fields = self.schema.fields().iter().zip(sources);
        let columns = fields.map(|(field, source)| {
            let kind = field.data_type();
            match source {
                Source::Nowhere => Ok(new_null_array(kind, batch.num_rows())),
                Source::At(at) => Ok(make_array(retyped(&batch.column(*at).to_data(), kind)?)),
                Source::DigitsAt(at) => numbers(batch.column(*at)),
            }
        });
        let columns: Vec<ArrayRef> = columns.collect::<Result<_, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
    }

    /// Returns the rows in the order of their ledgers.
    fn sorted(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let column = rows.column_by_name(self.ledger);
        let ledgers = column.and_then(|column| column.as_primitive_opt::<Int64Type>());
        let ledgers = ledgers.ok_or_else(|| self.no_ledgers())?.values();
        if ledgers.is_sorted() {
            return Ok(rows.clone());
        }
        let mut order: Vec<u32> = (0..rows.num_rows() as u32).collect();
        order.sort_by_key(|row| ledgers.get(*row as usize).copied());
        Ok(take_record_batch(rows, &UInt32Array::from(order))?)
    }
}

fn reader(
    file: &File,
    metadata: &ArrowReaderMetadata,
) -> Result<ParquetRecordBatchReaderBuilder<File>> {
    let file = file.try_clone().map_err(super::spool::unusable)?;
    let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata.clone());
    Ok(reader.with_batch_size(BATCH_ROWS))
}

/// Returns ranges of ledgers, ascending, that have all rows, each with about so many bytes at most.
fn ranges(inputs: &[Input], range_bytes: u64) -> Vec<RangeInclusive<u32>> {
    let mut sizes = BTreeMap::<u32, u64>::new();
    for input in inputs {
        for (ledger, rows) in &input.runs {
            *sizes.entry(*ledger).or_default() += *rows as u64 * input.row_bytes;
        }
    }
    let mut ranges = Vec::<RangeInclusive<u32>>::new();
    let mut size = 0;
    for (ledger, bytes) in sizes {
        match ranges.last_mut() {
            Some(last) if size + bytes <= range_bytes => {
                *last = *last.start()..=ledger;
                size += bytes;
            }
            _ => {
                ranges.push(ledger..=ledger);
                size = bytes;
            }
        }
    }
    ranges
}

/// Returns the same values with a type that differs in names, and in what may be null.
fn retyped(values: &ArrayData, kind: &DataType) -> Result<ArrayData, ArrowError> {
    let children = values.child_data().iter();
    let parts: Vec<ArrayData> = match kind {
        DataType::List(part) | DataType::Map(part, _) => {
            children.map(|child| retyped(child, part.data_type())).collect::<Result<_, _>>()?
        }
        DataType::Struct(fields) => {
            let pairs = children.zip(fields.iter());
            pairs
                .map(|(child, field)| retyped(child, field.data_type()))
                .collect::<Result<_, _>>()?
        }
        // Values of another type are none of this column.
        _ if values.data_type() != kind => {
            let (found, expected) = (values.data_type(), kind);
            return Err(ArrowError::SchemaError(format!("{found} is not {expected}")));
        }
        _ => return Ok(values.clone()),
    };
    values.clone().into_builder().data_type(kind.clone()).child_data(parts).build()
}

/// Returns the numbers that these digits say.
fn numbers(digits: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let texts = digits.as_string_opt::<i32>();
    let texts = texts.ok_or_else(|| ArrowError::SchemaError("digits are no texts".to_owned()))?;
    // Digits that are no such number are an unsigned one with 39.
    let numbers = texts.iter().map(|text| text.and_then(|text| text.parse().ok()));
    Ok(Arc::new(decimals(numbers)?))
}

#[cfg(test)]
mod tests;
