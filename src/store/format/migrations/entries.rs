//! 2.0 to 2.1: fills the family `entries` from the stored transactions.

use super::super::super::indexes::{self, Indexes};
use super::super::FormatVersion;
use super::Migration;

pub(super) const MIGRATION: Migration = Migration {
    from: FormatVersion { major: 2, minor: 0 },
    to: FormatVersion { major: 2, minor: 1 },
    run: |database, upgrade| {
        indexes::fill(database, &Indexes::only(indexes::entries::INDEX), "entries", upgrade)
    },
};
