//! Close times of ledgers: in whole seconds, or in milliseconds with several ledgers per second, as
//! on networks of protocol 30 (CAP-88).

use orrery_ledger::domain::LedgerSeq;

use super::dice::Dice;
use super::{OpenLedger, Sandbox};

/// XORed with the seed, so that close times are independent of the ledgers' contents.
const CLOSE_TIME_SALT: u64 = 0x6d69_6c6c_6973_6563;

/// Settings of close times in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Milliseconds {
    from: LedgerSeq,
    /// Number of ledgers per second, from 1 to 1000.
    per_second: u32,
}

/// Close time of a ledger, in UNIX time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CloseTimestamp {
    pub(super) seconds: u64,
    pub(super) milliseconds: Option<u64>,
}

impl Sandbox {
    /// Enables close times in milliseconds from ledger `from` on. From there, every second in which
    /// a ledger closes has `per_second` ledgers (1 to 1000); with 1, the seconds are those of a
    /// network without milliseconds. A [snapshot](Self::snapshot) does not contain this setting: it
    /// must be made again after a restore.
    pub fn with_milliseconds(self, from: LedgerSeq, per_second: u32) -> Self {
        let milliseconds = Milliseconds { from, per_second: per_second.clamp(1, 1000) };
        Self { milliseconds: Some(milliseconds), ..self }
    }

    /// As [`Self::next_ledger`], but the validators drop the proposed transaction set (CAP-83): the
    /// ledger is empty, and its header contains the hash of that set.
    ///
    /// # Errors
    /// As [`Self::next_ledger`].
    pub fn next_ledger_without_set(&mut self) -> Result<Vec<u8>, super::SandboxError> {
        let visitors = self.visitors.clone();
        let ledger = self.close(0, &[], true)?;
        self.visitors = visitors;
        Ok(ledger)
    }

    /// Returns the close time of ledger `sequence`, not before `at_least` (UNIX seconds).
    pub(super) fn close_timestamp(&self, sequence: u32, at_least: u64) -> CloseTimestamp {
        let latest = self.latest_close_time();
        let next = latest.saturating_add(self.config.close_interval);
        let Some(Milliseconds { from, per_second }) = self.milliseconds else {
            return CloseTimestamp { seconds: next.max(at_least), milliseconds: None };
        };
        if sequence < from.0 {
            return CloseTimestamp { seconds: next.max(at_least), milliseconds: None };
        }
        let (place, width) = (sequence % per_second, u64::from(1000 / per_second));
        let regular = if place > 0 && sequence > from.0 { latest } else { next };
        let seconds = regular.max(at_least);
        let part = Dice::for_ledger(self.config.seed ^ CLOSE_TIME_SALT, sequence).below(width);
        let milliseconds = u64::from(place) * width + part;
        CloseTimestamp { seconds, milliseconds: Some(seconds.saturating_mul(1000) + milliseconds) }
    }
}

impl OpenLedger<'_> {
    /// Returns the time that the validators sign: in milliseconds where the value has them, else in
    /// seconds.
    pub(super) fn signed_time(&self) -> u64 {
        self.close_time_ms.unwrap_or(self.close_time)
    }
}
