//! Ledger entries in their current state, as a server reports them. Does not depend on which server
//! it is or how it is asked.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use orrery_ledger::domain::LedgerSeq;
use stellar_xdr::{LedgerEntry, Limits, ReadXdr, VecM};

/// Maximum XDR nesting depth of a decoded value.
const DEPTH: u32 = 500;

/// Entries that a server holds under a list of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedEntries {
    /// Latest ledger that is reflected in the entries.
    pub as_of: LedgerSeq,
    /// One element per requested key, in request order; `None` when the entry does not exist.
    pub entries: Vec<Option<FetchedEntry>>,
}

/// A ledger entry with its time to live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedEntry {
    /// The entry.
    pub entry: LedgerEntry,
    /// Last ledger in which contract data or code is live; 0 when it is archived, `None` for
    /// entries without a time to live.
    pub live_until: Option<u32>,
}

/// Decodes a value from base64-encoded XDR; returns `None` when the base64 or the XDR is invalid.
pub(super) fn from_base64<T: ReadXdr>(base64: &str) -> Option<T> {
    let xdr = STANDARD.decode(base64).ok()?;
    T::from_xdr(&xdr, Limits { depth: DEPTH, len: xdr.len() }).ok()
}

/// Decodes an XDR array from base64; returns `None` when the base64 or the XDR is invalid.
pub(super) fn all_from_base64<T>(base64: &str) -> Option<Vec<T>>
where
    VecM<T>: ReadXdr,
{
    from_base64::<VecM<T>>(base64).map(Into::into)
}
