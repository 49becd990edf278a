//! Looks up which transactions changed a ledger entry, with an index over the metadata of the
//! stored transactions. That metadata contains the entry's value before and after. Callers decide
//! what a change, or the absence of one, means.

mod nearby;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::ControlFlow;

use nearby::{Nearby, Row};
use orrery_ledger::decode::EntryKey;
use orrery_ledger::domain::{Direction, LedgerRange, LedgerSeq, LedgerSet};
use rocksdb::DBRawIterator;

use super::transaction_reader::Records;
use super::transactions::read;
use crate::db::snapshot::Snapshot;
use crate::encoding::bytes::Malformed;
use crate::encoding::columns::{Family, Key, TransactionKey};
use crate::encoding::error::{StoreError, corrupt};
use crate::encoding::records::{TransactionPosition, TransactionRecord};
use crate::encoding::transaction_block::TransactionBlock;
use crate::indexes::entries::{Changed, EntryTag};
use crate::indexes::index::{key, record_key};
use crate::state::consumers::spec::Needs;
use crate::state::removed::removed_at;
use crate::state::store::Store;

/// Maximum number of entries whose rows are cached by one reader.
const MAX_CACHED_ENTRIES: usize = 1024;

/// A snapshot of the store for lookups of ledger entries around one ledger.
pub struct EntryReader<'s> {
    ledger: LedgerSeq,
    complete: Option<LedgerRange>,
    /// Iterator over the index in the snapshot. Opened by the first lookup and reused, because
    /// opening it takes longer than a lookup.
    rows: RefCell<Option<DBRawIterator<'s>>>,
    /// Rows that were read already: the same few entries are looked up repeatedly.
    nearby: RefCell<HashMap<EntryTag, Nearby>>,
    /// The block of transactions that was read last; it often contains the next one as well.
    block: RefCell<Option<TransactionBlock>>,
    // Declared last, so that it is dropped after the iterator in `rows`.
    snapshot: Snapshot<'s>,
}

impl Store {
    /// Takes a snapshot of the store for lookups around a ledger.
    ///
    /// # Errors
    /// Errors of the database, or that its record of removed ledgers is damaged.
    pub fn entry_reader(&self, ledger: LedgerSeq) -> Result<EntryReader<'_>, StoreError> {
        // Read before the snapshot is taken: ranges only grow, and are extended after the write of
        // what they cover.
        let range = self.coverage.read().range_of(ledger).cloned();
        let snapshot = self.database.snapshot();
        // What was removed when the snapshot was taken.
        let removed = removed_at(&snapshot, Needs::TRANSACTIONS)?;
        let complete = range
            .filter(|range| !range.sums.settings.list().iter().any(|one| one.listed_contracts))
            .and_then(|range| {
                let mut complete = LedgerSet::from(range.ledgers);
                complete.remove_all(&removed);
                complete.ranges().iter().find(|range| range.contains(ledger)).copied()
            });
        Ok(EntryReader {
            ledger,
            complete,
            rows: RefCell::default(),
            nearby: RefCell::default(),
            block: RefCell::default(),
            snapshot,
        })
    }
}

impl EntryReader<'_> {
    /// Returns the consecutive ledgers around the reader's ledger of which every smart-contract
    /// transaction is stored; `None` when that is not true of the reader's ledger itself.
    pub fn complete(&self) -> Option<LedgerRange> {
        self.complete
    }

    /// Returns the last transaction before `position` that changed an entry, according to the
    /// index.
    pub fn last_change(
        &self,
        entry: &EntryKey<'_>,
        position: TransactionPosition,
    ) -> Result<Option<TransactionPosition>, StoreError> {
        self.change(entry, position, Direction::NewestFirst)
    }

    /// Returns the first transaction after `position` that changed an entry, according to the
    /// index.
    pub fn next_change(
        &self,
        entry: &EntryKey<'_>,
        position: TransactionPosition,
    ) -> Result<Option<TransactionPosition>, StoreError> {
        self.change(entry, position, Direction::OldestFirst)
    }

    fn change(
        &self,
        entry: &EntryKey<'_>,
        position: TransactionPosition,
        direction: Direction,
    ) -> Result<Option<TransactionPosition>, StoreError> {
        let (wanted, tag) = (Changed::of(entry.kind), EntryTag::of(entry));
        let mut nearby = self.nearby.borrow_mut();
        if nearby.len() >= MAX_CACHED_ENTRIES {
            nearby.clear();
        }
        let near = nearby.entry(tag).or_insert_with(|| Nearby::new(self.ledger));
        near.read(direction, |from, visit| self.visit(tag, from, direction, visit))?;
        if let Some(found) = near.find(wanted, position, direction) {
            return Ok(found);
        }
        let found = self.visit(tag, position, direction, &mut |(at, changed)| {
            let is_found = at != position && changed.contains(wanted);
            if is_found { ControlFlow::Break(at) } else { ControlFlow::Continue(()) }
        })?;
        Ok(found.break_value())
    }

    /// Visits the transactions that changed the entry of which the SHA-256 of the `LedgerKey` begins with
    /// these bytes, eight at least, or its time to live, beginning at a position (included), until `visit` breaks. Returns whether it broke.
    /// Another entry may have the same row: the metadata of the transaction says whether it has.
    ///
    /// # Errors
    /// Errors of the database or of `visit`, or that a row is damaged.
    pub fn changes<E: From<StoreError>>(
        &self,
        key_hash: &[u8],
        from: TransactionPosition,
        direction: Direction,
        mut visit: impl FnMut(TransactionPosition, Changed) -> Result<ControlFlow<()>, E>,
    ) -> Result<bool, E> {
        let mut failed = Ok(());
        let flow =
            self.visit(EntryTag::of_hash(key_hash), from, direction, &mut |(at, changed)| {
                match visit(at, changed) {
                    Ok(flow) => flow,
                    Err(error) => {
                        failed = Err(error);
                        ControlFlow::Break(())
                    }
                }
            })?;
        failed.map(|()| flow.is_break())
    }

    /// Visits the rows with a tag, beginning at a position, until `visit` breaks.
    fn visit<B>(
        &self,
        tag: EntryTag,
        from: TransactionPosition,
        direction: Direction,
        visit: &mut dyn FnMut(Row) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>, StoreError> {
        let mut opened = self.rows.borrow_mut();
        let rows = match &mut *opened {
            Some(rows) => rows,
            none => none.insert(self.snapshot.rows_of_database(Family::Entries)?),
        };
        let bound = key(&tag.0, &TransactionKey(from));
        match direction {
            Direction::NewestFirst => rows.seek_for_prev(&bound),
            Direction::OldestFirst => rows.seek(&bound),
        }
        while let Some(row) = parse(rows.item(), tag)? {
            if let broken @ ControlFlow::Break(_) = visit(row) {
                return Ok(broken);
            }
            match direction {
                Direction::NewestFirst => rows.prev(),
                Direction::OldestFirst => rows.next(),
            }
        }
        Ok(rows.status().map(ControlFlow::Continue)?)
    }

    /// Calls `visit` with a stored smart-contract transaction, and returns whether it is stored.
    pub fn transaction(
        &self,
        position: TransactionPosition,
        visit: impl FnOnce(&TransactionRecord<'_>),
    ) -> Result<bool, StoreError> {
        let mut found = false;
        let mut records = Records::after(&self.snapshot, self.block.take());
        let done = read(&mut records, position, &mut Vec::new(), |record| {
            found = true;
            visit(record);
        });
        self.block.replace(records.into_last());
        done.map(|()| found)
    }

    /// Calls `visit` for each stored smart-contract transaction of a ledger, in apply order.
    pub fn transactions_of(
        &self,
        ledger: LedgerSeq,
        mut visit: impl FnMut(&TransactionRecord<'_>),
    ) -> Result<(), StoreError> {
        let mut records = Records::new(&self.snapshot);
        let mut rows = self.snapshot.rows(Family::Transactions)?;
        let start = TransactionPosition { ledger, application_order: 0 };
        rows.seek(TransactionKey(start).encode());
        while let Some(key) = rows.key() {
            let position = TransactionKey::decode(key).ok_or(Malformed);
            let position = position.map_err(corrupt(Family::Transactions, key))?.0;
            if position.ledger != ledger {
                break;
            }
            read(&mut records, position, &mut Vec::new(), &mut visit)?;
            rows.next();
        }
        Ok(rows.status()?)
    }
}

/// Decodes a row of the index, if it has this tag.
fn parse(row: Option<(&[u8], &[u8])>, tag: EntryTag) -> Result<Option<Row>, StoreError> {
    let Some((key, value)) = row.filter(|(key, _)| key.starts_with(&tag.0)) else {
        return Ok(None);
    };
    let parsed = record_key::<TransactionKey>(EntryTag::LEN, key);
    let parsed = parsed.and_then(|key| Ok((key.0, Changed::decode(value)?)));
    parsed.map(Some).map_err(corrupt(Family::Entries, key))
}
