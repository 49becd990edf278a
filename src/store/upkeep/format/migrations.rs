//! Migrations of the on-disk layout: one file each in this folder, and one line in [`ALL`].

use crate::db::database::Database;
use crate::encoding::error::StoreError;
use crate::encoding::format_version::FormatVersion;
use crate::upkeep::upgrade::Upgrade;

/// Migration from one version to the next. It must be idempotent: a crash may come between the
/// migration and the record of its version.
pub(crate) struct Migration {
    pub from: FormatVersion,
    pub to: FormatVersion,
    pub run: fn(&Database, &Upgrade<'_>) -> Result<(), StoreError>,
}

/// All migrations.
pub(crate) const ALL: &[Migration] = &[];
