//! Runs the binary as a process: started, observed from outside, and killed without warning.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use orrery::control::{Client, STATUS, StatusReport};
use orrery::programs::storage;
use orrery_ledger::domain::{LedgerSeq, Network};
use orrery_store::{Store, StoreError};

use super::binary::{Ran, orrery, written};
use super::client::HTTP;
use super::wait::wait_until;

/// When a process is killed: some time after an event that can be observed from outside.
#[derive(Debug, Clone, Copy)]
pub enum KillPoint {
    /// After the process was started.
    Start(Duration),
    /// After its first new table file (SST) appeared; tables are written when a memtable is
    /// flushed.
    FirstTable(Duration),
    /// After the service responded that it is up.
    Up(Duration),
    /// After the service stored a ledger that it did not have at the first check.
    NewLedger(Duration),
}

/// A running `orrery`. Killed when dropped.
pub struct Program {
    child: Child,
    data_dir: PathBuf,
    started: Instant,
    tables_before: BTreeSet<PathBuf>,
    output: File,
    errors: File,
    acknowledged: Option<LedgerSeq>,
}

impl Program {
    /// Starts `orrery` on a data directory, with all kinds of events indexed.
    pub fn start<A: AsRef<OsStr>>(
        data_dir: &Path,
        arguments: impl IntoIterator<Item = A>,
        settings: &[(&str, String)],
    ) -> Self {
        let (output, errors) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let mut command = orrery();
        command
            .args(arguments)
            .arg("--data-dir")
            .arg(data_dir)
            .env("ORRERY_INDEX_CLASSIC_EVENTS", "true")
            .env("ORRERY_INDEX_FEE_EVENTS", "true")
            .envs(settings.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(errors.try_clone().unwrap());
        let (tables_before, started) = (tables(data_dir), Instant::now());
        let child = command.spawn().unwrap();
        let (data_dir, acknowledged) = (data_dir.to_owned(), None);
        Self { child, data_dir, started, tables_before, output, errors, acknowledged }
    }

    /// Kills the process at `moment` and returns its phase; `None` when it had ended by itself
    /// before.
    pub fn kill_at(&mut self, point: KillPoint) -> Option<&'static str> {
        let after = match point {
            KillPoint::Start(after) => Some(after.saturating_sub(self.started.elapsed())),
            KillPoint::FirstTable(after) => self.wait_for(Self::has_new_table).then_some(after),
            KillPoint::Up(after) => self.wait_for(|it| it.is_up()).then_some(after),
            KillPoint::NewLedger(after) => {
                let mut first = None;
                let grows = |it: &Self| {
                    let latest = it.status().and_then(|status| status.latest_ledger);
                    latest.is_some() && latest != *first.get_or_insert(latest)
                };
                self.wait_for(grows).then_some(after)
            }
        };
        thread::sleep(after?);
        self.kill()
    }

    /// Kills the process now; returns the same as [`Self::kill_at`].
    pub fn kill(&mut self) -> Option<&'static str> {
        self.acknowledged = self.status().and_then(|it| it.latest_ledger).map(LedgerSeq);
        let phase = self.phase();
        self.child.kill().unwrap();
        let status = self.child.wait().unwrap();
        let killed = status.signal() == Some(9);
        assert!(killed || status.success(), "it failed by itself: {}", self.errors());
        killed.then_some(phase)
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Newest ledger that the process reported as stored just before it was killed.
    pub fn acknowledged(&self) -> Option<LedgerSeq> {
        self.acknowledged
    }

    /// Waits until the process ends by itself.
    pub fn end(mut self) -> Ran {
        let status =
            wait_until("it ends", || self.child.try_wait().unwrap().ok_or(Errors(&self.errors)));
        let code = status.code().unwrap_or(-1);
        Ran { code, stdout: written(&self.output), stderr: self.errors() }
    }

    /// Returns the time from the start of the process until the service responded that it is up.
    pub fn time_to_health(&mut self) -> Duration {
        assert!(self.wait_for(Self::is_up), "the service ended: {}", self.errors());
        self.started.elapsed()
    }

    /// Base URL of the REST API, once the service listens.
    pub fn base(&self) -> Option<String> {
        self.status()?.listen.map(|address| format!("http://{address}/rest"))
    }

    /// Status that the service reports through its control socket; `None` before it responds.
    pub fn status(&self) -> Option<StatusReport> {
        Client::connect(&self.data_dir).ok()??.ask(STATUS, &()).ok()
    }

    fn is_up(&self) -> bool {
        let health = || {
            let answer = HTTP.get(format!("{}/health", self.base()?)).send().ok()?;
            answer.error_for_status().ok()?.json::<serde_json::Value>().ok()
        };
        health().is_some_and(|health| health["service"] == "up")
    }

    fn has_new_table(&self) -> bool {
        !tables(&self.data_dir).is_subset(&self.tables_before)
    }

    /// Waits for a condition; returns false when the process ends first.
    fn wait_for(&mut self, mut condition: impl FnMut(&Self) -> bool) -> bool {
        wait_until("something happens, or the process ends", || {
            let holds = condition(self);
            let has_ended = !holds && self.child.try_wait().unwrap().is_some();
            if holds || has_ended { Ok(holds) } else { Err(self.errors()) }
        })
    }

    /// Waits for a condition on something that the process does.
    #[track_caller]
    pub fn wait_until(&self, what: &str, mut condition: impl FnMut() -> bool) {
        wait_until(what, || if condition() { Ok(()) } else { Err(Errors(&self.errors)) });
    }

    /// What the process is doing, inferred from its open files.
    fn phase(&self) -> &'static str {
        let process = PathBuf::from(format!("/proc/{}", self.child.id()));
        let handles = names(&process.join("fd"));
        let open: Vec<(PathBuf, bool)> = handles
            .iter()
            .filter_map(|handle| {
                let file = fs::read_link(process.join("fd").join(handle)).ok()?;
                Some((file, is_writable(&process.join("fdinfo").join(handle))?))
            })
            .collect();
        let any = |wanted: &dyn Fn(&str, bool) -> bool| {
            open.iter().any(|(file, writable)| wanted(&file.to_string_lossy(), *writable))
        };
        if !any(&|file, _| file.ends_with("orrery.lock")) {
            "before the directory is locked"
        } else if any(&|file, writable| writable && file.ends_with(".sst")) {
            "writing tables"
        } else if !any(&|file, _| file.contains("/raw/MANIFEST")) {
            "opening the database"
        } else if any(&|file, _| file.contains(".xdr")) {
            "reading ledgers"
        } else if self.status().is_some() {
            "serving"
        } else {
            "starting or ending"
        }
    }

    /// Standard error of the process so far.
    pub fn errors(&self) -> String {
        written(&self.errors)
    }
}

/// What a process wrote to standard error, read only when it is shown.
struct Errors<'a>(&'a File);

impl fmt::Debug for Errors<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&written(self.0))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `orrery` to its end.
pub fn run<A: AsRef<OsStr>>(data_dir: &Path, arguments: impl IntoIterator<Item = A>) -> Ran {
    Program::start(data_dir, arguments, &[]).end()
}

/// Opens a store as soon as no process has it open: a process that was killed while it started
/// another leaves its lock to that one for a moment.
pub fn open_released(data_dir: &Path, network: &Network) -> Store {
    let open = || Store::open_with(data_dir, Some(network), storage::extensions());
    wait_until("the store is released", || match open() {
        Err(error @ StoreError::InUse(_)) => Err(error),
        opened => Ok(opened.unwrap()),
    })
}

/// Copies a data directory that no process has open. Table files never change, so they are
/// hard-linked.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for name in names(from) {
        let (source, target) = (from.join(&name), to.join(&name));
        let kind = fs::symlink_metadata(&source).unwrap().file_type();
        if kind.is_dir() {
            copy(&source, &target);
        } else if is_table(&source) {
            fs::hard_link(source, target).unwrap();
        } else if kind.is_file() {
            fs::copy(source, target).unwrap();
        }
    }
}

fn tables(data_dir: &Path) -> BTreeSet<PathBuf> {
    names(&data_dir.join("raw")).into_iter().filter(|name| is_table(name)).collect()
}

fn is_table(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "sst")
}

/// Names in a directory; empty when it does not exist.
fn names(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.filter_map(|entry| Some(entry.ok()?.file_name().into())).collect()
}

/// Reads the access mode of an open file (proc(5), `fdinfo`; open(2), `O_ACCMODE`).
fn is_writable(fdinfo: &Path) -> Option<bool> {
    let text = fs::read_to_string(fdinfo).ok()?;
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"))?.trim();
    Some(u32::from_str_radix(flags, 8).ok()? & 3 != 0)
}
