//! Answers as Arrow and Parquet. No decimal type that all readers have holds all integers of 128 bits:
//! some readers end at a decimal of 256 bits. So such integers are texts in Arrow; in Parquet, and in
//! Arrow on request, a column of them is two, as in exports: a decimal of 38 digits, null where a value
//! has 39, and the digits as text. Inside of lists, maps and structs they are texts.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, ListArray, MapArray, RecordBatchOptions, StringArray, StructArray,
};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, Fields, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::writer::StreamWriter;
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use super::shape::Shape;
use super::{Column, Result, Style, check_length, columns_of};
use crate::encode::LARGEST_DECIMAL;
use crate::export_types::{decimals, exact_names};
use crate::query::{Format, Numbers};

/// How integers are written.
#[derive(Debug, Clone, Copy)]
struct Integers {
    /// Whether all of 64 bits and more, and decimals, are texts.
    are_texts: bool,
    /// Whether a column of 128-bit integers has a column of decimals, too.
    have_decimals: bool,
    /// Whether unsigned integers of 64 bits are decimals, which engines without unsigned types read.
    are_signed: bool,
}

/// Collects record batches for an Arrow or Parquet answer.
pub struct Batches {
    integers: Integers,
    /// Names of the columns with the digits of 128-bit integers, in the order of these.
    exact: Vec<String>,
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    bytes: usize,
}

impl Batches {
    /// Begins an answer with these columns.
    pub fn begin(columns: &[Column], schema: &SchemaRef, style: Style) -> Result<Self> {
        let is_parquet = style.format == Format::Parquet;
        let integers = Integers {
            are_texts: style.numbers == Numbers::String,
            have_decimals: match style.numbers {
                Numbers::Exact => is_parquet,
                Numbers::Decimal => true,
                Numbers::String => false,
            },
            are_signed: is_parquet,
        };
        let names = columns.iter().map(|column| &*column.name);
        let wide = columns.iter().filter(|column| is_wide(&column.shape));
        let exact = match integers.have_decimals {
            true => exact_names(names, wide.map(|column| &*column.name)),
            false => Vec::new(),
        };
        let mut batches =
            Self { integers, exact, schema: Arc::clone(schema), batches: Vec::new(), bytes: 0 };
        let empty = batches.written(columns, &RecordBatch::new_empty(Arc::clone(schema)))?;
        batches.schema = empty.schema();
        Ok(batches)
    }

    /// Adds a batch.
    pub fn add(&mut self, columns: &[Column], batch: &RecordBatch, most: usize) -> Result<()> {
        let batch = self.written(columns, batch)?;
        self.bytes += batch.get_array_memory_size();
        // The bound is eight times the answer's limit, because the batches may be compressed later.
        check_length(self.bytes / 8, most)?;
        self.batches.push(batch);
        Ok(())
    }

    /// Returns the finished answer.
    pub fn end(self, format: Format) -> Result<Vec<u8>> {
        let schema = self.schema;
        let mut bytes = Vec::new();
        if format == Format::Arrow {
            let mut writer = StreamWriter::try_new(&mut bytes, &schema)?;
            for batch in &self.batches {
                writer.write(batch)?;
            }
            writer.finish()?;
        } else {
            let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
            let properties = Some(properties.build());
            let mut writer = ArrowWriter::try_new(&mut bytes, schema, properties)?;
            for batch in &self.batches {
                writer.write(batch)?;
            }
            writer.close()?;
        }
        Ok(bytes)
    }

    /// Returns the rows as they are written.
    fn written(&self, columns: &[Column], batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let mut arrays = Vec::with_capacity(columns.len() + self.exact.len());
        let mut fields = Vec::with_capacity(columns.len() + self.exact.len());
        let mut exact = Vec::with_capacity(self.exact.len());
        let schema = batch.schema();
        for ((column, array), field) in columns_of(columns, batch).zip(schema.fields()) {
            let mut array_of = written(&column.shape, array, self.integers)?;
            if self.integers.have_decimals && is_wide(&column.shape) {
                exact.push(array_of);
                array_of = decimals_of(&column.shape, array)?;
            }
            // Keeps the metadata of the field: that it is a UUID or JSON.
            fields.push(
                Field::new(&column.name, array_of.data_type().clone(), true)
                    .with_metadata(field.metadata().clone()),
            );
            arrays.push(array_of);
        }
        for (name, digits) in self.exact.iter().zip(exact) {
            fields.push(Field::new(name, digits.data_type().clone(), true));
            arrays.push(digits);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)
    }
}

fn is_wide(shape: &Shape) -> bool {
    matches!(shape, Shape::Huge | Shape::UnsignedHuge)
}

/// Returns 128-bit integers as decimals of 38 digits, null where they have more.
fn decimals_of(shape: &Shape, array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let Some(integers) = array.as_primitive_opt::<Decimal128Type>() else {
        return Ok(Arc::clone(array));
    };
    let is_unsigned = *shape == Shape::UnsignedHuge;
    // Batches have the bits of unsigned integers as those of signed ones.
    let fits = |bits: &i128| !is_unsigned || bits.cast_unsigned() <= LARGEST_DECIMAL;
    Ok(Arc::new(decimals(integers.iter().map(|bits| bits.filter(fits)))?))
}

/// Returns the same values, with 128-bit integers as texts, and the others as `integers` says.
fn written(shape: &Shape, array: &ArrayRef, integers: Integers) -> Result<ArrayRef, ArrowError> {
    let inside = |shape: &Shape, array: &ArrayRef, field: &FieldRef| {
        let array = written(shape, array, integers)?;
        let field = Arc::new(field.as_ref().clone().with_data_type(array.data_type().clone()));
        Ok::<_, ArrowError>((array, field))
    };
    Ok(match shape {
        Shape::Huge | Shape::UnsignedHuge => {
            let Some(wide) = array.as_primitive_opt::<Decimal128Type>() else {
                return Ok(Arc::clone(array));
            };
            let signed = *shape == Shape::Huge;
            let text = |bits: i128| {
                if signed { bits.to_string() } else { bits.cast_unsigned().to_string() }
            };
            Arc::new(wide.iter().map(|bits| bits.map(text)).collect::<StringArray>())
        }
        Shape::Long | Shape::Decimal(_) if integers.are_texts => cast(array, &DataType::Utf8)?,
        Shape::Long if integers.are_signed && *array.data_type() == DataType::UInt64 => {
            cast(array, &DataType::Decimal128(38, 0))?
        }
        Shape::List(of) => {
            let Some(lists) = array.as_list_opt::<i32>() else { return Ok(Arc::clone(array)) };
            let DataType::List(field) = array.data_type() else {
                return Ok(Arc::clone(array));
            };
            let (values, field) = inside(of, lists.values(), field)?;
            let nulls = lists.nulls().cloned();
            Arc::new(ListArray::try_new(field, lists.offsets().clone(), values, nulls)?)
        }
        Shape::Struct(fields) => {
            let Some(structs) = array.as_struct_opt() else { return Ok(Arc::clone(array)) };
            Arc::new(written_struct(fields.iter().map(|(_, shape)| shape), structs, integers)?)
        }
        Shape::Map(keys, values) => {
            let Some(maps) = array.as_map_opt() else { return Ok(Arc::clone(array)) };
            let shapes = [keys.as_ref(), values.as_ref()];
            let entries = written_struct(shapes.into_iter(), maps.entries(), integers)?;
            let field = Field::new("entries", entries.data_type().clone(), false);
            let (offsets, nulls) = (maps.offsets().clone(), maps.nulls().cloned());
            Arc::new(MapArray::try_new(Arc::new(field), offsets, entries, nulls, false)?)
        }
        _ => Arc::clone(array),
    })
}

fn written_struct<'a>(
    shapes: impl Iterator<Item = &'a Shape>,
    structs: &StructArray,
    integers: Integers,
) -> Result<StructArray, ArrowError> {
    let mut arrays = Vec::new();
    let mut fields = Vec::new();
    for ((shape, array), field) in shapes.zip(structs.columns()).zip(structs.fields()) {
        let array = written(shape, array, integers)?;
        fields.push(field.as_ref().clone().with_data_type(array.data_type().clone()));
        arrays.push(array);
    }
    let nulls: Option<NullBuffer> = structs.nulls().cloned();
    StructArray::try_new_with_length(Fields::from(fields), arrays, nulls, structs.len())
}
