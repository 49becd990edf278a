//! The words of the project: sequences, hashes, ids, networks and pages. Knows how each is parsed,
//! shown and ordered; does no I/O.

mod compressed_ledger;
mod contract_id;
mod emit;
mod event_id;
mod hash;
mod ledger_seq;
mod network;
mod page;
mod program;
mod start_point;

pub use compressed_ledger::CompressedLedger;
pub use contract_id::ContractId;
pub use emit::Emit;
pub use event_id::{EventId, RpcEventId};
pub use hash::{Hash32, LedgerHash, TxHash};
pub use ledger_seq::{LedgerRange, LedgerSeq};
pub use network::{Network, NetworkId};
pub use page::{Direction, Page};
pub use program::{Owner, ProgramId};
pub use start_point::StartPoint;

/// Why a text is not one of the project's values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Not 64 hexadecimal digits.
    #[error("'{0}' is not a hash: give 64 hexadecimal digits")]
    Hash(String),
    /// Not a contract strkey (SEP-23).
    #[error("'{0}' is not a contract ID: give a strkey of 56 characters that starts with C")]
    Contract(String),
    /// Not a place to begin at.
    #[error("'{0}' is no ledger to start from: give tip, genesis, oldest or a sequence number")]
    StartPoint(String),
}

/// Shortens a value quoted in an error message, so that a hostile one cannot flood a log or answer.
pub(crate) fn excerpt(text: &str) -> String {
    const LONGEST: usize = 80;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
