//! Every change of the layout since the first, one file each.

mod close_times;
mod entries;
mod feed;

use super::super::StoreError;
use super::super::database::Database;
use super::super::upgrade::Upgrade;
use super::FormatVersion;

/// One step from a version to the next. Running it twice must do no harm: a crash may come between
/// the step and the record of it.
pub(super) struct Migration {
    pub from: FormatVersion,
    pub to: FormatVersion,
    pub run: fn(&Database, &Upgrade<'_>) -> Result<(), StoreError>,
}

/// All steps.
pub(super) const ALL: &[Migration] = &[entries::MIGRATION, close_times::MIGRATION, feed::MIGRATION];
