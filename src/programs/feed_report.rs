//! Reports the state of the owners' tables to health.

use super::feed_queue::FeedSummary;
use orrery_runtime::observe::health::Health;

/// Health component of the owners' tables.
pub(super) const TABLES: &str = "tables";

/// Reports the state of the owners' tables to health. Failures of single owners are a detail: the
/// component is down only when the tables of all of several owners failed, or the store fails.
/// Health is public, so its text contains neither file paths nor what programs emit.
pub(super) fn report(summary: FeedSummary, health: &Health) {
    let FeedSummary { owners, behind, failed, store_failed, failed_programs } = summary;
    if owners == 0 {
        return health.forget(TABLES);
    }
    let mut details = Vec::new();
    if failed > 0 {
        details.push(format!(
            "rows of {failed} of {owners} owners cannot be written to their tables: the log says \
             why"
        ));
    }
    if failed_programs > 0 {
        details.push(format!(
            "rows of {failed_programs} {} cannot be written to their tables: the status of each \
             says why",
            if failed_programs == 1 { "program" } else { "programs" }
        ));
    }
    if behind > 0 {
        details.push(format!(
            "rows of {behind} {} are still being written to their tables",
            if behind == 1 { "owner" } else { "owners" }
        ));
    }
    let details = details.join("; ");
    // A failure for a single owner may be caused by that owner.
    let nobody_has_any = owners > 1 && failed == owners;
    match (nobody_has_any || store_failed, details.is_empty()) {
        (true, _) => health.down(TABLES, details),
        (false, true) => health.up(TABLES),
        (false, false) => health.up_with(TABLES, details),
    }
}
