//! Ledgers between the process that streams them and whoever fetches them.
//!
//! Core writes its stream synchronously, and falls out of step with its network when it has to wait.
//! So a core that follows a network is never made to wait: what memory does not take goes to a file,
//! and when that is full as well, core is stopped cleanly, and started again where it stopped once
//! everything was fetched. That costs core a short catch-up; waiting would cost it the same, and
//! stopping it keeps the bytes that wait bounded. A core that replays archived ledgers, or that is
//! alone in its network, may wait.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Limits;
use super::error::CoreError;
use super::spill::Spill;
use crate::domain::LedgerSeq;
use crate::source::RawLedger;

/// How a session ended.
#[derive(Debug)]
pub(super) enum End {
    /// All ledgers that were asked for have come.
    Complete,
    /// It has to be started again, without anything being wrong.
    Again,
    /// Something is wrong.
    Failed(CoreError),
}

/// What became of a ledger.
#[derive(Debug)]
pub(super) enum Pushed {
    /// It waits.
    Kept,
    /// It waits, and it should be one of the last.
    Full,
    /// It does not wait, so nothing after it may.
    Refused(io::Error),
}

/// What there is to fetch.
#[derive(Debug)]
pub(super) enum Taken {
    /// Some ledgers, in order.
    Ledgers(Vec<RawLedger>),
    /// Nothing yet.
    Nothing,
    /// The session ended, and everything was taken.
    End(End),
}

/// Shared by a session and its source.
pub(super) struct Queue {
    limits: Limits,
    inner: Mutex<Inner>,
    /// A ledger came, or the end.
    pub filled: Notify,
    /// Ledgers were taken.
    pub taken: Notify,
}

struct Inner {
    ledgers: VecDeque<RawLedger>,
    bytes: usize,
    spill: Spill,
    newest: Option<LedgerSeq>,
    /// The newest ledger that the network is known to have.
    announced: Option<LedgerSeq>,
    end: Option<End>,
}

impl Queue {
    /// An empty queue that spills into `directory`.
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

    /// Whether memory takes another ledger.
    pub fn has_room(&self) -> bool {
        let inner = self.inner.lock();
        inner.spill.is_empty() && inner.has_room(&self.limits)
    }

    /// Adds a ledger, on disk when memory has no room.
    pub fn push(&self, ledger: RawLedger) -> Pushed {
        let mut inner = self.inner.lock();
        let sequence = ledger.sequence;
        let mut pushed = Pushed::Kept;
        if inner.spill.is_empty() && inner.has_room(&self.limits) {
            inner.keep(ledger);
        } else {
            if inner.spill.is_empty() {
                tracing::debug!(%sequence, "ledgers of stellar-core wait on disk from here on");
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

    /// Brings ledgers back from disk while memory has room. When that fails, all that waits on disk
    /// is given up, and must be streamed again.
    pub fn refill(&self) -> io::Result<()> {
        let mut inner = self.inner.lock();
        let before = inner.ledgers.len();
        let refilled = inner.refill(&self.limits);
        if refilled.is_err() {
            inner.spill.clear();
        }
        // Without a reason, whoever waits would only ask for more again.
        if refilled.is_err() || inner.ledgers.len() > before {
            self.filled.notify_one();
        }
        refilled
    }

    /// Whether nothing waits any more.
    pub fn is_drained(&self) -> bool {
        let inner = self.inner.lock();
        inner.ledgers.is_empty() && inner.spill.is_empty()
    }

    /// Takes what waits in memory from `from` on.
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

    /// Says how the session ended. Only the first word counts.
    pub fn end(&self, end: End) {
        self.inner.lock().end.get_or_insert(end);
        self.filled.notify_one();
    }

    /// Says which ledger the network has at least.
    pub fn announce(&self, ledger: LedgerSeq) {
        self.inner.lock().announced = Some(ledger);
    }

    /// The newest ledger that is known of: once the session has streamed something, also what was
    /// announced. Before that it may take core long to come with a ledger that was announced.
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
    use crate::source::Origin;

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
    fn keeps_the_order_through_memory_and_disk() {
        let (queue, _directory) = queue(small());
        for sequence in 2..8 {
            assert!(matches!(queue.push(ledger(sequence)), Pushed::Kept));
        }
        assert!(!queue.has_room());
        assert_eq!(sequences(queue.take(LedgerSeq(3))), [3, 4, 5], "2 was not asked for");
        assert!(matches!(queue.take(LedgerSeq(6)), Taken::Nothing));
        assert!(!queue.is_drained());
        assert!(matches!(queue.push(ledger(8)), Pushed::Kept), "behind those on disk");
        queue.refill().unwrap();
        assert_eq!(sequences(queue.take(LedgerSeq(6))), [6, 7, 8]);
        assert!(queue.is_drained() && queue.has_room());
        queue.end(End::Complete);
        queue.end(End::Again);
        assert!(matches!(queue.take(LedgerSeq(9)), Taken::End(End::Complete)));
    }

    #[test]
    fn says_when_it_is_full_and_empties_its_file() {
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
        assert!(matches!(queue.push(ledger(13)), Pushed::Kept));
    }

    #[test]
    fn bytes_count_as_well() {
        let (queue, _directory) = queue(Limits { bytes_in_memory: 150, ..Limits::default() });
        queue.push(ledger(2));
        assert!(queue.has_room());
        queue.push(ledger(3));
        assert!(!queue.has_room());
    }

    #[test]
    fn a_disk_that_takes_nothing_refuses() {
        let (queue, directory) = queue(Limits { ledgers_in_memory: 1, ..Limits::default() });
        drop(directory);
        assert!(matches!(queue.push(ledger(2)), Pushed::Kept));
        assert!(matches!(queue.push(ledger(3)), Pushed::Refused(_)));
        assert_eq!(queue.newest(), Some(LedgerSeq(2)));
    }

    #[test]
    fn announces_only_once_it_streams() {
        let (queue, _directory) = queue(Limits::default());
        queue.announce(LedgerSeq(127));
        assert_eq!(queue.newest(), None);
        queue.push(ledger(70));
        assert_eq!(queue.newest(), Some(LedgerSeq(127)));
        queue.push(ledger(128));
        assert_eq!(queue.newest(), Some(LedgerSeq(128)));
    }
}
