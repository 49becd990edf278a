//! The reading of events of factories again that is in progress.

use std::collections::BTreeSet;
use std::time::Duration;

use super::found::Found;
use crate::events::Unsure;
use orrery_ledger::domain::ContractId;

/// The reading of events of factories again, over several turns.
#[derive(Default)]
pub struct ReadingAgain {
    /// The factories.
    pub contracts: BTreeSet<ContractId>,
    /// The last event that was read.
    pub event: Option<u64>,
    /// Transactions with events of which the code at the time is not known.
    pub unsure: Unsure,
    /// What the events announce.
    pub found: Found,
    /// How long it took so far.
    pub took: Duration,
}
