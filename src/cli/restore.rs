//! `orrery restore`: makes a data directory from a backup.

use std::path::PathBuf;

use clap::Args;
use orrery::backup::{self, BackupError};

use super::backup::{Bar, line};
use super::{Common, Failure, output};

/// Make a data directory from a backup
///
/// Every file is compared with the backup's manifest while it is copied, and so are the digests of the ledgers
/// that the copy holds. The directory gets its name when all of it is there and on the disk; when this
/// command is stopped before, there is none. What is derived, such as the tables of indexing programs, the
/// service makes again when it starts.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery restore /mnt/backups --data-dir restored
  orrery restore /mnt/backups/2026-11-24T10-45-00.123Z --data-dir restored
  orrery verify --data-dir restored")]
pub struct Restore {
    /// A backup, or a directory of backups, of which the newest is taken
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
}

impl Restore {
    pub fn run(self, common: &Common) -> Result<(), Failure> {
        let settings = common.settings(Vec::new())?;
        let newest = backup::find(&self.backup)?.pop();
        let newest = newest.ok_or_else(|| BackupError::NotFound(self.backup.clone()))?;
        let bar = Bar::new();
        let mut progress = |bytes| {
            bar.add(bytes);
            Ok(())
        };
        let restored = backup::restore(&newest, &settings.config.data_dir, &mut progress)?;
        bar.finish();
        output::print(&format!("{}: restored\n", line(&restored.directory, &restored.manifest)))
    }
}
