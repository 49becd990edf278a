//! Makes the next ledger of a sandbox network: first replays the journal after a start, then
//! applies what clients submitted.

use std::collections::VecDeque;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use orrery_runtime::durable::write_atomically;

use super::journal::Journal;
use super::live::{LedgerInput, LiveSandbox};
use super::{Clock, LEDGERS_AT_ONCE, LEDGERS_PER_SNAPSHOT, MAX_BEHIND};
use crate::network::{Batch, Closed, FIRST_BATCH_LEDGER, Sandbox};
use crate::paced::LedgerMaker;

/// Closes the ledgers of a sandbox network and periodically writes snapshots of it.
pub struct Maker {
    pub(super) sandbox: Sandbox,
    pub(super) live: Arc<LiveSandbox>,
    pub(super) journal: Journal,
    /// Batches of the journal that are not replayed yet, for the next ledgers.
    pub(super) replay_queue: VecDeque<Batch>,
    /// Submissions taken for a ledger whose journal entry could not be written; the next attempt
    /// uses them.
    pub(super) pending_input: Option<LedgerInput>,
    /// Time between two ledgers, in milliseconds.
    pub(super) interval: u64,
    pub(super) clock: Clock,
    pub(super) snapshot_file: PathBuf,
    /// Latest snapshot; written to disk when the next one is taken.
    pub(super) pending: Option<Vec<u8>>,
}

impl LedgerMaker for Maker {
    fn next_ledger(&mut self) -> Result<Vec<u8>, String> {
        if self.sandbox.latest_ledger().0.is_multiple_of(LEDGERS_PER_SNAPSHOT) {
            self.write_snapshot()?;
        }
        if let Some(batch) = self.replay_queue.front() {
            let mut next = self.sandbox.clone();
            let closed = next.next_ledger_of(batch).map_err(|error| error.to_string())?;
            self.replay_queue.pop_front();
            self.publish(next);
            return Ok(closed.xdr);
        }
        let mut input = match self.pending_input.take() {
            Some(input) => input,
            None if self.sandbox.latest_ledger().0 + 1 < FIRST_BATCH_LEDGER.0 => {
                LedgerInput::default()
            }
            None => self.live.take(),
        };
        let (next, batch, closed) = match self.close_next(&input) {
            Ok(made) => made,
            Err(reason) => {
                tracing::error!("a ledger is made without the clients' transactions: {reason}");
                input = LedgerInput::default();
                self.close_next(&input)?
            }
        };
        // Written before any client can see the ledger, and only after it was made successfully.
        if let Err(error) = self.journal.append(next.latest_ledger(), &batch) {
            self.pending_input = Some(input);
            return Err(error.to_string());
        }
        self.publish(next);
        for sender in input.funding_senders {
            // The client that waited may have disconnected.
            let _ = sender.send(closed.funding.clone());
        }
        Ok(closed.xdr)
    }
}

impl Maker {
    fn publish(&mut self, sandbox: Sandbox) {
        self.live.publish(&sandbox);
        self.sandbox = sandbox;
    }

    /// Returns a copy of the network with the next ledger in it, not yet visible to clients. An
    /// error, or a panic of the contract host, leaves the current network unchanged.
    fn close_next(&self, input: &LedgerInput) -> Result<(Sandbox, Batch, Closed), String> {
        let batch = Batch {
            close_time_ms: self.close_time(),
            in_milliseconds: !self.interval.is_multiple_of(1000),
            transactions: input.transactions.clone(),
            funded: input.funded.clone(),
        };
        let mut next = self.sandbox.clone();
        let closed = catch_unwind(AssertUnwindSafe(|| next.next_ledger_of(&batch)));
        match closed {
            Ok(Ok(closed)) => Ok((next, batch, closed)),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the contract host panicked".to_owned()),
        }
    }

    /// Returns the close time of the next ledger, in Unix milliseconds: one interval after the
    /// latest, but never in the future. A delayed network catches up by at most one more interval
    /// per ledger; one that is too far behind continues at the current time.
    fn close_time(&self) -> u64 {
        let now = (self.clock)();
        let regular = self.sandbox.latest_close_time_ms().saturating_add(self.interval);
        let behind = now.saturating_sub(regular);
        if behind > self.interval.saturating_mul(LEDGERS_AT_ONCE.into()) + MAX_BEHIND {
            return now;
        }
        // The close times of the initial ledgers lie in the past on purpose.
        let has_begun = self.sandbox.latest_ledger().0 > LEDGERS_AT_ONCE;
        let late = if has_begun { behind.min(self.interval) } else { 0 };
        regular.saturating_add(late).min(now)
    }

    fn write_snapshot(&mut self) -> Result<(), String> {
        let snapshot = self.sandbox.snapshot().map_err(|error| error.to_string())?;
        let Some(due) = self.pending.replace(snapshot) else { return Ok(()) };
        if let Err(error) = write_atomically(&self.snapshot_file, |file| file.write_all(&due)) {
            // Without the snapshot the next start takes longer; nothing else is affected.
            tracing::warn!("the sandbox's snapshot could not be written: {error}");
        }
        Ok(())
    }
}
