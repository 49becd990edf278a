//! A ledger as its source has compressed it.

use bytes::Bytes;

/// Frames of zstd whose content ends with the `LedgerCloseMeta` of one ledger, as a file of a ledger lake
/// holds it. Whoever makes one has unpacked the frames and found the ledger there; it is kept beside
/// the ledger, so that nobody has to compress that once more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompressedLedger {
    /// The frames.
    pub frames: Bytes,
    /// Bytes of their content before the ledger.
    pub offset: u8,
}
