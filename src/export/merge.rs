//! Merges small files of a table into one that is sorted by ledger. No row changes: that the rows are the
//! same is checked before the new file counts. A table whose files cannot be merged keeps them.

use std::io::Read;
use std::sync::Arc;

use orrery_iceberg::{Change, Column, Columns, DataFile, merges};
use sha2::{Digest, Sha256};

use super::columns;
use super::digest::{RowDigest, RowSum};
use super::error::{ExportError, Result};
use super::files::TableWriter;
use super::lake::{self, Place};
use super::layout::{EVENTS, PROGRAMS, TRANSACTIONS};
use super::merged_rows::{Input, Shape};
use super::{Export, spool};
use orrery_ledger::domain::LedgerRange;

/// How often files that were merged are looked at again: they may need less than before.
const ROUNDS: usize = 3;

/// A table whose files are merged.
struct Merging {
    kind: &'static str,
    columns: Columns,
    now: Vec<Column>,
    ledger: &'static str,
    files: Vec<DataFile>,
}

impl Merging {
    fn groups(&self, file_bytes: u64) -> Vec<Vec<usize>> {
        merges(&self.files, file_bytes)
    }
}

impl Export {
    /// Merges the files of each table of which all are part of a snapshot, and too many. A table whose files
    /// cannot be merged does not hold up the others.
    pub(super) fn merge(&mut self) -> Result<()> {
        for table in self.merging() {
            let uuid = table.columns.uuid.clone();
            match self.merge_table(table) {
                Ok(()) => {}
                Err(error) if error.is_about_rows() => {
                    tracing::warn!(table = uuid, "small files of a table are not merged: {error}");
                    self.unmerged.insert(uuid);
                    self.has_strays = true;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the tables whose files are to be merged. Files that have no place yet are added by a commit
    /// first, which says that rows were added; that of merged files says that none were.
    fn merging(&mut self) -> Vec<Merging> {
        let events = self.manifest.chain.events.identity.uuid.clone();
        let transactions = self.manifest.chain.transactions.identity.uuid.clone();
        let file_bytes = self.options.file_bytes as u64;
        let mut found = Vec::new();
        for table in lake::tables(&mut self.manifest) {
            let is_settled = table.files.iter().all(|file| file.place.is_some())
                && table.state.removed.iter().all(|removed| removed.until.is_some());
            let uuid = &table.columns.uuid;
            if !is_settled || table.now.is_empty() || self.unmerged.contains(uuid) {
                continue;
            }
            let kind = match uuid {
                _ if *uuid == events => EVENTS,
                _ if *uuid == transactions => TRANSACTIONS,
                _ => PROGRAMS,
            };
            if merges(table.files, file_bytes).is_empty() {
                continue;
            }
            let (columns, ledger) = (table.columns.clone(), table.times[0]);
            let files = table.files.clone();
            found.push(Merging { kind, columns, now: table.now, ledger, files });
        }
        found
    }

    fn merge_table(&mut self, mut table: Merging) -> Result<()> {
        let file_bytes = self.options.file_bytes as u64;
        // Files that were merged twice.
        let mut unneeded = Vec::new();
        for _ in 0..ROUNDS {
            let groups = table.groups(file_bytes);
            if groups.is_empty() {
                break;
            }
            let mut merged = Vec::new();
            for group in &groups {
                self.check_interrupt()?;
                let files: Vec<&DataFile> = group.iter().map(|at| &table.files[*at]).collect();
                merged.extend(self.merged(&table, &files)?);
            }
            let gone: Vec<usize> = groups.into_iter().flatten().collect();
            let files = std::mem::take(&mut table.files).into_iter().enumerate();
            for (at, file) in files {
                match (gone.contains(&at), file.place) {
                    (false, _) => table.files.push(file),
                    (true, None) => unneeded.push(file.path),
                    (true, Some(_)) => {}
                }
            }
            table.files.extend(merged);
        }
        let mut manifest = self.manifest.clone();
        let uuid = &table.columns.uuid;
        let root = self.destination.root();
        let place = Place { root: &root, mark: self.destination.mark() };
        let change = Change { same_rows: true, ..Change::at(self.options.now_ms()) };
        let found = lake::tables(&mut manifest).into_iter().find(|it| it.columns.uuid == *uuid);
        let Some(mut found) = found else { return Ok(()) };
        let before = std::mem::replace(found.files, table.files);
        for file in before {
            if !found.files.iter().any(|it| it.path == file.path) {
                found.state.retire(file);
            }
        }
        let commit = found.commit(place, change)?;
        self.write(manifest, commit.into_iter().collect(), unneeded)
    }

    /// Returns the files with the rows of these files.
    fn merged(&self, table: &Merging, files: &[&DataFile]) -> Result<Vec<DataFile>> {
        let Merging { columns, now, .. } = table;
        let (kind, ledger) = (table.kind, table.ledger);
        let schema = Arc::new(columns::schema_of(columns, now));
        let shape = Shape { columns, now, schema: Arc::clone(&schema), ledger };
        let inputs = files.iter().map(|file| self.input(&shape, file));
        let inputs: Vec<Input> = inputs.collect::<Result<_>>()?;
        let mut before = RowDigest::new(&schema)?;
        let mut writer = TableWriter::new(self.target(), kind, schema).checked();
        shape.visit(&inputs, |rows, ledgers| {
            self.check_interrupt()?;
            before.add(rows)?;
            writer.write(rows, LedgerRange::new(*ledgers.start(), *ledgers.end()))
        })?;
        let mut merged = writer.finish()?;
        let rows: u64 = files.iter().map(|file| file.rows).sum();
        let written: u64 = merged.iter().map(|file| file.rows).sum();
        if rows != written || sum_of(&merged) != Some(before.sum()) {
            let count = files.len();
            merged.iter().try_for_each(|file| self.destination.remove(&file.path))?;
            return Err(ExportError::Unmerged(format!(
                "{count} files have {rows} rows, and {written} others were written"
            )));
        }
        check_digests(files, now.len(), before.sum())?;
        Self::set_ledgers(table, files, &mut merged);
        Ok(merged)
    }

    /// Files of events and transactions have the ledgers of their portions, others those of their rows.
    fn set_ledgers(table: &Merging, files: &[&DataFile], merged: &mut [DataFile]) {
        let first = files.iter().map(|file| file.first_ledger).min();
        let last = files.iter().map(|file| file.last_ledger).max();
        for file in merged.iter_mut() {
            if table.kind == PROGRAMS {
                let rows = file.bounds.map(|bounds| bounds.ledgers);
                (file.first_ledger, file.last_ledger) =
                    rows.unwrap_or((file.first_ledger, file.last_ledger));
            } else {
                file.digest = None;
            }
        }
        if let (true, Some(first), Some(last), [file]) =
            (table.kind != PROGRAMS, first, last, merged)
        {
            (file.first_ledger, file.last_ledger) = (first, last);
        }
    }

    /// Opens a file whose content is that which was exported.
    fn input(&self, shape: &Shape<'_>, named: &DataFile) -> Result<Input> {
        let file = self.destination.open(named)?;
        let mut hash = Sha256::new();
        let mut reader = spool::from_begin(&file)?;
        let mut part = vec![0; 1 << 16];
        loop {
            let read = reader.read(&mut part).map_err(spool::unusable)?;
            if read == 0 {
                break;
            }
            hash.update(&part[..read]);
        }
        if hex::encode(hash.finalize()) != named.sha256 {
            return Err(ExportError::Unmerged(format!(
                "{} is damaged: it has another content than was exported",
                named.path
            )));
        }
        shape.open(file, named.columns.is_some())
    }
}

/// Returns the sum of the digests of files; `None` if one has none.
pub(super) fn sum_of<'a>(files: impl IntoIterator<Item = &'a DataFile>) -> Option<RowSum> {
    files.into_iter().try_fold(RowSum::default(), |sum, file| {
        Some(sum.and(RowSum::parse(file.digest.as_deref()?)?))
    })
}

/// Checks the digest that was recorded when the rows were exported, as far as they had as many columns.
fn check_digests(files: &[&DataFile], columns: usize, found: RowSum) -> Result<()> {
    let has_all = |file: &&DataFile| file.columns == Some(columns as u32);
    match sum_of(files.iter().copied()) {
        Some(recorded) if files.iter().all(has_all) && recorded != found => Err(
            ExportError::Unmerged("their rows are others than those that were exported".to_owned()),
        ),
        _ => Ok(()),
    }
}
