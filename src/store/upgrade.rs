//! How far that is which is done to an older directory while it is opened: on a large one it takes hours, and
//! whoever waits for it should see that it goes on.

use std::time::{Duration, Instant};

use super::StoreError;
use super::columns::{Family, Key, LedgerKey};
use super::database::Database;
use crate::domain::LedgerSeq;

/// Between two reports of the same step.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// How far a step of an upgrade is. A step goes through the stored ledgers in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpgradeStep<'a> {
    /// What is done.
    pub what: &'a str,
    /// The ledger that is at hand.
    pub ledger: LedgerSeq,
    /// The newest stored ledger.
    pub last: LedgerSeq,
}

/// Is told of a step when it begins, and every ten seconds from then on.
pub type UpgradeObserver = Box<dyn Fn(UpgradeStep<'_>) + Send + Sync>;

/// Tells of the steps of one upgrade.
pub(super) struct Upgrade<'a> {
    observer: Option<&'a UpgradeObserver>,
    every: Duration,
}

impl<'a> Upgrade<'a> {
    /// One that the observer is told of, and the log.
    pub(super) fn told(observer: Option<&'a UpgradeObserver>) -> Self {
        Self { observer, every: REPORT_EVERY }
    }

    /// A step that begins.
    pub(super) fn step(
        &self,
        database: &Database,
        what: String,
    ) -> Result<Progress<'_>, StoreError> {
        let snapshot = database.snapshot();
        let mut rows = snapshot.rows(Family::Ledgers)?;
        rows.seek_to_last();
        // Only a figure to compare with: a damaged key is for `verify` to find.
        let last = rows.key().and_then(LedgerKey::decode).map_or(LedgerSeq(0), |key| key.0);
        rows.status()?;
        Ok(Progress { upgrade: self, what, last, reported: None })
    }
}

/// How far one step is.
pub(super) struct Progress<'a> {
    upgrade: &'a Upgrade<'a>,
    what: String,
    last: LedgerSeq,
    reported: Option<Instant>,
}

impl Progress<'_> {
    /// It has come to this ledger.
    pub(super) fn at(&mut self, ledger: LedgerSeq) {
        let Self { upgrade: Upgrade { observer, every }, what, last, reported } = self;
        if reported.is_some_and(|reported| reported.elapsed() < *every) {
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
    fn a_step_is_told_when_it_begins_and_from_time_to_time() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path()).unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&told);
        let observer: UpgradeObserver =
            Box::new(move |step| hears.lock().push(format!("{} {}", step.what, step.ledger)));
        for (every, expected) in [
            (Duration::ZERO, vec!["one 7", "one 8", "two 7", "two 8"]),
            (Duration::from_secs(3600), vec!["one 7", "two 7"]),
        ] {
            let upgrade = Upgrade { observer: Some(&observer), every };
            for what in ["one", "two"] {
                let mut progress = upgrade.step(&database, what.to_owned()).unwrap();
                [7, 8].into_iter().for_each(|ledger| progress.at(LedgerSeq(ledger)));
            }
            assert_eq!(std::mem::take(&mut *told.lock()), expected);
        }
    }
}
