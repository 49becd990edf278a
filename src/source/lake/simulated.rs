//! A simulated lake for tests: generates the ledgers that it is set to hold, and counts requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use orrery_ledger::domain::{LedgerRange, LedgerSeq, Network};
use parking_lot::Mutex;

use super::batches::Lake;
use super::error::LakeError;
use super::files::LakeFiles;
use super::layout;
use super::layout::{GivenLayout, Layout, Manifest};
use crate::records::generated;

/// The content of the simulated lake, and counters of requests.
pub struct SimulatedLake {
    given: GivenLayout,
    layout: Layout,
    /// Ranges of existing ledgers in whole files, the newest last.
    ranges: Mutex<Vec<LedgerRange>>,
    lists: bool,
    pub questions: AtomicUsize,
    /// Number of files that are being downloaded; `most` is its maximum.
    pub now: AtomicUsize,
    pub most: AtomicUsize,
    /// Whether every key is reported as existing.
    pub says_yes: AtomicBool,
    /// Duration of a download, in tokio's time.
    pub takes: Duration,
    /// Number of bytes by which each ledger is padded.
    pub padding: usize,
}

impl SimulatedLake {
    /// Creates a lake with the ledgers of `ranges`, in files of `per_batch` ledgers and directories
    /// of `per_partition` files.
    pub fn new(per_batch: u32, per_partition: u32, lists: bool, ranges: &[(u32, u32)]) -> Self {
        let given = GivenLayout {
            ledgers_per_batch: Some(per_batch),
            batches_per_partition: Some(per_partition),
            extension: Some("zst".to_owned()),
        };
        let manifest = Manifest::given("it", &given).unwrap().unwrap();
        let ranges = ranges.iter().map(|(first, last)| LedgerRange::new(*first, *last)).collect();
        Self {
            layout: Layout::new(&manifest).with_extension(given.extension.clone()),
            given,
            ranges: Mutex::new(ranges),
            lists,
            questions: AtomicUsize::new(0),
            now: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            says_yes: AtomicBool::new(false),
            takes: Duration::ZERO,
            padding: 0,
        }
    }

    /// Opens the lake and resets the request counter.
    pub async fn open(self: &Arc<Self>) -> Lake {
        let network = Network::from_passphrase("imagined");
        let store = Arc::clone(self) as Arc<dyn LakeFiles>;
        let lake = Lake::open_as(store, &network, &self.given, None).await.unwrap();
        self.questions();
        lake
    }

    /// Replaces the ledgers that the lake holds.
    pub fn holds(&self, ranges: &[(u32, u32)]) {
        let ranges = ranges.iter().map(|(first, last)| LedgerRange::new(*first, *last));
        *self.ranges.lock() = ranges.collect();
    }

    /// Returns the number of requests since the last call.
    pub fn questions(&self) -> usize {
        self.questions.swap(0, Ordering::SeqCst)
    }

    fn has(&self, ledger: LedgerSeq) -> bool {
        let batch = self.layout.batch_of(ledger);
        self.ranges.lock().iter().any(|range| range.contains(batch.last))
    }

    async fn download(&self, key: &str) -> Option<Bytes> {
        let promised = self.layout.range_at(key).filter(|batch| self.has(batch.last))?;
        self.most.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        // Counts down also when the download is dropped.
        struct Done<'a>(&'a AtomicUsize);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        let _done = Done(&self.now);
        tokio::time::sleep(self.takes).await;
        let first = promised.first.max(LedgerSeq::FIRST);
        let ledgers =
            (first.0..=promised.last.0).map(|sequence| generated::ledger(sequence, self.padding));
        Some(generated::batch(first.0, promised.last.0, ledgers).into())
    }
}

impl LakeFiles for SimulatedLake {
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, LakeError>> {
        self.questions.fetch_add(1, Ordering::SeqCst);
        self.download(key).map(Ok).boxed()
    }

    fn exists<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<bool, LakeError>> {
        self.questions.fetch_add(1, Ordering::SeqCst);
        let there = self.layout.range_at(key).is_some_and(|batch| self.has(batch.last));
        std::future::ready(Ok(there || self.says_yes.load(Ordering::SeqCst))).boxed()
    }

    fn keys_after<'a>(
        &'a self,
        after: &'a str,
        most: usize,
    ) -> BoxFuture<'a, Result<Option<Vec<String>>, LakeError>> {
        if !self.lists {
            return std::future::ready(Ok(None)).boxed();
        }
        self.questions.fetch_add(1, Ordering::SeqCst);
        let before = layout::range_of(after).map_or(u32::MAX, |range| range.first.0);
        let mut keys = vec!["FFFFFFFF--not-a-ledger.txt".to_owned()];
        for range in self.ranges.lock().iter().rev() {
            let mut last = range.last.0.min(before.saturating_sub(1));
            while keys.len() < most && last >= range.first.0.max(2) {
                let batch = self.layout.batch_of(LedgerSeq(last));
                keys.push(self.layout.key_of(batch.last));
                match batch.first.0.checked_sub(1) {
                    Some(previous) => last = previous,
                    None => break,
                }
            }
        }
        assert!(keys.windows(2).skip(1).all(|pair| pair[0] < pair[1]), "newest first: {keys:?}");
        std::future::ready(Ok(Some(keys))).boxed()
    }

    fn directories(&self) -> BoxFuture<'_, Result<Option<Vec<String>>, LakeError>> {
        std::future::ready(Ok(None)).boxed()
    }

    fn misnamed(&self) -> BoxFuture<'_, Result<Option<String>, LakeError>> {
        std::future::ready(Ok(None)).boxed()
    }

    fn below(&self, _: &str) -> Arc<dyn LakeFiles> {
        unreachable!("an imagined lake has one directory")
    }

    fn place(&self, key: &str) -> String {
        format!("imagined/{key}")
    }
}
