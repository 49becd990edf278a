//! Where indexing programs keep what is theirs: manifests, modules, how far each has got, the rows
//! that they emitted, and records of their runs. Knows keys and what is written together; what the
//! values say is the programs' own affair.
//!
//! | Family | Key → value |
//! |---|---|
//! | `programs` | program → manifest |
//! | `wasm` | SHA-256 → module |
//! | `program_progress` | program → how far it has got; program, `b` → its backfill; program, `s` → its subscribers; program, `w`, position → a run that waits |
//! | `program_queue` | number in the order of ingestion → ledger that programs have yet to see |
//! | `rows` | program, position of a transaction → what the run on it emitted |
//! | `row_log` | program, number → position: the order in which runs with rows were stored |
//! | `executions` | program, number → record of a run |
//! | `program_stats` | program, ledger, source → sums over the runs of a ledger |

mod keys;

use keys::{
    ProgramNumberKey, ProgramPositionKey, backfill_key, stats_key, stats_key_parts,
    subscribers_key, waiting_key, waiting_prefix,
};

use super::bytes::Malformed;
use super::columns::{Family, Key, LedgerKey, TransactionKey};
use super::database::{Batch, corrupt};
use super::query::TransactionPosition;
use super::{Store, StoreError};
use crate::domain::{Direction, LedgerRange, LedgerSeq, ProgramId};

/// A run of a program that could not be made with what was stored, and is to be made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitingRun {
    /// The transaction.
    pub position: TransactionPosition,
    /// The first of the ledgers that were stored without a gap up to the transaction's own.
    pub from: LedgerSeq,
}

/// A ledger that waits to be seen by programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queued {
    /// Its place in the order of ingestion; numbers grow and are never given out twice.
    pub number: u64,
    /// The ledger.
    pub ledger: LedgerSeq,
}

/// Changes that are written together or not at all.
pub struct ProgramChanges<'a> {
    batch: Batch<'a>,
}

impl Store {
    /// Whether ledgers that are stored from now on are queued for programs.
    pub fn queue_for_programs(&self, wanted: bool) {
        self.writer.lock().queue = wanted;
    }

    /// Writes what `change` says, on disk when this returns.
    ///
    /// # Errors
    /// What the database says; then nothing is changed.
    pub fn change_programs(
        &self,
        change: impl FnOnce(&mut ProgramChanges<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut changes = ProgramChanges { batch: self.database.batch() };
        change(&mut changes)?;
        let batch = changes.batch.detach();
        self.writer_thread.run(move |database| database.write_synced(database.attach(batch)))
    }

    /// All manifests, by number.
    ///
    /// # Errors
    /// What the database says.
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

    /// The manifest of a program; none when there is no such program.
    ///
    /// # Errors
    /// What the database says.
    pub fn program(&self, program: ProgramId) -> Result<Option<Vec<u8>>, StoreError> {
        let row = self.database.get(Family::Programs, program.0.to_be_bytes())?;
        Ok(row.map(|row| row.to_vec()))
    }

    /// The runs of a program that wait, in chain order.
    ///
    /// # Errors
    /// What the database says, or that a row is damaged.
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

    /// How far a program has got.
    ///
    /// # Errors
    /// What the database says.
    pub fn program_progress(&self, program: ProgramId) -> Result<Option<Vec<u8>>, StoreError> {
        let row = self.database.get(Family::ProgramProgress, program.0.to_be_bytes())?;
        Ok(row.map(|row| row.to_vec()))
    }

    /// The backfill that was asked of a program.
    ///
    /// # Errors
    /// What the database says.
    pub fn program_backfill(&self, program: ProgramId) -> Result<Option<Vec<u8>>, StoreError> {
        let row = self.database.get(Family::ProgramProgress, backfill_key(program))?;
        Ok(row.map(|row| row.to_vec()))
    }

    /// Who has subscribed to a program.
    ///
    /// # Errors
    /// What the database says.
    pub fn program_subscribers(&self, program: ProgramId) -> Result<Option<Vec<u8>>, StoreError> {
        let row = self.database.get(Family::ProgramProgress, subscribers_key(program))?;
        Ok(row.map(|row| row.to_vec()))
    }

    /// The module with this SHA-256.
    ///
    /// # Errors
    /// What the database says.
    pub fn module(&self, sha256: &[u8; 32]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.database.get(Family::Wasm, sha256)?.map(|row| row.to_vec()))
    }

    /// The first `most` queued ledgers after a number.
    ///
    /// # Errors
    /// What the database says.
    pub fn queued_after(&self, number: u64, most: usize) -> Result<Vec<Queued>, StoreError> {
        let snapshot = self.database.snapshot();
        let mut rows = snapshot.rows(Family::ProgramQueue)?;
        rows.seek(number.saturating_add(1).to_be_bytes());
        let mut found = Vec::new();
        while found.len() < most
            && let Some((key, value)) = rows.item()
        {
            let number = <[u8; 8]>::try_from(key).ok().map(u64::from_be_bytes);
            let queued = number
                .zip(LedgerKey::decode(value))
                .map(|(number, ledger)| Queued { number, ledger: ledger.0 });
            found.push(queued.ok_or(Malformed).map_err(corrupt(Family::ProgramQueue, key))?);
            rows.next();
        }
        rows.status()?;
        Ok(found)
    }

    /// The number that everything queued so far lies at or below.
    pub fn queue_position(&self) -> u64 {
        let _writer = self.writer.lock();
        self.database.sequence()
    }

    /// What a program's run on a transaction emitted.
    ///
    /// # Errors
    /// What the database says.
    pub fn rows_of_run(
        &self,
        program: ProgramId,
        position: TransactionPosition,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let key = ProgramPositionKey { program, position };
        Ok(self.database.get(Family::Rows, key.encode())?.map(|row| row.to_vec()))
    }

    /// Visits runs with rows after a number of the log, in the log's order, until `visit` says false.
    ///
    /// # Errors
    /// What the database says, or `visit`.
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

    /// Visits records of a program's runs, newest first, until `visit` says false.
    ///
    /// # Errors
    /// What the database says.
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

    /// Visits the sums of a program's ledgers in a range, until `visit` says false. Sources of one
    /// ledger are neighbours.
    ///
    /// # Errors
    /// What the database says.
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

impl ProgramChanges<'_> {
    /// Puts a program's manifest.
    pub fn put_program(&mut self, id: ProgramId, manifest: &[u8]) -> Result<(), StoreError> {
        self.batch.put_raw(Family::Programs, &id.0.to_be_bytes(), manifest)
    }

    /// Puts a module under its SHA-256.
    pub fn put_module(&mut self, sha256: &[u8; 32], module: &[u8]) -> Result<(), StoreError> {
        self.batch.put_raw(Family::Wasm, sha256, module)
    }

    /// Removes a module that no program has any more.
    pub fn delete_module(&mut self, sha256: &[u8; 32]) -> Result<(), StoreError> {
        self.batch.delete_raw(Family::Wasm, sha256)
    }

    /// Puts how far a program has got.
    pub fn put_progress(&mut self, id: ProgramId, progress: &[u8]) -> Result<(), StoreError> {
        self.batch.put_raw(Family::ProgramProgress, &id.0.to_be_bytes(), progress)
    }

    /// Puts the backfill that was asked of a program.
    pub fn put_backfill(&mut self, id: ProgramId, order: &[u8]) -> Result<(), StoreError> {
        self.batch.put_raw(Family::ProgramProgress, &backfill_key(id), order)
    }

    /// Puts a run that is to be made again.
    pub fn put_waiting_run(&mut self, id: ProgramId, run: WaitingRun) -> Result<(), StoreError> {
        let key = waiting_key(id, run.position);
        self.batch.put_raw(Family::ProgramProgress, &key, &LedgerKey(run.from).encode())
    }

    /// Removes a run that is not to be made again.
    pub fn delete_waiting_run(
        &mut self,
        id: ProgramId,
        position: TransactionPosition,
    ) -> Result<(), StoreError> {
        self.batch.delete_raw(Family::ProgramProgress, &waiting_key(id, position))
    }

    /// Puts who has subscribed to a program.
    pub fn put_subscribers(&mut self, id: ProgramId, list: &[u8]) -> Result<(), StoreError> {
        self.batch.put_raw(Family::ProgramProgress, &subscribers_key(id), list)
    }

    /// Puts what a run emitted, as the log's entry of this number.
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

    /// Removes the record of a run.
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

    /// Removes the sums over the runs of a ledger.
    pub fn delete_stats(
        &mut self,
        program: ProgramId,
        ledger: LedgerSeq,
        source: u8,
    ) -> Result<(), StoreError> {
        self.batch.delete_raw(Family::ProgramStats, &stats_key(program, ledger, source))
    }

    /// Takes the queued ledgers up to this number off the queue.
    pub fn unqueue(&mut self, up_to: u64) -> Result<(), StoreError> {
        let end = up_to.saturating_add(1).to_be_bytes();
        self.batch.delete_range(Family::ProgramQueue, &[0; 8], &end)
    }

    /// Removes a program with its progress, rows and records. Its module is left: another program may
    /// have the same.
    pub fn delete_program(&mut self, id: ProgramId) -> Result<(), StoreError> {
        let key = id.0.to_be_bytes();
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
