//! Version of the on-disk layout, and the upgrade of an older one to the current one.

pub(crate) mod migrations;
#[cfg(test)]
mod tests;

use migrations::Migration;

use super::upgrade::Upgrade;
use crate::db::database::Database;
use crate::encoding::columns::Family;
use crate::encoding::error::StoreError;
use crate::encoding::format_version::FormatVersion;

/// Version of the layout that this build writes.
///
/// History:
/// - 1.0: layout of the first release.
/// - 1.1: what trusted validators have signed, at the end of the rows of `ranges`.
/// - 1.2: events of projects in `rows` as they are, no longer as values in XDR.
/// - 1.3: rows of `entries` say whether a value is another one than before.
/// - 1.4: settings of the network are recorded in `settings` and `conditions`; with listed contracts,
///   transactions are stored that do no more than extend or restore their data.
///
/// A new minor version is reached by a migration in place (see `format/migrations`), which must leave
/// the same bytes as a store built anew. A new major version is refused: it needs a new directory.
pub const FORMAT: FormatVersion = FormatVersion { major: 1, minor: 4 };

pub(crate) const FORMAT_ROW: &[u8] = b"format";

/// Migrates an open database to [`FORMAT`]; fails when none of the `known` migrations leads there.
pub(crate) fn bring_up_to_date(
    database: &Database,
    upgrade: &Upgrade<'_>,
    known: &[Migration],
) -> Result<(), StoreError> {
    let Some(row) = database.get(Family::Meta, FORMAT_ROW)? else {
        return record(database, FORMAT);
    };
    let found = FormatVersion::decode(&row).ok_or_else(damaged)?;
    for migration in path(found, known)? {
        tracing::info!(from = %migration.from, to = %migration.to, "upgrading the store");
        (migration.run)(database, upgrade)?;
        record(database, migration.to)?;
    }
    Ok(())
}

/// Checks that a database opened for reading has the layout of this build. With one that the
/// `known` migrations upgrade, the error is [`StoreError::NotUpgraded`].
pub(crate) fn check(database: &Database, known: &[Migration]) -> Result<(), StoreError> {
    let row = database.get(Family::Meta, FORMAT_ROW)?;
    let found = row.and_then(|row| FormatVersion::decode(&row)).ok_or_else(damaged)?;
    if path(found, known)?.is_empty() {
        return Ok(());
    }
    Err(StoreError::NotUpgraded { found, wanted: FORMAT })
}

fn damaged() -> StoreError {
    StoreError::Corrupt { family: Family::Meta.name(), key: String::from("format") }
}

fn record(database: &Database, version: FormatVersion) -> Result<(), StoreError> {
    let mut batch = database.batch();
    batch.put_raw(Family::Meta, FORMAT_ROW, &version.encode())?;
    database.write_synced(batch)
}

/// Returns the migrations that lead from a version to [`FORMAT`], in order.
fn path(found: FormatVersion, known: &[Migration]) -> Result<Vec<&Migration>, StoreError> {
    let mut version = found;
    let mut steps = Vec::new();
    while version != FORMAT {
        let step = known
            .iter()
            .find(|migration| migration.from == version && migration.to <= FORMAT)
            .ok_or_else(|| {
                StoreError::Other(format!(
                    "the data directory has format {found}, this version of orrery reads {FORMAT}: \
                     use the version that wrote it, or import or follow the ledgers again into a new \
                     directory"
                ))
            })?;
        steps.push(step);
        version = step.to;
    }
    Ok(steps)
}
