//! Close times of ledgers: in whole seconds, or in milliseconds with several ledgers per second, as
//! on networks of protocol 30 (CAP-88).

use orrery_ledger::domain::LedgerSeq;

use super::config::SandboxConfig;
use super::dice::Dice;

/// XORed with the seed, so that close times are independent of the ledgers' contents.
const CLOSE_TIME_SALT: u64 = 0x6d69_6c6c_6973_6563;

/// Settings of close times in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Milliseconds {
    /// First ledger with them.
    pub(super) from: LedgerSeq,
    /// Number of ledgers per second, from 1 to 1000.
    pub(super) per_second: u32,
}

/// Close time of a ledger, in UNIX time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CloseTimestamp {
    pub(super) seconds: u64,
    pub(super) milliseconds: Option<u64>,
}

/// Returns the close time of ledger `sequence` after one that closed at `latest`, not before
/// `at_least` (UNIX seconds).
pub(super) fn next(
    config: &SandboxConfig,
    latest: u64,
    milliseconds: Option<Milliseconds>,
    sequence: u32,
    at_least: u64,
) -> CloseTimestamp {
    let next = latest.saturating_add(config.close_interval);
    let Some(Milliseconds { from, per_second }) =
        milliseconds.filter(|milliseconds| sequence >= milliseconds.from.0)
    else {
        return CloseTimestamp { seconds: next.max(at_least), milliseconds: None };
    };
    let (place, width) = (sequence % per_second, u64::from(1000 / per_second));
    let regular = if place > 0 && sequence > from.0 { latest } else { next };
    let seconds = regular.max(at_least);
    let part = Dice::for_ledger(config.seed ^ CLOSE_TIME_SALT, sequence).below(width);
    let milliseconds = u64::from(place) * width + part;
    CloseTimestamp { seconds, milliseconds: Some(seconds.saturating_mul(1000) + milliseconds) }
}
