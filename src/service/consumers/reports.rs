//! Reports of the consumers in metrics, in health and on the control socket.

use std::collections::BTreeMap;

use crate::control::ConsumerReport;
use crate::domain::LedgerRange;
use crate::export;
use crate::observe::health::Health;
use crate::observe::metrics::Metrics;
use crate::store::{ConsumerStatus, Store};

/// Name under which consumers report to health.
const FEED: &str = "feed";

/// Maximum number of ranges in a text.
const MAX_RANGES: usize = 5;

/// Reports consumers in metrics and health by kind. The programs of an owner are reported
/// individually only in their own status.
pub(in crate::service) fn report(store: &Store, metrics: &Metrics, health: &Health) {
    let mut kinds: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for consumer in store.consumers() {
        let (lag, lost) = kinds.entry(consumer.kind().to_owned()).or_default();
        if consumer.active {
            *lag = (*lag).max(consumer.lag);
        }
        *lost += consumer.lost.ledgers();
    }
    metrics.set_consumers(kinds.iter().map(|(kind, (lag, lost))| (kind.as_str(), *lag, *lost)));
    let mut details = Vec::new();
    for (kind, (lag, lost)) in &kinds {
        // The export lags until the ledgers of a file are complete, which is normal; it reports to
        // health itself.
        if *lag > 0 && kind != export::CONSUMER {
            details.push(format!("{kind}: {lag} ledgers behind"));
        }
        if *lost > 0 {
            details.push(format!("{kind}: {lost} ledgers lost, see `orrery status`"));
        }
    }
    match (kinds.is_empty(), details.is_empty()) {
        (true, _) => health.forget(FEED),
        (false, true) => health.up(FEED),
        (false, false) => health.up_with(FEED, details.join("; ")),
    }
}

/// Returns the status of a consumer for the control socket.
pub(in crate::service) fn describe(consumer: ConsumerStatus) -> ConsumerReport {
    ConsumerReport {
        lost: consumer.lost,
        rebuild: consumer.rebuild.map(|progress| (progress.done, progress.target)),
        name: consumer.name,
        active: consumer.active,
        lag: consumer.lag,
    }
}

/// Formats lost ranges as text: at most five of them, and the number of the others.
pub fn lost_ranges(lost: &[LedgerRange]) -> String {
    let shown = lost.iter().take(MAX_RANGES).map(|LedgerRange { first, last }| {
        if first == last { first.to_string() } else { format!("{first}–{last}") }
    });
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if let Some(more @ 1..) = lost.len().checked_sub(MAX_RANGES) {
        text.push_str(&format!(" and {more} more ranges"));
    }
    text
}
