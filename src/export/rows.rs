//! The columns of exported events and transactions. Their names are those of the REST interface. A
//! column is never renamed and never changes its type; new columns come last.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanBuilder, Int64Builder, ListBuilder, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::decode::EventType;
use crate::domain::{CloseTime, ContractId};
use crate::store::{EventRecord, TransactionRecord};

/// Maximum number of rows in a batch.
const MAX_ROWS: usize = 4096;
/// Size of XDR in bytes at which a batch is full.
const MAX_BYTES: usize = 8 << 20;
const TOPICS: [&str; 4] = ["topic1", "topic2", "topic3", "topic4"];

/// Converts a close time to microseconds of UNIX time, the unit that every query engine reads,
/// unlike milliseconds or nanoseconds.
fn microseconds(time: CloseTime) -> i64 {
    let milliseconds = match time {
        CloseTime::Seconds(seconds) => seconds.saturating_mul(1000),
        CloseTime::Milliseconds(milliseconds) => milliseconds,
    };
    i64::try_from(milliseconds.saturating_mul(1000)).unwrap_or(i64::MAX)
}

fn timestamps() -> TimestampMicrosecondBuilder {
    TimestampMicrosecondBuilder::new().with_timezone("UTC")
}

/// Returns the field of list elements, with the name that the Parquet format prescribes.
fn element() -> FieldRef {
    Arc::new(Field::new("element", DataType::Utf8, false))
}

fn texts() -> ListBuilder<StringBuilder> {
    ListBuilder::new(StringBuilder::new()).with_field(element())
}

fn required(name: &str, kind: DataType) -> Field {
    Field::new(name, kind, false)
}

fn optional(name: &str, kind: DataType) -> Field {
    Field::new(name, kind, true)
}

fn timestamp() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// Buffers events as Arrow columns.
pub struct EventRows {
    schema: SchemaRef,
    rows: usize,
    bytes: usize,
    id: Int64Builder,
    contract_id: StringBuilder,
    topics: [StringBuilder; 4],
    data: StringBuilder,
    tx: StringBuilder,
    event_index: Int64Builder,
    ledger: Int64Builder,
    ledger_closed_at: TimestampMicrosecondBuilder,
    kind: StringBuilder,
    application_order: Int64Builder,
    op_index: Int64Builder,
    all_topics: ListBuilder<StringBuilder>,
}

impl EventRows {
    pub fn new() -> Self {
        let mut fields =
            vec![required("id", DataType::Int64), optional("contract_id", DataType::Utf8)];
        fields.extend(TOPICS.map(|topic| optional(topic, DataType::Utf8)));
        fields.extend([
            required("data", DataType::Utf8),
            required("tx", DataType::Utf8),
            optional("event_index", DataType::Int64),
            required("ledger", DataType::Int64),
            required("ledger_closed_at", timestamp()),
            required("type", DataType::Utf8),
            required("application_order", DataType::Int64),
            optional("op_index", DataType::Int64),
            required("topics", DataType::List(element())),
        ]);
        Self {
            schema: Arc::new(Schema::new(fields)),
            rows: 0,
            bytes: 0,
            id: Int64Builder::new(),
            contract_id: StringBuilder::new(),
            topics: Default::default(),
            data: StringBuilder::new(),
            tx: StringBuilder::new(),
            event_index: Int64Builder::new(),
            ledger: Int64Builder::new(),
            ledger_closed_at: timestamps(),
            kind: StringBuilder::new(),
            application_order: Int64Builder::new(),
            op_index: Int64Builder::new(),
            all_topics: texts(),
        }
    }

    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    pub fn push(&mut self, event: &EventRecord<'_>) {
        self.id.append_value(event.id.0.cast_signed());
        self.contract_id.append_option(event.contract.map(|id| ContractId(*id).to_string()));
        let topics: Vec<String> = event.topics.iter().map(|topic| STANDARD.encode(topic)).collect();
        for (column, position) in self.topics.iter_mut().zip(0..) {
            column.append_option(topics.get(position));
        }
        for topic in &topics {
            self.all_topics.values().append_value(topic);
        }
        self.all_topics.append(true);
        self.data.append_value(STANDARD.encode(event.data));
        self.tx.append_value(hex::encode(event.tx));
        self.event_index.append_option(event.event_index().map(i64::from));
        self.ledger.append_value(i64::from(event.ledger.0));
        self.ledger_closed_at.append_value(microseconds(event.closed_at));
        self.kind.append_value(match event.event_type {
            EventType::Contract => "contract",
            EventType::System => "system",
        });
        self.application_order.append_value(i64::from(event.application_order));
        self.op_index.append_option(event.op_index().map(i64::from));
        self.rows += 1;
        self.bytes +=
            event.data.len() + event.topics.iter().map(|topic| topic.len()).sum::<usize>();
    }

    pub fn is_full(&self) -> bool {
        self.rows >= MAX_ROWS || self.bytes >= MAX_BYTES
    }

    pub fn take(&mut self) -> Result<RecordBatch, ArrowError> {
        (self.rows, self.bytes) = (0, 0);
        let mut columns: Vec<ArrayRef> =
            vec![Arc::new(self.id.finish()), Arc::new(self.contract_id.finish())];
        columns.extend(self.topics.iter_mut().map(|topic| Arc::new(topic.finish()) as ArrayRef));
        columns.extend([
            Arc::new(self.data.finish()) as ArrayRef,
            Arc::new(self.tx.finish()),
            Arc::new(self.event_index.finish()),
            Arc::new(self.ledger.finish()),
            Arc::new(self.ledger_closed_at.finish()),
            Arc::new(self.kind.finish()),
            Arc::new(self.application_order.finish()),
            Arc::new(self.op_index.finish()),
            Arc::new(self.all_topics.finish()),
        ]);
        RecordBatch::try_new(self.schema(), columns)
    }
}

/// Buffers transactions as Arrow columns.
pub struct TransactionRows {
    schema: SchemaRef,
    rows: usize,
    bytes: usize,
    tx: StringBuilder,
    ledger: Int64Builder,
    ledger_closed_at: TimestampMicrosecondBuilder,
    application_order: Int64Builder,
    successful: BooleanBuilder,
    fee_bump: BooleanBuilder,
    inner_tx: StringBuilder,
    source_account: StringBuilder,
    fee_account: StringBuilder,
    fee_charged: Int64Builder,
    contracts: ListBuilder<StringBuilder>,
    event_count: Int64Builder,
    envelope_xdr: StringBuilder,
    result_xdr: StringBuilder,
    meta_xdr: StringBuilder,
}

impl TransactionRows {
    pub fn new() -> Self {
        let fields = vec![
            required("tx", DataType::Utf8),
            required("ledger", DataType::Int64),
            required("ledger_closed_at", timestamp()),
            required("application_order", DataType::Int64),
            required("successful", DataType::Boolean),
            required("fee_bump", DataType::Boolean),
            optional("inner_tx", DataType::Utf8),
            required("source_account", DataType::Utf8),
            required("fee_account", DataType::Utf8),
            required("fee_charged", DataType::Int64),
            required("contracts", DataType::List(element())),
            required("event_count", DataType::Int64),
            required("envelope_xdr", DataType::Utf8),
            required("result_xdr", DataType::Utf8),
            required("meta_xdr", DataType::Utf8),
        ];
        Self {
            schema: Arc::new(Schema::new(fields)),
            rows: 0,
            bytes: 0,
            tx: StringBuilder::new(),
            ledger: Int64Builder::new(),
            ledger_closed_at: timestamps(),
            application_order: Int64Builder::new(),
            successful: BooleanBuilder::new(),
            fee_bump: BooleanBuilder::new(),
            inner_tx: StringBuilder::new(),
            source_account: StringBuilder::new(),
            fee_account: StringBuilder::new(),
            fee_charged: Int64Builder::new(),
            contracts: texts(),
            event_count: Int64Builder::new(),
            envelope_xdr: StringBuilder::new(),
            result_xdr: StringBuilder::new(),
            meta_xdr: StringBuilder::new(),
        }
    }

    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    pub fn push(&mut self, transaction: &TransactionRecord<'_>) {
        self.tx.append_value(hex::encode(transaction.tx));
        self.ledger.append_value(i64::from(transaction.position.ledger.0));
        self.ledger_closed_at.append_value(microseconds(transaction.closed_at));
        self.application_order.append_value(i64::from(transaction.position.application_order));
        self.successful.append_value(transaction.successful);
        self.fee_bump.append_value(transaction.inner_tx.is_some());
        self.inner_tx.append_option(transaction.inner_tx.map(hex::encode));
        self.source_account.append_value(transaction.source_account);
        self.fee_account.append_value(transaction.fee_account);
        self.fee_charged.append_value(transaction.fee_charged);
        for contract in transaction.contracts {
            self.contracts.values().append_value(contract.to_string());
        }
        self.contracts.append(true);
        self.event_count.append_value(i64::from(transaction.event_count));
        self.envelope_xdr.append_value(STANDARD.encode(transaction.envelope));
        self.result_xdr.append_value(STANDARD.encode(transaction.result));
        self.meta_xdr.append_value(STANDARD.encode(transaction.meta));
        self.rows += 1;
        self.bytes +=
            transaction.envelope.len() + transaction.result.len() + transaction.meta.len();
    }

    pub fn is_full(&self) -> bool {
        self.rows >= MAX_ROWS || self.bytes >= MAX_BYTES
    }

    pub fn take(&mut self) -> Result<RecordBatch, ArrowError> {
        (self.rows, self.bytes) = (0, 0);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.tx.finish()),
            Arc::new(self.ledger.finish()),
            Arc::new(self.ledger_closed_at.finish()),
            Arc::new(self.application_order.finish()),
            Arc::new(self.successful.finish()),
            Arc::new(self.fee_bump.finish()),
            Arc::new(self.inner_tx.finish()),
            Arc::new(self.source_account.finish()),
            Arc::new(self.fee_account.finish()),
            Arc::new(self.fee_charged.finish()),
            Arc::new(self.contracts.finish()),
            Arc::new(self.event_count.finish()),
            Arc::new(self.envelope_xdr.finish()),
            Arc::new(self.result_xdr.finish()),
            Arc::new(self.meta_xdr.finish()),
        ];
        RecordBatch::try_new(self.schema(), columns)
    }
}
