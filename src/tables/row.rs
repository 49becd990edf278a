//! Rows as they were emitted, and their ids.

use orrery_ledger::domain::{CloseTime, Emit, Hash32, LedgerSeq, ProgramId, TxHash};
use sha2::{Digest, Sha256};

/// One row: an emit and its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The emit.
    pub emit: Emit,
    /// Hash of the transaction whose run made the emit.
    pub transaction: TxHash,
    /// Id of the row: see [`event_id`].
    pub event_id: Hash32,
    /// The ledger of the transaction.
    pub ledger: LedgerSeq,
    /// Close time of the ledger.
    pub closed_at: CloseTime,
}

/// Returns the id of a row: SHA-256 over the program's number (4 bytes, big-endian), the
/// transaction's hash and the number of the emit in its run (4 bytes, big-endian).
pub fn event_id(program: ProgramId, transaction: &TxHash, emit: u32) -> Hash32 {
    let mut digest = Sha256::new();
    digest.update(program.0.to_be_bytes());
    digest.update(transaction.as_bytes());
    digest.update(emit.to_be_bytes());
    Hash32(digest.finalize().into())
}

/// Returns the id of a row with a change of what a contract holds: SHA-256 over the program's number and the
/// ledger (4 bytes each, big-endian), the transaction's hash, or 32 zero bytes where there is none, and the
/// SHA-256 of the XDR `LedgerKey`.
pub fn change_id(
    program: ProgramId,
    ledger: LedgerSeq,
    transaction: &TxHash,
    key_hash: &Hash32,
) -> Hash32 {
    let mut digest = Sha256::new();
    digest.update(program.0.to_be_bytes());
    digest.update(ledger.0.to_be_bytes());
    digest.update(transaction.as_bytes());
    digest.update(key_hash.as_bytes());
    Hash32(digest.finalize().into())
}
