//! Tags under which signers are looked up.

use sha2::{Digest, Sha256};
use stellar_xdr::ScAddress;

use super::value;
use orrery_store::{RowCodec, row_codec};

/// SHA-256 under which a signer is looked up. A digest is used because credential ids may be long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub [u8; 32]);

row_codec!(Tag { 0 });

impl Tag {
    /// Returns the tag of a credential id.
    pub fn of_credential(id: &[u8]) -> Self {
        Self(Sha256::new().chain_update(b"c").chain_update(id).finalize().into())
    }

    /// Returns the tag of an address.
    pub fn of_address(address: &ScAddress) -> Self {
        Self(Sha256::new().chain_update(b"a").chain_update(value::xdr(address)).finalize().into())
    }
}
