//! The directory of one owner's tables: the database file in a subdirectory for the worker, the
//! service's notes about it outside the worker's reach, and the handling of damaged files.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use orrery_ledger::domain::Owner;
use orrery_runtime::durable::write_atomically;
use sha2::{Digest, Sha256};

/// The worker's subdirectory, the only one that it can access.
const WORKER_DIRECTORY: &str = "db";
/// The database file. Queries may reveal this name, so it says nothing about the owner.
pub const DATABASE: &str = "tables.duckdb";
/// DuckDB's WAL next to the database file.
const LOG: &str = "tables.duckdb.wal";
/// File with the number of the last acknowledged change.
const ACKNOWLEDGED: &str = "acknowledged";
/// File that exists while rows may be missing.
const INCOMPLETE: &str = "incomplete";
/// Prefix of the names of files that were found damaged.
const DAMAGED: &str = "damaged-";
/// File with the owner's name, for operators.
const OWNER: &str = "owner";

/// The directory of one owner.
#[derive(Debug, Clone)]
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    /// Returns the directory of `owner` below `root`. Its name is a digest, because an owner's name
    /// may hold any characters and file systems may ignore case.
    pub fn of(root: &Path, owner: &Owner) -> Self {
        Self { path: root.join(hex::encode(Sha256::digest(owner.0.as_bytes()))) }
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path of the worker's subdirectory.
    pub fn worker_directory(&self) -> PathBuf {
        self.path.join(WORKER_DIRECTORY)
    }

    fn database(&self) -> PathBuf {
        self.worker_directory().join(DATABASE)
    }

    fn log(&self) -> PathBuf {
        self.worker_directory().join(LOG)
    }

    /// Whether the directory exists.
    pub fn exists(&self) -> bool {
        self.path.is_dir()
    }

    /// Whether there is a database file.
    pub fn has_database(&self) -> bool {
        self.database().exists()
    }

    /// Creates the directory if necessary, and notes that rows are missing if there is no database.
    ///
    /// # Errors
    /// When files cannot be created.
    pub fn prepare(&self, owner: &Owner) -> io::Result<()> {
        fs::create_dir_all(self.worker_directory())?;
        if !self.path.join(OWNER).exists() {
            write_atomically(&self.path.join(OWNER), |file| file.write_all(owner.0.as_bytes()))?;
        }
        if !self.has_database() {
            self.set_incomplete()?;
            // The WAL of a database file that is gone is useless.
            remove(&self.log())?;
            remove(&self.path.join(ACKNOWLEDGED))?;
        }
        Ok(())
    }

    /// Whether rows may be missing.
    pub fn is_incomplete(&self) -> bool {
        self.path.join(INCOMPLETE).exists()
    }

    fn set_incomplete(&self) -> io::Result<()> {
        write_atomically(&self.path.join(INCOMPLETE), |_| Ok(()))
    }

    /// Notes that no rows are missing.
    ///
    /// # Errors
    /// When the note cannot be written.
    pub fn set_complete(&self) -> io::Result<()> {
        remove(&self.path.join(INCOMPLETE))
    }

    /// Number of the last acknowledged change, 0 when it is unknown. A file with fewer changes has
    /// lost some, even if it looks intact.
    pub fn acknowledged(&self) -> u64 {
        let text = fs::read_to_string(self.path.join(ACKNOWLEDGED)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    /// Notes the number of the last acknowledged change.
    ///
    /// # Errors
    /// When the note cannot be written.
    pub fn acknowledge(&self, commit: u64) -> io::Result<()> {
        let number = commit.to_string();
        write_atomically(&self.path.join(ACKNOWLEDGED), |file| file.write_all(number.as_bytes()))
    }

    /// Puts a damaged database aside, removing any that was put aside earlier, so that the
    /// directory has no database. Returns the name of the file that was put aside.
    ///
    /// # Errors
    /// When files cannot be moved.
    pub fn put_aside(&self) -> io::Result<String> {
        self.set_incomplete()?;
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(DAMAGED) {
                remove(&entry.path())?;
            }
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = format!("{DAMAGED}{}.duckdb", now.as_secs());
        let aside = self.path.join(&name);
        // The WAL is moved first: if it stayed behind alone, it would be taken for the WAL of the
        // next file.
        rename(&self.log(), &self.path.join(format!("{name}.wal")))?;
        rename(&self.database(), &aside)?;
        remove(&self.path.join(ACKNOWLEDGED))?;
        Ok(name)
    }
}

fn remove(path: &Path) -> io::Result<()> {
    ignore_not_found(fs::remove_file(path))
}

fn rename(from: &Path, to: &Path) -> io::Result<()> {
    ignore_not_found(fs::rename(from, to))
}

fn ignore_not_found(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
