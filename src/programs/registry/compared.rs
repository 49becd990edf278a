//! What is known of the rows of a program that is to replace another.

use orrery_ledger::domain::LedgerSet;

/// What was compared of a program that is to replace another: none of the other one's rows lacked.
#[derive(Clone, Default)]
pub struct Compared {
    /// Ledgers that are lost to the program.
    pub(super) ledgers: LedgerSet,
    /// Number of the other one's last run with rows of these ledgers.
    pub(super) log: u64,
}
