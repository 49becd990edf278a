//! `orrery backup`: copies a data directory, also while a service runs on it, and verifies existing
//! backups.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::ProgressBar;
use orrery::backup::{self, BackupError, Made, Manifest};
use orrery::control::{CHECKPOINT, STATUS};
use orrery::domain::Digest;
use orrery::priority::Priority;
use serde::Serialize;

use super::open::{self, Opened};
use super::{Common, Failure, output};

/// Back up all data of a data directory that cannot be derived again, or check existing backups
///
/// A service that runs on the data directory keeps storing ledgers: it creates a checkpoint, which takes
/// milliseconds, and this command copies the checkpoint. A backup is a new directory below BACKUPS, named
/// after the time. Files that the newest backup there already holds with the same content are hard-linked and
/// take no space; they are read on both sides to be sure. An unfinished backup has no manifest and is removed
/// by the next backup. A backup holds keys and tokens, and only its owner can read it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery backup --data-dir d /mnt/backups
  orrery backup --data-dir d /mnt/backups --keep 7
  orrery backup --verify /mnt/backups
  orrery restore /mnt/backups --data-dir restored")]
pub struct Backup {
    /// Directory of backups; with --verify also a single backup
    #[arg(value_name = "BACKUPS")]
    directory: PathBuf,
    /// Number of newest backups to keep, including this one; older ones are removed. Without it all are kept
    #[arg(long, value_name = "NUMBER")]
    keep: Option<NonZeroUsize>,
    /// Make no backup, but read the existing ones and compare them with their manifests
    #[arg(long, conflicts_with = "keep")]
    verify: bool,
    /// Print JSON, also on a terminal
    #[arg(long)]
    json: bool,
}

/// Interval of the status requests that keep the control connection open while files are copied.
/// The service closes a connection that is idle for ten minutes, and removes its checkpoint.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// JSON report of a new backup.
#[derive(Serialize)]
struct Report<'a> {
    backup: String,
    files: usize,
    bytes: u64,
    shared_files: u64,
    shared_bytes: u64,
    /// Time to create the checkpoint, in milliseconds.
    checkpoint_ms: u64,
    removed: usize,
    digest: Digest,
    ranges: &'a [backup::Range],
}

impl Backup {
    pub fn run(self, common: &Common) -> Result<(), Failure> {
        if self.verify {
            return self.check();
        }
        let settings = common.settings_to_copy()?;
        let data_dir = &settings.config.data_dir;
        let bar = bytes_read();
        let keep = self.keep.map(NonZeroUsize::get);
        let ended = |error: &dyn ToString| BackupError::Other(error.to_string());
        let mut checkpoint_ms = 0;
        let made = match open::open_existing(&settings)? {
            Opened::Local(ledgers) => {
                let store = ledgers.store();
                // Removes the checkpoint when it is dropped, after the copy.
                let mut held = None;
                let checkpoint = || {
                    let begun = Instant::now();
                    let attested = ledgers.attestation().ledgers(store);
                    let directory = held.insert(store.checkpoint()?).directory().to_owned();
                    checkpoint_ms = begun.elapsed().as_millis() as u64;
                    Ok((directory, attested))
                };
                let mut progress = |bytes| {
                    bar.inc(bytes);
                    Ok(())
                };
                backup::make(data_dir, &self.directory, keep, checkpoint, &mut progress)?
            }
            Opened::Running(client) => {
                // The copy gives way to the service, which stores new ledgers meanwhile.
                Priority::Prompt.apply_to_current_thread();
                let client = std::cell::RefCell::new(client);
                let checkpoint = || {
                    let report =
                        client.borrow_mut().ask(CHECKPOINT, &()).map_err(|error| ended(&error))?;
                    checkpoint_ms = report.milliseconds;
                    Ok((data_dir.join(report.directory), report.attested))
                };
                let mut last_keep_alive = Instant::now();
                let mut progress = |bytes| {
                    bar.inc(bytes);
                    if last_keep_alive.elapsed() > KEEP_ALIVE_INTERVAL {
                        last_keep_alive = Instant::now();
                        client.borrow_mut().ask(STATUS, &()).map_err(|error| ended(&error))?;
                    }
                    Ok(())
                };
                backup::make(data_dir, &self.directory, keep, checkpoint, &mut progress)?
            }
        };
        bar.finish_and_clear();
        self.report(&made, checkpoint_ms)
    }

    /// Prints what was copied.
    fn report(&self, made: &Made, checkpoint_ms: u64) -> Result<(), Failure> {
        let manifest = &made.manifest;
        if self.json || !output::is_terminal() {
            return output::print_json(&Report {
                backup: made.directory.display().to_string(),
                files: manifest.files.len(),
                bytes: manifest.bytes(),
                shared_files: made.shared_files,
                shared_bytes: made.shared_bytes,
                checkpoint_ms,
                removed: made.removed.len(),
                digest: manifest.digest,
                ranges: &manifest.ranges,
            });
        }
        let shared = match made.shared_files {
            0 => String::new(),
            files => format!(
                ", of which {} ({}) are shared with the previous backup",
                output::count(files),
                output::bytes(made.shared_bytes)
            ),
        };
        let mut text = format!("{}{shared}\n", line(&made.directory, manifest));
        for removed in &made.removed {
            text += &format!("removed {}\n", removed.display());
        }
        output::print(&text)
    }

    /// Checks every backup, and continues after a damaged one.
    fn check(&self) -> Result<(), Failure> {
        let bar = bytes_read();
        let (mut good, mut bad) = (Vec::new(), 0);
        for path in backup::find(&self.directory)? {
            let mut progress = |bytes| {
                bar.inc(bytes);
                Ok(())
            };
            match backup::check(&path, &mut progress) {
                Ok(checked) => good.push(checked),
                Err(error) => {
                    output::note(error);
                    bad += 1;
                }
            }
        }
        bar.finish_and_clear();
        if self.json || !output::is_terminal() {
            let of = |checked: &backup::Checked| {
                let (backup, manifest) = (checked.directory.display(), &checked.manifest);
                serde_json::json!({
                    "backup": backup.to_string(), "version": manifest.version,
                    "network": manifest.network, "files": manifest.files.len(),
                    "bytes": manifest.bytes(), "digest": manifest.digest,
                    "ranges": manifest.ranges,
                })
            };
            for checked in &good {
                output::print_json(&of(checked))?;
            }
        } else {
            let lines = good.iter().map(|checked| line(&checked.directory, &checked.manifest));
            output::print(&lines.map(|line| format!("{line}: intact\n")).collect::<String>())?;
        }
        match bad {
            0 => Ok(()),
            1 => Err(Failure::failed("1 backup is damaged or incomplete and cannot be restored")),
            bad => Err(Failure::failed(format!(
                "{bad} backups are damaged or incomplete and cannot be restored"
            ))),
        }
    }
}

/// Formats a backup as one line.
pub fn line(directory: &std::path::Path, manifest: &Manifest) -> String {
    format!(
        "{}: {}, {} ledgers, digest {}, {} files ({})",
        directory.display(),
        manifest.network,
        output::count(manifest.ledgers()),
        manifest.digest,
        output::count(manifest.files.len() as u64),
        output::bytes(manifest.bytes()),
    )
}

/// Returns a display of the number of bytes read.
pub fn bytes_read() -> ProgressBar {
    output::progress_bar(None, "{decimal_bytes} read, {decimal_bytes_per_sec}")
}
