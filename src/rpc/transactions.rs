//! `getTransactions` and `getTransaction`.

use std::ops::ControlFlow;

use serde::Serialize;
use serde_json::value::RawValue;
use stellar_xdr::{
    ContractEvent, DiagnosticEvent, Limits, TransactionEnvelope, TransactionEvent, TransactionMeta,
    TransactionResult, WriteXdr,
};

use super::ledgers::{Which, no_metadata};
use super::params::{FromLedger, XdrFormat};
use super::range::Needed;
use super::{Allowed, MOST_ANSWERED, Outcome, Params, Rpc, RpcError, result, xdr};
use crate::decode::{LedgerView, TransactionView};
use crate::domain::{RpcEventId, TxHash};

/// Newest ledgers that are looked through for a transaction when nothing is known of them yet.
pub(super) const MOST_UNSEEN: u64 = 16;
/// Hexadecimal digits of a hash.
const HASH_DIGITS: usize = 64;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    transactions: Vec<Listed>,
    latest_ledger: u32,
    latest_ledger_close_timestamp: u64,
    oldest_ledger: u32,
    oldest_ledger_close_timestamp: u64,
    cursor: String,
}

/// A transaction in a list, where the time is a number.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    #[serde(flatten)]
    transaction: Transaction,
    created_at: u64,
}

/// A transaction by itself, where the time is text.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Single {
    latest_ledger: u32,
    latest_ledger_close_time: String,
    oldest_ledger: u32,
    oldest_ledger_close_time: String,
    #[serde(flatten)]
    transaction: Transaction,
    created_at: String,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Transaction {
    status: &'static str,
    tx_hash: String,
    application_order: u32,
    fee_bump: bool,
    #[serde(flatten)]
    parts: Option<Parts>,
    events: Events,
    ledger: u32,
    #[serde(skip)]
    closed_at: u64,
    /// About as many bytes as it takes in an answer.
    #[serde(skip)]
    size: usize,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Parts {
    #[serde(rename_all = "camelCase")]
    Base64 {
        envelope_xdr: String,
        result_xdr: String,
        result_meta_xdr: String,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        diagnostic_events_xdr: Vec<String>,
    },
    #[serde(rename_all = "camelCase")]
    Json {
        envelope_json: Box<RawValue>,
        result_json: Box<RawValue>,
        result_meta_json: Box<RawValue>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        diagnostic_events_json: Vec<Box<RawValue>>,
    },
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Events {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    transaction_events_xdr: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    contract_events_xdr: Vec<Vec<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    transaction_events_json: Vec<Box<RawValue>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    contract_events_json: Vec<Vec<Box<RawValue>>>,
}

impl Parts {
    /// About as many bytes as they take in an answer.
    fn size(&self) -> usize {
        match self {
            Self::Base64 { envelope_xdr, result_xdr, result_meta_xdr, diagnostic_events_xdr } => {
                let [envelope, result, meta] = [envelope_xdr, result_xdr, result_meta_xdr];
                envelope.len() + result.len() + meta.len() + size_of_texts(diagnostic_events_xdr)
            }
            Self::Json { envelope_json, result_json, result_meta_json, diagnostic_events_json } => {
                let parts = [envelope_json, result_json, result_meta_json].into_iter();
                size_of_values(parts.chain(diagnostic_events_json))
            }
        }
    }
}

impl Events {
    /// About as many bytes as they take in an answer.
    fn size(&self) -> usize {
        size_of_texts(&self.transaction_events_xdr)
            + size_of_texts(self.contract_events_xdr.iter().flatten())
            + size_of_values(&self.transaction_events_json)
            + size_of_values(self.contract_events_json.iter().flatten())
            // What is around lists that may be empty.
            + 3 * (self.contract_events_xdr.len() + self.contract_events_json.len())
    }
}

/// With quotation marks and a comma.
fn size_of_texts<'a>(texts: impl IntoIterator<Item = &'a String>) -> usize {
    texts.into_iter().map(|text| text.len() + 3).sum()
}

/// With a comma.
fn size_of_values<'a>(values: impl IntoIterator<Item = &'a Box<RawValue>>) -> usize {
    values.into_iter().map(|value| value.get().len() + 1).sum()
}

/// Events as a transaction's metadata holds them.
#[derive(Default)]
struct Held<'a> {
    of_transaction: &'a [TransactionEvent],
    /// One list for each operation; one in all before protocol 23.
    of_operations: Vec<&'a [ContractEvent]>,
    diagnostic: &'a [DiagnosticEvent],
}

impl<'a> Held<'a> {
    fn of(meta: &'a TransactionMeta, successful: bool) -> Self {
        let mut held = match meta {
            TransactionMeta::V3(meta) => match &meta.soroban_meta {
                Some(soroban) => Self {
                    of_operations: vec![&soroban.events],
                    diagnostic: &soroban.diagnostic_events,
                    ..Self::default()
                },
                None => Self::default(),
            },
            TransactionMeta::V4(meta) => Self {
                of_transaction: &meta.events,
                of_operations: meta.operations.iter().map(|it| it.events.as_slice()).collect(),
                diagnostic: &meta.diagnostic_events,
            },
            _ => Self::default(),
        };
        if !successful {
            held.of_operations.clear();
        }
        held
    }
}

impl Transaction {
    fn of(
        ledger: &LedgerView<'_>,
        transaction: &TransactionView<'_>,
        format: XdrFormat,
    ) -> Result<Self, RpcError> {
        let (parts, events) = xdr::read(transaction.meta, |meta: &TransactionMeta| {
            let held = Held::of(meta, transaction.successful);
            match format {
                XdrFormat::Base64 => in_base64(transaction, &held),
                XdrFormat::Json => in_json(transaction, &held),
            }
        })?;
        let size = 500 + parts.size() + events.size();
        Ok(Self {
            status: if transaction.successful { "SUCCESS" } else { "FAILED" },
            tx_hash: transaction.hash.to_string(),
            application_order: transaction.application_order,
            fee_bump: transaction.inner_hash.is_some(),
            parts: Some(parts),
            events,
            ledger: ledger.header.sequence.0,
            closed_at: ledger.header.close_time,
            size,
        })
    }
}

fn in_base64(
    transaction: &TransactionView<'_>,
    held: &Held<'_>,
) -> Result<(Parts, Events), RpcError> {
    let parts = Parts::Base64 {
        envelope_xdr: xdr::base64(transaction.envelope),
        result_xdr: xdr::base64(transaction.result),
        result_meta_xdr: xdr::base64(transaction.meta),
        diagnostic_events_xdr: spelled(held.diagnostic)?,
    };
    let of_operations = held.of_operations.iter().map(|events| spelled(events));
    let events = Events {
        transaction_events_xdr: spelled(held.of_transaction)?,
        contract_events_xdr: of_operations.collect::<Result<_, _>>()?,
        ..Events::default()
    };
    Ok((parts, events))
}

fn in_json(
    transaction: &TransactionView<'_>,
    held: &Held<'_>,
) -> Result<(Parts, Events), RpcError> {
    let parts = Parts::Json {
        envelope_json: xdr::json::<TransactionEnvelope>(transaction.envelope)?,
        result_json: xdr::json::<TransactionResult>(transaction.result)?,
        result_meta_json: xdr::json::<TransactionMeta>(transaction.meta)?,
        diagnostic_events_json: spelled_as_json(held.diagnostic)?,
    };
    let of_operations = held.of_operations.iter().map(|events| spelled_as_json(events));
    let events = Events {
        transaction_events_json: spelled_as_json(held.of_transaction)?,
        contract_events_json: of_operations.collect::<Result<_, _>>()?,
        ..Events::default()
    };
    Ok((parts, events))
}

fn spelled<T: WriteXdr>(events: &[T]) -> Result<Vec<String>, RpcError> {
    let spelled = events.iter().map(|event| event.to_xdr(Limits::none()));
    let spelled = spelled.map(|bytes| bytes.map(|bytes| xdr::base64(&bytes)));
    spelled.collect::<Result<_, _>>().map_err(|error| {
        tracing::error!(%error, "an event that was read cannot be written");
        RpcError::internal("an event cannot be written as XDR")
    })
}

fn spelled_as_json<T: Serialize>(events: &[T]) -> Result<Vec<Box<RawValue>>, RpcError> {
    Ok(events.iter().map(serde_json::value::to_raw_value).collect::<Result<_, _>>()?)
}

impl Rpc {
    pub(super) fn get_transactions(&self, params: Params<'_>, allowed: Allowed<'_>) -> Outcome {
        let request: FromLedger = params.read()?;
        let range = self.range(Needed::RawLedger)?;
        let Which { start, cursor, limit, format } = Which::read(&request, &range)?;
        // The position of the last transaction that was looked at.
        let mut passed = match cursor {
            None => RpcEventId::new(start, 0, 0, 0),
            Some(cursor) => position(cursor)?,
        };
        let mut transactions: Vec<Listed> = Vec::new();
        let (mut bytes, mut is_over) = (0, false);
        let mut sequence = passed.ledger();
        if sequence < range.oldest {
            return Err(no_metadata(sequence));
        }
        let begun = passed;
        while !is_over && sequence <= range.latest {
            // Ledgers may be without transactions for long. The cursor has to move, or clients would never get on.
            if passed > begun && (allowed.bounds.interrupted)() {
                break;
            }
            self.with_ledger(sequence, |ledger| {
                let first = match passed.ledger() == sequence {
                    true => passed.transaction() + 1,
                    false => 1,
                };
                let mut looked_at = first - 1;
                for transaction in ledger.transactions.iter().skip(looked_at as usize) {
                    is_over = transactions.len() == limit
                        || (!transactions.is_empty() && (allowed.bounds.interrupted)());
                    if is_over {
                        break;
                    }
                    let transaction = Transaction::of(ledger, transaction, format)?;
                    bytes += transaction.size;
                    let is_full =
                        bytes > MOST_ANSWERED || (allowed.goes_on)(bytes) == ControlFlow::Break(());
                    // One at least, or clients that follow the cursor would never get on.
                    if is_full && !transactions.is_empty() {
                        is_over = true;
                        break;
                    }
                    looked_at = transaction.application_order;
                    let created_at = transaction.closed_at;
                    transactions.push(Listed { transaction, created_at });
                }
                if !is_over || looked_at >= first {
                    passed = RpcEventId::new(sequence.0, looked_at, 1, 0);
                }
                is_over |= transactions.len() == limit;
                Ok(())
            })?;
            match sequence.next() {
                Some(next) => sequence = next,
                None => break,
            }
        }
        result(&Page {
            transactions,
            latest_ledger: range.latest.0,
            latest_ledger_close_timestamp: range.latest_closed_at,
            oldest_ledger: range.oldest.0,
            oldest_ledger_close_timestamp: range.oldest_closed_at,
            cursor: passed.toid.to_string(),
        })
    }

    pub(super) fn get_transaction(&self, params: Params<'_>, _: Allowed<'_>) -> Outcome {
        #[derive(Default, serde::Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Request {
            hash: Option<String>,
            xdr_format: Option<String>,
        }
        let request: Request = params.read()?;
        let format = XdrFormat::parse(request.xdr_format.as_deref());
        let format = format.map_err(RpcError::invalid_params)?;
        let asked = request.hash.unwrap_or_default();
        if asked.len() != HASH_DIGITS {
            return Err(RpcError::invalid_params(format!(
                "unexpected hash length ({})",
                asked.len()
            )));
        }
        let hash: TxHash = asked
            .parse()
            .map_err(|error| RpcError::invalid_params(format!("incorrect hash: {error}")))?;
        // Before the range: the newest ledger that is told is never older than that of the transaction.
        let found = self.find_transaction(&hash, format)?;
        let range = self.range(Needed::RawLedger)?;
        let found = found.filter(|found| range.contains(found.ledger.into()));
        let mut transaction =
            found.unwrap_or_else(|| Transaction { status: "NOT_FOUND", ..Transaction::default() });
        transaction.tx_hash = asked;
        let created_at = transaction.closed_at.to_string();
        result(&Single {
            latest_ledger: range.latest.0,
            latest_ledger_close_time: range.latest_closed_at.to_string(),
            oldest_ledger: range.oldest.0,
            oldest_ledger_close_time: range.oldest_closed_at.to_string(),
            transaction,
            created_at,
        })
    }

    /// The transaction with this outer or inner hash, if its ledger is stored.
    fn find_transaction(
        &self,
        hash: &TxHash,
        format: XdrFormat,
    ) -> Result<Option<Transaction>, RpcError> {
        for ledger in self.ledgers_of_transaction(hash)? {
            let found = self.with_ledger_if_kept(ledger, |ledger| {
                let is_it =
                    |it: &&TransactionView<'_>| it.hash == *hash || it.inner_hash == Some(*hash);
                let found = ledger.transactions.iter().find(is_it);
                found.map(|it| Transaction::of(ledger, it, format)).transpose()
            })?;
            if let Some(found) = found.flatten() {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

/// A cursor: a total-order id (SEP-35) as a decimal number.
fn position(cursor: &str) -> Result<RpcEventId, RpcError> {
    let toid = cursor.parse::<u64>().ok().filter(|toid| *toid <= i64::MAX as u64);
    toid.map(|toid| RpcEventId { toid, index: 0 }).ok_or_else(|| {
        let cursor = crate::domain::excerpt(cursor);
        RpcError::invalid_params(format!(
            "cursor ('{cursor}') is not the position of a transaction"
        ))
    })
}
