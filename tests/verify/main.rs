//! Verification: every recorded ledger is what its header says, and no forged one is.

mod chains;
mod forged;
mod recorded;
mod rewritten;
mod rules;
