//! Sources of ledgers. Every source yields the raw bytes of closed ledgers with their origin, and
//! reads only the sequence number from their content.

pub mod core;
pub mod entries;
pub mod files;
pub mod follow;
pub mod http;
pub mod lake;
pub mod paced;
pub mod records;
pub mod rpc;
pub mod sandbox;
pub mod sandbox_network;
#[cfg(test)]
mod test_data;
pub mod tls;

use std::fmt;
use std::sync::Arc;

use crate::domain::{CompressedLedger, LedgerSeq};

/// A closed ledger as a source yields it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawLedger {
    /// Sequence number, read from the ledger's header.
    pub sequence: LedgerSeq,
    /// The whole `LedgerCloseMeta` as XDR.
    pub xdr: Vec<u8>,
    /// The ledger as the source has compressed it, if that form can be stored; otherwise `None`.
    pub compressed: Option<CompressedLedger>,
    /// Where the ledger was read.
    pub origin: Origin,
}

/// Where a ledger was read, for error messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Path or address of the file or the service.
    pub name: Arc<str>,
    /// 1-based position in its file; `None` for the first ledger, because most files hold only one.
    pub position: Option<u64>,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.position {
            Some(position) => write!(f, "{}, ledger number {position} of the file", self.name),
            None => f.write_str(&self.name),
        }
    }
}
