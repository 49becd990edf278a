//! Serialises lists of events and transactions as JSON, directly from the store's borrowed records
//! into one buffer.
//!
//! The serialiser is handwritten because a page is mostly base64, and a generic serialiser would
//! build and scan every string once more. All strings are ASCII without characters that JSON
//! escapes. A test parses the output with `serde_json`.

mod decoded;
mod decoded_transaction;

use std::io::Write;
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::Simd;
use base64::engine::general_purpose::PAD;

use orrery_executables::InterfaceReader;
use orrery_ledger::decode::EventType;
use orrery_ledger::domain::{CloseTime, ContractId, NetworkId};
use orrery_store::{EventRecord, TransactionRecord};

/// Names of the fields for individual topics.
const TOPIC_FIELDS: [&str; 10] = [
    ",\"topic1\":",
    ",\"topic2\":",
    ",\"topic3\":",
    ",\"topic4\":",
    ",\"topic5\":",
    ",\"topic6\":",
    ",\"topic7\":",
    ",\"topic8\":",
    ",\"topic9\":",
    ",\"topic10\":",
];

/// Null fields for the topics that an event does not have, from the first missing one on. Each of
/// the first nine takes [`NO_TOPIC_LEN`] bytes.
const NO_TOPICS: &str = concat!(
    ",\"topic1\":null,\"topic2\":null,\"topic3\":null,\"topic4\":null,\"topic5\":null",
    ",\"topic6\":null,\"topic7\":null,\"topic8\":null,\"topic9\":null,\"topic10\":null",
);
const NO_TOPIC_LEN: usize = ",\"topic1\":null".len();

/// SIMD base64 encoder, because most of a page is base64.
static BASE64: LazyLock<Simd> = LazyLock::new(|| Simd::standard(PAD));

/// A JSON array of events or transactions under construction.
pub struct List<'n> {
    out: Vec<u8>,
    /// The network of what gets the member `decoded`, and the interfaces of contracts; `None` when
    /// nothing gets it.
    decoding: Option<(NetworkId, &'n InterfaceReader<'n>)>,
    /// Cached text of the last close time. Neighbouring events share their ledger and often
    /// transaction, contract and some topics, so the text of each is cached here and in the next
    /// fields.
    time: Option<(CloseTime, Vec<u8>)>,
    tx: Option<([u8; 32], [u8; 64])>,
    contract: Option<([u8; 32], String)>,
    topics: [CachedTopic; CACHED_TOPICS],
}

/// Number of topics of the last event that are cached: its name, the addresses and the asset.
const CACHED_TOPICS: usize = 4;

/// Cached value of one topic position and its JSON text.
#[derive(Default)]
struct CachedTopic {
    bytes: Vec<u8>,
    /// Empty only before the first use.
    text: Vec<u8>,
}

/// Typical size of an element, in bytes, used to size the buffer without reallocation.
const TYPICAL_ELEMENT_BYTES: usize = 700;

impl<'n> List<'n> {
    /// Begins an array with room for about `elements` typical elements.
    pub fn with_room_for(elements: usize) -> Self {
        let mut out = Vec::with_capacity(TYPICAL_ELEMENT_BYTES * elements.max(1));
        out.push(b'[');
        let (time, tx, contract, topics) = (None, None, None, Default::default());
        Self { out, decoding: None, time, tx, contract, topics }
    }

    /// Adds the member `decoded` to all events and transactions, which are those of this network.
    pub(super) fn decoding(self, network: NetworkId, names: &'n InterfaceReader<'n>) -> Self {
        Self { decoding: Some((network, names)), ..self }
    }

    /// Number of bytes written so far.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether the array has no element yet.
    pub fn is_empty(&self) -> bool {
        self.out.len() <= 1
    }

    /// Closes the array and returns its JSON.
    pub fn finish(mut self) -> Vec<u8> {
        self.out.push(b']');
        self.out
    }

    /// Creates a serialiser without the enclosing array, for events that are sent one by one.
    pub(super) fn without_array() -> Self {
        Self { out: Vec::new(), ..Self::with_room_for(0) }
    }

    /// Number of bytes written and not yet taken.
    pub(super) fn written(&self) -> usize {
        self.out.len()
    }

    /// Takes the bytes written so far. The cached texts stay.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Appends text unchanged.
    pub(super) fn text(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to memory cannot fail.
        let _ = self.out.write_fmt(text);
    }

    /// Appends an event to the array. The fields and their order follow the API description.
    pub fn event(&mut self, event: &EventRecord<'_>) {
        self.begin_element();
        self.event_without_separator(event);
    }

    /// Appends an event without a separator before it.
    pub(super) fn event_without_separator(&mut self, event: &EventRecord<'_>) {
        self.raw("{\"id\":");
        self.number(event.id.0);
        self.raw(",\"contract_id\":\"");
        if let Some(contract) = event.contract {
            self.contract(contract);
        }
        self.raw("\"");
        for (position, (field, topic)) in TOPIC_FIELDS.iter().zip(event.topics).enumerate() {
            self.raw(field);
            self.topic(position, topic);
        }
        if event.topics.len() < TOPIC_FIELDS.len() {
            self.raw(&NO_TOPICS[NO_TOPIC_LEN * event.topics.len()..]);
        }
        self.raw(",\"data\":");
        self.base64(event.data);
        self.raw(",\"tx\":\"");
        self.tx(event.tx);
        self.raw("\",\"event_index\":");
        self.optional(event.event_index());
        self.raw(",\"ledger\":");
        self.number(u64::from(event.ledger.0));
        self.close_time(event.closed_at);
        self.raw(match event.event_type {
            EventType::Contract => ",\"type\":\"contract\"",
            EventType::System => ",\"type\":\"system\"",
        });
        self.raw(",\"application_order\":");
        self.number(u64::from(event.application_order));
        self.raw(",\"op_index\":");
        self.optional(event.op_index());
        if event.topics.len() > TOPIC_FIELDS.len() {
            self.raw(",\"topics\":");
            self.array(event.topics, |list, topic| list.base64(topic));
        }
        if let Some((network, names)) = &self.decoding {
            self.out.extend_from_slice(b",\"decoded\":");
            decoded::write(event, network, names, &mut self.out);
        }
        self.raw("}");
    }

    /// Appends a transaction to the array.
    pub fn transaction(&mut self, transaction: &TransactionRecord<'_>) {
        self.begin_element();
        self.raw("{\"tx\":");
        self.hex(transaction.tx);
        self.raw(",\"ledger\":");
        self.number(u64::from(transaction.position.ledger.0));
        self.close_time(transaction.closed_at);
        self.raw(",\"application_order\":");
        self.number(u64::from(transaction.position.application_order));
        self.raw(",\"successful\":");
        self.boolean(transaction.successful);
        self.raw(",\"fee_bump\":");
        self.boolean(transaction.inner_tx.is_some());
        self.raw(",\"inner_tx\":");
        match transaction.inner_tx {
            Some(hash) => self.hex(hash),
            None => self.raw("null"),
        }
        self.raw(",\"source_account\":");
        self.quoted(transaction.source_account);
        self.raw(",\"fee_account\":");
        self.quoted(transaction.fee_account);
        self.raw(",\"fee_charged\":");
        self.quoted(&transaction.fee_charged.to_string());
        self.raw(",\"contracts\":");
        self.array(transaction.contracts, |list, contract: &ContractId| {
            list.quoted(&contract.to_string());
        });
        self.raw(",\"event_count\":");
        self.number(u64::from(transaction.event_count));
        self.raw(",\"envelope_xdr\":");
        self.base64(transaction.envelope);
        self.raw(",\"result_xdr\":");
        self.base64(transaction.result);
        self.raw(",\"meta_xdr\":");
        self.base64(transaction.meta);
        if let Some((network, names)) = &self.decoding {
            self.out.extend_from_slice(b",\"decoded\":");
            decoded_transaction::write(transaction, network, names, &mut self.out);
        }
        self.raw("}");
    }

    fn begin_element(&mut self) {
        if self.out.len() > 1 {
            self.out.push(b',');
        }
    }

    fn raw(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    /// Appends a string that needs no escapes, such as a strkey.
    fn quoted(&mut self, text: &str) {
        self.out.push(b'"');
        self.raw(text);
        self.out.push(b'"');
    }

    fn boolean(&mut self, value: bool) {
        self.raw(if value { "true" } else { "false" });
    }

    fn optional(&mut self, value: Option<u32>) {
        match value {
            Some(value) => self.number(u64::from(value)),
            None => self.raw("null"),
        }
    }

    fn number(&mut self, mut value: u64) {
        let mut digits = [0; 20];
        let mut start = digits.len();
        loop {
            start -= 1;
            digits[start] = b'0' + (value % 10) as u8;
            value /= 10;
            if value == 0 {
                break;
            }
        }
        self.out.extend_from_slice(&digits[start..]);
    }

    fn array<T>(&mut self, elements: &[T], write: impl Fn(&mut Self, &T)) {
        self.out.push(b'[');
        for (index, element) in elements.iter().enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            write(self, element);
        }
        self.out.push(b']');
    }

    fn base64(&mut self, bytes: &[u8]) {
        self.out.push(b'"');
        put_base64(&mut self.out, bytes);
        self.out.push(b'"');
    }

    fn hex(&mut self, hash: &[u8; 32]) {
        self.out.push(b'"');
        self.out.extend_from_slice(&hex_digits(hash));
        self.out.push(b'"');
    }

    fn topic(&mut self, position: usize, topic: &[u8]) {
        if let Some(last) = self.topics.get(position)
            && last.bytes == topic
            && !last.text.is_empty()
        {
            self.out.extend_from_slice(&last.text);
            return;
        }
        let start = self.out.len();
        self.base64(topic);
        if let Some(last) = self.topics.get_mut(position) {
            last.bytes.clear();
            last.bytes.extend_from_slice(topic);
            last.text.clear();
            last.text.extend_from_slice(&self.out[start..]);
        }
    }

    fn tx(&mut self, hash: &[u8; 32]) {
        let spelled = match self.tx {
            Some(known) if known.0 == *hash => known,
            _ => (*hash, hex_digits(hash)),
        };
        self.out.extend_from_slice(&spelled.1);
        self.tx = Some(spelled);
    }

    fn contract(&mut self, id: &[u8; 32]) {
        let spelled = match self.contract.take() {
            Some(known) if known.0 == *id => known,
            _ => (*id, ContractId(*id).to_string()),
        };
        self.raw(&spelled.1);
        self.contract = Some(spelled);
    }

    /// Appends the fields of a ledger's close time: `ledger_closed_at`, with milliseconds where the
    /// network provides them, and in that case also `ledger_closed_at_ms`.
    fn close_time(&mut self, time: CloseTime) {
        if let Some((known, fields)) = &self.time
            && *known == time
        {
            self.out.extend_from_slice(fields);
            return;
        }
        let start = self.out.len();
        self.raw(",\"ledger_closed_at\":\"");
        let (text, length) = time.iso_8601();
        self.out.extend_from_slice(&text[..length]);
        self.raw("\"");
        if let Some(milliseconds) = time.milliseconds() {
            self.raw(",\"ledger_closed_at_ms\":");
            self.number(milliseconds);
        }
        self.time = Some((time, self.out[start..].to_vec()));
    }
}

/// Appends base64 with padding (RFC 4648, section 4).
fn put_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    let (start, length) = (out.len(), bytes.len().div_ceil(3) * 4);
    out.resize(start + length, 0);
    let written = BASE64.encode_slice(bytes, &mut out[start..]);
    debug_assert_eq!(written, Ok(length));
}

fn hex_digits(hash: &[u8; 32]) -> [u8; 64] {
    let mut digits = [0; 64];
    let written = hex::encode_to_slice(hash, &mut digits);
    debug_assert_eq!(written, Ok(()));
    digits
}

#[cfg(test)]
mod tests;
