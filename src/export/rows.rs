//! The columns of exported events and transactions. Their names are those of the REST interface. A
//! column is never renamed and never changes its type; new columns come last.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanBuilder, Int64Builder, ListBuilder, StringBuilder,
    TimestampMicrosecondArray, TimestampMicrosecondBuilder,
};
use arrow::datatypes::{DataType, Field};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use orrery_executables::{DeclaredEvent, InterfaceReader};
use orrery_interfaces::{Matched, Params, TypedXdr};
use orrery_ledger::decode::EventType;
use orrery_ledger::domain::{ContractId, NetworkId};
use orrery_store::{EventRecord, TransactionRecord};

/// Maximum number of rows in a batch.
const MAX_ROWS: usize = 4096;
/// Size of XDR in bytes at which a batch is full.
const MAX_BYTES: usize = 8 << 20;
const TOPICS: [&str; 4] = ["topic1", "topic2", "topic3", "topic4"];

/// Buffers lists of texts.
struct TextLists(ListBuilder<StringBuilder>);

impl Default for TextLists {
    fn default() -> Self {
        // The name that the Parquet format prescribes for elements.
        let element = Field::new("element", DataType::Utf8, false);
        Self(ListBuilder::new(StringBuilder::new()).with_field(element))
    }
}

impl TextLists {
    fn append<T: AsRef<str>>(&mut self, texts: impl IntoIterator<Item = T>) {
        for text in texts {
            self.0.values().append_value(text);
        }
        self.0.append(true);
    }
}

/// A column: its name, its values, and whether they may be null.
type Column = (&'static str, ArrayRef, bool);

fn required(name: &'static str, values: impl Array + 'static) -> Column {
    (name, Arc::new(values), false)
}

fn optional(name: &'static str, values: impl Array + 'static) -> Column {
    (name, Arc::new(values), true)
}

fn timestamps(times: &mut TimestampMicrosecondBuilder) -> TimestampMicrosecondArray {
    times.finish().with_timezone("UTC")
}

/// Buffers the rows of one kind as columns.
pub trait Columns: Default {
    /// Returns the columns with the rows buffered so far, and empties the buffer.
    fn take(&mut self) -> Vec<Column>;
}

/// Buffers rows until they are enough for a batch.
pub struct Rows<C> {
    columns: C,
    rows: usize,
    /// Size of their XDR in bytes.
    bytes: usize,
}

impl<C: Columns> Rows<C> {
    pub fn new() -> Self {
        Self { columns: C::default(), rows: 0, bytes: 0 }
    }

    /// Appends a row with `append`, which returns the size of its XDR in bytes. Returns whether the
    /// rows are enough for a batch.
    pub fn push(&mut self, append: impl FnOnce(&mut C) -> usize) -> bool {
        self.bytes += append(&mut self.columns);
        self.rows += 1;
        self.rows >= MAX_ROWS || self.bytes >= MAX_BYTES
    }

    /// Returns the rows as a batch, and empties the buffer.
    pub fn take(&mut self) -> Result<RecordBatch, ArrowError> {
        (self.rows, self.bytes) = (0, 0);
        RecordBatch::try_from_iter_with_nullable(self.columns.take())
    }
}

/// Buffers events as Arrow columns.
#[derive(Default)]
pub struct EventColumns {
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
    all_topics: TextLists,
    name: StringBuilder,
    params: StringBuilder,
    topics_json: StringBuilder,
    data_json: StringBuilder,
}

impl EventColumns {
    /// Appends an event of this network, with its name and its parameters where `names` has the
    /// interface of its contract. Returns the size of its XDR in bytes.
    pub fn push(
        &mut self,
        event: &EventRecord<'_>,
        network: &NetworkId,
        names: Option<&InterfaceReader<'_>>,
    ) -> usize {
        let declared = names.and_then(|names| DeclaredEvent::of(event, network, names));
        let matched = declared.as_ref().and_then(DeclaredEvent::matched);
        self.name.append_option(matched.as_ref().map(Matched::name));
        self.params.append_option(matched.as_ref().map(|matched| json(&Params(matched))));
        let typed: Vec<TypedXdr<'_>> = event.topics.iter().map(|topic| TypedXdr(topic)).collect();
        self.topics_json.append_value(json(&typed));
        self.data_json.append_value(json(&TypedXdr(event.data)));
        self.id.append_value(event.id.0.cast_signed());
        self.contract_id.append_option(event.contract.map(|id| ContractId(*id).to_string()));
        let topics: Vec<String> = event.topics.iter().map(|topic| STANDARD.encode(topic)).collect();
        for (column, position) in self.topics.iter_mut().zip(0..) {
            column.append_option(topics.get(position));
        }
        self.all_topics.append(&topics);
        self.data.append_value(STANDARD.encode(event.data));
        self.tx.append_value(hex::encode(event.tx));
        self.event_index.append_option(event.event_index().map(i64::from));
        self.ledger.append_value(i64::from(event.ledger.0));
        self.ledger_closed_at.append_value(event.closed_at.microseconds());
        self.kind.append_value(match event.event_type {
            EventType::Contract => "contract",
            EventType::System => "system",
        });
        self.application_order.append_value(i64::from(event.application_order));
        self.op_index.append_option(event.op_index().map(i64::from));
        event.data.len() + event.topics.iter().map(|topic| topic.len()).sum::<usize>()
    }
}

impl Columns for EventColumns {
    fn take(&mut self) -> Vec<Column> {
        let mut columns = vec![
            required("id", self.id.finish()),
            optional("contract_id", self.contract_id.finish()),
        ];
        let topics = TOPICS.into_iter().zip(&mut self.topics);
        columns.extend(topics.map(|(name, topic)| optional(name, topic.finish())));
        columns.extend([
            required("data", self.data.finish()),
            required("tx", self.tx.finish()),
            optional("event_index", self.event_index.finish()),
            required("ledger", self.ledger.finish()),
            required("ledger_closed_at", timestamps(&mut self.ledger_closed_at)),
            required("type", self.kind.finish()),
            required("application_order", self.application_order.finish()),
            optional("op_index", self.op_index.finish()),
            required("topics", self.all_topics.0.finish()),
            optional("name", self.name.finish()),
            optional("params", self.params.finish()),
            required("topics_json", self.topics_json.finish()),
            required("data_json", self.data_json.finish()),
        ]);
        columns
    }
}

/// Returns a value as JSON.
fn json(value: &impl Serialize) -> String {
    // Serialising texts and numbers to memory cannot fail.
    serde_json::to_string(value).unwrap_or_default()
}

/// Buffers transactions as Arrow columns.
#[derive(Default)]
pub struct TransactionColumns {
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
    contracts: TextLists,
    event_count: Int64Builder,
    envelope_xdr: StringBuilder,
    result_xdr: StringBuilder,
    meta_xdr: StringBuilder,
}

impl TransactionColumns {
    /// Appends a transaction, and returns the size of its XDR in bytes.
    pub fn push(&mut self, transaction: &TransactionRecord<'_>) -> usize {
        self.tx.append_value(hex::encode(transaction.tx));
        self.ledger.append_value(i64::from(transaction.position.ledger.0));
        self.ledger_closed_at.append_value(transaction.closed_at.microseconds());
        self.application_order.append_value(i64::from(transaction.position.application_order));
        self.successful.append_value(transaction.successful);
        self.fee_bump.append_value(transaction.inner_tx.is_some());
        self.inner_tx.append_option(transaction.inner_tx.map(hex::encode));
        self.source_account.append_value(transaction.source_account);
        self.fee_account.append_value(transaction.fee_account);
        self.fee_charged.append_value(transaction.fee_charged);
        self.contracts.append(transaction.contracts.iter().map(ContractId::to_string));
        self.event_count.append_value(i64::from(transaction.event_count));
        self.envelope_xdr.append_value(STANDARD.encode(transaction.envelope));
        self.result_xdr.append_value(STANDARD.encode(transaction.result));
        self.meta_xdr.append_value(STANDARD.encode(transaction.meta));
        transaction.envelope.len() + transaction.result.len() + transaction.meta.len()
    }
}

impl Columns for TransactionColumns {
    fn take(&mut self) -> Vec<Column> {
        vec![
            required("tx", self.tx.finish()),
            required("ledger", self.ledger.finish()),
            required("ledger_closed_at", timestamps(&mut self.ledger_closed_at)),
            required("application_order", self.application_order.finish()),
            required("successful", self.successful.finish()),
            required("fee_bump", self.fee_bump.finish()),
            optional("inner_tx", self.inner_tx.finish()),
            required("source_account", self.source_account.finish()),
            required("fee_account", self.fee_account.finish()),
            required("fee_charged", self.fee_charged.finish()),
            required("contracts", self.contracts.0.finish()),
            required("event_count", self.event_count.finish()),
            required("envelope_xdr", self.envelope_xdr.finish()),
            required("result_xdr", self.result_xdr.finish()),
            required("meta_xdr", self.meta_xdr.finish()),
        ]
    }
}
