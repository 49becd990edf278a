//! Verification: every recorded ledger is what its header says, and no forged one is.

mod forged;
mod recorded;
