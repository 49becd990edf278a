//! Queries for smart-contract transactions, in chain order.

use std::ops::ControlFlow;
use std::rc::Rc;

use orrery_ledger::domain::{ContractId, Direction, LedgerSeq, TxHash};

use super::index_scan::{Stream, Walk, step};
use super::query::{Bounds, Interrupted, Meter, QueryCost, TransactionQuery, WalkOutcome};
use super::transaction_reader::Records;
use crate::encoding::columns::{ContractTag, Family, Key, LedgerKey, TransactionKey};
use crate::encoding::error::{StoreError, corrupt};
use crate::encoding::ledgers::LedgerRow;
use crate::encoding::records::{TransactionPosition, TransactionRecord};
use crate::encoding::transaction_record;
use crate::indexes::index::key;
use crate::state::consumers::spec::Needs;
use crate::state::removed::removed_at;
use crate::state::store::Store;

/// A page of transactions that is visited.
struct PageVisit<'q, V, B> {
    query: &'q TransactionQuery,
    /// Number of transactions that are still to be skipped.
    skip: u64,
    /// Number of transactions that are still to be visited.
    remaining: usize,
    visit: V,
    broken_off: Option<B>,
}

impl<'q, V, B> PageVisit<'q, V, B>
where
    V: FnMut(&TransactionRecord<'_>) -> ControlFlow<B>,
{
    fn new(query: &'q TransactionQuery, visit: V) -> Self {
        let (skip, remaining) = (query.page.skip(), query.page.limit);
        Self { query, skip, remaining, visit, broken_off: None }
    }

    /// Visits a transaction, if it is one of the page.
    fn candidate(&mut self, record: &TransactionRecord<'_>) {
        if !touches(record, &self.query.contracts) {
            return;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        self.remaining -= 1;
        if let ControlFlow::Break(with) = (self.visit)(record) {
            self.remaining = 0;
            self.broken_off = Some(with);
        }
    }
}

/// Whether a position comes behind the last one, in the direction of a walk.
fn is_beyond(number: u64, last: u64, direction: Direction) -> bool {
    match direction {
        Direction::NewestFirst => number < last,
        Direction::OldestFirst => number > last,
    }
}

impl Store {
    /// Visits the smart-contract transactions of a page, in the order of the page.
    pub fn transactions(
        &self,
        query: &TransactionQuery,
        mut visit: impl FnMut(&TransactionRecord<'_>),
    ) -> Result<QueryCost, StoreError> {
        let visit_all = |record: &TransactionRecord<'_>| {
            visit(record);
            ControlFlow::<()>::Continue(())
        };
        Ok(self.transactions_within(query, Bounds::NONE, visit_all)?.cost)
    }

    /// Visits the smart-contract transactions of a page, in the order of the page, until `visit`
    /// breaks or the walk exceeds `bounds`. Every call reads at least one record, so repeated calls
    /// make progress.
    pub fn transactions_within<B>(
        &self,
        query: &TransactionQuery,
        bounds: Bounds<'_>,
        visit: impl FnMut(&TransactionRecord<'_>) -> ControlFlow<B>,
    ) -> Result<WalkOutcome<TxHash, B>, StoreError> {
        let meter = Rc::new(Meter::new(bounds));
        let outcome = |broken_off: Option<B>, interrupted: Option<Interrupted<TxHash>>| {
            Ok(WalkOutcome { cost: meter.cost(), broken_off, interrupted })
        };
        let Some((mut bound, last)) = self::bounds(query) else { return outcome(None, None) };
        let direction = query.page.direction;
        // Ledgers of a write in progress are not seen. That is decided once for the page, because a
        // write that ends meanwhile would be seen in part; and before the snapshot, which then has
        // all of these ledgers.
        let published = self.coverage.read().ledgers();
        let snapshot = self.database.snapshot();
        let mut walk = Walk::new(&snapshot, direction, &meter);
        let mut stream = candidates(&mut walk, &query.contracts)?;
        let mut page = PageVisit::new(query, visit);
        let mut packed = Records::new(&snapshot);
        let mut contracts = Vec::new();
        let mut last_read = None;
        while page.remaining > 0 {
            if meter.is_over_budget()
                && let Some(cursor) = last_read
            {
                let skipped = query.page.skip() - page.skip;
                return outcome(None, Some(Interrupted { cursor, skipped }));
            }
            let Some(candidate) = stream.at_or_after(bound, direction)? else { break };
            if is_beyond(candidate.number, last, direction) {
                break;
            }
            let position = TransactionKey::from_number(candidate.number);
            let is_published = published.contains(position.ledger);
            read(&mut packed, position, &mut contracts, |record| {
                meter.record();
                last_read = Some(TxHash::from(*record.tx));
                if is_published {
                    page.candidate(record);
                }
            })?;
            match step(candidate.number, direction) {
                Some(next) => bound = next,
                None => break,
            }
        }
        outcome(page.broken_off, None)
    }

    /// Visits the smart-contract transaction with this outer or inner hash, if it is stored.
    pub fn transaction(
        &self,
        hash: &TxHash,
        mut visit: impl FnMut(&TransactionRecord<'_>),
    ) -> Result<QueryCost, StoreError> {
        let snapshot = self.database.snapshot();
        let mut cost = QueryCost::default();
        let mut packed = Records::new(&snapshot);
        let mut contracts = Vec::new();
        for (position, _) in self.hash_entries(&snapshot, hash, &mut cost)? {
            let mut found = false;
            read(&mut packed, position, &mut contracts, |record| {
                cost.records += 1;
                found = record.tx == hash.as_bytes() || record.inner_tx == Some(hash.as_bytes());
                if found {
                    visit(record);
                }
            })?;
            if found {
                break;
            }
        }
        Ok(cost)
    }

    /// Returns the ledgers that may have a transaction with this outer or inner hash that is stored, or of
    /// which events are: judged by the index alone, which costs less than reading records. No other
    /// ledger has one.
    pub fn ledgers_of_hash(&self, hash: &TxHash) -> Result<Vec<LedgerSeq>, StoreError> {
        let snapshot = self.database.snapshot();
        let entries = self.hash_entries(&snapshot, hash, &mut QueryCost::default())?;
        Ok(entries.into_iter().map(|(position, _)| position.ledger).collect())
    }

    /// Whether a smart-contract transaction of a ledger touches one of the contracts, judged by
    /// their tags: `true` may be wrong in rare cases, because tags can collide; `false` is always
    /// right.
    pub fn touches(&self, ledger: LedgerSeq, contracts: &[ContractId]) -> Result<bool, StoreError> {
        let snapshot = self.database.snapshot();
        let mut rows = snapshot.rows(Family::TxByContract)?;
        for contract in contracts {
            let contract = ContractTag::from(contract);
            let position = TransactionPosition { ledger, application_order: 0 };
            let first = key(&contract.0, &TransactionKey(position));
            rows.seek(&first);
            // The key begins with the tag and the ledger.
            let begins = &first[..contract.0.len() + 4];
            if rows.key().is_some_and(|key| key.starts_with(begins)) {
                return Ok(true);
            }
            rows.status()?;
        }
        Ok(false)
    }

    /// Returns the position of the smart-contract transaction with this outer or inner hash, if it
    /// is stored.
    pub fn transaction_position(
        &self,
        hash: &TxHash,
    ) -> Result<Option<TransactionPosition>, StoreError> {
        let mut position = None;
        self.transaction(hash, |record| position = Some(record.position))?;
        Ok(position)
    }

    /// Returns whether all smart-contract transactions that were stored of a ledger are still
    /// stored, or it had none. When true, what was read of them before this call was complete.
    pub fn has_all_transactions(&self, ledger: LedgerSeq) -> Result<bool, StoreError> {
        let snapshot = self.database.snapshot();
        if !removed_at(&snapshot, Needs::TRANSACTIONS)?.contains(ledger) {
            return Ok(true);
        }
        // A ledger that had none may be in the set.
        let key = LedgerKey(ledger).encode();
        let Some(row) = snapshot.get(Family::Ledgers, key)? else { return Ok(false) };
        let row = LedgerRow::decode(&row).map_err(corrupt(Family::Ledgers, key))?;
        let mut rows = snapshot.rows(Family::Transactions)?;
        rows.seek(key);
        let mut left = row.counts.stored_transactions;
        while left > 0 && rows.key().is_some_and(|found| found.starts_with(&key)) {
            left -= 1;
            rows.next();
        }
        rows.status()?;
        Ok(left == 0)
    }
}

/// Returns the first and last transaction number of the walk, both inclusive; `None` when the range
/// is empty.
fn bounds(query: &TransactionQuery) -> Option<(u64, u64)> {
    let number = |ledger, application_order| {
        TransactionKey::to_number(TransactionPosition { ledger, application_order })
    };
    let (mut lowest, mut highest) = match query.ledgers {
        Some(range) => (number(range.first, 0), number(range.last, 0x00ff_ffff)),
        None => (0, u64::MAX >> 8),
    };
    let cursor = query.page.cursor.map(TransactionKey::to_number);
    match (cursor, query.page.direction) {
        (None, _) => {}
        (Some(cursor), Direction::NewestFirst) => highest = highest.min(cursor.checked_sub(1)?),
        (Some(cursor), Direction::OldestFirst) => lowest = lowest.max(cursor.checked_add(1)?),
    }
    if lowest > highest {
        return None;
    }
    Some(match query.page.direction {
        Direction::NewestFirst => (highest, lowest),
        Direction::OldestFirst => (lowest, highest),
    })
}

fn candidates<'a>(walk: &mut Walk<'a>, contracts: &[ContractId]) -> Result<Stream<'a>, StoreError> {
    if contracts.is_empty() {
        return walk.rows(Family::Transactions, &[], TransactionKey::LEN);
    }
    let lists = contracts.iter().map(|contract| {
        walk.rows(Family::TxByContract, &ContractTag::from(contract).0, TransactionKey::LEN)
    });
    Ok(Stream::Any(lists.collect::<Result<_, _>>()?))
}

fn touches(record: &TransactionRecord<'_>, contracts: &[ContractId]) -> bool {
    contracts.is_empty() || record.contracts.iter().any(|id| contracts.contains(id))
}

/// Reads one record, if it is stored. `contracts` is a reusable buffer.
pub(crate) fn read(
    records: &mut Records<'_>,
    position: TransactionPosition,
    contracts: &mut Vec<ContractId>,
    visit: impl FnOnce(&TransactionRecord<'_>),
) -> Result<(), StoreError> {
    let Some(bytes) = records.get(position)? else { return Ok(()) };
    let damaged = corrupt(Family::Transactions, TransactionKey(position).encode());
    visit(&transaction_record::decode(position, bytes, contracts).map_err(damaged)?);
    Ok(())
}
