//! Storage of indexing programs: manifests, modules, progress, the rows that they emitted, and
//! records of their runs. Defines keys and what is written together; does not depend on the content
//! of the values.
//!
//! | Family | Key → value |
//! |---|---|
//! | `programs` | program → manifest |
//! | `wasm` | SHA-256 → module |
//! | `program_progress` | program → its progress; program, `b` → its backfill; program, `s` → its subscribers; program, `w`, position → a waiting run |
//! | `rows` | program, position of a transaction → rows that the run on it emitted |
//! | `row_log` | program, number → position: the order in which runs with rows were stored |
//! | `executions` | program, number → record of a run |
//! | `program_stats` | program, ledger, source → sums over the runs of a ledger |

mod keys;

use std::collections::BTreeMap;

use keys::{
    ProgramNumberKey, ProgramPositionKey, backfill_key, stats_key, stats_key_parts,
    subscribers_key, waiting_key, waiting_prefix,
};
use orrery_ledger::domain::{Direction, LedgerRange, LedgerSeq, LedgerSet, ProgramId};

use crate::db::database::Batch;
use crate::encoding::bytes::Malformed;
use crate::encoding::columns::{Family, Key, LedgerKey, TransactionKey};
use crate::encoding::error::{StoreError, corrupt};
use crate::encoding::records::TransactionPosition;
use crate::state::consumers::consumer::Consumer;
use crate::state::consumers::spec::Needs;
use crate::state::consumers::states::{ConsumerStates, Update};
use crate::state::store::Store;

/// A run of a program that lacked state in the store and is to be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitingRun {
    /// Position of the transaction on which the program runs.
    pub position: TransactionPosition,
    /// First ledger of the gapless range of stored ledgers that contains the transaction's ledger,
    /// when the run was tried.
    pub from: LedgerSeq,
}

/// Returns the name of the feed consumer that belongs to a program.
pub fn consumer_name(program: ProgramId) -> String {
    format!("programs/{program}")
}

/// Returns what programs read of ledgers.
fn needs() -> Needs {
    Needs { transactions: true, ..Needs::default() }
}

/// Changes of programs' rows and cursors, written in one batch.
pub struct ProgramChanges<'a> {
    batch: Batch<'a>,
    cursors: BTreeMap<ProgramId, CursorChange>,
}

/// Change of a program's cursor in the feed.
#[derive(Default)]
struct CursorChange {
    /// Place in the feed up to which it has processed every ledger.
    place: u64,
    /// Ledgers that it has seen in full, which are removed from its lost ledgers.
    seen: LedgerSet,
    /// Ledgers that it has seen incompletely, which are added to its lost ledgers.
    lost: LedgerSet,
    deleted: bool,
}

impl Store {
    /// Writes the changes that `change` makes in one batch, synced.
    ///
    /// # Errors
    /// [`StoreError`] when `change` or the database fails; nothing is changed in memory then.
    pub fn change_programs(
        &self,
        change: impl FnOnce(&mut ProgramChanges<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut changes = ProgramChanges { batch: self.database.batch(), cursors: BTreeMap::new() };
        change(&mut changes)?;
        let ProgramChanges { batch, cursors } = changes;
        self.change_consumers(batch, move |known, _| Ok(Some(cursors_after(known, cursors))))?;
        Ok(())
    }

    /// Returns all manifests, ordered by program id.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails or a key is damaged.
    pub fn programs(&self) -> Result<Vec<(ProgramId, Vec<u8>)>, StoreError> {
        let mut found = Vec::new();
        self.database.scan(Family::Programs, |key, value| {
            let id = <[u8; 4]>::try_from(key).map_err(|_| Malformed);
            let id = id.map_err(corrupt(Family::Programs, key))?;
            found.push((ProgramId(u32::from_be_bytes(id)), value.to_vec()));
            Ok(())
        })?;
        Ok(found)
    }

    /// Returns the manifest of a program; `None` when there is no such program.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails.
    pub fn program(&self, program: ProgramId) -> Result<Option<Vec<u8>>, StoreError> {
        let row = self.database.get(Family::Programs, program.0.to_be_bytes())?;
        Ok(row.map(|row| row.to_vec()))
    }

    /// Returns a program's waiting runs, in chain order.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails or a row is damaged.
    pub fn waiting_runs(&self, program: ProgramId) -> Result<Vec<WaitingRun>, StoreError> {
        let snapshot = self.database.snapshot();
        let mut rows = snapshot.rows(Family::ProgramProgress)?;
        let prefix = waiting_prefix(program);
        rows.seek(prefix);
        let mut found = Vec::new();
        while let Some((key, value)) = rows.item().filter(|(key, _)| key.starts_with(&prefix)) {
            let position = TransactionKey::decode(&key[prefix.len()..]);
            let run = position
                .zip(LedgerKey::decode(value))
                .map(|(position, from)| WaitingRun { position: position.0, from: from.0 });
            found.push(run.ok_or(Malformed).map_err(corrupt(Family::ProgramProgress, key))?);
            rows.next();
        }
        rows.status()?;
        Ok(found)
    }

    /// Returns the stored progress of a program; `None` when there is none.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails.
    pub fn program_progress(&self, program: ProgramId) -> Result<Option<Vec<u8>>, StoreError> {
        let row = self.database.get(Family::ProgramProgress, program.0.to_be_bytes())?;
        Ok(row.map(|row| row.to_vec()))
    }

    /// Returns the backfill that was requested of a program; `None` when there is none.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails.
    pub fn program_backfill(&self, program: ProgramId) -> Result<Option<Vec<u8>>, StoreError> {
        let row = self.database.get(Family::ProgramProgress, backfill_key(program))?;
        Ok(row.map(|row| row.to_vec()))
    }

    /// Returns the subscribers of a program; `None` when none are stored.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails.
    pub fn program_subscribers(&self, program: ProgramId) -> Result<Option<Vec<u8>>, StoreError> {
        let row = self.database.get(Family::ProgramProgress, subscribers_key(program))?;
        Ok(row.map(|row| row.to_vec()))
    }

    /// Returns the module with this SHA-256; `None` when it is not stored.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails.
    pub fn module(&self, sha256: &[u8; 32]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.database.get(Family::Wasm, sha256)?.map(|row| row.to_vec()))
    }

    /// Returns the rows that a program's run on a transaction emitted; `None` when there are none.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails.
    pub fn rows_of_run(
        &self,
        program: ProgramId,
        position: TransactionPosition,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let key = ProgramPositionKey { program, position };
        Ok(self.database.get(Family::Rows, key.encode())?.map(|row| row.to_vec()))
    }

    /// Visits the runs with rows after a number of the row log, in the log's order, until `visit`
    /// returns false.
    ///
    /// # Errors
    /// [`StoreError`] when the database or `visit` fails, or when a row is damaged.
    pub fn row_log_after(
        &self,
        program: ProgramId,
        number: u64,
        mut visit: impl FnMut(u64, TransactionPosition, &[u8]) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let snapshot = self.database.snapshot();
        let mut log = snapshot.rows(Family::RowLog)?;
        log.seek(ProgramNumberKey { program, number: number.saturating_add(1) }.encode());
        while let Some((key, value)) = log.item() {
            let damaged = || corrupt(Family::RowLog, key)(Malformed);
            let entry = ProgramNumberKey::decode(key).ok_or_else(damaged)?;
            if entry.program != program {
                break;
            }
            let position = TransactionKey::decode(value).ok_or_else(damaged)?.0;
            let at = ProgramPositionKey { program, position }.encode();
            let rows = snapshot.get(Family::Rows, at)?;
            if !visit(entry.number, position, &rows.ok_or_else(damaged)?)? {
                break;
            }
            log.next();
        }
        Ok(log.status()?)
    }

    /// Visits the records of a program's runs, newest first, until `visit` returns false.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails or a key is damaged.
    pub fn executions(
        &self,
        program: ProgramId,
        mut visit: impl FnMut(u64, &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let snapshot = self.database.snapshot();
        let mut rows = snapshot.rows(Family::Executions)?;
        rows.seek_for_prev(ProgramNumberKey { program, number: u64::MAX }.encode());
        while let Some((key, value)) = rows.item() {
            let entry = ProgramNumberKey::decode(key)
                .ok_or(Malformed)
                .map_err(corrupt(Family::Executions, key))?;
            if entry.program != program || !visit(entry.number, value) {
                break;
            }
            rows.prev();
        }
        Ok(rows.status()?)
    }

    /// Visits the sums of a program's ledgers in a range until `visit` returns false. Sums of one
    /// ledger from different sources are adjacent.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails or a key is damaged.
    pub fn program_stats(
        &self,
        program: ProgramId,
        ledgers: LedgerRange,
        direction: Direction,
        mut visit: impl FnMut(LedgerSeq, u8, &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let snapshot = self.database.snapshot();
        let mut rows = snapshot.rows(Family::ProgramStats)?;
        match direction {
            Direction::NewestFirst => {
                rows.seek_for_prev(stats_key(program, ledgers.last, u8::MAX));
            }
            Direction::OldestFirst => rows.seek(stats_key(program, ledgers.first, 0)),
        }
        while let Some((key, value)) = rows.item() {
            let (owner, ledger, source) = stats_key_parts(key)
                .ok_or(Malformed)
                .map_err(corrupt(Family::ProgramStats, key))?;
            let inside = owner == program && ledgers.first <= ledger && ledger <= ledgers.last;
            if !inside || !visit(ledger, source, value) {
                break;
            }
            match direction {
                Direction::NewestFirst => rows.prev(),
                Direction::OldestFirst => rows.next(),
            }
        }
        Ok(rows.status()?)
    }
}

fn cursors_after(
    known: &ConsumerStates,
    changes: BTreeMap<ProgramId, CursorChange>,
) -> Vec<Update> {
    let changed = changes.into_iter().map(|(program, change)| {
        let name = consumer_name(program);
        let CursorChange { place, seen, lost, deleted } = change;
        let before = known.get(&name).cloned();
        let mut consumer = before.unwrap_or_else(|| Consumer::new(needs(), place));
        consumer.place = consumer.place.max(place);
        consumer.lost.remove_all(&seen);
        consumer.lost.insert_all(&lost);
        (name, (!deleted).then_some(consumer))
    });
    changed.collect()
}

impl ProgramChanges<'_> {
    /// Puts a program's manifest.
    pub fn put_program(&mut self, id: ProgramId, manifest: &[u8]) -> Result<(), StoreError> {
        self.batch.put_raw(Family::Programs, &id.0.to_be_bytes(), manifest)
    }

    /// Puts a module under its SHA-256.
    pub fn put_module(&mut self, sha256: &[u8; 32], module: &[u8]) -> Result<(), StoreError> {
        self.batch.put_raw(Family::Wasm, sha256, module)
    }

    /// Deletes a module that no program uses any more.
    pub fn delete_module(&mut self, sha256: &[u8; 32]) -> Result<(), StoreError> {
        self.batch.delete_raw(Family::Wasm, sha256)
    }

    /// Puts a program's progress.
    pub fn put_progress(&mut self, id: ProgramId, progress: &[u8]) -> Result<(), StoreError> {
        self.batch.put_raw(Family::ProgramProgress, &id.0.to_be_bytes(), progress)
    }

    /// Puts the backfill that was requested of a program.
    pub fn put_backfill(&mut self, id: ProgramId, order: &[u8]) -> Result<(), StoreError> {
        self.batch.put_raw(Family::ProgramProgress, &backfill_key(id), order)
    }

    /// Puts a run that is to be repeated.
    pub fn put_waiting_run(&mut self, id: ProgramId, run: WaitingRun) -> Result<(), StoreError> {
        let key = waiting_key(id, run.position);
        self.batch.put_raw(Family::ProgramProgress, &key, &LedgerKey(run.from).encode())
    }

    /// Deletes a run that is no longer to be repeated.
    pub fn delete_waiting_run(
        &mut self,
        id: ProgramId,
        position: TransactionPosition,
    ) -> Result<(), StoreError> {
        self.batch.delete_raw(Family::ProgramProgress, &waiting_key(id, position))
    }

    /// Puts the subscribers of a program.
    pub fn put_subscribers(&mut self, id: ProgramId, list: &[u8]) -> Result<(), StoreError> {
        self.batch.put_raw(Family::ProgramProgress, &subscribers_key(id), list)
    }

    /// Puts the rows of a run, and the entry with this number in the row log.
    pub fn put_rows(
        &mut self,
        program: ProgramId,
        position: TransactionPosition,
        number: u64,
        rows: &[u8],
    ) -> Result<(), StoreError> {
        self.batch.put(Family::Rows, &ProgramPositionKey { program, position }, rows)?;
        let position = TransactionKey(position).encode();
        self.batch.put(Family::RowLog, &ProgramNumberKey { program, number }, position)
    }

    /// Puts the record of a run.
    pub fn put_execution(
        &mut self,
        program: ProgramId,
        number: u64,
        record: &[u8],
    ) -> Result<(), StoreError> {
        self.batch.put(Family::Executions, &ProgramNumberKey { program, number }, record)
    }

    /// Deletes the record of a run.
    pub fn delete_execution(&mut self, program: ProgramId, number: u64) -> Result<(), StoreError> {
        self.batch.delete(Family::Executions, &ProgramNumberKey { program, number })
    }

    /// Puts the sums over the runs of a ledger.
    pub fn put_stats(
        &mut self,
        program: ProgramId,
        ledger: LedgerSeq,
        source: u8,
        sums: &[u8],
    ) -> Result<(), StoreError> {
        self.batch.put_raw(Family::ProgramStats, &stats_key(program, ledger, source), sums)
    }

    /// Deletes the sums over the runs of a ledger.
    pub fn delete_stats(
        &mut self,
        program: ProgramId,
        ledger: LedgerSeq,
        source: u8,
    ) -> Result<(), StoreError> {
        self.batch.delete_raw(Family::ProgramStats, &stats_key(program, ledger, source))
    }

    /// Advances a program's cursor to a place in the feed, never back. Creates the cursor there
    /// when the program has none.
    pub fn put_cursor(&mut self, id: ProgramId, place: u64) {
        let change = self.cursors.entry(id).or_default();
        change.place = change.place.max(place);
    }

    /// Records that a program has seen ledgers: in full, so that they are not, or no longer, lost
    /// to it; or incompletely, so that they are.
    pub fn put_seen(&mut self, id: ProgramId, ledgers: &LedgerSet, in_full: bool) {
        let change = self.cursors.entry(id).or_default();
        if in_full { &mut change.seen } else { &mut change.lost }.insert_all(ledgers);
    }

    /// Deletes a program with its progress, rows and records. Keeps its module, which another
    /// program may use.
    pub fn delete_program(&mut self, id: ProgramId) -> Result<(), StoreError> {
        let key = id.0.to_be_bytes();
        self.cursors.entry(id).or_default().deleted = true;
        self.batch.delete_raw(Family::Programs, &key)?;
        let end = match id.0.checked_add(1) {
            Some(next) => next.to_be_bytes().to_vec(),
            None => vec![u8::MAX; 16],
        };
        for family in [
            Family::ProgramProgress,
            Family::Rows,
            Family::RowLog,
            Family::Executions,
            Family::ProgramStats,
        ] {
            self.batch.delete_range(family, &key, &end)?;
        }
        Ok(())
    }
}
