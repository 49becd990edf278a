//! `getTransactions` and `getTransaction`.

use std::ops::ControlFlow;

use serde::Serialize;
use stellar_xdr::{
    ContractEvent, DiagnosticEvent, ReadXdr, TransactionEnvelope, TransactionEvent,
    TransactionMeta, TransactionResult,
};

use super::json::Writer;
use super::ledgers::{PageRequest, no_metadata};
use super::params::{FromLedger, XdrFormat};
use super::range::Needed;
use super::transaction_hashes::{self, Candidates};
use super::{CallLimits, MAX_PAGE_BYTES, Outcome, Params, Rpc, RpcError, not_readable, xdr};
use orrery_ledger::decode::{LedgerView, LoneTransaction, MetaEvents, TransactionView};
use orrery_ledger::domain::{LedgerSeq, RpcEventId, TxHash};
use orrery_store::TransactionRecord;

/// Length of a hash in hexadecimal digits.
const HASH_DIGITS: usize = 64;

/// The members of the answer other than the transactions.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    latest_ledger: u32,
    latest_ledger_close_timestamp: u64,
    oldest_ledger: u32,
    oldest_ledger_close_timestamp: u64,
    cursor: String,
}

/// The members of the answer other than those of the transaction; times are strings here.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Single {
    latest_ledger: u32,
    latest_ledger_close_time: String,
    oldest_ledger: u32,
    oldest_ledger_close_time: String,
    created_at: String,
}

/// The answer for a transaction that is not stored.
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

/// A stored transaction, read from its own record or from its raw ledger.
pub(super) struct Stored<'a> {
    hash: TxHash,
    pub(super) application_order: u32,
    fee_bump: bool,
    successful: bool,
    ledger: LedgerSeq,
    /// UNIX time in seconds.
    closed_at: u64,
    envelope: &'a [u8],
    result: &'a [u8],
    meta: &'a [u8],
}

impl<'a> Stored<'a> {
    fn from_ledger(ledger: &LedgerView<'a>, transaction: &TransactionView<'a>) -> Self {
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

    fn from_record(record: &TransactionRecord<'a>) -> Self {
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
    /// Writes the members of the transaction except its time, with the hash as given.
    ///
    /// # Errors
    /// Fails when stored XDR cannot be decoded.
    fn write(&self, hash: &str, format: XdrFormat, to: &mut Writer) -> Result<(), RpcError> {
        let meta_events =
            MetaEvents::of(self.meta).map_err(|error| not_readable(self.ledger, &error))?;
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
        if !meta_events.diagnostic.is_empty() {
            named(to, "diagnosticEvents");
            write_list::<DiagnosticEvent>(&meta_events.diagnostic, format, to)?;
        }
        to.name("events");
        to.open('{');
        if !meta_events.of_transaction.is_empty() {
            named(to, "transactionEvents");
            write_list::<TransactionEvent>(&meta_events.of_transaction, format, to)?;
        }
        // Before protocol 23 the metadata also holds events of failed operations; they are left
        // out.
        if self.successful && !meta_events.of_operations.is_empty() {
            named(to, "contractEvents");
            to.open('[');
            for events in &meta_events.of_operations {
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

/// A page of transactions, which is written as they are found.
struct TransactionPage<'l> {
    limit: usize,
    format: XdrFormat,
    limits: CallLimits<'l>,
    written: Writer,
    count: usize,
    /// Whether nothing more is to be added.
    is_over: bool,
}

impl<'l> TransactionPage<'l> {
    fn begin(limit: usize, format: XdrFormat, limits: CallLimits<'l>) -> Self {
        let mut written = Writer::default();
        written.open('{');
        written.name("transactions");
        written.open('[');
        Self { limit, format, limits, written, count: 0, is_over: false }
    }

    /// Adds the transactions of a ledger behind so many, and returns behind how many it has come.
    fn add_behind(&mut self, before: u32, ledger: &LedgerView<'_>) -> Result<u32, RpcError> {
        let mut examined = before;
        for transaction in ledger.transactions.iter().skip(before as usize) {
            self.is_over =
                self.count == self.limit || (self.count > 0 && (self.limits.bounds.interrupted)());
            if self.is_over || !self.add(ledger, transaction)? {
                break;
            }
            examined = transaction.application_order;
        }
        Ok(examined)
    }

    /// Adds a transaction, if there is room for it.
    fn add(
        &mut self,
        ledger: &LedgerView<'_>,
        transaction: &TransactionView<'_>,
    ) -> Result<bool, RpcError> {
        let stored = Stored::from_ledger(ledger, transaction);
        let mut one = Writer::default();
        one.open('{');
        stored.write(&stored.hash.to_string(), self.format, &mut one)?;
        one.name("createdAt");
        one.bare(stored.closed_at);
        one.close('}');
        let bytes = self.written.len() + one.len();
        let is_full =
            bytes > MAX_PAGE_BYTES || (self.limits.may_grow_to)(bytes) == ControlFlow::Break(());
        // Return at least one transaction, or clients that follow the cursor would make no progress.
        self.is_over = is_full && self.count > 0;
        if !self.is_over {
            self.written.written(one.finish().get());
            self.count += 1;
        }
        Ok(!self.is_over)
    }
}

/// Reads the hash that `getTransaction` is asked for, also as it was written, and the format of the answer.
fn requested(params: Params<'_>) -> Result<(TxHash, String, XdrFormat), RpcError> {
    #[derive(Default, serde::Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Request {
        hash: Option<String>,
        xdr_format: Option<String>,
    }
    let request: Request = params.read()?;
    let format = XdrFormat::parse(request.xdr_format.as_deref());
    let format = format.map_err(RpcError::invalid_params)?;
    let text = request.hash.unwrap_or_default();
    if text.len() != HASH_DIGITS {
        return Err(RpcError::invalid_params(format!("unexpected hash length ({})", text.len())));
    }
    let hash: Result<TxHash, _> = text.parse();
    let hash =
        hash.map_err(|error| RpcError::invalid_params(format!("incorrect hash: {error}")))?;
    Ok((hash, text, format))
}

impl Rpc {
    pub(super) fn get_transactions(&self, params: Params<'_>, limits: CallLimits<'_>) -> Outcome {
        let request: FromLedger = params.read()?;
        let range = self.range(Needed::RawLedger)?;
        let PageRequest { start, cursor, limit, format } = PageRequest::read(&request, &range)?;
        // The position of the last transaction examined.
        let mut passed = match cursor {
            None => RpcEventId::new(start, 0, 0, 0),
            Some(cursor) => parse_cursor(cursor)?,
        };
        let mut page = TransactionPage::begin(limit, format, limits);
        let mut sequence = passed.ledger();
        if sequence < range.oldest {
            return Err(no_metadata(sequence));
        }
        // A cursor beyond the newest ledger is returned as it was given.
        let beyond = cursor.filter(|_| sequence > range.latest).map(str::to_owned);
        let start_position = passed;
        while !page.is_over && sequence <= range.latest {
            // A long range may hold no transactions. Stop only after the cursor has moved, or
            // clients would make no progress.
            if passed > start_position && (limits.bounds.interrupted)() {
                break;
            }
            self.with_ledger(sequence, |ledger| {
                let before = if passed.ledger() == sequence { passed.transaction() } else { 0 };
                let examined = page.add_behind(before, ledger)?;
                if !page.is_over || examined > before {
                    passed = RpcEventId::new(sequence.0, examined, 1, 0);
                }
                page.is_over |= page.count == limit;
                Ok(())
            })?;
            match sequence.next() {
                Some(next) => sequence = next,
                None => break,
            }
        }
        let mut written = page.written;
        written.close(']');
        written.members_of(&Page {
            latest_ledger: range.latest.0,
            latest_ledger_close_timestamp: range.latest_closed_at,
            oldest_ledger: range.oldest.0,
            oldest_ledger_close_timestamp: range.oldest_closed_at,
            cursor: beyond.unwrap_or_else(|| passed.toid.to_string()),
        })?;
        written.close('}');
        Ok(written.finish())
    }

    pub(super) fn get_transaction(&self, params: Params<'_>, _: CallLimits<'_>) -> Outcome {
        let (hash, requested_hash, format) = requested(params)?;
        // Read the range afterwards, so that the reported latest ledger is never older than the
        // transaction's.
        let found =
            xdr::with_stack_for(format, || self.find_transaction(&hash, &requested_hash, format))?;
        let range = self.range(Needed::RawLedger)?;
        let found = found.filter(|found| range.contains(found.ledger.0.into()));
        let mut answer =
            Writer::with_room_for(found.as_ref().map_or(500, |it| 500 + it.members.len()));
        answer.open('{');
        match &found {
            Some(found) => answer.written(&found.members),
            None => answer.members_of(&NotFound {
                status: "NOT_FOUND",
                tx_hash: &requested_hash,
                ..NotFound::default()
            })?,
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
        // NOT_FOUND is not cached: the consumer may index the transaction without a change of the
        // store's generation.
        Ok(if found.is_some() { answer.cacheable() } else { answer })
    }

    /// Returns the transaction with this outer or inner hash, if its ledger is stored.
    fn find_transaction(
        &self,
        hash: &TxHash,
        requested_hash: &str,
        format: XdrFormat,
    ) -> Result<Option<FoundTransaction>, RpcError> {
        let found = |stored: &Stored<'_>| -> Result<_, RpcError> {
            let xdr = stored.envelope.len() + stored.result.len() + 2 * stored.meta.len();
            let mut members = Writer::with_room_for(500 + xdr * 4 / 3);
            stored.write(requested_hash, format, &mut members)?;
            let Stored { ledger, closed_at, .. } = *stored;
            Ok(FoundTransaction { members: members.into_text(), ledger, closed_at })
        };
        // Smart-contract transactions also have records of their own, which are found much faster.
        let mut from_record = None;
        self.store.transaction(hash, |record| {
            from_record = Some(found(&Stored::from_record(record)));
        })?;
        if let Some(from_record) = from_record {
            return from_record.map(Some);
        }
        let Candidates { ledgers, unindexed } = self.ledgers_of_transaction(hash)?;
        for ledger in ledgers {
            if let Some(found) = self.find_by_place(ledger, hash, found)? {
                return Ok(Some(found));
            }
            // Raw ledgers are decoded on a large stack, because their values may nest deeply.
            let in_ledger = xdr::with_stack(|| {
                self.with_ledger_if_stored(ledger, |ledger| {
                    let is_it = |it: &&TransactionView<'_>| {
                        it.hash == *hash || it.inner_hash == Some(*hash)
                    };
                    let stored = ledger.transactions.iter().find(is_it);
                    stored.map(|it| found(&Stored::from_ledger(ledger, it))).transpose()
                })
            })?;
            if let Some(found) = in_ledger.flatten() {
                return Ok(Some(found));
            }
        }
        match unindexed {
            0 => Ok(None),
            ledgers => Err(RpcError::not_indexed(transaction_hashes::CONSUMER, ledgers)),
        }
    }

    /// Finds a transaction in a ledger of which it is recorded where each transaction is: only its own
    /// parts are decompressed. `None` when that leads to no transaction with this hash: then the whole
    /// ledger tells.
    pub(super) fn find_by_place<T>(
        &self,
        ledger: LedgerSeq,
        hash: &TxHash,
        found: impl Fn(&Stored<'_>) -> Result<T, RpcError>,
    ) -> Result<Option<T>, RpcError> {
        for (application_order, parts) in self.places_of_transaction(ledger, hash)? {
            let ranges = [parts.envelope, parts.outcome, parts.meta];
            let Some(row) = self.store.ledger(ledger)? else { return Ok(None) };
            let Some(parts) = self.store.raw_ledger_parts(ledger, &ranges)? else {
                return Ok(None);
            };
            let [envelope, outcome, meta] = parts.as_slice() else { return Ok(None) };
            let alone = LoneTransaction::read(envelope, outcome, self.store.network().id());
            // What cannot be read so may be damaged: decoding the whole ledger says what is wrong.
            let Some(alone) = alone.ok().flatten() else { return Ok(None) };
            let is_it = alone.hash == *hash || alone.inner_hash == Some(*hash);
            if is_it && meta.len() == ranges[2].len() {
                return found(&Stored {
                    hash: alone.hash,
                    application_order,
                    fee_bump: alone.inner_hash.is_some(),
                    successful: alone.successful,
                    ledger,
                    closed_at: row.close_time.seconds(),
                    envelope,
                    result: alone.result,
                    meta,
                })
                .map(Some);
            }
        }
        Ok(None)
    }
}

/// A transaction that was found.
struct FoundTransaction {
    /// Its serialised members, except its time.
    members: String,
    ledger: LedgerSeq,
    /// UNIX time in seconds.
    closed_at: u64,
}

/// Parses a cursor: a total-order id (SEP-35) as a decimal number.
fn parse_cursor(cursor: &str) -> Result<RpcEventId, RpcError> {
    let toid = cursor.parse().ok().filter(|toid| *toid <= RpcEventId::LARGEST_TOID);
    toid.map(|toid| RpcEventId { toid, index: 0 }).ok_or_else(|| {
        let cursor = orrery_ledger::domain::excerpt(cursor);
        RpcError::invalid_params(format!(
            "cursor ('{cursor}') is not the position of a transaction"
        ))
    })
}
