//! Progress of the upgrade that an older data directory gets while it is opened. On a large
//! directory an upgrade takes hours, so its progress is reported.

use std::time::{Duration, Instant};

use orrery_ledger::domain::LedgerSeq;

use crate::db::database::Database;
use crate::encoding::columns::{Family, Key, LedgerKey};
use crate::encoding::error::StoreError;

/// Interval between two reports of the same step.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Progress of one upgrade step. A step goes through the stored ledgers in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpgradeStep<'a> {
    /// Description of the step.
    pub what: &'a str,
    /// Ledger that the step has reached.
    pub ledger: LedgerSeq,
    /// Newest stored ledger.
    pub last: LedgerSeq,
}

/// Called when an upgrade step begins and every ten seconds while it runs.
pub type UpgradeObserver = Box<dyn Fn(UpgradeStep<'_>) + Send + Sync>;

/// Reports the steps of one upgrade.
pub(crate) struct Upgrade<'a> {
    observer: Option<&'a UpgradeObserver>,
    interval: Duration,
}

impl<'a> Upgrade<'a> {
    /// Creates an upgrade that reports to the log and to `observer`, if there is one.
    pub(crate) fn with_observer(observer: Option<&'a UpgradeObserver>) -> Self {
        Self { observer, interval: REPORT_INTERVAL }
    }

    /// Begins a step.
    pub(crate) fn step(
        &self,
        database: &Database,
        what: String,
    ) -> Result<Progress<'_>, StoreError> {
        let snapshot = database.snapshot();
        let mut rows = snapshot.rows(Family::Ledgers)?;
        rows.seek_to_last();
        // The value is only shown as the target of the progress: finding a damaged key is left to
        // `verify`.
        let last = rows.key().and_then(LedgerKey::decode).map_or(LedgerSeq(0), |key| key.0);
        rows.status()?;
        Ok(Progress { upgrade: self, what, last, reported: None })
    }
}

/// Progress of one step.
pub(crate) struct Progress<'a> {
    upgrade: &'a Upgrade<'a>,
    what: String,
    last: LedgerSeq,
    reported: Option<Instant>,
}

impl Progress<'_> {
    /// Records that the step has reached `ledger`, and reports it if a report is due.
    pub(crate) fn at(&mut self, ledger: LedgerSeq) {
        let Self { upgrade: Upgrade { observer, interval }, what, last, reported } = self;
        if reported.is_some_and(|reported| reported.elapsed() < *interval) {
            return;
        }
        *reported = Some(Instant::now());
        tracing::info!(ledger = ledger.0, last = last.0, "upgrading the store: {what}");
        if let Some(observer) = observer {
            observer(UpgradeStep { what, ledger, last: *last });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn upgrade_progress_is_reported_at_each_step_and_interval() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path()).unwrap();
        let reports = Arc::new(Mutex::new(Vec::new()));
        let reports_sink = Arc::clone(&reports);
        let observer: UpgradeObserver = Box::new(move |step| {
            reports_sink.lock().push(format!("{} {}", step.what, step.ledger))
        });
        for (interval, expected) in [
            (Duration::ZERO, vec!["one 7", "one 8", "two 7", "two 8"]),
            (Duration::from_secs(3600), vec!["one 7", "two 7"]),
        ] {
            let upgrade = Upgrade { observer: Some(&observer), interval };
            for what in ["one", "two"] {
                let mut progress = upgrade.step(&database, what.to_owned()).unwrap();
                [7, 8].into_iter().for_each(|ledger| progress.at(LedgerSeq(ledger)));
            }
            assert_eq!(std::mem::take(&mut *reports.lock()), expected);
        }
    }
}
