//! Answers as Arrow and Parquet. 128-bit integers become texts, as in exports, because no decimal type
//! that all readers have holds them: some end at a decimal of 256 bits.

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
use super::{Column, Result, check_length, columns_of};
use crate::query::{Format, Numbers};

/// Collects record batches for an Arrow or Parquet answer.
pub struct Batches {
    numbers: Numbers,
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    bytes: usize,
}

impl Batches {
    /// Begins an answer with these columns.
    pub fn begin(columns: &[Column], schema: &SchemaRef, numbers: Numbers) -> Result<Self> {
        let schema = exact(columns, &RecordBatch::new_empty(Arc::clone(schema)), numbers)?.schema();
        Ok(Self { numbers, schema, batches: Vec::new(), bytes: 0 })
    }

    /// Adds a batch.
    pub fn add(&mut self, columns: &[Column], batch: &RecordBatch, most: usize) -> Result<()> {
        let batch = exact(columns, batch, self.numbers)?;
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
}

fn exact(
    columns: &[Column],
    batch: &RecordBatch,
    numbers: Numbers,
) -> Result<RecordBatch, ArrowError> {
    let mut arrays = Vec::with_capacity(columns.len());
    let mut fields = Vec::with_capacity(columns.len());
    let schema = batch.schema();
    for ((column, array), field) in columns_of(columns, batch).zip(schema.fields()) {
        let array = written(&column.shape, array, numbers)?;
        // Keeps the metadata of the field: that it is a UUID or JSON.
        fields.push(
            Field::new(&column.name, array.data_type().clone(), true)
                .with_metadata(field.metadata().clone()),
        );
        arrays.push(array);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)
}

/// Returns the same values, with 128-bit integers as texts, and with all of 64 bits and more and
/// decimals as texts where `numbers` asks for it.
fn written(shape: &Shape, array: &ArrayRef, numbers: Numbers) -> Result<ArrayRef, ArrowError> {
    let inside = |shape: &Shape, array: &ArrayRef, field: &FieldRef| {
        let array = written(shape, array, numbers)?;
        let field = Arc::new(field.as_ref().clone().with_data_type(array.data_type().clone()));
        Ok::<_, ArrowError>((array, field))
    };
    Ok(match shape {
        Shape::Huge | Shape::UnsignedHuge => {
            let Some(integers) = array.as_primitive_opt::<Decimal128Type>() else {
                return Ok(Arc::clone(array));
            };
            let signed = *shape == Shape::Huge;
            let text = |bits: i128| {
                if signed { bits.to_string() } else { bits.cast_unsigned().to_string() }
            };
            Arc::new(integers.iter().map(|bits| bits.map(text)).collect::<StringArray>())
        }
        Shape::Long | Shape::Decimal(_) if numbers == Numbers::String => {
            cast(array, &DataType::Utf8)?
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
            Arc::new(written_struct(fields.iter().map(|(_, shape)| shape), structs, numbers)?)
        }
        Shape::Map(keys, values) => {
            let Some(maps) = array.as_map_opt() else { return Ok(Arc::clone(array)) };
            let shapes = [keys.as_ref(), values.as_ref()];
            let entries = written_struct(shapes.into_iter(), maps.entries(), numbers)?;
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
    numbers: Numbers,
) -> Result<StructArray, ArrowError> {
    let mut arrays = Vec::new();
    let mut fields = Vec::new();
    for ((shape, array), field) in shapes.zip(structs.columns()).zip(structs.fields()) {
        let array = written(shape, array, numbers)?;
        fields.push(field.as_ref().clone().with_data_type(array.data_type().clone()));
        arrays.push(array);
    }
    let nulls: Option<NullBuffer> = structs.nulls().cloned();
    StructArray::try_new_with_length(Fields::from(fields), arrays, nulls, structs.len())
}
