//! Migrations of the on-disk layout: one file each in this folder, and one line in [`ALL`].

use super::super::StoreError;
use super::super::database::Database;
use super::super::upgrade::Upgrade;
use super::FormatVersion;

/// Migration from one version to the next. It must be idempotent: a crash may come between the
/// migration and the record of its version.
pub(in super::super) struct Migration {
    pub from: FormatVersion,
    pub to: FormatVersion,
    pub run: fn(&Database, &Upgrade<'_>) -> Result<(), StoreError>,
}

/// All migrations.
pub(in super::super) const ALL: &[Migration] = &[];
