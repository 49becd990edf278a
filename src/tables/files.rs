//! The directory of one owner: the database file in a directory for the worker, what is known about it
//! beside that, where no worker can reach, and what happens to a file that is damaged.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use crate::domain::Owner;
use crate::durable::write_atomically;

/// The directory in which the worker works: all that it can see.
const WORKPLACE: &str = "db";
/// The database file. Queries may come to see this name, so it tells nothing.
pub const DATABASE: &str = "tables.duckdb";
/// The log beside it, which DuckDB writes.
const LOG: &str = "tables.duckdb.wal";
/// Holds the number of the last change that was acknowledged.
const ACKNOWLEDGED: &str = "acknowledged";
/// Is there while rows may be missing.
const INCOMPLETE: &str = "incomplete";
/// What the name of a file begins with that was found damaged.
const DAMAGED: &str = "damaged-";
/// Holds the owner's name, for people who look.
const OWNER: &str = "owner";

/// The directory of one owner.
#[derive(Debug, Clone)]
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    /// The directory of `owner` below `root`. Its name is a digest, because an owner may be called
    /// anything, and names of files may be the same in either case.
    pub fn of(root: &Path, owner: &Owner) -> Self {
        Self { path: root.join(hex::encode(Sha256::digest(owner.0.as_bytes()))) }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the worker works.
    pub fn workplace(&self) -> PathBuf {
        self.path.join(WORKPLACE)
    }

    fn database(&self) -> PathBuf {
        self.workplace().join(DATABASE)
    }

    fn log(&self) -> PathBuf {
        self.workplace().join(LOG)
    }

    /// Whether there is one.
    pub fn exists(&self) -> bool {
        self.path.is_dir()
    }

    /// Makes sure that there is one, and notes that rows are missing when the database is not there.
    ///
    /// # Errors
    /// When files cannot be made.
    pub fn prepare(&self, owner: &Owner) -> io::Result<()> {
        fs::create_dir_all(self.workplace())?;
        if !self.path.join(OWNER).exists() {
            write_atomically(&self.path.join(OWNER), |file| file.write_all(owner.0.as_bytes()))?;
        }
        if !self.database().exists() {
            self.set_incomplete()?;
            // The log of a file that is gone belongs to nothing.
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
    /// When the note cannot be made.
    pub fn set_complete(&self) -> io::Result<()> {
        remove(&self.path.join(INCOMPLETE))
    }

    /// The number of the last change that was acknowledged, 0 when it is not known. A file that has
    /// fewer has lost some, whatever else it says.
    pub fn acknowledged(&self) -> u64 {
        let text = fs::read_to_string(self.path.join(ACKNOWLEDGED)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    /// Notes the number of the last change.
    ///
    /// # Errors
    /// When the note cannot be made.
    pub fn acknowledge(&self, commit: u64) -> io::Result<()> {
        let number = commit.to_string();
        write_atomically(&self.path.join(ACKNOWLEDGED), |file| file.write_all(number.as_bytes()))
    }

    /// Puts a damaged database aside; one of an earlier time is removed. What is left is a directory
    /// without a database. The name of what was put aside is returned.
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
        // The log first: without the file it would be taken for that of the next one.
        rename(&self.log(), &self.path.join(format!("{name}.wal")))?;
        rename(&self.database(), &aside)?;
        remove(&self.path.join(ACKNOWLEDGED))?;
        Ok(name)
    }
}

fn remove(path: &Path) -> io::Result<()> {
    absent_is_fine(fs::remove_file(path))
}

fn rename(from: &Path, to: &Path) -> io::Result<()> {
    absent_is_fine(fs::rename(from, to))
}

fn absent_is_fine(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}
