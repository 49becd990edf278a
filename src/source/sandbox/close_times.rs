//! When ledgers close: at whole seconds, or in milliseconds with several ledgers in one second, as
//! networks of protocol 30 do (CAP-88).

use super::dice::Dice;
use super::{OpenLedger, Sandbox};
use crate::domain::LedgerSeq;

/// Keeps this chance apart from that of the ledgers' contents.
const CHANCE: u64 = 0x6d69_6c6c_6973_6563;

/// Close times in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Milliseconds {
    from: LedgerSeq,
    /// Ledgers that share a second, from 1 to 1000.
    per_second: u32,
}

/// When a ledger closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Closes {
    pub(super) seconds: u64,
    pub(super) milliseconds: Option<u64>,
}

impl Sandbox {
    /// The same network with close times in milliseconds from ledger `from` on. From there every second
    /// in which a ledger closes has `per_second` of them (1 to 1000); with 1 the seconds are those of a
    /// network without milliseconds. A [snapshot](Self::snapshot) does not tell of it: who restores one
    /// says it again.
    pub fn with_milliseconds(self, from: LedgerSeq, per_second: u32) -> Self {
        let milliseconds = Milliseconds { from, per_second: per_second.clamp(1, 1000) };
        Self { milliseconds: Some(milliseconds), ..self }
    }

    /// As [`Self::next_ledger`], but the validators drop the transaction set that was proposed (CAP-83):
    /// the ledger is empty, and its header says which set it was.
    ///
    /// # Errors
    /// As [`Self::next_ledger`].
    pub fn next_ledger_without_set(&mut self) -> Result<Vec<u8>, super::SandboxError> {
        let visitors = self.visitors.clone();
        let ledger = self.close(0, &[], true)?;
        self.visitors = visitors;
        Ok(ledger)
    }

    /// When ledger `sequence` closes, not before `at_least` (Unix seconds).
    pub(super) fn closes(&self, sequence: u32, at_least: u64) -> Closes {
        let latest = self.latest_close_time();
        let next = latest.saturating_add(self.config.close_interval);
        let Some(Milliseconds { from, per_second }) = self.milliseconds else {
            return Closes { seconds: next.max(at_least), milliseconds: None };
        };
        if sequence < from.0 {
            return Closes { seconds: next.max(at_least), milliseconds: None };
        }
        let (place, width) = (sequence % per_second, u64::from(1000 / per_second));
        let regular = if place > 0 && sequence > from.0 { latest } else { next };
        let seconds = regular.max(at_least);
        let part = Dice::for_ledger(self.config.seed ^ CHANCE, sequence).below(width);
        let milliseconds = u64::from(place) * width + part;
        Closes { seconds, milliseconds: Some(seconds.saturating_mul(1000) + milliseconds) }
    }
}

impl OpenLedger<'_> {
    /// The time that the validators sign: in milliseconds where the value has them.
    pub(super) fn signed_time(&self) -> u64 {
        self.close_time_ms.unwrap_or(self.close_time)
    }
}
