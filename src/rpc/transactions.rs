//! `getTransactions` and `getTransaction`.

use std::ops::ControlFlow;

use serde::Serialize;
use stellar_xdr::{
    ContractEvent, DiagnosticEvent, ReadXdr, TransactionEnvelope, TransactionEvent,
    TransactionMeta, TransactionResult,
};

use super::json::Writer;
use super::ledgers::{Which, no_metadata};
use super::params::{FromLedger, XdrFormat};
use super::range::Needed;
use super::{Allowed, MOST_ANSWERED, Outcome, Params, Rpc, RpcError, not_readable, xdr};
use crate::decode::{HeldEvents, LedgerView, TransactionView};
use crate::domain::{LedgerSeq, RpcEventId, TxHash};
use crate::store::TransactionRecord;

/// Newest ledgers that are looked through for a transaction when nothing is known of them yet.
pub(super) const MOST_UNSEEN: u64 = 16;
/// Hexadecimal digits of a hash.
const HASH_DIGITS: usize = 64;

/// What is said beside a list.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    latest_ledger: u32,
    latest_ledger_close_timestamp: u64,
    oldest_ledger: u32,
    oldest_ledger_close_timestamp: u64,
    cursor: String,
}

/// What is said beside one transaction; times are text there.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Single {
    latest_ledger: u32,
    latest_ledger_close_time: String,
    oldest_ledger: u32,
    oldest_ledger_close_time: String,
    created_at: String,
}

/// What is said of a transaction that is not stored.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct NotFound<'a> {
    status: &'static str,
    tx_hash: &'a str,
    application_order: u32,
    fee_bump: bool,
    events: Empty,
    ledger: u32,
}

#[derive(Default, Serialize)]
struct Empty {}

/// A transaction as it is stored, whether by itself or in its ledger.
struct Stored<'a> {
    hash: TxHash,
    application_order: u32,
    fee_bump: bool,
    successful: bool,
    ledger: LedgerSeq,
    /// UNIX seconds.
    closed_at: u64,
    envelope: &'a [u8],
    result: &'a [u8],
    meta: &'a [u8],
}

impl<'a> Stored<'a> {
    fn in_ledger(ledger: &LedgerView<'a>, transaction: &TransactionView<'a>) -> Self {
        Self {
            hash: transaction.hash,
            application_order: transaction.application_order,
            fee_bump: transaction.inner_hash.is_some(),
            successful: transaction.successful,
            ledger: ledger.header.sequence,
            closed_at: ledger.header.close_time,
            envelope: transaction.envelope,
            result: transaction.result,
            meta: transaction.meta,
        }
    }

    fn by_itself(record: &TransactionRecord<'a>) -> Self {
        Self {
            hash: TxHash::from(*record.tx),
            application_order: record.position.application_order,
            fee_bump: record.inner_tx.is_some(),
            successful: record.successful,
            ledger: record.position.ledger,
            closed_at: record.closed_at.seconds(),
            envelope: record.envelope,
            result: record.result,
            meta: record.meta,
        }
    }
}

impl Stored<'_> {
    /// Writes the members of the transaction but for its time, with the hash as it is given.
    ///
    /// # Errors
    /// When stored XDR cannot be read.
    fn write(&self, hash: &str, format: XdrFormat, to: &mut Writer) -> Result<(), RpcError> {
        let held = HeldEvents::of(self.meta).map_err(|error| not_readable(self.ledger, &error))?;
        let ending = match format {
            XdrFormat::Base64 => "Xdr",
            XdrFormat::Json => "Json",
        };
        let named = |to: &mut Writer, name: &str| to.name(&format!("{name}{ending}"));
        to.name("status");
        to.plain(if self.successful { "SUCCESS" } else { "FAILED" });
        to.name("txHash");
        to.plain(hash);
        to.name("applicationOrder");
        to.bare(self.application_order);
        to.name("feeBump");
        to.bare(self.fee_bump);
        named(to, "envelope");
        xdr::write::<TransactionEnvelope>(self.envelope, format, to)?;
        named(to, "result");
        xdr::write::<TransactionResult>(self.result, format, to)?;
        named(to, "resultMeta");
        xdr::write::<TransactionMeta>(self.meta, format, to)?;
        if !held.diagnostic.is_empty() {
            named(to, "diagnosticEvents");
            write_list::<DiagnosticEvent>(&held.diagnostic, format, to)?;
        }
        to.name("events");
        to.open('{');
        if !held.of_transaction.is_empty() {
            named(to, "transactionEvents");
            write_list::<TransactionEvent>(&held.of_transaction, format, to)?;
        }
        // Those of operations that failed are in the metadata before protocol 23.
        if self.successful && !held.of_operations.is_empty() {
            named(to, "contractEvents");
            to.open('[');
            for events in &held.of_operations {
                write_list::<ContractEvent>(events, format, to)?;
            }
            to.close(']');
        }
        to.close('}');
        to.name("ledger");
        to.bare(self.ledger);
        Ok(())
    }
}

fn write_list<T: ReadXdr + Serialize>(
    values: &[&[u8]],
    format: XdrFormat,
    to: &mut Writer,
) -> Result<(), RpcError> {
    to.open('[');
    values.iter().try_for_each(|value| xdr::write::<T>(value, format, to))?;
    to.close(']');
    Ok(())
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
        let mut transactions = Writer::default();
        transactions.open('{');
        transactions.name("transactions");
        transactions.open('[');
        let (mut count, mut is_over) = (0, false);
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
                    is_over = count == limit || (count > 0 && (allowed.bounds.interrupted)());
                    if is_over {
                        break;
                    }
                    let stored = Stored::in_ledger(ledger, transaction);
                    let mut one = Writer::default();
                    one.open('{');
                    stored.write(&stored.hash.to_string(), format, &mut one)?;
                    one.name("createdAt");
                    one.bare(stored.closed_at);
                    one.close('}');
                    let bytes = transactions.len() + one.len();
                    let is_full =
                        bytes > MOST_ANSWERED || (allowed.goes_on)(bytes) == ControlFlow::Break(());
                    // One at least, or clients that follow the cursor would never get on.
                    if is_full && count > 0 {
                        is_over = true;
                        break;
                    }
                    transactions.written(one.finish().get());
                    count += 1;
                    looked_at = transaction.application_order;
                }
                if !is_over || looked_at >= first {
                    passed = RpcEventId::new(sequence.0, looked_at, 1, 0);
                }
                is_over |= count == limit;
                Ok(())
            })?;
            match sequence.next() {
                Some(next) => sequence = next,
                None => break,
            }
        }
        transactions.close(']');
        transactions.members_of(&Page {
            latest_ledger: range.latest.0,
            latest_ledger_close_timestamp: range.latest_closed_at,
            oldest_ledger: range.oldest.0,
            oldest_ledger_close_timestamp: range.oldest_closed_at,
            cursor: passed.toid.to_string(),
        })?;
        transactions.close('}');
        Ok(transactions.finish())
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
        let found = xdr::with_stack_for(format, || self.find_transaction(&hash, &asked, format))?;
        let range = self.range(Needed::RawLedger)?;
        let found = found.filter(|found| range.contains(found.ledger.0.into()));
        let mut answer =
            Writer::with_room_for(found.as_ref().map_or(500, |it| 500 + it.members.len()));
        answer.open('{');
        match &found {
            Some(found) => answer.written(&found.members),
            None => {
                let status = "NOT_FOUND";
                answer.members_of(&NotFound { status, tx_hash: &asked, ..NotFound::default() })?;
            }
        }
        answer.members_of(&Single {
            latest_ledger: range.latest.0,
            latest_ledger_close_time: range.latest_closed_at.to_string(),
            oldest_ledger: range.oldest.0,
            oldest_ledger_close_time: range.oldest_closed_at.to_string(),
            created_at: found.as_ref().map_or(0, |found| found.closed_at).to_string(),
        })?;
        answer.close('}');
        let answer = answer.finish();
        // A consumer may come to know of another one without a change of the store.
        Ok(if found.is_some() { answer.lasting() } else { answer })
    }

    /// The transaction with this outer or inner hash, if its ledger is stored.
    fn find_transaction(
        &self,
        hash: &TxHash,
        asked: &str,
        format: XdrFormat,
    ) -> Result<Option<Found>, RpcError> {
        let found = |stored: &Stored<'_>| -> Result<_, RpcError> {
            let xdr = stored.envelope.len() + stored.result.len() + 2 * stored.meta.len();
            let mut members = Writer::with_room_for(500 + xdr * 4 / 3);
            stored.write(asked, format, &mut members)?;
            let Stored { ledger, closed_at, .. } = *stored;
            Ok(Found { members: members.into_text(), ledger, closed_at })
        };
        // Those of smart contracts are stored by themselves as well, where they are found much sooner.
        let mut by_itself = None;
        self.store.transaction(hash, |record| {
            by_itself = Some(found(&Stored::by_itself(record)));
        })?;
        if let Some(by_itself) = by_itself {
            return by_itself.map(Some);
        }
        // Whole ledgers are read on a stack for whatever they hold.
        xdr::with_stack(|| {
            for ledger in self.ledgers_of_transaction(hash)? {
                let in_ledger = self.with_ledger_if_kept(ledger, |ledger| {
                    let is_it = |it: &&TransactionView<'_>| {
                        it.hash == *hash || it.inner_hash == Some(*hash)
                    };
                    let stored = ledger.transactions.iter().find(is_it);
                    stored.map(|it| found(&Stored::in_ledger(ledger, it))).transpose()
                })?;
                if let Some(found) = in_ledger.flatten() {
                    return Ok(Some(found));
                }
            }
            Ok(None)
        })
    }
}

/// A transaction that was found.
struct Found {
    /// What is said of it but for its time, written.
    members: String,
    ledger: LedgerSeq,
    /// UNIX seconds.
    closed_at: u64,
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
