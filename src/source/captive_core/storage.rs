//! The private directory of a captive stellar-core: its lock, its wipe, and the processes that an
//! earlier Orrery left behind in it.
//!
//! A core whose Orrery was killed ends by itself at its next ledger or log line, because its pipes
//! have no reader any more. Until then it holds the database, so it is stopped before another core
//! starts. It is found by its command line, which names the configuration file in this directory:
//! that needs no pid file, which could be missing or stale. A process that was forked but has not
//! yet executed core has another command line; it is noticed by the lock on the guard file, which
//! every core has as its standard input.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::error::CoreError;

/// Name of the configuration file in a working directory of core.
pub(super) const CONFIG_FILE: &str = "stellar-core.conf";

/// Locked while the storage is open. Its presence marks a directory that may be wiped.
const LOCK_FILE: &str = "orrery.lock";
/// Guard file: locked by every core that runs here, already before it executes core.
const GUARD_FILE: &str = "core.lock";
/// Working directory of a core that can continue after a restart. Only this directory is wiped.
const WORK: &str = "core";
/// Prefix of the names of replay directories.
const REPLAY: &str = "replay-";
/// File with the ledgers that a standalone network has streamed.
const STANDALONE_LEDGERS: &str = "standalone-ledgers.xdr";
/// Interval between two checks whether a process has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum time from the fork of a process to its execution of core. A process that holds the guard
/// file for longer is a child of a core that has ended, which does no harm.
const EXEC_TIMEOUT: Duration = Duration::from_secs(2);

/// An open storage. Dropping it releases its lock.
#[derive(Debug)]
pub(super) struct Storage {
    root: PathBuf,
    _lock: File,
}

impl Storage {
    /// Opens `root`, and creates it if it is missing. May block for two seconds.
    ///
    /// # Errors
    /// When another process has the storage open, or the directory holds other files.
    pub fn open(root: &Path) -> Result<Self, CoreError> {
        fs::create_dir_all(root).map_err(failed(root))?;
        let root = root.canonicalize().map_err(failed(root))?;
        let lock_file = root.join(LOCK_FILE);
        let mut entries = fs::read_dir(&root).map_err(failed(&root))?;
        if !lock_file.exists() && entries.next().is_some() {
            return Err(CoreError::Other(format!(
                "{} holds other files, so it cannot be the storage of stellar-core: give \
                 core.storage a directory of its own",
                root.display()
            )));
        }
        let opened = File::options().create(true).append(true).open(&lock_file);
        let lock = opened.map_err(failed(&lock_file))?;
        // A process that was killed while it forked another leaves the lock to the child for a
        // moment.
        let begun = Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(Self { root, _lock: lock }),
                Err(TryLockError::WouldBlock) if begun.elapsed() < EXEC_TIMEOUT => {
                    std::thread::sleep(POLL_INTERVAL);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(CoreError::Other(format!(
                        "another process uses {} as storage of stellar-core: stop it, or give \
                         core.storage another directory",
                        root.display()
                    )));
                }
                Err(TryLockError::Error(error)) => return Err(failed(&lock_file)(error)),
            }
        }
    }

    /// Returns the absolute path of the directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the working directory of a core that can continue after a restart. It may not exist.
    pub fn work(&self) -> PathBuf {
        self.root.join(WORK)
    }

    /// Returns the file in which the ledgers of a standalone network wait until they are stored.
    pub fn standalone_ledgers(&self) -> PathBuf {
        self.root.join(STANDALONE_LEDGERS)
    }

    /// Removes the working directory of core.
    pub fn wipe(&self) -> Result<(), CoreError> {
        let work = self.work();
        match fs::remove_dir_all(&work) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&work)(error)),
            _ => Ok(()),
        }
    }

    /// Creates an empty directory, which is removed when it is dropped.
    pub fn replay_directory(&self) -> Result<TempDir, CoreError> {
        let made = tempfile::Builder::new().prefix(REPLAY).tempdir_in(&self.root);
        made.map_err(failed(&self.root))
    }

    /// Opens the guard file and locks it. The lock shows other processes that a core runs here as
    /// long as a process has the file open.
    pub fn guard(&self) -> Result<File, CoreError> {
        let guard = self.open_guard()?;
        guard.lock_shared().map_err(failed(&self.root.join(GUARD_FILE)))?;
        Ok(guard)
    }

    fn open_guard(&self) -> Result<File, CoreError> {
        let path = self.root.join(GUARD_FILE);
        let opened = File::options().create(true).read(true).append(true).open(&path);
        opened.map_err(failed(&path))
    }

    /// Stops every stellar-core that an earlier process left behind here, and removes replay
    /// directories.
    pub async fn take_over(&self, within: Duration) -> Result<(), CoreError> {
        let begun = Instant::now();
        loop {
            self.stop_left_behind(within).await?;
            // Either no other process holds the guard file, or its holder is only a child of an
            // ended core.
            if self.open_guard()?.try_lock().is_ok() || begun.elapsed() > EXEC_TIMEOUT {
                return self.remove_replays();
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    async fn stop_left_behind(&self, within: Duration) -> Result<(), CoreError> {
        for pid in self.left_behind() {
            tracing::warn!(
                pid,
                "stopping a stellar-core of an earlier run in {}",
                self.root.display()
            );
            self.stop(pid, within).await?;
        }
        Ok(())
    }

    fn remove_replays(&self) -> Result<(), CoreError> {
        let entries = fs::read_dir(&self.root).map_err(failed(&self.root))?;
        for entry in entries.flatten() {
            if entry.file_name().as_bytes().starts_with(REPLAY.as_bytes()) {
                fs::remove_dir_all(entry.path()).map_err(failed(&entry.path()))?;
            }
        }
        Ok(())
    }

    async fn stop(&self, pid: i32, within: Duration) -> Result<(), CoreError> {
        let stuck = |reason: &str| {
            CoreError::Other(format!(
                "process {pid} is a stellar-core of an earlier run in {}, and it cannot be stopped: \
                 {reason}",
                self.root.display()
            ))
        };
        for signal in [Signal::INT, Signal::KILL] {
            let Some(number) = Pid::from_raw(pid) else { return Ok(()) };
            match kill_process(number, signal) {
                Ok(()) => {}
                Err(Errno::SRCH) => return Ok(()),
                Err(error) => return Err(stuck(&error.to_string())),
            }
            let asked = Instant::now();
            while asked.elapsed() < within {
                if !self.is_ours(pid) {
                    return Ok(());
                }
                sleep(POLL_INTERVAL).await;
            }
        }
        Err(stuck("not even with SIGKILL"))
    }

    fn left_behind(&self) -> Vec<i32> {
        let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
        let numbers =
            processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.filter(|pid| self.is_ours(*pid)).collect()
    }

    /// Returns whether a process has the command line of a core of this storage, which is `PROGRAM
    /// --conf FILE --console …`. A zombie has no command line any more.
    fn is_ours(&self, pid: i32) -> bool {
        let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) else { return false };
        let mut words = line.split(|byte| *byte == 0).skip(1);
        let (option, file, console) = (words.next(), words.next(), words.next());
        let file = file.map(|file| Path::new(std::ffi::OsStr::from_bytes(file)));
        option == Some(b"--conf")
            && console == Some(b"--console")
            && file.is_some_and(|file| file.starts_with(&self.root) && file.ends_with(CONFIG_FILE))
    }
}

/// Converts I/O errors of a file in the storage.
pub(super) fn failed(path: &Path) -> impl Fn(io::Error) -> CoreError {
    let path = path.to_owned();
    move |error| CoreError::storage(&path, error)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn storage_is_exclusive_and_foreign_directories_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("deep/storage");
        let storage = Storage::open(&root).unwrap();
        let error = Storage::open(&root).unwrap_err().to_string();
        assert!(error.starts_with("another process uses"), "{error}");
        fs::create_dir(storage.work()).unwrap();
        fs::write(storage.work().join("stellar.db"), "x").unwrap();
        storage.wipe().unwrap();
        storage.wipe().unwrap();
        assert!(!storage.work().exists());
        drop(storage);
        drop(Storage::open(&root).unwrap());

        fs::write(directory.path().join("letters"), "x").unwrap();
        let error = Storage::open(directory.path()).unwrap_err().to_string();
        assert!(error.contains("holds other files"), "{error}");
    }

    #[tokio::test]
    async fn other_processes_are_not_stopped() {
        let directory = tempfile::tempdir().unwrap();
        let storage = Storage::open(directory.path()).unwrap();
        let script = storage.root().join("script");
        fs::write(&script, "sleep 30").unwrap();
        // The arguments of a core, but one position further back.
        let mut other = Command::new("/bin/sh")
            .arg(&script)
            .arg("--conf")
            .arg(storage.work().join(CONFIG_FILE))
            .arg("--console")
            .spawn()
            .unwrap();
        storage.take_over(Duration::from_millis(100)).await.unwrap();
        assert!(other.try_wait().unwrap().is_none(), "not a core");
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(storage.left_behind().is_empty());
    }

    #[tokio::test]
    async fn taking_over_waits_for_guarded_child_processes() {
        let directory = tempfile::tempdir().unwrap();
        let storage = Storage::open(directory.path()).unwrap();
        let (one, other) = (storage.guard().unwrap(), storage.guard().unwrap());
        let taken = storage.take_over(Duration::from_millis(100));
        let waited = tokio::time::timeout(Duration::from_millis(100), taken).await;
        assert!(waited.is_err(), "somebody is there");
        drop((one, other));
        let taken = storage.take_over(Duration::from_millis(100));
        tokio::time::timeout(Duration::from_millis(100), taken).await.unwrap().unwrap();
        let _child = storage.guard().unwrap();
        storage.take_over(Duration::from_millis(100)).await.unwrap();
    }

    #[tokio::test]
    async fn leftover_replay_directories_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let storage = Storage::open(directory.path()).unwrap();
        let kept = storage.replay_directory().unwrap().keep();
        storage.take_over(Duration::from_millis(100)).await.unwrap();
        assert!(!kept.exists());
    }
}
