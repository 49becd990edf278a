//! Where replays have stopped.

use std::time::{Duration, Instant};

use super::triggers::silence::InTurn;
use super::triggers::ttl_replay::TtlPlace;
use orrery_ledger::domain::LedgerSeq;

/// For how long it is remembered where a request has stopped, and of how many subscriptions.
pub(super) const REMEMBERED: Duration = Duration::from_secs(600);
/// See [`REMEMBERED`].
pub(super) const MOST_REMEMBERED: usize = 1_024;

/// Where a request has stopped, so that the next one does not begin anew: a ledger may take longer than a request
/// may.
pub(super) struct Stopped {
    /// The ledger with which to go on.
    pub ledger: LedgerSeq,
    /// When it stopped.
    pub at: Instant,
    /// What was heard.
    pub silence: InTurn,
    /// How far the ledger was looked at.
    pub place: TtlPlace,
}
