//! `orrery restore`: makes a data directory from a backup.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use orrery::account;
use orrery::backup::{self, BackupError};
use orrery::config::{Config, Settings};
use orrery::control::BackfillOrder;
use orrery::service::{self, OrderFile};

use super::backup::{bytes_read, line};
use super::snapshots::{self, ReadFlags};
use super::{Common, Failure, output};

/// Create a data directory from a backup
///
/// Every file is compared with the backup's manifest while it is copied, and so are the digests of the ledgers
/// in the copy. What validators have signed is read again from the raw ledgers in the copy; ledgers without
/// them are shown as attested by the backup alone. The directory appears under its name only when it is
/// complete and on disk; if this command is interrupted before, it does not exist. Derived data, such as the
/// tables of indexing programs, is rebuilt when the service starts.
///
/// A snapshot (--from) is restored in the same way; if that is interrupted, the same command goes on with what is
/// there. A data directory from a snapshot is a reader, until `orrery promote`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery restore /mnt/backups --data-dir restored
  orrery restore /mnt/backups/2026-11-24T10-45-00.123Z --data-dir restored
  orrery verify --data-dir restored
  orrery restore --from s3://bucket/prefix --data-dir restored
  orrery restore --from s3://bucket/prefix --trusted 5bd1… --data-dir restored")]
pub struct Restore {
    /// A backup, or a directory of backups, whose newest is restored
    #[arg(value_name = "BACKUP", required_unless_present = "from")]
    backup: Option<PathBuf>,
    /// Restore a snapshot instead, from s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or a directory, to
    /// which `orrery backup --to` has written it
    #[arg(long, value_name = "PLACE", conflicts_with = "backup")]
    from: Option<String>,
    /// Name of the snapshot, which is its time; without it the newest
    #[arg(long, value_name = "NAME", requires = "from")]
    snapshot: Option<String>,
    #[command(flatten)]
    read: ReadFlags,
}

impl Restore {
    pub fn run(self, common: &Common) -> Result<(), Failure> {
        let settings = common.settings(Vec::new())?;
        if let Some(from) = &self.from {
            return self.restore_snapshot(&settings, from);
        }
        if self.snapshot.is_some() {
            let words = "--snapshot is for snapshots: give their place with --from";
            return Err(Failure::usage(words));
        }
        let backup = self.backup.clone().unwrap_or_default();
        let newest = backup::find(&backup)?.pop();
        let newest = newest.ok_or_else(|| BackupError::not_found(&backup))?;
        let bar = bytes_read();
        let mut progress = |bytes| {
            bar.inc(bytes);
            Ok(())
        };
        let complete = |draft: &Path| {
            let config = Config { data_dir: draft.to_owned(), ..settings.config.clone() };
            let reason = match service::check_restored(&config) {
                Ok(()) => return Ok(()),
                Err(error) => error.to_string(),
            };
            Err(BackupError::Other(format!(
                "the data directory in {} cannot be used: {reason}; use another backup",
                newest.display()
            )))
        };
        let data_dir = &settings.config.data_dir;
        let restored = backup::restore(&newest, data_dir, &complete, &mut progress)?;
        bar.finish_and_clear();
        if !restored.left_out.is_empty() {
            output::note(format_args!(
                "not restored, because they do not belong to a backup: {}",
                restored.left_out.join(", ")
            ));
        }
        if let Some(words) = order(data_dir) {
            output::note(words);
        }
        if let Some(words) = other_owner(&restored.backup, data_dir) {
            output::note(words);
        }
        output::print(&format!("{}: restored\n", line(&restored.backup, &restored.manifest)))
    }

    fn restore_snapshot(&self, settings: &Settings, from: &str) -> Result<(), Failure> {
        let config = &settings.config;
        let snapshots = self.read.open(from, config)?;
        let snapshot = snapshots.find(self.snapshot.as_deref())?;
        let bar = bytes_read();
        let mut progress = |bytes| {
            bar.inc(bytes);
            Ok(())
        };
        snapshots::restore(&snapshots, &snapshot, config, &mut progress)?;
        bar.finish_and_clear();
        for words in self.read.words(&snapshots, &snapshot) {
            output::note(words);
        }
        if let Some(words) = order(&config.data_dir) {
            output::note(words);
        }
        let name = PathBuf::from(format!("{}, {}", snapshots.place(), snapshot.name));
        let line = line(&name, &snapshot.description.manifest);
        output::print(&format!("{line}: restored\n"))
    }
}

/// Says that what was restored belongs to another account than the backup, usually to root: the service
/// of the backup's account could not use it.
fn other_owner(backup: &Path, data_dir: &Path) -> Option<String> {
    let (of_backup, own) = (fs::metadata(backup).ok()?, fs::metadata(data_dir).ok()?);
    (of_backup.uid() != own.uid()).then(|| {
        let path = data_dir.display();
        format!(
            "{path} belongs to {}, and the backup to {}: run `sudo chown -R {} {path}` before a service of \
             that account uses it",
            account::name(own.uid()),
            account::name(of_backup.uid()),
            account::for_chown(of_backup.uid(), of_backup.gid())
        )
    })
}

/// Says that a backfill was running when the backup was made: the service goes on with it, from the
/// sources that it names, whoever has written them into the backup.
fn order(data_dir: &Path) -> Option<String> {
    let order = match OrderFile::of(data_dir).look() {
        Ok(order) => order?,
        Err(error) => return Some(error.to_string()),
    };
    let BackfillOrder { from, to, sources } = &order;
    let of = match sources.len() {
        0 => "the configured sources".to_owned(),
        1 => "the source that it names".to_owned(),
        many => format!("the {many} sources that it names"),
    };
    Some(format!(
        "the backup holds a backfill of ledgers {from} to {to} that was not done: the service goes on with it \
         from {of} (backfill.json); `orrery backfill --cancel` discards it"
    ))
}
