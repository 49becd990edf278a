//! Making the next ledger of a sandbox network: from the journal after a start, then of what clients sent.

use std::collections::VecDeque;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use super::journal::Journal;
use super::live::{LiveSandbox, Taken};
use super::{Clock, LEDGERS_AT_ONCE, LEDGERS_PER_SNAPSHOT, MOST_BEHIND};
use crate::durable::write_atomically;
use crate::source::paced::LedgerMaker;
use crate::source::sandbox::{Batch, Closed, FIRST_BATCH_LEDGER, Sandbox};

/// Makes ledgers, and snapshots from time to time.
pub struct Maker {
    pub(super) sandbox: Sandbox,
    pub(super) live: Arc<LiveSandbox>,
    pub(super) journal: Journal,
    /// What the journal tells of the next ledgers.
    pub(super) script: VecDeque<Batch>,
    /// What came for a ledger that could not be noted.
    pub(super) taken: Option<Taken>,
    /// Milliseconds between two ledgers.
    pub(super) interval: u64,
    pub(super) clock: Clock,
    pub(super) snapshot_file: PathBuf,
    /// The latest snapshot, until it is old enough to be written.
    pub(super) pending: Option<Vec<u8>>,
}

impl LedgerMaker for Maker {
    fn next_ledger(&mut self) -> Result<Vec<u8>, String> {
        if self.sandbox.latest_ledger().0.is_multiple_of(LEDGERS_PER_SNAPSHOT) {
            self.write_snapshot()?;
        }
        if let Some(batch) = self.script.front() {
            let mut next = self.sandbox.clone();
            let closed = next.next_ledger_of(batch).map_err(|error| error.to_string())?;
            self.script.pop_front();
            self.is_at(next);
            return Ok(closed.xdr);
        }
        let mut taken = match self.taken.take() {
            Some(taken) => taken,
            None if self.sandbox.latest_ledger().0 + 1 < FIRST_BATCH_LEDGER.0 => Taken::default(),
            None => self.live.take(),
        };
        let (next, batch, closed) = match self.made_of(&taken) {
            Ok(made) => made,
            Err(reason) => {
                tracing::error!("a ledger is made without what clients sent for it: {reason}");
                taken = Taken::default();
                self.made_of(&taken)?
            }
        };
        // Before anybody sees the ledger, and after it is known that it can be made.
        if let Err(error) = self.journal.append(next.latest_ledger(), &batch) {
            self.taken = Some(taken);
            return Err(error.to_string());
        }
        self.is_at(next);
        for told in taken.told {
            // Whoever waited may have hung up.
            let _ = told.send(closed.funding.clone());
        }
        Ok(closed.xdr)
    }
}

impl Maker {
    fn is_at(&mut self, sandbox: Sandbox) {
        self.live.is_at(&sandbox);
        self.sandbox = sandbox;
    }

    /// The network with the next ledger in it, which nobody has seen yet. A failure, or a panic of the contract host,
    /// changes nothing.
    fn made_of(&self, taken: &Taken) -> Result<(Sandbox, Batch, Closed), String> {
        let batch = Batch {
            close_time_ms: self.close_time(),
            in_milliseconds: !self.interval.is_multiple_of(1000),
            transactions: taken.transactions.clone(),
            funded: taken.funded.clone(),
        };
        let mut next = self.sandbox.clone();
        let closed = catch_unwind(AssertUnwindSafe(|| next.next_ledger_of(&batch)));
        match closed {
            Ok(Ok(closed)) => Ok((next, batch, closed)),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the contract host panicked".to_owned()),
        }
    }

    /// When the next ledger closes: an interval after the latest, but neither in the future nor long ago. A network
    /// that was held up catches up by one more interval with each ledger.
    fn close_time(&self) -> u64 {
        let now = (self.clock)();
        let regular = self.sandbox.latest_close_time_ms().saturating_add(self.interval);
        let behind = now.saturating_sub(regular);
        if behind > self.interval.saturating_mul(LEDGERS_AT_ONCE.into()) + MOST_BEHIND {
            return now;
        }
        // The ledgers that it begins with lie in the past on purpose.
        let has_begun = self.sandbox.latest_ledger().0 > LEDGERS_AT_ONCE;
        let late = if has_begun { behind.min(self.interval) } else { 0 };
        regular.saturating_add(late).min(now)
    }

    fn write_snapshot(&mut self) -> Result<(), String> {
        let snapshot = self.sandbox.snapshot().map_err(|error| error.to_string())?;
        let Some(due) = self.pending.replace(snapshot) else { return Ok(()) };
        if let Err(error) = write_atomically(&self.snapshot_file, |file| file.write_all(&due)) {
            // Without it the next start takes longer, and nothing else.
            tracing::warn!("the sandbox's snapshot could not be written: {error}");
        }
        Ok(())
    }
}
