//! Checks that ledgers form one chain. Proves that they fit together; [`super::verify`] proves what
//! is in them, and signatures that the chain is the network's.

use sha2::{Digest, Sha256};

use super::fault::Fault;
use crate::decode::HeaderView;
use crate::domain::{Hash32, LedgerHash, LedgerSeq};

/// A ledger's place in the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Sequence number.
    pub sequence: LedgerSeq,
    /// Hash of its header.
    pub hash: LedgerHash,
    /// Hash of the previous ledger's header.
    pub previous_hash: LedgerHash,
}

impl From<&HeaderView<'_>> for Link {
    fn from(header: &HeaderView<'_>) -> Self {
        let HeaderView { sequence, hash, previous_hash, .. } = *header;
        Self { sequence, hash, previous_hash }
    }
}

/// Why a ledger does not belong to the chain. Ingestion stops at such a ledger.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The header does not hash to the claimed hash.
    #[error(
        "the header of ledger {ledger} hashes to {computed}, but the source claims {claimed}: the \
         data is damaged, compare with another source"
    )]
    HeaderHash {
        /// The ledger.
        ledger: LedgerSeq,
        /// Hash that the source claims for the header.
        claimed: LedgerHash,
        /// Hash computed from the header.
        computed: LedgerHash,
    },
    /// The header does not bind what the source delivered with it.
    #[error("{0}: {mend}", mend = .0.rule.mend())]
    Fault(#[from] Box<Fault>),
    /// Ledgers are missing before this one, or it is out of order.
    #[error(
        "the source delivered ledger {delivered} where ledger {expected} was due: the source has \
         a gap or is out of order, fill it from another source"
    )]
    NotNext {
        /// Sequence number that follows the previous ledger's.
        expected: LedgerSeq,
        /// Sequence number that was delivered.
        delivered: LedgerSeq,
    },
    /// The ledger links to a different previous ledger.
    #[error(
        "ledger {ledger} links to {links_to} as the ledger before, but ledger {previous} has hash \
         {previous_hash}: the network was reset or the source is wrong; after a reset, start with \
         an empty data directory"
    )]
    BrokenLink {
        /// The ledger.
        ledger: LedgerSeq,
        /// Hash of the previous ledger according to its header.
        links_to: LedgerHash,
        /// Sequence number of the previous ledger.
        previous: LedgerSeq,
        /// Actual hash of the previous ledger.
        previous_hash: LedgerHash,
    },
    /// A different ledger is stored under the same sequence number.
    #[error(
        "the source delivered ledger {ledger} with hash {delivered}, but the stored one has hash \
         {stored}: the network was reset or the source is wrong; after a reset, start with an \
         empty data directory"
    )]
    Conflict {
        /// The ledger.
        ledger: LedgerSeq,
        /// Hash of the stored ledger.
        stored: LedgerHash,
        /// Hash of the delivered one.
        delivered: LedgerHash,
    },
}

/// Checks that the hash that came with a header is the hash of the header.
///
/// # Errors
///
/// [`VerifyError::HeaderHash`]
pub fn verify_header(header: &HeaderView<'_>) -> Result<(), VerifyError> {
    let computed = Hash32(Sha256::digest(header.xdr).into());
    if computed == header.hash {
        return Ok(());
    }
    Err(VerifyError::HeaderHash { ledger: header.sequence, claimed: header.hash, computed })
}

/// Checks that `next` follows `previous`: its sequence number is one higher, and its previous hash
/// is the hash of `previous`.
///
/// # Errors
///
/// [`VerifyError::NotNext`] or [`VerifyError::BrokenLink`]
pub fn verify_link(previous: &Link, next: &Link) -> Result<(), VerifyError> {
    if previous.sequence.next() != Some(next.sequence) {
        return Err(VerifyError::NotNext {
            expected: LedgerSeq(previous.sequence.0.saturating_add(1)),
            delivered: next.sequence,
        });
    }
    if next.previous_hash == previous.hash {
        return Ok(());
    }
    Err(VerifyError::BrokenLink {
        ledger: next.sequence,
        links_to: next.previous_hash,
        previous: previous.sequence,
        previous_hash: previous.hash,
    })
}

/// Checks that a ledger that is delivered again is the one stored under its sequence number.
///
/// # Errors
///
/// [`VerifyError::Conflict`]
pub fn verify_repeat(stored: LedgerHash, delivered: &Link) -> Result<(), VerifyError> {
    if stored == delivered.hash {
        return Ok(());
    }
    Err(VerifyError::Conflict { ledger: delivered.sequence, stored, delivered: delivered.hash })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(sequence: u32, hash: u8, previous_hash: u8) -> Link {
        Link {
            sequence: LedgerSeq(sequence),
            hash: Hash32([hash; 32]),
            previous_hash: Hash32([previous_hash; 32]),
        }
    }

    #[test]
    fn a_valid_chain_is_accepted() {
        assert_eq!(verify_link(&link(4, 0xaa, 0), &link(5, 0xbb, 0xaa)), Ok(()));
        assert_eq!(verify_repeat(Hash32([0xaa; 32]), &link(4, 0xaa, 0)), Ok(()));
    }

    #[test]
    fn gaps_and_steps_back_are_refused() {
        for delivered in [3, 4, 6, u32::MAX] {
            let error = verify_link(&link(4, 0xaa, 0), &link(delivered, 0xbb, 0xaa)).unwrap_err();
            let expected = LedgerSeq(5);
            let delivered = LedgerSeq(delivered);
            assert_eq!(error, VerifyError::NotNext { expected, delivered });
        }
        assert!(verify_link(&link(u32::MAX, 0xaa, 0), &link(0, 0xbb, 0xaa)).is_err());
    }

    #[test]
    fn errors_name_both_hashes_of_a_broken_link() {
        let error = verify_link(&link(4, 0xaa, 0), &link(5, 0xbb, 0xcc)).unwrap_err();
        let (links_to, stored) = ("cc".repeat(32), "aa".repeat(32));
        assert_eq!(
            error.to_string(),
            format!(
                "ledger 5 links to {links_to} as the ledger before, but ledger 4 has hash {stored}: \
                 the network was reset or the source is wrong; after a reset, start with an empty \
                 data directory"
            )
        );
        assert!(verify_repeat(Hash32([0xaa; 32]), &link(4, 0xbb, 0)).is_err());
    }

    #[test]
    fn header_hashes_are_recomputed() {
        let xdr = b"header";
        let hash = Hash32(Sha256::digest(xdr).into());
        let mut header = HeaderView {
            xdr,
            hash,
            previous_hash: Hash32::default(),
            sequence: LedgerSeq(5),
            protocol: 25,
            close_time: 0,
            close_time_ms: None,
        };
        assert_eq!(verify_header(&header), Ok(()));
        header.hash = Hash32::default();
        assert!(verify_header(&header).is_err());
    }
}
