//! A source with a fixed pace, on top of a network that makes a ledger whenever it is asked.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use orrery_ledger::domain::{
    Fetched, LedgerRange, LedgerSeq, LedgerSource, Origin, RawLedger, SourceError, sequence_of,
};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep_until};

/// Number of newest ledgers that can be yielded again: more than are ever in flight to the store.
const RECENT_LEDGERS: usize = 64;

/// Makes ledgers one after the other.
pub trait LedgerMaker: Send + 'static {
    /// Returns the `LedgerCloseMeta` of the next ledger as XDR. Blocks the thread. An error is one
    /// sentence.
    fn next_ledger(&mut self) -> Result<Vec<u8>, String>;
}

type MakerResult<M> = (M, Result<Vec<u8>, String>);

/// Yields the ledgers of a [`LedgerMaker`]: some at once, then one per interval.
pub struct Paced<M> {
    name: &'static str,
    passphrase: String,
    /// `None` while it works, and for good after it panicked.
    maker: Option<M>,
    /// The running call of the maker, kept so that its ledger is not lost when the caller stops
    /// waiting.
    working: Option<JoinHandle<MakerResult<M>>>,
    latest: LedgerSeq,
    recent: VecDeque<RawLedger>,
    at_once: u32,
    interval: Duration,
    due: Option<Instant>,
}

impl<M: LedgerMaker> Paced<M> {
    /// Creates a source of the ledgers of `maker`, which has made all up to `latest`: yields
    /// `at_once` of them without waiting, then one per `interval`.
    pub fn new(
        name: &'static str,
        passphrase: impl Into<String>,
        maker: M,
        latest: LedgerSeq,
        at_once: u32,
        interval: Duration,
    ) -> Self {
        let passphrase = passphrase.into();
        let (maker, working, recent, due) = (Some(maker), None, VecDeque::new(), None);
        Self { name, passphrase, maker, working, latest, recent, at_once, interval, due }
    }

    async fn wait_for_turn(&mut self) {
        if self.at_once > 0 {
            self.at_once -= 1;
            return;
        }
        let due = *self.due.get_or_insert_with(|| Instant::now() + self.interval);
        sleep_until(due).await;
        // Ledgers missed in a pause, for example while the machine slept, are not made up for.
        self.due = Some((due + self.interval).max(Instant::now()));
    }

    /// Returns ledgers that were yielded before and are requested again; `None` when `from` is not
    /// among them.
    fn recent_from(&self, from: LedgerSeq) -> Option<Vec<RawLedger>> {
        let (oldest, newest) = (self.recent.front()?.sequence, self.recent.back()?.sequence);
        (oldest..=newest)
            .contains(&from)
            .then(|| self.recent.iter().filter(|ledger| ledger.sequence >= from).cloned().collect())
    }

    async fn make(&mut self) -> Result<RawLedger, SourceError> {
        let broken = |reason: String| SourceError::Fatal(format!("{} failed: {reason}", self.name));
        if self.working.is_none() {
            let Some(mut maker) = self.maker.take() else {
                return Err(broken("it broke down before".to_owned()));
            };
            self.working = Some(spawn_blocking(move || {
                let ledger = maker.next_ledger();
                (maker, ledger)
            }));
        }
        let Some(working) = &mut self.working else {
            return Err(broken("it does not work".to_owned()));
        };
        let finished = working.await;
        self.working = None;
        let (maker, ledger) = finished.map_err(|error| broken(error.to_string()))?;
        self.maker = Some(maker);
        let xdr = ledger.map_err(broken)?;
        let sequence = sequence_of(&xdr).map_err(broken)?;
        self.latest = sequence;
        let origin = Origin { name: self.name.into(), position: None };
        let ledger = RawLedger { sequence, xdr, compressed: None, origin };
        if self.recent.len() == RECENT_LEDGERS {
            self.recent.pop_front();
        }
        self.recent.push_back(ledger.clone());
        Ok(ledger)
    }
}

impl<M: LedgerMaker> LedgerSource for Paced<M> {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn passphrase(&mut self) -> BoxFuture<'_, Result<Option<String>, SourceError>> {
        std::future::ready(Ok(Some(self.passphrase.clone()))).boxed()
    }

    fn range(&mut self) -> BoxFuture<'_, Result<Option<LedgerRange>, SourceError>> {
        // The maker cannot make past ledgers again: only the kept ledgers and the following ones
        // are available.
        let next = self.latest.next().unwrap_or(self.latest);
        let first = self.recent.front().map_or(next, |ledger| ledger.sequence);
        let range = LedgerRange { first, last: self.latest };
        std::future::ready(Ok(Some(range))).boxed()
    }

    fn fetch(&mut self, from: LedgerSeq) -> BoxFuture<'_, Result<Fetched, SourceError>> {
        async move {
            if let Some(again) = self.recent_from(from) {
                return Ok(Fetched::Ledgers(again));
            }
            self.wait_for_turn().await;
            Ok(Fetched::Ledgers(vec![self.make().await?]))
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orrery_source::files::LedgerFiles;
    use orrery_testkit::fixtures::folder;

    struct Replay(LedgerFiles);

    impl LedgerMaker for Replay {
        fn next_ledger(&mut self) -> Result<Vec<u8>, String> {
            let ledger = self.0.next().ok_or("no more")?;
            ledger.map(|ledger| ledger.xdr).map_err(|error| error.to_string())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn some_ledgers_come_at_once_and_then_one_per_interval() {
        let Some(data) = folder() else { return };
        let maker = Replay(LedgerFiles::new(&[data.join("lake-pubnet")]));
        let latest = LedgerSeq(63_092_981);
        let interval = Duration::from_secs(1);
        let mut source = Paced::new("the replay", "p", maker, latest, 3, interval);
        let start = Instant::now();
        let mut times = Vec::new();
        for sequence in 63_092_982..=63_092_993 {
            let Fetched::Ledgers(ledgers) = source.fetch(LedgerSeq(sequence)).await.unwrap() else {
                panic!("a maker always makes")
            };
            assert_eq!(ledgers[0].sequence, LedgerSeq(sequence));
            times.push(start.elapsed().as_secs());
        }
        assert_eq!(times, [0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let range = source.range().await.unwrap().unwrap();
        assert_eq!(range, LedgerRange::new(63_092_982, 63_092_993));
        let Fetched::Ledgers(again) = source.fetch(LedgerSeq(63_092_990)).await.unwrap() else {
            panic!("they are kept")
        };
        assert!(again.iter().map(|ledger| ledger.sequence.0).eq(63_092_990..=63_092_993));
        let error = source.fetch(LedgerSeq(63_092_994)).await.unwrap_err().to_string();
        assert_eq!(error, "the replay failed: no more");
    }
}
