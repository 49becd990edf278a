//! Checks ledger by ledger that events and transactions agree with the ledger's row and digest. The
//! indexes themselves define which index rows follow from them.

use std::collections::BTreeMap;

use orrery_ledger::domain::{EventId, LedgerRange, LedgerSeq, TxHash};
use rocksdb::DBRawIterator;

use super::stored_ledger::{Blocks, StoredLedger, Transactions, visit};
use super::subject::Subject;
use super::tally::{Side, Sink};
use super::{problems, raw};
use crate::encoding::block::Block;
use crate::encoding::bytes::Malformed;
use crate::encoding::columns::{BlockKey, Family, Key, LedgerKey, TransactionKey};
use crate::encoding::compression::Content;
use crate::encoding::digest::LedgerHasher;
use crate::encoding::error::{StoreError, corrupt};
use crate::encoding::ledgers::LedgerRow;
use crate::encoding::records::TransactionPosition;
use crate::encoding::transaction_block::{Row, TransactionBlock};
use crate::encoding::{compression, raw_form, transaction_record};
use crate::indexes::rows::Rows;
use crate::indexes::tx_by_hash;
use crate::indexes::tx_by_hash::{HashEntry, roles};
use crate::indexes::values::EventsOfTransaction;

/// Counts of what the check has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counted {
    pub events: u64,
    pub transactions: u64,
    pub raw_ledgers: u64,
    pub without_events: u64,
    pub without_transactions: u64,
    /// Ledgers with unreadable data, and indexes with unreadable rows.
    pub unreadable: u64,
}

impl Counted {
    pub(super) fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.transactions += other.transactions;
        self.raw_ledgers += other.raw_ledgers;
        self.without_events += other.without_events;
        self.without_transactions += other.without_transactions;
        self.unreadable += other.unreadable;
    }
}

/// Reads and checks ledgers in the order of their event ids.
pub(super) struct Contents<'a> {
    subject: &'a Subject<'a>,
    ledgers: DBRawIterator<'a>,
    raw: DBRawIterator<'a>,
    events: DBRawIterator<'a>,
    transactions: DBRawIterator<'a>,
    rows: Rows,
    counted: Counted,
    with_raw: bool,
}

/// Hash and events of each transaction of one ledger, by application order.
type EventsByTransaction = BTreeMap<u32, (TxHash, EventsOfTransaction)>;

impl<'a> Contents<'a> {
    pub(super) fn new(subject: &'a Subject<'a>) -> Result<Self, StoreError> {
        let rows = |family| subject.database.rows_on_disk(family);
        Ok(Self {
            subject,
            ledgers: rows(Family::Ledgers)?,
            raw: rows(Family::LedgerXdr)?,
            events: rows(Family::Events)?,
            transactions: rows(Family::Transactions)?,
            rows: Rows::new(&subject.indexes),
            counted: Counted::default(),
            with_raw: true,
        })
    }

    /// Skips raw ledgers, for a second pass over contents whose raw ledgers were checked already.
    pub(super) fn without_raw(mut self) -> Self {
        self.with_raw = false;
        self
    }

    pub(super) fn counted(&self) -> Counted {
        self.counted
    }

    /// Checks those ledgers of `window` that have a row, and passes the index rows that follow from
    /// them to `sink`.
    pub(super) fn check(&mut self, window: &[LedgerRange], sink: &mut impl Sink) {
        for ledgers in window {
            for sequence in (ledgers.first.0..=ledgers.last.0).map(LedgerSeq) {
                match self.row(sequence) {
                    Ok(None) => {}
                    Ok(Some(row)) => {
                        if let Err(error) = self.check_ledger(sequence, row, sink) {
                            self.counted.unreadable += 1;
                            self.subject.add(format!("ledger {sequence}"), &error);
                        }
                    }
                    // Already reported when [`super::chain`] read the ledger rows.
                    Err(_) => self.counted.unreadable += 1,
                }
                if self.subject.problems.limit_exceeded() {
                    return;
                }
            }
        }
    }

    fn row(&mut self, sequence: LedgerSeq) -> Result<Option<LedgerRow>, StoreError> {
        let key = LedgerKey(sequence).encode();
        let row = value_at(&mut self.ledgers, &key)?.map(LedgerRow::decode);
        let row = row.transpose().map_err(corrupt(Family::Ledgers, key))?;
        self.ledgers.next();
        Ok(row)
    }

    fn check_ledger(
        &mut self,
        sequence: LedgerSeq,
        row: LedgerRow,
        sink: &mut impl Sink,
    ) -> Result<(), StoreError> {
        let (blocks, has_all_events) = self.blocks(sequence, &row)?;
        let (transactions, has_all_transactions) = self.transactions(sequence, &row)?;
        let ledger = StoredLedger {
            sequence,
            row,
            blocks,
            transactions,
            has_all_events,
            has_all_transactions,
        };
        let events = self.check_events(&ledger, sink)?;
        self.check_transactions(&ledger, events, sink)?;
        let key = LedgerKey(sequence).encode();
        if self.with_raw
            && let Some(row) = value_at(&mut self.raw, &key)?
        {
            let xdr = raw_form::unpack(row)?;
            self.counted.raw_ledgers += 1;
            for wrong in raw::check(self.subject, &ledger, &xdr) {
                self.report(Family::LedgerXdr, sequence, wrong);
            }
            self.raw.next();
        }
        Ok(())
    }

    fn report(&self, family: Family, ledger: LedgerSeq, what: impl Into<String>) {
        self.subject.problems.add(problems::of_ledger(family, ledger), what.into());
    }

    /// Returns the event blocks of a ledger, and whether they are complete.
    fn blocks(
        &mut self,
        sequence: LedgerSeq,
        row: &LedgerRow,
    ) -> Result<(Blocks, bool), StoreError> {
        let mut blocks = Blocks::new();
        let mut next = row.first_event;
        let end = EventId(row.first_event.0.saturating_add(row.counts.events()));
        let mut all = true;
        while next < end {
            let key = BlockKey(next).encode();
            if self.events.key() != Some(key.as_slice()) {
                self.events.seek(key);
            }
            let found = self.events.item().and_then(|(key, value)| {
                Some((BlockKey::decode(key)?.0, value)).filter(|(id, _)| *id < end)
            });
            let Some((id, compressed)) = found else {
                self.events.status()?;
                all = false;
                break;
            };
            all &= id == next;
            let bytes = compression::decompress(Content::Events, compressed)?;
            let damaged = corrupt(Family::Events, BlockKey(id).encode());
            let block = Block::open(id, &bytes).map_err(damaged)?;
            next = EventId(id.0 + block.len() as u64);
            if block.ledger() != sequence || next > end {
                self.report(
                    Family::Events,
                    sequence,
                    format!("the block of event {id} does not belong to it"),
                );
            }
            blocks.push((id, bytes));
            self.events.next();
        }
        if !all {
            if !self.subject.removed.events.contains(sequence) {
                let what =
                    format!("some of the events {} to {} are missing", row.first_event, end.0 - 1);
                self.report(Family::Events, sequence, what);
            }
            self.counted.without_events += 1;
        }
        Ok((blocks, all))
    }

    /// Returns the transactions of a ledger, and whether they are complete.
    fn transactions(
        &mut self,
        sequence: LedgerSeq,
        row: &LedgerRow,
    ) -> Result<(Transactions, bool), StoreError> {
        let mut found = Transactions::new();
        let of_ledger = |key: &[u8]| {
            TransactionKey::decode(key).map(|key| key.0).filter(|at| at.ledger == sequence)
        };
        if self.transactions.key().and_then(of_ledger).is_none() {
            let start = TransactionPosition { ledger: sequence, application_order: 0 };
            self.transactions.seek(TransactionKey(start).encode());
        }
        let mut block: Option<TransactionBlock> = None;
        while let Some((key, row)) = self.transactions.item()
            && let Some(position) = of_ledger(key)
        {
            let damaged = corrupt(Family::Transactions, key);
            let first = match Row::parse(row).map_err(damaged)? {
                Row::Block(compressed) => {
                    block = Some(TransactionBlock::open(position, compressed)?);
                    position
                }
                Row::InBlockOf(application_order) => {
                    TransactionPosition { application_order, ..position }
                }
            };
            // A row belongs to the closest block before it, and that block must contain its
            // transaction.
            let block = block.as_ref().filter(|block| block.first() == Some(first));
            let record = block.and_then(|block| block.record(position)).ok_or(Malformed);
            let record = record.map_err(corrupt(Family::Transactions, key))?;
            found.insert(position.application_order, record.to_vec());
            self.transactions.next();
        }
        self.transactions.status()?;
        self.counted.transactions += found.len() as u64;
        let stored = u64::from(row.counts.stored_transactions);
        let all = found.len() as u64 == stored;
        if !all {
            let is_removed = self.subject.removed.transactions.contains(sequence);
            if !is_removed || found.len() as u64 > stored {
                let what = format!("{} are there, and {stored} were stored", found.len());
                self.report(Family::Transactions, sequence, what);
            }
            self.counted.without_transactions += 1;
        }
        Ok((found, all))
    }

    /// Compares the events with the ledger's row and digest, and returns them grouped by
    /// transaction.
    fn check_events(
        &mut self,
        ledger: &StoredLedger,
        sink: &mut impl Sink,
    ) -> Result<EventsByTransaction, StoreError> {
        let (sequence, row) = (ledger.sequence, &ledger.row);
        let mut of_transactions = EventsByTransaction::new();
        let mut hasher = LedgerHasher::new(sequence, &row.hash, row.counts.events());
        let (mut fees, mut of_contracts, mut wrong_times) = (0, 0, 0);
        visit(&ledger.blocks, |event| {
            hasher.add_event(event);
            self.counted.events += 1;
            wrong_times += u64::from(event.closed_at != row.close_time);
            let (tx, of) = of_transactions.entry(event.application_order).or_default();
            *tx = TxHash::from(*event.tx);
            let by_operation = event.op_index().is_some();
            of.add(event.id.0.saturating_sub(row.first_event.0), by_operation);
            if !by_operation {
                fees += 1;
            } else if ledger.transactions.contains_key(&event.application_order) {
                of_contracts += 1;
            }
        })?;
        for (id, bytes) in &ledger.blocks {
            let damaged = |malformed| corrupt(Family::Events, BlockKey(*id).encode())(malformed);
            self.rows.add_block(&Block::open(*id, bytes).map_err(damaged)?).map_err(damaged)?;
            self.emit_expected_rows(sequence, *id, sink)?;
        }
        if wrong_times > 0 {
            let what = format!("{wrong_times} events have another close time than the ledger");
            self.report(Family::Events, sequence, what);
        }
        if !ledger.has_all_events {
            return Ok(of_transactions);
        }
        if hasher.finish() != row.digest {
            let what = "the events are not those of the ledger's digest";
            self.report(Family::Events, sequence, what);
        }
        let counts = &row.counts;
        if fees != counts.fee_events
            || ledger.has_all_transactions && of_contracts != counts.contract_events
        {
            let what = "the number of events of each kind differs from the ledger's row";
            self.report(Family::Events, sequence, what);
        }
        Ok(of_transactions)
    }

    /// Compares the transactions with the ledger's row and with their events.
    fn check_transactions(
        &mut self,
        ledger: &StoredLedger,
        mut events: EventsByTransaction,
        sink: &mut impl Sink,
    ) -> Result<(), StoreError> {
        let sequence = ledger.sequence;
        let located = ledger.has_all_events && !self.subject.removed.events.contains(sequence);
        let mut contracts = Vec::new();
        for (&application_order, bytes) in &ledger.transactions {
            let position = TransactionPosition { ledger: sequence, application_order };
            let key = TransactionKey(position).encode();
            let record = transaction_record::decode(position, bytes, &mut contracts)
                .map_err(corrupt(Family::Transactions, key))?;
            let (tx, inner) =
                (TxHash::from(*record.tx), record.inner_tx.map(|inner| TxHash::from(*inner)));
            let report =
                |what| self.subject.problems.add(problems::row(Family::Transactions, &key), what);
            if record.closed_at != ledger.row.close_time {
                report("its close time is not the ledger's".to_owned());
            }
            let of = events.remove(&application_order);
            if of.as_ref().is_some_and(|(hash, _)| *hash != tx) {
                report("its events have another hash".to_owned());
            }
            let of = of.unwrap_or_default().1;
            if ledger.has_all_events && u64::from(record.event_count) != of.count() {
                report(format!("it counts {} events, and has {}", record.event_count, of.count()));
            }
            if located {
                self.rows.locate(application_order, tx, inner, of);
            } else {
                self.check_roles(position, &tx, inner)?;
            }
            self.rows.add_record(&record).map_err(corrupt(Family::Transactions, key))?;
        }
        // For a transaction without a record, only the index entry holds the inner hash; if it
        // holds one, the rows of both hashes must exist.
        for (application_order, (tx, of)) in events.into_iter().filter(|_| located) {
            let position = TransactionPosition { ledger: sequence, application_order };
            let entry = self.hash_entry(&tx_by_hash::key(&tx, position))?;
            let inner = entry.and_then(|entry| entry.role.inner());
            self.rows.locate(application_order, tx, inner, of);
        }
        self.emit_expected_rows(sequence, ledger.row.first_event, sink)
    }

    /// Passes the index rows that follow from the records read so far to `sink`.
    fn emit_expected_rows(
        &mut self,
        ledger: LedgerSeq,
        first_event: EventId,
        sink: &mut impl Sink,
    ) -> Result<(), StoreError> {
        self.rows.drain(ledger, first_event, |index, _, key, value| {
            sink.add_row(Side::Expected, index, key, value);
            Ok(())
        })
    }

    fn hash_entry(&self, key: &[u8]) -> Result<Option<HashEntry>, StoreError> {
        let row = self.subject.database.get_on_disk(Family::TxByHash, key)?;
        let entry = row.map(|bytes| HashEntry::decode(&bytes)).transpose();
        entry.map_err(corrupt(Family::TxByHash, key))
    }

    /// Checks that a transaction is indexed under each of its hashes with the right role. The
    /// location of its events is not checked, because the events are not all stored any more.
    fn check_roles(
        &self,
        position: TransactionPosition,
        tx: &TxHash,
        inner: Option<TxHash>,
    ) -> Result<(), StoreError> {
        for (hash, role) in roles(tx, inner) {
            let key = tx_by_hash::key(&hash, position);
            if self.hash_entry(&key)?.is_none_or(|entry| entry.role != role) {
                let what = format!("the transaction {hash} is not found by its hash");
                self.subject.problems.add(problems::row(Family::TxByHash, &key), what);
            }
        }
        Ok(())
    }
}

/// Returns the value of the row with this key, if it exists. Seeks only when the iterator is not at
/// the key already.
fn value_at<'i>(
    rows: &'i mut DBRawIterator<'_>,
    key: &[u8],
) -> Result<Option<&'i [u8]>, StoreError> {
    if rows.key() != Some(key) {
        rows.seek(key);
        rows.status()?;
    }
    Ok(rows.item().filter(|(found, _)| *found == key).map(|(_, value)| value))
}
