//! Downloads and unpacks the files of a lake ahead of the consumer: several concurrently, in order,
//! and within a memory limit. Downloads continue between two calls, and dropping a call loses
//! nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::stream::{self, Stream, StreamExt};
use orrery_ledger::domain::{LedgerRange, LedgerSeq, RawLedger};
use tokio::task::JoinHandle;

use super::batches::Lake;
use super::error::LakeError;

/// Maximum number of files that are being downloaded, being unpacked or waiting at the same time.
const FILES_AHEAD: usize = 10;

/// Maximum bytes of unpacked ledgers that wait, including an estimate for files in flight.
const BYTES_AHEAD: usize = 64 << 20;

/// Files in flight, in order.
#[derive(Default)]
pub(super) struct ReadAhead {
    files: VecDeque<Prefetch>,
    /// Whether the last file arrived. After a failure only one file is requested at a time, until
    /// one arrives.
    last_arrived: bool,
    /// Estimated size of the next file in bytes after unpacking, from earlier files.
    expected: usize,
}

struct Prefetch {
    batch: LedgerRange,
    /// Size in bytes after unpacking; 0 before.
    bytes: Arc<AtomicUsize>,
    unpacking: Task,
}

type File = Result<Option<Vec<RawLedger>>, LakeError>;

/// A task that is aborted when it is dropped.
struct Task(JoinHandle<File>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Lake {
    /// Streams the ledgers of a bounded range in order, with read-ahead. A missing file inside the
    /// range is an error; the stream ends after the first error.
    pub fn read(&self, range: LedgerRange) -> impl Stream<Item = Result<RawLedger, LakeError>> {
        let next = (!range.is_empty()).then(|| range.first.max(LedgerSeq::FIRST));
        let start = (self.clone(), ReadAhead::default(), next);
        let files = stream::unfold(start, move |(lake, mut ahead, next)| async move {
            let next = next.filter(|next| *next <= range.last)?;
            let (file, after) = match ahead.file(&lake, next, range.last).await {
                Ok(Some(ledgers)) => (Ok(ledgers), lake.layout.batch_of(next).last.next()),
                Ok(None) => (Err(lake.gap(next)), None),
                Err(error) => (Err(error), None),
            };
            Some((file, (lake, ahead, after)))
        });
        files.flat_map(move |file| {
            let ledgers = match file {
                Ok(mut ledgers) => {
                    ledgers.retain(|ledger| ledger.sequence <= range.last);
                    ledgers.into_iter().map(Ok).collect()
                }
                Err(error) => vec![Err(error)],
            };
            stream::iter(ledgers)
        })
    }
}

impl ReadAhead {
    /// Returns the ledgers from `from` to the end of its file, or `None` when the file does not
    /// exist yet. Prefetches files up to that of `last`, which are expected to exist; after a
    /// failure or a missing file all of them are requested again.
    pub async fn file(&mut self, lake: &Lake, from: LedgerSeq, last: LedgerSeq) -> File {
        let batch = lake.layout.batch_of(from);
        while self.files.front().is_some_and(|file| file.batch.last < from) {
            self.files.pop_front();
        }
        if self.files.front().is_some_and(|file| file.batch != batch) {
            self.files.clear();
        }
        self.fill(lake, batch.first, last);
        let Some(first) = self.files.front_mut() else { return Ok(None) };
        // If the call is dropped here, the file stays first in the queue.
        let unpacked = (&mut first.unpacking.0).await;
        self.files.pop_front();
        let file = match unpacked {
            Ok(file) => file,
            Err(error) => Err(LakeError::transport(&lake.place(), error)),
        };
        self.last_arrived = matches!(file, Ok(Some(_)));
        let Ok(Some(mut ledgers)) = file else {
            self.files.clear();
            return file;
        };
        // Sizes change slowly: the estimate decays by an eighth with each file that is smaller.
        self.expected = size_of(&ledgers).max(self.expected / 8 * 7);
        // A file that is not expected to exist is requested only when the consumer asks for it.
        if let Some(next) = batch.last.next().filter(|next| *next <= last) {
            self.fill(lake, next, last);
        }
        ledgers.retain(|ledger| ledger.sequence >= from);
        Ok(Some(ledgers))
    }

    /// Starts downloads after the last queued file, or from that of `first`, as the limits allow.
    /// Always starts one when the queue is empty.
    fn fill(&mut self, lake: &Lake, first: LedgerSeq, last: LedgerSeq) {
        let most = if self.last_arrived { FILES_AHEAD } else { 1 };
        let mut next = match self.files.back() {
            Some(file) => file.batch.last.next(),
            None => Some(first),
        };
        while let Some(ledger) = next
            && self.files.len() < most
        {
            let asked_for = self.files.is_empty();
            let fits = self.bytes().saturating_add(self.expected) <= BYTES_AHEAD;
            if !asked_for && (ledger > last || !fits) {
                return;
            }
            let file = Prefetch::begin(lake, ledger);
            next = file.batch.last.next();
            self.files.push_back(file);
        }
    }

    /// Returns the bytes of all queued files, with estimates for those in flight.
    fn bytes(&self) -> usize {
        let of_file = |file: &Prefetch| match file.bytes.load(Ordering::Relaxed) {
            0 => self.expected,
            bytes => bytes,
        };
        self.files.iter().map(of_file).sum()
    }
}

impl Prefetch {
    fn begin(lake: &Lake, ledger: LedgerSeq) -> Self {
        let (lake, bytes) = (lake.clone(), Arc::new(AtomicUsize::new(0)));
        let batch = lake.layout.batch_of(ledger);
        let unpacking = tokio::spawn({
            let bytes = Arc::clone(&bytes);
            async move {
                let file = lake.file_of(ledger).await?;
                bytes.store(file.as_deref().map_or(0, size_of), Ordering::Relaxed);
                Ok(file)
            }
        });
        Self { batch, bytes, unpacking: Task(unpacking) }
    }
}

fn size_of(ledgers: &[RawLedger]) -> usize {
    ledgers.iter().map(|ledger| ledger.xdr.len()).sum()
}

#[cfg(test)]
mod tests;
