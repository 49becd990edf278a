//! Queue of ledgers between the process that streams them and the source that fetches them.
//!
//! Core writes its stream synchronously, and loses sync with its network when a write blocks. So
//! the stream of a core that follows a network is always read: ledgers for which memory has no room
//! go to a file. When the file is full as well, core is stopped cleanly, and restarted at the next
//! ledger once everything was fetched. Core then has to catch up briefly, as it would after
//! blocking, but the bytes that wait stay bounded. A core that replays archived ledgers, or that is
//! alone in its network, may block.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;

use orrery_ledger::domain::{LedgerSeq, RawLedger};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::error::CoreError;
use super::settings::Limits;
use super::spill::Spill;

/// How a session ended.
#[derive(Debug)]
pub(super) enum End {
    /// All requested ledgers have come.
    Complete,
    /// Core has to be restarted, although nothing is wrong.
    Restart,
    /// The session failed.
    Failed(CoreError),
}

/// Outcome of adding a ledger.
#[derive(Debug)]
pub(super) enum Pushed {
    /// The ledger was queued.
    Queued,
    /// The ledger was queued, and core should be stopped, because the file is full.
    Full,
    /// The ledger could not be queued, so no later one may be.
    Refused(io::Error),
}

/// Outcome of taking ledgers.
#[derive(Debug)]
pub(super) enum Taken {
    /// Ledgers in ascending order.
    Ledgers(Vec<RawLedger>),
    /// No ledger is available yet.
    Nothing,
    /// The session ended, and all its ledgers were taken.
    End(End),
}

/// The queue, shared by a session and its source.
pub(super) struct Queue {
    limits: Limits,
    inner: Mutex<Inner>,
    /// Notified when a ledger or the end was added.
    pub filled: Notify,
    /// Notified when ledgers were taken.
    pub taken: Notify,
}

struct Inner {
    ledgers: VecDeque<RawLedger>,
    bytes: usize,
    spill: Spill,
    newest: Option<LedgerSeq>,
    /// The newest ledger in the history archive, if it was announced.
    announced: Option<LedgerSeq>,
    end: Option<End>,
}

impl Queue {
    /// Creates an empty queue that spills into a file in `directory`.
    pub fn new(limits: Limits, directory: PathBuf) -> Self {
        let inner = Inner {
            ledgers: VecDeque::new(),
            bytes: 0,
            spill: Spill::new(directory),
            newest: None,
            announced: None,
            end: None,
        };
        Self { limits, inner: Mutex::new(inner), filled: Notify::new(), taken: Notify::new() }
    }

    /// Returns whether memory has room for another ledger.
    pub fn has_room(&self) -> bool {
        let inner = self.inner.lock();
        inner.spill.is_empty() && inner.has_room(&self.limits)
    }

    /// Adds a ledger; on disk when memory has no room, or when earlier ledgers wait there.
    pub fn push(&self, ledger: RawLedger) -> Pushed {
        let mut inner = self.inner.lock();
        let sequence = ledger.sequence;
        let mut pushed = Pushed::Queued;
        if inner.spill.is_empty() && inner.has_room(&self.limits) {
            inner.keep(ledger);
        } else {
            if inner.spill.is_empty() {
                tracing::debug!(%sequence, "the queue in memory is full: ledgers go to disk");
            }
            if let Err(error) = inner.spill.push(&ledger) {
                return Pushed::Refused(error);
            }
            if inner.spill.bytes() >= self.limits.bytes_on_disk {
                pushed = Pushed::Full;
            }
        }
        inner.newest = Some(sequence);
        drop(inner);
        self.filled.notify_one();
        pushed
    }

    /// Moves ledgers from disk to memory while there is room. If that fails, all ledgers on disk
    /// are dropped and must be streamed again.
    pub fn refill(&self) -> io::Result<()> {
        let mut inner = self.inner.lock();
        let before = inner.ledgers.len();
        let refilled = inner.refill(&self.limits);
        if refilled.is_err() {
            inner.spill.clear();
        }
        // A reader that is woken without new ledgers would only call this again.
        if refilled.is_err() || inner.ledgers.len() > before {
            self.filled.notify_one();
        }
        refilled
    }

    /// Returns whether the queue is empty.
    pub fn is_drained(&self) -> bool {
        let inner = self.inner.lock();
        inner.ledgers.is_empty() && inner.spill.is_empty()
    }

    /// Takes all ledgers that wait in memory, and returns those from `from` on.
    pub fn take(&self, from: LedgerSeq) -> Taken {
        let mut inner = self.inner.lock();
        inner.bytes = 0;
        let mut ledgers: Vec<_> = inner.ledgers.drain(..).collect();
        if !ledgers.is_empty() {
            self.taken.notify_one();
        }
        ledgers.retain(|ledger| ledger.sequence >= from);
        if !ledgers.is_empty() {
            return Taken::Ledgers(ledgers);
        }
        if !inner.spill.is_empty() {
            return Taken::Nothing;
        }
        inner.end.take().map_or(Taken::Nothing, Taken::End)
    }

    /// Records how the session ended. Only the first call has an effect.
    pub fn end(&self, end: End) {
        self.inner.lock().end.get_or_insert(end);
        self.filled.notify_one();
    }

    /// Records a ledger that the network is known to have closed.
    pub fn announce(&self, ledger: LedgerSeq) {
        self.inner.lock().announced = Some(ledger);
    }

    /// Returns the newest ledger that the source may offer: the newest one that was streamed or
    /// announced. `None` until the session has streamed a ledger, because core may take long to
    /// reach an announced one.
    pub fn newest(&self) -> Option<LedgerSeq> {
        let inner = self.inner.lock();
        inner.newest.map(|newest| inner.announced.map_or(newest, |known| known.max(newest)))
    }
}

impl Inner {
    fn has_room(&self, limits: &Limits) -> bool {
        self.ledgers.len() < limits.ledgers_in_memory && self.bytes < limits.bytes_in_memory
    }

    fn refill(&mut self, limits: &Limits) -> io::Result<()> {
        while self.has_room(limits)
            && let Some(ledger) = self.spill.pop()?
        {
            self.keep(ledger);
        }
        Ok(())
    }

    fn keep(&mut self, ledger: RawLedger) {
        self.bytes += ledger.xdr.len();
        self.ledgers.push_back(ledger);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orrery_ledger::domain::Origin;

    fn ledger(sequence: u32) -> RawLedger {
        let origin = Origin { name: "core".into(), position: None };
        RawLedger {
            sequence: LedgerSeq(sequence),
            xdr: vec![sequence as u8; 100],
            compressed: None,
            origin,
        }
    }

    fn queue(limits: Limits) -> (Queue, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        (Queue::new(limits, directory.path().to_owned()), directory)
    }

    fn small() -> Limits {
        Limits { ledgers_in_memory: 4, bytes_on_disk: 600, ..Limits::default() }
    }

    fn sequences(taken: Taken) -> Vec<u32> {
        let Taken::Ledgers(ledgers) = taken else { panic!("{taken:?}") };
        let whole = |ledger: &RawLedger| ledger.xdr == vec![ledger.sequence.0 as u8; 100];
        assert!(ledgers.iter().all(whole));
        ledgers.iter().map(|ledger| ledger.sequence.0).collect()
    }

    #[test]
    fn ledgers_keep_their_order_through_memory_and_disk() {
        let (queue, _directory) = queue(small());
        for sequence in 2..8 {
            assert!(matches!(queue.push(ledger(sequence)), Pushed::Queued));
        }
        assert!(!queue.has_room());
        assert_eq!(sequences(queue.take(LedgerSeq(3))), [3, 4, 5], "2 was not asked for");
        assert!(matches!(queue.take(LedgerSeq(6)), Taken::Nothing));
        assert!(!queue.is_drained());
        assert!(matches!(queue.push(ledger(8)), Pushed::Queued), "behind those on disk");
        queue.refill().unwrap();
        assert_eq!(sequences(queue.take(LedgerSeq(6))), [6, 7, 8]);
        assert!(queue.is_drained() && queue.has_room());
        queue.end(End::Complete);
        queue.end(End::Restart);
        assert!(matches!(queue.take(LedgerSeq(9)), Taken::End(End::Complete)));
    }

    #[test]
    fn a_full_queue_is_reported_and_its_file_emptied() {
        let (queue, _directory) = queue(small());
        let full = (2..).find(|sequence| matches!(queue.push(ledger(*sequence)), Pushed::Full));
        assert_eq!(full, Some(11), "four in memory, six on disk");
        assert!(matches!(queue.push(ledger(12)), Pushed::Full), "what still comes is kept");
        let mut all = Vec::new();
        while !queue.is_drained() {
            if let taken @ Taken::Ledgers(_) = queue.take(LedgerSeq(2)) {
                all.extend(sequences(taken));
            }
            queue.refill().unwrap();
        }
        assert_eq!(all, (2..=12).collect::<Vec<_>>());
        assert_eq!(queue.inner.lock().spill.bytes(), 0);
        assert!(matches!(queue.push(ledger(13)), Pushed::Queued));
    }

    #[test]
    fn the_memory_limit_counts_bytes() {
        let (queue, _directory) = queue(Limits { bytes_in_memory: 150, ..Limits::default() });
        queue.push(ledger(2));
        assert!(queue.has_room());
        queue.push(ledger(3));
        assert!(!queue.has_room());
    }

    #[test]
    fn a_failed_disk_write_is_reported() {
        let (queue, directory) = queue(Limits { ledgers_in_memory: 1, ..Limits::default() });
        drop(directory);
        assert!(matches!(queue.push(ledger(2)), Pushed::Queued));
        assert!(matches!(queue.push(ledger(3)), Pushed::Refused(_)));
        assert_eq!(queue.newest(), Some(LedgerSeq(2)));
    }

    #[test]
    fn the_announced_tip_is_reported_only_while_streaming() {
        let (queue, _directory) = queue(Limits::default());
        queue.announce(LedgerSeq(127));
        assert_eq!(queue.newest(), None);
        queue.push(ledger(70));
        assert_eq!(queue.newest(), Some(LedgerSeq(127)));
        queue.push(ledger(128));
        assert_eq!(queue.newest(), Some(LedgerSeq(128)));
    }
}
