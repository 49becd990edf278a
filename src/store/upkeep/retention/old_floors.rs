//! Derives the sets of removed ledgers for a directory that was written when there were only floors:
//! ledgers below a floor that were stored after the removal still have their records.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use orrery_ledger::domain::{LedgerRange, LedgerSeq, LedgerSet};

use crate::db::snapshot::Snapshot;
use crate::encoding::block::Block;
use crate::encoding::bytes::Malformed;
use crate::encoding::columns::{BlockKey, Family, Key, TransactionKey};
use crate::encoding::compression;
use crate::encoding::compression::Content;
use crate::encoding::error::{StoreError, corrupt};
use crate::encoding::ledgers::LedgerCounts;
use crate::state::removed::{Removed, ledgers_below, old_floors};
use crate::state::store::Store;
use crate::state::totals::TOTALS_ROW;

/// Number of stored records by ledger.
type Found = BTreeMap<LedgerSeq, u64>;

impl Store {
    /// Replaces the floors of an older directory by the sets of removed ledgers. Must be called when
    /// the store is opened.
    pub(crate) fn replace_old_floors(&self) -> Result<(), StoreError> {
        let Some((events_from, transactions_from)) = old_floors(&self.database)? else {
            return Ok(());
        };
        let covered: LedgerSet = self.coverage.read().ranges().map(|range| range.ledgers).collect();
        let of_events = ledgers_below(events_from);
        let of_transactions = ledgers_below(transactions_from);
        let snapshot = self.database.snapshot();
        let events = self.stored_events(&snapshot, of_events)?;
        let transactions = stored_transactions(&snapshot, of_transactions)?;
        let first_raw = self.first_raw()?.map_or(LedgerRange::new(0, u32::MAX), ledgers_below);
        let removed = Removed {
            raw_ledgers: covered.within(first_raw),
            events: self.without(covered.within(of_events), &events, LedgerCounts::events)?,
            transactions: self.without(
                covered.within(of_transactions),
                &transactions,
                |counts| u64::from(counts.stored_transactions),
            )?,
        };
        let mut batch = self.database.batch();
        removed.put_changes(&Removed::default(), &mut batch)?;
        batch.put_raw(Family::Meta, TOTALS_ROW, &self.totals.read().encode())?;
        self.database.write_synced(batch)?;
        *self.removed.write() = removed;
        Ok(())
    }

    /// Returns `ledgers` without those of which all records are found.
    fn without(
        &self,
        mut ledgers: LedgerSet,
        found: &Found,
        count: impl Fn(&LedgerCounts) -> u64,
    ) -> Result<LedgerSet, StoreError> {
        for (ledger, found) in found {
            if *found == count(&self.ledger_or_missing(*ledger)?.counts) {
                ledgers.remove(LedgerRange::only(*ledger));
            }
        }
        Ok(ledgers)
    }

    fn stored_events(
        &self,
        snapshot: &Snapshot<'_>,
        ledgers: LedgerRange,
    ) -> Result<Found, StoreError> {
        let mut found = Found::new();
        if ledgers.is_empty() {
            return Ok(found);
        }
        self.visit_blocks(snapshot, ledgers.last, |id, bytes| {
            let bytes = compression::decompress(Content::Events, bytes)?;
            let block = Block::open(id, &bytes);
            let block = block.map_err(corrupt(Family::Events, BlockKey(id).encode()))?;
            *found.entry(block.ledger()).or_default() += block.len() as u64;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }
}

fn stored_transactions(snapshot: &Snapshot<'_>, ledgers: LedgerRange) -> Result<Found, StoreError> {
    let mut found = Found::new();
    let mut rows = snapshot.rows(Family::Transactions)?;
    rows.seek_to_first();
    while let Some(key) = rows.key() {
        let position = TransactionKey::decode(key).ok_or(Malformed);
        let ledger = position.map_err(corrupt(Family::Transactions, key))?.0.ledger;
        if !ledgers.contains(ledger) {
            break;
        }
        *found.entry(ledger).or_default() += 1;
        rows.next();
    }
    rows.status()?;
    Ok(found)
}
