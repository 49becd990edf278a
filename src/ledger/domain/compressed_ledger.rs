//! A ledger in the compressed form in which its source delivered it.

use bytes::Bytes;

/// zstd frames whose content ends with the `LedgerCloseMeta` of one ledger, as a file of a ledger
/// lake has them. The creator has decompressed the frames and found the ledger there. They are
/// passed on with the ledger, so that it need not be compressed again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompressedLedger {
    /// The zstd frames.
    pub frames: Bytes,
    /// Number of bytes of the decompressed content before the ledger.
    pub offset: u8,
}
