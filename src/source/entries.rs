//! Entries of the ledger as a server holds them now, whoever it is. Knows nothing of how it is asked.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use stellar_xdr::{LedgerEntry, Limits, ReadXdr, VecM};

use crate::domain::LedgerSeq;

/// Deepest nesting of an entry that is read.
const DEPTH: u32 = 500;

/// What a server holds under some keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldEntries {
    /// The ledger after which it was so.
    pub as_of: LedgerSeq,
    /// For each key in the order of the question; none when there is no such entry.
    pub entries: Vec<Option<HeldEntry>>,
}

/// An entry that a server holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldEntry {
    /// The entry.
    pub entry: LedgerEntry,
    /// The last ledger in which contract data or code is live; 0 when it is archived.
    pub live_until: Option<u32>,
}

/// A value from base64 of its XDR; none when it is neither.
pub(super) fn from_base64<T: ReadXdr>(base64: &str) -> Option<T> {
    let xdr = STANDARD.decode(base64).ok()?;
    T::from_xdr(&xdr, Limits { depth: DEPTH, len: xdr.len() }).ok()
}

/// The values of an XDR array from base64; none when it is neither.
pub(super) fn all_from_base64<T>(base64: &str) -> Option<Vec<T>>
where
    VecM<T>: ReadXdr,
{
    from_base64::<VecM<T>>(base64).map(Into::into)
}
