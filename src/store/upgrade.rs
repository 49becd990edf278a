//! How far that is which is done to an older directory while it is opened: on a large one it takes hours, and
//! whoever waits for it should see that it goes on.

use std::time::{Duration, Instant};

use super::StoreError;
use super::bytes::Malformed;
use super::columns::{Family, Key, LedgerKey};
use super::database::{Database, corrupt};
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
    last: LedgerSeq,
    every: Duration,
}

impl<'a> Upgrade<'a> {
    /// Of a directory that has just been opened.
    pub(super) fn of(
        database: &Database,
        observer: Option<&'a UpgradeObserver>,
    ) -> Result<Self, StoreError> {
        let snapshot = database.snapshot();
        let mut rows = snapshot.rows(Family::Ledgers)?;
        rows.seek_to_last();
        let last = match rows.key() {
            Some(key) => {
                LedgerKey::decode(key).ok_or(Malformed).map_err(corrupt(Family::Ledgers, key))?.0
            }
            None => LedgerSeq(0),
        };
        rows.status()?;
        Ok(Self { observer, last, every: REPORT_EVERY })
    }

    /// A step that begins.
    pub(super) fn step(&self, what: String) -> Progress<'_> {
        Progress { upgrade: self, what, reported: None }
    }
}

/// How far one step is.
pub(super) struct Progress<'a> {
    upgrade: &'a Upgrade<'a>,
    what: String,
    reported: Option<Instant>,
}

impl Progress<'_> {
    /// It has come to this ledger.
    pub(super) fn at(&mut self, ledger: LedgerSeq) {
        let Upgrade { observer, last, every } = *self.upgrade;
        if self.reported.is_some_and(|reported| reported.elapsed() < every) {
            return;
        }
        self.reported = Some(Instant::now());
        tracing::info!(ledger = ledger.0, last = last.0, "upgrading the store: {}", self.what);
        if let Some(observer) = observer {
            observer(UpgradeStep { what: &self.what, ledger, last });
        }
    }
}

#[cfg(test)]
impl Upgrade<'_> {
    /// One that nobody sees.
    pub(super) fn unseen() -> Self {
        Self { observer: None, last: LedgerSeq(0), every: REPORT_EVERY }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn a_step_is_told_when_it_begins_and_from_time_to_time() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&told);
        let observer: UpgradeObserver =
            Box::new(move |step| hears.lock().push(format!("{} {}", step.what, step.ledger)));
        for (every, expected) in [
            (Duration::ZERO, vec!["one 7", "one 8", "two 7", "two 8"]),
            (Duration::from_secs(3600), vec!["one 7", "two 7"]),
        ] {
            let upgrade = Upgrade { observer: Some(&observer), last: LedgerSeq(8), every };
            for what in ["one", "two"] {
                let mut progress = upgrade.step(what.to_owned());
                [7, 8].into_iter().for_each(|ledger| progress.at(LedgerSeq(ledger)));
            }
            assert_eq!(std::mem::take(&mut *told.lock()), expected);
        }
    }
}
