//! A closed ledger as its source yields it: bytes, of which only the sequence number is read.

use std::fmt;
use std::sync::Arc;

use stellar_xdr::{LedgerCloseMetaExt, LedgerHeaderHistoryEntry, Limited, Limits, ReadXdr};

use super::{CompressedLedger, LedgerSeq};

/// Maximum size of a ledger, in bytes after decompression: two hundred times the largest seen on
/// the public network. Limits memory when a damaged or hostile file claims more.
pub const LONGEST_LEDGER: u64 = 256 << 20;

/// Bit in the header of a record (RFC 5531, section 11) that marks its last fragment. stellar-core writes
/// each ledger to a file as a record of one fragment.
pub const LAST_FRAGMENT: u32 = 1 << 31;

/// Maximum XDR nesting depth in a header.
const DEEPEST_XDR: u32 = 500;
/// Highest supported version of `LedgerCloseMeta`.
pub const NEWEST_META_VERSION: u32 = 2;

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

/// Returns the sequence number of a ledger, read from the beginning of its `LedgerCloseMeta`.
pub fn sequence_of(ledger: &[u8]) -> Result<LedgerSeq, String> {
    let limits = Limits { depth: DEEPEST_XDR, len: ledger.len() };
    let mut reader = Limited::new(ledger, limits);
    let not_a_ledger = |error: stellar_xdr::Error| format!("no ledger header there ({error})");
    match u32::read_xdr(&mut reader).map_err(not_a_ledger)? {
        0 => {}
        1..=NEWEST_META_VERSION => {
            LedgerCloseMetaExt::read_xdr(&mut reader).map_err(not_a_ledger)?;
        }
        version => {
            return Err(format!(
                "LedgerCloseMeta version {version} is not known: a newer release may support it"
            ));
        }
    }
    let entry = LedgerHeaderHistoryEntry::read_xdr(&mut reader).map_err(not_a_ledger)?;
    Ok(LedgerSeq(entry.header.ledger_seq))
}
