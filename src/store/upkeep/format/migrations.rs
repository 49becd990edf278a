//! Migrations of the on-disk layout: one line each in [`ALL`], and a file in this folder for one
//! that changes rows.

use crate::db::database::Database;
use crate::encoding::error::StoreError;
use crate::encoding::format_version::FormatVersion;
use crate::indexes::entries;
use crate::indexes::registry::Indexes;
use crate::upkeep::index_fill::refill;
use crate::upkeep::upgrade::Upgrade;
use crate::upkeep::{extensions_of_data, settings};

/// Migration from one version to the next. It must be idempotent: a crash may come between the
/// migration and the record of its version.
pub(crate) struct Migration {
    pub from: FormatVersion,
    pub to: FormatVersion,
    pub run: fn(&Database, &Upgrade<'_>) -> Result<(), StoreError>,
}

/// All migrations.
pub(crate) const ALL: &[Migration] = &[
    Migration {
        from: FormatVersion { major: 1, minor: 0 },
        to: FormatVersion { major: 1, minor: 1 },
        run: keep_rows,
    },
    Migration {
        from: FormatVersion { major: 1, minor: 1 },
        to: FormatVersion { major: 1, minor: 2 },
        run: keep_rows,
    },
    Migration {
        from: FormatVersion { major: 1, minor: 2 },
        to: FormatVersion { major: 1, minor: 3 },
        run: entries_by_value,
    },
    Migration {
        from: FormatVersion { major: 1, minor: 3 },
        to: FormatVersion { major: 1, minor: 4 },
        run: settings_and_extensions,
    },
];

/// Rows of the index of entries say since this version whether a value is another one than before.
fn entries_by_value(database: &Database, upgrade: &Upgrade<'_>) -> Result<(), StoreError> {
    refill(database, &Indexes::only(entries::INDEX), "entries", upgrade)
}

/// Settings of the network are recorded since this version, and transactions that only extend data of
/// listed contracts are stored.
fn settings_and_extensions(database: &Database, upgrade: &Upgrade<'_>) -> Result<(), StoreError> {
    settings::fill(database, upgrade)?;
    extensions_of_data::mark(database, upgrade)?;
    // The version is written through the WAL next, and must not become durable before these unlogged
    // writes.
    database.flush()
}

/// What the version before wrote is read as it is. The version is recorded all the same, because the
/// one before takes what this one writes for damage.
fn keep_rows(_: &Database, _: &Upgrade<'_>) -> Result<(), StoreError> {
    Ok(())
}
