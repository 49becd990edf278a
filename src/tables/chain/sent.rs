//! What a worker has been sent of the tables of the chain. Every part is sent once; a query names the parts that
//! its tables consist of, and those that it does not name are forgotten.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::{ChainContent, ChainFiles, ChainRows, ChainSnapshot};
use crate::wire::{ChainPart, FileOfTable, PartOfTable, PartsOfTable, Request, SentParts};

/// What a worker has of the tables of the chain.
#[derive(Debug, Default)]
pub struct Sent {
    /// Directories that the worker reads.
    directories: Vec<PathBuf>,
    /// Numbers of the parts, with the names of their tables.
    parts: HashMap<u64, String>,
}

impl Sent {
    /// Creates what a worker has that reads these directories.
    pub fn new(directories: Vec<PathBuf>) -> Self {
        Self { directories, parts: HashMap::new() }
    }

    /// Whether the worker may read all files of these tables.
    pub fn reads(&self, snapshot: &ChainSnapshot) -> bool {
        let mut files = snapshot.tables.iter().flat_map(|table| table.files.list());
        files.all(|file| self.directory(&file.directory).is_some())
    }

    fn directory(&self, path: &Path) -> Option<usize> {
        self.directories.iter().position(|directory| directory == path)
    }

    /// Sends what a query needs and the worker does not have, by `send`, and has it forget the rest. Returns what the
    /// query names.
    ///
    /// # Errors
    /// Those of `send`; it is then unknown what the worker has.
    pub fn send<E>(
        &mut self,
        snapshot: &ChainSnapshot,
        mut send: impl FnMut(&Request, &[u8]) -> Result<(), E>,
    ) -> Result<SentParts, E> {
        let (mut needed, mut tables) = (HashSet::new(), Vec::new());
        for ChainContent { table, files, rows } in &snapshot.tables {
            if !self.parts.contains_key(&files.number) {
                send(&Request::Chain(self.named(files)), &[])?;
                self.parts.insert(files.number, table.clone());
            }
            for rows in rows {
                let ChainRows { number, ledgers, bytes } = &**rows;
                if self.parts.contains_key(number) {
                    continue;
                }
                let ledgers = (ledgers.first.0, ledgers.last.0);
                let part = ChainPart { number: *number, part: PartOfTable::Rows { ledgers } };
                send(&Request::Chain(part), bytes)?;
                self.parts.insert(*number, table.clone());
            }
            let parts = PartsOfTable {
                table: table.clone(),
                files: files.number,
                rows: rows.iter().map(|rows| rows.number).collect(),
            };
            needed.extend(parts.rows.iter().chain([&parts.files]).copied());
            tables.push(parts);
        }
        // What it has of tables that this query does not read stays for those that do.
        let is_read = |table: &String| tables.iter().any(|parts| parts.table == *table);
        let old =
            self.parts.iter().filter(|&(part, table)| is_read(table) && !needed.contains(part));
        let old: Vec<u64> = old.map(|(part, _)| *part).collect();
        if !old.is_empty() {
            old.iter().for_each(|part| drop(self.parts.remove(part)));
            send(&Request::ForgetChain { parts: old }, &[])?;
        }
        Ok(SentParts { tables })
    }

    fn named(&self, files: &ChainFiles) -> ChainPart {
        let files_of = files.list.iter().filter_map(|file| {
            Some(FileOfTable {
                directory: self.directory(&file.directory)?,
                name: file.name.clone(),
                rows: file.rows,
                ledgers: (file.ledgers.first.0, file.ledgers.last.0),
            })
        });
        ChainPart { number: files.number, part: PartOfTable::Files(files_of.collect()) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use orrery_ledger::domain::LedgerRange;

    use super::super::ChainFile;
    use super::*;

    fn rows(ledger: u32) -> Arc<ChainRows> {
        Arc::new(ChainRows::new(LedgerRange::new(ledger, ledger), vec![0; ledger as usize]))
    }

    #[test]
    fn parts_are_sent_once_and_forgotten_when_no_query_needs_them() {
        let (here, there) = (PathBuf::from("/here"), PathBuf::from("/there"));
        let file = |directory: &PathBuf, name: &str| ChainFile {
            directory: directory.clone(),
            name: name.to_owned(),
            rows: 3,
            ledgers: LedgerRange::new(1, 2),
        };
        let content = |files: &Arc<ChainFiles>, rows: &[&Arc<ChainRows>]| ChainSnapshot {
            newest: None,
            tables: vec![ChainContent {
                table: "events".to_owned(),
                files: Arc::clone(files),
                rows: rows.iter().map(|rows| Arc::clone(rows)).collect(),
            }],
        };
        let mut sent = Sent::new(vec![here.clone()]);
        let first = Arc::new(ChainFiles::new(vec![file(&here, "a")]));
        let (three, four, five) = (rows(3), rows(4), rows(5));
        let mut ask = |snapshot: &ChainSnapshot| {
            let mut seen = Vec::new();
            let parts = sent.send(snapshot, |request, body| {
                seen.push(match request {
                    Request::Chain(part) => (part.number, body.len()),
                    Request::ForgetChain { parts } => (0, parts.len()),
                    other => panic!("{other:?}"),
                });
                Ok::<_, ()>(())
            });
            (parts.unwrap().tables.remove(0), seen)
        };
        let (parts, seen) = ask(&content(&first, &[&three, &four]));
        assert_eq!((parts.files, &parts.rows), (first.number, &vec![three.number, four.number]));
        assert_eq!(seen, [(first.number, 0), (three.number, 3), (four.number, 4)]);
        let (_, seen) = ask(&content(&first, &[&three, &four]));
        assert_eq!(seen, []);
        let second = Arc::new(ChainFiles::new(vec![file(&here, "a"), file(&here, "b")]));
        let (parts, seen) = ask(&content(&second, &[&four, &five]));
        assert_eq!(seen, [(second.number, 0), (five.number, 5), (0, 2)]);
        assert_eq!(parts.rows, [four.number, five.number]);
        let elsewhere = Arc::new(ChainFiles::new(vec![file(&there, "a")]));
        assert!(sent.reads(&content(&second, &[])) && !sent.reads(&content(&elsewhere, &[])));
    }
}
