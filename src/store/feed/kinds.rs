//! Kinds of consumers: their rows, in families that all consumers of a kind share, and changes to them.
//! A consumer of a kind begins with its first cursor, and ends when it is deleted.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::{ControlFlow, Deref};

use orrery_ledger::domain::{Direction, LedgerSet};

use crate::db::database::Batch;
use crate::db::snapshot::Snapshot;
use crate::encoding::columns::{Family, SharedFamily, SharedRow};
use crate::encoding::error::{StoreError, damaged_row};
use crate::encoding::row_codec::RowCodec;
use crate::state::consumers::consumer::Consumer;
use crate::state::consumers::spec::{ConsumerKind, Needs};
use crate::state::consumers::states::{ConsumerStates, Update};
use crate::state::store::Store;

/// Changes to consumers of one kind and to their shared rows, written in one batch.
#[must_use = "nothing is changed until they are written"]
pub struct KindChanges<'a> {
    store: &'a Store,
    kind: ConsumerKind,
    batch: Batch<'a>,
    /// Changed cursors, by the consumer's name.
    cursors: BTreeMap<String, CursorChange>,
}

/// Change of a consumer's cursor.
#[derive(Default)]
struct CursorChange {
    /// Place in the feed up to which it has processed every ledger.
    place: u64,
    /// Ledgers that it has seen in full, which are removed from its lost ledgers.
    seen: LedgerSet,
    /// Ledgers that it has seen incompletely, which are added to its lost ledgers.
    lost: LedgerSet,
    /// What it reads of each ledger, if that is not what its kind reads.
    needs: Option<Needs>,
    deleted: bool,
}

/// A snapshot of the shared rows of all kinds.
pub struct SharedRows<'a>(Snapshot<'a>);

impl Store {
    /// Returns empty changes to consumers of a registered kind.
    pub fn change_kind(&self, kind: &ConsumerKind) -> KindChanges<'_> {
        let (batch, cursors) = (self.database.batch(), BTreeMap::new());
        KindChanges { store: self, kind: *kind, batch, cursors }
    }

    /// Returns the value of a shared row.
    pub fn shared_row(&self, row: &SharedRow) -> Result<Option<Vec<u8>>, StoreError> {
        let value = self.database.get(Family::Shared(row.family), &row.key)?;
        Ok(value.map(|value| value.to_vec()))
    }

    /// Takes a snapshot of the shared rows of all kinds.
    pub fn shared_rows(&self) -> SharedRows<'_> {
        SharedRows(self.database.snapshot())
    }
}

impl KindChanges<'_> {
    /// Writes the changes in one batch, synced.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails; nothing is changed in memory then.
    pub fn write(self) -> Result<(), StoreError> {
        let Self { store, kind: ConsumerKind { needs, .. }, batch, cursors } = self;
        let updates = move |known: &ConsumerStates| updates(known, needs, cursors);
        store.change_consumers(batch, move |known, _| Ok(Some(updates(known))))?;
        Ok(())
    }

    /// Puts a row.
    pub fn put(&mut self, row: &SharedRow, value: impl AsRef<[u8]>) -> Result<(), StoreError> {
        self.batch.put_raw(Family::Shared(row.family), &row.key, value.as_ref())
    }

    /// Deletes a row.
    pub fn delete(&mut self, row: &SharedRow) -> Result<(), StoreError> {
        self.batch.delete_raw(Family::Shared(row.family), &row.key)
    }

    /// Deletes all keys from `from` (included) to `to` (excluded) with one range deletion.
    pub fn delete_range(
        &mut self,
        family: SharedFamily,
        from: &[u8],
        to: &[u8],
    ) -> Result<(), StoreError> {
        self.batch.delete_range(Family::Shared(family), from, to)
    }

    /// Advances a consumer's cursor to a place in the feed, never back. Creates the consumer there
    /// when there is none.
    pub fn put_cursor(&mut self, id: impl Display, place: u64) {
        let change = self.cursor(id);
        change.place = change.place.max(place);
    }

    /// Sets what a consumer that is created reads of each ledger, in place of what its kind reads.
    pub fn put_needs(&mut self, id: impl Display, needs: Needs) {
        self.cursor(id).needs = Some(needs);
    }

    /// Records that a consumer has seen ledgers: in full, so that they are not, or no longer, lost
    /// to it; or incompletely, so that they are.
    pub fn put_seen(&mut self, id: impl Display, ledgers: &LedgerSet, in_full: bool) {
        let change = self.cursor(id);
        if in_full { &mut change.seen } else { &mut change.lost }.insert_all(ledgers);
    }

    /// Deletes a consumer, but none of the shared rows.
    pub fn delete_consumer(&mut self, id: impl Display) {
        self.cursor(id).deleted = true;
    }

    fn cursor(&mut self, id: impl Display) -> &mut CursorChange {
        self.cursors.entry(self.kind.consumer(id)).or_default()
    }
}

/// Returns the states of consumers after changes to their cursors.
fn updates(
    known: &ConsumerStates,
    needs: Needs,
    changes: BTreeMap<String, CursorChange>,
) -> Vec<Update> {
    let changed = changes.into_iter().map(|(name, change)| {
        let CursorChange { place, seen, lost, needs: own, deleted } = change;
        let before = known.get(&name).cloned();
        let mut consumer = before.unwrap_or_else(|| Consumer::new(own.unwrap_or(needs), place));
        consumer.place = consumer.place.max(place);
        consumer.lost.remove_all(&seen);
        consumer.lost.insert_all(&lost);
        (name, (!deleted).then_some(consumer))
    });
    changed.collect()
}

impl SharedRow {
    /// Returns the error for the row when it is damaged.
    pub fn damaged(&self) -> StoreError {
        damaged_row(self.family.name, &self.key)
    }
}

impl SharedRows<'_> {
    /// Returns the value of a row.
    pub fn get<'s>(
        &'s self,
        row: &SharedRow,
    ) -> Result<Option<impl Deref<Target = [u8]> + use<'s>>, StoreError> {
        self.0.get(Family::Shared(row.family), &row.key)
    }

    /// Visits the rows whose keys begin with `prefix`, in key order or in reverse key order,
    /// beginning at the one that continues with `from`, until `visit` breaks. `visit` receives the
    /// rest of each key.
    pub fn scan<Rest: RowCodec, E: From<StoreError>>(
        &self,
        family: SharedFamily,
        direction: Direction,
        prefix: &impl RowCodec,
        from: &impl RowCodec,
        mut visit: impl FnMut(Rest, &[u8]) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        let (prefix, from) = (prefix.encode(), from.encode());
        let mut rows = self.0.rows(Family::Shared(family))?;
        match direction {
            Direction::OldestFirst => rows.seek([&*prefix, &from].concat()),
            Direction::NewestFirst => rows.seek_for_prev([&*prefix, &from].concat()),
        }
        while let Some((key, value)) = rows.item()
            && let Some(rest) = key.strip_prefix(prefix.as_slice())
        {
            let rest = Rest::decode(rest).ok_or_else(|| damaged_row(family.name, key))?;
            if visit(rest, value)?.is_break() {
                break;
            }
            match direction {
                Direction::OldestFirst => rows.next(),
                Direction::NewestFirst => rows.prev(),
            }
        }
        Ok(rows.status().map_err(StoreError::from)?)
    }
}
