//! `orrery backup`: copies a data directory, also while a service runs on it, and verifies existing
//! backups.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::ProgressBar;
use orrery::backup::snapshot::{self, MARKER, Options, Uploaded, Verified};
use orrery::backup::{self, BackupError, Made, Manifest};
use orrery::config::Settings;
use orrery::domain::Digest;
use orrery::service;
use serde::Serialize;

use super::checkpointed::Checkpointed;
use super::snapshots::{self, ReadFlags};
use super::{Common, Failure, output};

/// Back up all data of a data directory that cannot be derived again, or check existing backups
///
/// A service that runs on the data directory keeps storing ledgers: it creates a checkpoint, which takes
/// milliseconds, and this command copies the checkpoint. A backup is a new directory below BACKUPS, named
/// after the time. Files that the newest backup there already holds with the same content are hard-linked and
/// take no space; they are read on both sides to be sure. An unfinished backup has no manifest and is removed
/// by the next backup. A backup holds keys and tokens, and only its owner can read it.
///
/// With --to, snapshots go to a bucket, or as the same objects to a directory: only content that is not there yet is
/// uploaded, and an interrupted upload goes on. They have no keys and tokens, unless they are encrypted.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery backup --data-dir d /mnt/backups
  orrery backup --data-dir d /mnt/backups --keep 7
  orrery backup --verify /mnt/backups
  orrery restore /mnt/backups --data-dir restored
  orrery backup --data-dir d --to s3://bucket/prefix --keep 7
  orrery backup --data-dir d --to gs://bucket/prefix --encrypt --passphrase-file /etc/orrery/passphrase
  orrery backup --verify s3://bucket/prefix --sample 100
  orrery restore --from s3://bucket/prefix --data-dir restored")]
pub struct Backup {
    /// Directory of backups; with --verify also a single backup, or the place of snapshots
    #[arg(value_name = "BACKUPS", required_unless_present = "to")]
    directory: Option<PathBuf>,
    /// Place of snapshots instead: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or a directory. It is for
    /// this data directory alone
    #[arg(long, value_name = "PLACE", conflicts_with_all = ["directory", "verify"])]
    to: Option<String>,
    /// Number of newest backups to keep, including this one; older ones are removed. Without it all are kept. Objects
    /// that no snapshot needs any more are removed a day later, by the next command with --keep
    #[arg(long, value_name = "NUMBER")]
    keep: Option<NonZeroUsize>,
    /// Say what would be uploaded, and upload nothing
    #[arg(long, requires = "to")]
    dry_run: bool,
    /// Encrypt everything with a passphrase, in the format of age, and include keys and tokens
    #[arg(long, requires = "to")]
    encrypt: bool,
    /// Make no backup, but read the existing ones and compare them with their manifests
    #[arg(long, conflicts_with = "keep")]
    verify: bool,
    /// With --verify of snapshots: read only this many of their objects, chosen at random
    #[arg(long, value_name = "NUMBER", requires = "verify")]
    sample: Option<NonZeroUsize>,
    #[command(flatten)]
    read: ReadFlags,
    /// Print JSON, also on a terminal
    #[arg(long)]
    json: bool,
}

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

/// JSON report of a new snapshot.
#[derive(Serialize)]
struct SnapshotReport<'a> {
    snapshot: &'a str,
    /// Location of its description.
    object: &'a str,
    dry_run: bool,
    /// Public key of the data directory, which has signed it; empty if a dry run finds none.
    key: &'a str,
    encrypted: bool,
    files: usize,
    bytes: u64,
    new_objects: u64,
    new_bytes: u64,
    requests: u64,
    /// Time to create the checkpoint, in milliseconds.
    checkpoint_ms: u64,
    /// Number of earlier snapshots that were removed.
    removed: usize,
    /// Numbers of objects that no snapshot needs: that are removed a day later, and that were removed.
    listed_objects: u64,
    removed_objects: u64,
    digest: Digest,
    ranges: &'a [backup::Range],
}

impl Backup {
    pub fn run(self, common: &Common) -> Result<(), Failure> {
        if self.to.is_none() && (self.encrypt || self.dry_run) {
            let words = "--encrypt and --dry-run are for snapshots: give their place with --to";
            return Err(Failure::usage(words));
        }
        let directory = self.directory.clone().unwrap_or_default();
        let address = directory.to_str().unwrap_or_default();
        let is_bucket = address.contains("://");
        if self.verify {
            return match is_bucket || directory.join(MARKER).exists() {
                true => self.check_snapshots(common, address),
                false => self.check(&directory),
            };
        }
        let settings = common.settings_to_copy()?;
        if let Some(to) = &self.to {
            return self.make_snapshot(&settings, to);
        }
        if is_bucket {
            return Err(Failure::usage(format!("give a bucket with --to: --to {address}")));
        }
        let data_dir = &settings.config.data_dir;
        let bar = bytes_read();
        let keep = self.keep.map(NonZeroUsize::get);
        let mut source = Checkpointed::open(&settings)?;
        let (made, checkpoint_ms) = source.copied(&bar, &mut |checkpoint, progress| {
            backup::make(data_dir, &directory, keep, checkpoint, progress)
        })?;
        bar.finish_and_clear();
        self.report(&made, checkpoint_ms)
    }

    /// Makes a snapshot in a bucket, or as objects in a directory.
    fn make_snapshot(&self, settings: &Settings, to: &str) -> Result<(), Failure> {
        let config = &settings.config;
        let bar = bytes_read();
        let mut source = Checkpointed::open(settings)?;
        let options = Options {
            data_dir: &config.data_dir,
            network: source.network()?,
            encrypt: self.encrypt,
            keep: self.keep.map(NonZeroUsize::get),
            dry_run: self.dry_run,
            id: service::snapshot_writer_id(config),
        };
        let mut place = Some(snapshots::place(to, config)?);
        let mut ask = |is_new: bool| self.read.passphrase.read(is_new);
        let (made, checkpoint_ms) = source.copied(&bar, &mut |checkpoint, progress| {
            let place = place.take().ok_or_else(|| BackupError::not_found(to.as_ref()))?;
            snapshot::make(&options, place, &mut ask, checkpoint, progress)
        })?;
        bar.finish_and_clear();
        self.report_snapshot(&made, checkpoint_ms)
    }

    /// Prints what was uploaded.
    fn report_snapshot(&self, made: &Uploaded, checkpoint_ms: u64) -> Result<(), Failure> {
        let manifest = &made.description.manifest;
        if self.json || !output::is_terminal() {
            return output::print_json(&SnapshotReport {
                snapshot: &manifest.taken,
                object: &made.place,
                dry_run: self.dry_run,
                key: &made.writer,
                encrypted: self.encrypt,
                files: manifest.files.len(),
                bytes: manifest.bytes(),
                new_objects: made.new_objects,
                new_bytes: made.new_bytes,
                requests: made.requests,
                checkpoint_ms,
                removed: made.removed.len(),
                listed_objects: made.swept.listed,
                removed_objects: made.swept.removed,
                digest: manifest.digest,
                ranges: &manifest.ranges,
            });
        }
        let new = format!(
            "{} objects ({}) {} in {} requests",
            output::count(made.new_objects),
            output::bytes(made.new_bytes),
            if self.dry_run { "would be uploaded" } else { "were uploaded" },
            output::count(made.requests),
        );
        let signed = match made.writer.is_empty() {
            true => String::new(),
            false => format!("signed by {}\n", made.writer),
        };
        output::print(&format!("{}, {new}\n{signed}", line(made.place.as_ref(), manifest)))
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
    fn check(&self, directory: &Path) -> Result<(), Failure> {
        let bar = bytes_read();
        let (mut good, mut bad) = (Vec::new(), 0);
        for path in backup::find(directory)? {
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
        damaged(bad)
    }

    /// Checks every snapshot of a place, and continues after a damaged one.
    fn check_snapshots(&self, common: &Common, address: &str) -> Result<(), Failure> {
        let settings = common.settings(Vec::new())?;
        let bar = bytes_read();
        let snapshots = self.read.open(address, &settings.config)?;
        let mut progress = |bytes| {
            bar.inc(bytes);
            Ok(())
        };
        let sample = self.sample.map(NonZeroUsize::get);
        let verified = snapshots.verify(sample, &mut progress)?;
        bar.finish_and_clear();
        let mut bad = 0;
        for Verified { name, found } in &verified {
            let manifest = match found {
                Ok(snapshot) => &snapshot.description.manifest,
                Err(error) => {
                    output::note(error);
                    bad += 1;
                    continue;
                }
            };
            if self.json || !output::is_terminal() {
                output::print_json(&serde_json::json!({
                    "snapshot": name, "version": manifest.version, "network": manifest.network,
                    "files": manifest.files.len(), "bytes": manifest.bytes(),
                    "digest": manifest.digest, "ranges": manifest.ranges,
                    "key": snapshots.writer(),
                }))?;
            } else {
                output::print(&format!("{}: intact\n", line(name.as_ref(), manifest)))?;
            }
        }
        if verified.is_empty() {
            return Err(BackupError::Other(format!("there is no snapshot in {address}")).into());
        }
        damaged(bad)
    }
}

/// Fails if any backup is damaged.
fn damaged(bad: usize) -> Result<(), Failure> {
    match bad {
        0 => Ok(()),
        1 => Err(Failure::failed("1 backup is damaged or incomplete and cannot be restored")),
        bad => Err(Failure::failed(format!(
            "{bad} backups are damaged or incomplete and cannot be restored"
        ))),
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
