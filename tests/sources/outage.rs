//! A source that is unavailable for half an hour, in virtual time.

use std::convert::Infallible;
use std::iter;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use orrery::domain::{
    Fetched, LedgerRange, LedgerSeq, LedgerSource, Origin, RawLedger, SourceError,
};
use orrery::source::follow::{Followed, Timing};
use orrery::store::Durability;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;

use orrery_testkit::chain::MAIN;
use orrery_testkit::contents::Contents;
use orrery_testkit::following::{RECOVERY, SOURCE, follower, node, open_store};

const OUTAGE: Duration = Duration::from_secs(30 * 60);
/// Interval between two ledgers of the network.
const CLOSE_INTERVAL: Duration = Duration::from_secs(60);

/// A network that closes a ledger every minute, behind a source that is unavailable from the fifth
/// minute on, for [`OUTAGE`]. The source ends after the last ledger of its chain.
struct Away {
    since: Instant,
    /// Time of the first answer after the outage.
    recovered: Arc<Mutex<Option<Instant>>>,
}

impl Away {
    fn answers(&self) -> Result<u32, SourceError> {
        let passed = self.since.elapsed();
        let begin = CLOSE_INTERVAL * 5;
        if passed >= begin && passed < begin + OUTAGE {
            return Err(SourceError::Retryable("it is away".to_owned()));
        }
        if passed >= begin + OUTAGE {
            self.recovered.lock().get_or_insert_with(Instant::now);
        }
        let closed = passed.as_secs() / CLOSE_INTERVAL.as_secs();
        Ok((MAIN.first() + closed as u32).min(MAIN.last()))
    }

    fn ledger(&self, sequence: u32) -> RawLedger {
        let xdr = MAIN.ledger(sequence).xdr.clone();
        let origin = Origin { name: "away".into(), position: None };
        RawLedger { sequence: LedgerSeq(sequence), xdr, compressed: None, origin }
    }
}

impl LedgerSource for Away {
    fn name(&self) -> String {
        "away".to_owned()
    }

    fn passphrase(&mut self) -> BoxFuture<'_, Result<Option<String>, SourceError>> {
        std::future::ready(Ok(None)).boxed()
    }

    fn range(&mut self) -> BoxFuture<'_, Result<Option<LedgerRange>, SourceError>> {
        let range = self.answers().map(|latest| Some(LedgerRange::new(MAIN.first(), latest)));
        std::future::ready(range).boxed()
    }

    fn fetch(&mut self, from: LedgerSeq) -> BoxFuture<'_, Result<Fetched, SourceError>> {
        let fetched = self.answers().map(|latest| {
            if from.0 > MAIN.last() {
                Fetched::Ended
            } else if from.0 > latest {
                Fetched::NotYet
            } else {
                Fetched::Ledgers((from.0..=latest).map(|sequence| self.ledger(sequence)).collect())
            }
        });
        std::future::ready(fetched).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_long_outage_there_is_no_gap_and_recovery_takes_seconds() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path(), &MAIN.network);
    let (node, recovered) = (node(&store), Arc::new(Mutex::new(None)));
    let health = Arc::clone(node.health());
    let since = Instant::now();
    let source = Away { since, recovered: Arc::clone(&recovered) };
    // The channel holds all ledgers, and a separate thread stores them: virtual time stands still
    // while tokio's threads block, and would advance while the follower waits for channel capacity.
    let (out, mut received) = mpsc::channel(MAIN.ledgers.len());
    let storing = thread::spawn({
        let node = Arc::clone(&node);
        let received = iter::from_fn(move || received.blocking_recv().map(Ok::<_, Infallible>));
        move || node.store_all(received, Durability::Deferred, |_| {})
    });
    let (first, timing) = (Some(MAIN.first()), Timing::default());
    let mut follower = follower(&node, Box::new(source), first, timing);
    let following = tokio::spawn(async move { follower.run(out).await });

    tokio::time::sleep_until(since + CLOSE_INTERVAL * 4).await;
    assert_eq!(health.first_down(), None);
    for minute in 6..35 {
        tokio::time::sleep_until(since + CLOSE_INTERVAL * minute).await;
        assert_eq!(health.first_down(), Some((SOURCE, "it is away".to_owned())), "{minute}");
    }
    tokio::time::sleep_until(since + CLOSE_INTERVAL * 5 + OUTAGE + RECOVERY).await;
    assert_eq!(health.first_down(), None);
    let recovered = recovered.lock().unwrap() - since - CLOSE_INTERVAL * 5 - OUTAGE;
    assert!(recovered <= RECOVERY, "{recovered:?}");

    assert_eq!(following.await.unwrap().unwrap(), Followed::SourceEnded);
    storing.join().unwrap().unwrap();
    let contents = Contents::of(&store);
    assert_eq!(contents.count(), MAIN.ledgers.len());
    contents.assert_beginning_of(&MAIN.whole, LedgerSeq(MAIN.first()));
}
