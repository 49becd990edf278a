//! Downloads and unpacks the files of a lake ahead of whoever takes their ledgers: several at a time,
//! in order, and no more than fit into a limit of memory. What was begun goes on between two calls,
//! and a call that is dropped loses nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::JoinHandle;

use super::{Lake, LakeError};
use crate::domain::{LedgerRange, LedgerSeq};
use crate::source::RawLedger;

/// Files that are downloaded, unpacked or waiting at the same time.
const FILES_AHEAD: usize = 10;

/// Bytes of unpacked ledgers that wait, those that are still on their way included by guess.
const BYTES_AHEAD: usize = 64 << 20;

/// Files on their way, in order.
#[derive(Default)]
pub(super) struct ReadAhead {
    files: VecDeque<OnItsWay>,
    /// Whether the last file came: after a failure, one question is enough until one is answered.
    flows: bool,
    /// Bytes that the next file may unpack to, from those that came before.
    expected: usize,
}

struct OnItsWay {
    batch: LedgerRange,
    /// Bytes that it unpacked to; 0 before.
    bytes: Arc<AtomicUsize>,
    unpacking: Task,
}

type File = Result<Option<Vec<RawLedger>>, LakeError>;

/// A task that ends when nobody waits for it any more.
struct Task(JoinHandle<File>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ReadAhead {
    /// The ledgers from `from` to the end of its file, or none when there is no such file yet. Files up
    /// to that of `last`, which are believed to be there, are fetched ahead; after a failure or a
    /// missing file all of them are fetched anew.
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
        // Should the call be dropped here, the file stays first in the line.
        let unpacked = (&mut first.unpacking.0).await;
        self.files.pop_front();
        let file = match unpacked {
            Ok(file) => file,
            Err(error) => Err(LakeError::transport(lake.place(), error)),
        };
        self.flows = matches!(file, Ok(Some(_)));
        let Ok(Some(mut ledgers)) = file else {
            self.files.clear();
            return file;
        };
        // Sizes change slowly; a file that is much smaller is soon forgotten.
        self.expected = size_of(&ledgers).max(self.expected / 8 * 7);
        // One that is not believed to be there is asked for when it is wanted, not before.
        if let Some(next) = batch.last.next().filter(|next| *next <= last) {
            self.fill(lake, next, last);
        }
        ledgers.retain(|ledger| ledger.sequence >= from);
        Ok(Some(ledgers))
    }

    /// Begins with as many files behind the last one, or from that of `first`, as the limits allow,
    /// and in any case with one when none is on its way.
    fn fill(&mut self, lake: &Lake, first: LedgerSeq, last: LedgerSeq) {
        let most = if self.flows { FILES_AHEAD } else { 1 };
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
            let file = OnItsWay::begin(lake, ledger);
            next = file.batch.last.next();
            self.files.push_back(file);
        }
    }

    /// Bytes that wait, or will.
    fn bytes(&self) -> usize {
        let of_file = |file: &OnItsWay| match file.bytes.load(Ordering::Relaxed) {
            0 => self.expected,
            bytes => bytes,
        };
        self.files.iter().map(of_file).sum()
    }
}

impl OnItsWay {
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
