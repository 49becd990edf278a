//! Rows of a table as columns while they are collected, and the frames in which they are sent.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryBuilder, BooleanBuilder, Decimal128Builder, Int32Builder, Int64Builder,
    StringBuilder, TimestampMicrosecondBuilder, UInt32Builder, UInt64Builder,
};
use arrow::datatypes::{Field as ArrowField, Schema};
use arrow::record_batch::RecordBatch;
use orrery_ledger::domain::{CloseTime, ContractId, Emit, Hash32, LedgerSeq};
use stellar_xdr::{ScMapEntry, ScVal};

use super::encode::{self, LARGEST_DECIMAL};
use super::error::TablesError;
use super::schema::TableSchema;
use super::types::ColumnType;
use super::{names, values};

/// Maximum number of rows per frame. The worker appends one frame while the next is packed on
/// another processor.
pub(super) const MAX_ROWS: usize = 2_048;
/// Approximate maximum length of a frame in bytes.
pub(super) const MAX_BYTES: usize = 8 << 20;
/// Approximate bytes that a field left out of a struct takes in a frame.
pub(super) const ABSENT_FIELD_BYTES: usize = 16;
/// Approximate bytes of a row besides its values.
pub(super) const ROW_OVERHEAD_BYTES: usize = 256;

/// Rows of one table, as they are sent.
#[derive(Debug, Clone)]
pub struct Frame {
    /// Target of the table.
    pub(super) target: String,
    pub(super) columns: RecordBatch,
}

/// Where a row comes from.
pub(super) struct Origin<'a> {
    pub contract: &'a str,
    pub transaction: &'a str,
    pub id: &'a Hash32,
    pub ledger: LedgerSeq,
    pub closed_at: CloseTime,
}

/// Rows of a table in the making.
pub(super) struct OpenFrame {
    table: TableSchema,
    contracts: StringBuilder,
    transactions: StringBuilder,
    ids: StringBuilder,
    ledgers: Int64Builder,
    closed: TimestampMicrosecondBuilder,
    columns: Vec<Cells>,
    rows: usize,
    bytes: usize,
}

impl OpenFrame {
    pub fn new(table: &TableSchema) -> Self {
        Self {
            table: table.clone(),
            contracts: StringBuilder::new(),
            transactions: StringBuilder::new(),
            ids: StringBuilder::new(),
            ledgers: Int64Builder::new(),
            closed: TimestampMicrosecondBuilder::new(),
            columns: table.columns.iter().map(|column| Cells::new(&column.kind)).collect(),
            rows: 0,
            bytes: 0,
        }
    }

    /// Begins a row of about this many bytes. Each column gets one cell after that.
    pub fn begin(&mut self, origin: &Origin<'_>, bytes: usize) {
        let mut id = [0; 64];
        // The id has 32 bytes, which are 64 digits.
        let _ = hex::encode_to_slice(origin.id.as_bytes(), &mut id);
        self.contracts.append_value(origin.contract);
        self.transactions.append_value(origin.transaction);
        self.ids.append_value(str::from_utf8(&id).unwrap_or_default());
        self.ledgers.append_value(i64::from(origin.ledger.0));
        self.closed.append_value(origin.closed_at.microseconds());
        self.rows += 1;
        self.bytes += ROW_OVERHEAD_BYTES + bytes;
    }

    /// About how many bytes the fields of structs take that an emit leaves out.
    pub fn absent_bytes(&self, emit: &Emit) -> usize {
        ABSENT_FIELD_BYTES * self.table.absent(emit, MAX_BYTES)
    }

    pub fn columns(&mut self) -> &mut [Cells] {
        &mut self.columns
    }

    /// Adds the cells of a row that is a map of columns, as emits are.
    ///
    /// # Errors
    /// When a value does not match its column.
    pub fn put_emit(&mut self, fields: &[ScMapEntry]) -> Result<(), TablesError> {
        let Self { table, columns, .. } = self;
        for (column, cells) in table.columns.iter().zip(columns) {
            let entry = fields.iter().find(|entry| values::is_column(entry, &column.name));
            let value = entry.map(|entry| &entry.val).filter(|value| !values::is_null(value));
            if !cells.put_value(&column.kind, value) {
                return Err(TablesError::Refused(format!(
                    "column '{}' of '{}' cannot hold a value of its rows",
                    column.name, table.target
                )));
            }
        }
        Ok(())
    }

    /// Whether no further row belongs into this frame.
    pub fn is_full(&self) -> bool {
        self.rows >= MAX_ROWS || self.bytes >= MAX_BYTES
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Returns the rows so far, and begins anew.
    ///
    /// # Errors
    /// When a value does not match its column.
    pub fn take(&mut self) -> Result<Frame, TablesError> {
        let injected: [ArrayRef; names::INJECTED.len()] = [
            Arc::new(self.contracts.finish()),
            Arc::new(self.transactions.finish()),
            Arc::new(self.ids.finish()),
            Arc::new(self.ledgers.finish()),
            Arc::new(self.closed.finish()),
        ];
        let mut columns = injected.to_vec();
        for (cells, column) in self.columns.iter_mut().zip(&self.table.columns) {
            columns.push(cells.finish(&column.kind)?);
        }
        (self.rows, self.bytes) = (0, 0);
        let names = names::INJECTED.iter().map(|(name, _)| *name);
        let names = names.chain(self.table.columns.iter().map(|column| column.name.as_str()));
        let field = |(name, column): (&str, &ArrayRef)| {
            ArrowField::new(name, column.data_type().clone(), true)
        };
        let fields: Vec<ArrowField> = names.zip(&columns).map(field).collect();
        let columns = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?;
        Ok(Frame { target: self.table.target.clone(), columns })
    }
}

/// The values of a column, one for each row.
pub(super) enum Cells {
    Boolean(BooleanBuilder),
    UInt32(UInt32Builder),
    Int32(Int32Builder),
    UInt64(UInt64Builder),
    Int64(Int64Builder),
    Wide(Wide),
    Text(StringBuilder),
    Bytes(BinaryBuilder),
    /// Lists, maps, structs and what is not known.
    Values(Vec<Option<ScVal>>),
}

/// Integers of up to 128 bits: decimals of 38 digits, or text when one has more.
pub(super) enum Wide {
    Decimals(Decimal128Builder),
    Texts(StringBuilder),
}

impl Cells {
    fn new(kind: &ColumnType) -> Self {
        match kind {
            ColumnType::Boolean => Self::Boolean(BooleanBuilder::new()),
            ColumnType::UInt32 => Self::UInt32(UInt32Builder::new()),
            ColumnType::Int32 => Self::Int32(Int32Builder::new()),
            ColumnType::UInt64 => Self::UInt64(UInt64Builder::new()),
            ColumnType::Int64 => Self::Int64(Int64Builder::new()),
            ColumnType::UInt128 | ColumnType::Int128 => Self::Wide(Wide::new()),
            ColumnType::Digits | ColumnType::Text | ColumnType::Json | ColumnType::JsonText => {
                Self::Text(StringBuilder::new())
            }
            ColumnType::Bytes => Self::Bytes(BinaryBuilder::new()),
            ColumnType::List(_)
            | ColumnType::Map(..)
            | ColumnType::Struct(_)
            | ColumnType::Unknown => Self::Values(Vec::new()),
        }
    }

    pub fn put_null(&mut self) {
        match self {
            Self::Boolean(cells) => cells.append_null(),
            Self::UInt32(cells) => cells.append_null(),
            Self::Int32(cells) => cells.append_null(),
            Self::UInt64(cells) => cells.append_null(),
            Self::Int64(cells) => cells.append_null(),
            Self::Wide(Wide::Decimals(cells)) => cells.append_null(),
            Self::Wide(Wide::Texts(cells)) | Self::Text(cells) => cells.append_null(),
            Self::Bytes(cells) => cells.append_null(),
            Self::Values(cells) => cells.push(None),
        }
    }

    /// Adds an integer. Returns whether the column can hold it.
    #[must_use]
    pub fn put_integer(&mut self, number: i128) -> bool {
        fn fits<T: TryFrom<i128>>(number: i128, mut put: impl FnMut(T)) -> bool {
            T::try_from(number).map(&mut put).is_ok()
        }
        match self {
            Self::UInt32(cells) => fits(number, |it| cells.append_value(it)),
            Self::Int32(cells) => fits(number, |it| cells.append_value(it)),
            Self::UInt64(cells) => fits(number, |it| cells.append_value(it)),
            Self::Int64(cells) => fits(number, |it| cells.append_value(it)),
            Self::Wide(cells) => {
                cells.put(Ok(number));
                true
            }
            Self::Text(cells) => {
                cells.append_value(number.to_string());
                true
            }
            Self::Boolean(_) | Self::Bytes(_) | Self::Values(_) => false,
        }
    }

    /// Adds an integer of 128 bits without a sign. Returns whether the column can hold it.
    #[must_use]
    pub fn put_unsigned(&mut self, number: u128) -> bool {
        match (i128::try_from(number), &mut *self) {
            (Ok(number), cells) => cells.put_integer(number),
            (Err(_), Self::Wide(cells)) => {
                cells.put(Err(number));
                true
            }
            (Err(_), Self::Text(cells)) => {
                cells.append_value(number.to_string());
                true
            }
            (Err(_), _) => false,
        }
    }

    /// Adds a text. Returns whether the column can hold it.
    #[must_use]
    pub fn put_text(&mut self, text: &str) -> bool {
        match self {
            Self::Text(cells) => {
                cells.append_value(text);
                true
            }
            _ => false,
        }
    }

    /// Adds bytes. Returns whether the column can hold them.
    #[must_use]
    pub fn put_bytes(&mut self, bytes: &[u8]) -> bool {
        match self {
            Self::Bytes(cells) => {
                cells.append_value(bytes);
                true
            }
            _ => false,
        }
    }

    /// Adds a truth value. Returns whether the column can hold it.
    #[must_use]
    pub fn put_boolean(&mut self, value: bool) -> bool {
        match self {
            Self::Boolean(cells) => {
                cells.append_value(value);
                true
            }
            _ => false,
        }
    }

    /// Adds a value that is not null, or null. Returns whether the column, which is of this type, can
    /// hold it.
    #[must_use]
    fn put_value(&mut self, kind: &ColumnType, value: Option<&ScVal>) -> bool {
        let Some(value) = value else {
            self.put_null();
            return true;
        };
        match (kind, value) {
            (_, value) if matches!(self, Self::Values(_)) => {
                let Self::Values(cells) = self else { return false };
                cells.push(Some(value.clone()));
                true
            }
            (ColumnType::Boolean, ScVal::Bool(value)) => self.put_boolean(*value),
            (ColumnType::Bytes, ScVal::Bytes(bytes)) => self.put_bytes(bytes.as_slice()),
            (kind, value) if encode::is_text(kind) => {
                encode::text_of(kind, value).is_some_and(|text| self.put_text(&text))
            }
            (_, value) => match (encode::integer(value), value) {
                (Some(number), _) => self.put_integer(number),
                (None, ScVal::U128(parts)) => {
                    self.put_unsigned(u128::from(parts.hi) << 64 | u128::from(parts.lo))
                }
                _ => false,
            },
        }
    }

    fn finish(&mut self, kind: &ColumnType) -> Result<ArrayRef, TablesError> {
        Ok(match self {
            Self::Boolean(cells) => Arc::new(cells.finish()),
            Self::UInt32(cells) => Arc::new(cells.finish()),
            Self::Int32(cells) => Arc::new(cells.finish()),
            Self::UInt64(cells) => Arc::new(cells.finish()),
            Self::Int64(cells) => Arc::new(cells.finish()),
            Self::Wide(cells) => match std::mem::replace(cells, Wide::new()) {
                Wide::Decimals(mut cells) => {
                    Arc::new(cells.finish().with_precision_and_scale(38, 0)?)
                }
                Wide::Texts(mut cells) => Arc::new(cells.finish()),
            },
            Self::Text(cells) => Arc::new(cells.finish()),
            Self::Bytes(cells) => Arc::new(cells.finish()),
            Self::Values(cells) => {
                let values = std::mem::take(cells);
                let values: Vec<Option<&ScVal>> = values.iter().map(Option::as_ref).collect();
                encode::array(kind, &values)?
            }
        })
    }
}

impl Wide {
    fn new() -> Self {
        Self::Decimals(Decimal128Builder::new())
    }

    /// Adds an integer; `Err` has one that needs all bits.
    fn put(&mut self, number: Result<i128, u128>) {
        match (self, number) {
            (Self::Decimals(cells), Ok(number)) if number.unsigned_abs() <= LARGEST_DECIMAL => {
                cells.append_value(number);
            }
            (Self::Texts(cells), Ok(number)) => cells.append_value(number.to_string()),
            (Self::Texts(cells), Err(number)) => cells.append_value(number.to_string()),
            (wide, number) => {
                wide.become_texts();
                wide.put(number);
            }
        }
    }

    fn become_texts(&mut self) {
        let Self::Decimals(cells) = self else { return };
        let numbers = cells.finish();
        let mut texts = StringBuilder::with_capacity(numbers.len(), 16 * numbers.len());
        texts.extend(numbers.iter().map(|number| number.map(|number| number.to_string())));
        *self = Self::Texts(texts);
    }
}

/// The strkey of the contract whose row was made last, which is often that of the next one.
#[derive(Default)]
pub(super) struct LastContract {
    id: Option<ContractId>,
    text: String,
}

impl LastContract {
    pub fn text_of(&mut self, contract: &ContractId) -> &str {
        if self.id.as_ref() != Some(contract) {
            self.text = contract.to_string();
            self.id = Some(*contract);
        }
        &self.text
    }
}
