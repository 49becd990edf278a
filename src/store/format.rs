//! Version of the on-disk layout, and the upgrade of an older one to the current one.

use std::fmt;

use super::StoreError;
use super::columns::Family;
use super::database::Database;
use super::upgrade::Upgrade;

mod migrations;

use migrations::Migration;

/// Version of the layout that this build writes.
///
/// History:
/// - 1.0: first layout.
/// - 2.0: digests of ledgers and ranges, the settings under which ledgers were indexed, and the
///   first ledger whose transactions are kept.
/// - 2.1: which transactions changed which ledger entries, and what other servers answered about
///   entries.
/// - 2.2: close times in milliseconds, for ledgers that have them.
/// - 2.3: consumers of the feed, and the lists of contracts to which ledgers were restricted.
///
/// A new minor version is reached by a migration in place (one file each in `migrations`), which
/// must leave the same bytes as a store built anew. A new major version is refused: it needs a new
/// directory.
pub const FORMAT: FormatVersion = FormatVersion { major: 2, minor: 3 };

pub(super) const FORMAT_ROW: &[u8] = b"format";

/// Version of the layout on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FormatVersion {
    /// Raised when old directories can no longer be read.
    pub major: u16,
    /// Raised with every migration.
    pub minor: u16,
}

impl FormatVersion {
    fn encode(self) -> [u8; 4] {
        let mut bytes = [0; 4];
        bytes[..2].copy_from_slice(&self.major.to_be_bytes());
        bytes[2..].copy_from_slice(&self.minor.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let &[a, b, c, d] = bytes.as_array()?;
        Some(Self { major: u16::from_be_bytes([a, b]), minor: u16::from_be_bytes([c, d]) })
    }
}

impl fmt::Display for FormatVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Migrates an open database to [`FORMAT`]; fails when no migration leads there.
pub(super) fn bring_up_to_date(
    database: &Database,
    upgrade: &Upgrade<'_>,
) -> Result<(), StoreError> {
    let Some(row) = database.get(Family::Meta, FORMAT_ROW)? else {
        return record(database, FORMAT);
    };
    let found = FormatVersion::decode(&row).ok_or_else(damaged)?;
    for migration in path(found, FORMAT, migrations::ALL)? {
        tracing::info!(from = %migration.from, to = %migration.to, "upgrading the store");
        (migration.run)(database, upgrade)?;
        record(database, migration.to)?;
    }
    Ok(())
}

/// Checks that a database opened for reading has the layout of this build.
pub(super) fn check(database: &Database) -> Result<(), StoreError> {
    let row = database.get(Family::Meta, FORMAT_ROW)?;
    let found = row.and_then(|row| FormatVersion::decode(&row));
    match found.ok_or_else(damaged)? {
        FORMAT => Ok(()),
        found if path(found, FORMAT, migrations::ALL).is_ok() => {
            Err(StoreError::NotUpgraded { found, wanted: FORMAT })
        }
        found => Err(StoreError::Format { found, supported: FORMAT }),
    }
}

fn damaged() -> StoreError {
    StoreError::Corrupt { family: Family::Meta.name(), key: String::from("format") }
}

fn record(database: &Database, version: FormatVersion) -> Result<(), StoreError> {
    let mut batch = database.batch();
    batch.put_raw(Family::Meta, FORMAT_ROW, &version.encode())?;
    database.write_synced(batch)
}

/// Returns the migrations that lead from one version to another, in order.
fn path(
    found: FormatVersion,
    wanted: FormatVersion,
    known: &[Migration],
) -> Result<Vec<&Migration>, StoreError> {
    let mut version = found;
    let mut steps = Vec::new();
    while version != wanted {
        let step = known
            .iter()
            .find(|migration| migration.from == version && migration.to <= wanted)
            .ok_or(StoreError::Format { found, supported: wanted })?;
        steps.push(step);
        version = step.to;
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(major: u16, minor: u16) -> FormatVersion {
        FormatVersion { major, minor }
    }

    fn step(from: FormatVersion, to: FormatVersion) -> Migration {
        Migration { from, to, run: |_, _| Ok(()) }
    }

    #[test]
    fn the_version_survives_a_round_trip() {
        assert_eq!(FormatVersion::decode(&version(1, 513).encode()), Some(version(1, 513)));
        assert_eq!(FormatVersion::decode(&[1]), None);
    }

    #[test]
    fn steps_are_taken_in_order() {
        let known = [step(version(1, 1), version(1, 2)), step(version(1, 0), version(1, 1))];
        let steps = path(version(1, 0), version(1, 2), &known).unwrap();
        assert_eq!(steps.iter().map(|s| s.to.minor).collect::<Vec<_>>(), [1, 2]);
        assert!(path(version(1, 2), version(1, 2), &known).unwrap().is_empty());
    }

    #[test]
    fn newer_and_unknown_versions_are_refused() {
        let known = [step(version(1, 0), version(1, 1))];
        for found in [version(1, 2), version(2, 0), version(0, 9)] {
            assert!(matches!(
                path(found, version(1, 1), &known),
                Err(StoreError::Format { found: f, .. }) if f == found
            ));
        }
    }
}
