//! SHA-256 digests: of ledgers, transactions, networks.

use std::fmt;
use std::str::FromStr;

use super::{ParseError, excerpt};

/// A SHA-256 digest, displayed and serialised as 64 lowercase hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Hash32(pub [u8; 32]);

/// Hash of a ledger header, `SHA-256(XDR(LedgerHeader))`.
pub type LedgerHash = Hash32;

/// Hash of a transaction: `SHA-256(network id || envelope type || XDR(transaction))`.
pub type TxHash = Hash32;

impl Hash32 {
    /// Number of bytes.
    pub const LEN: usize = 32;

    /// Returns the bytes of the digest.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Hash32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digits = [0u8; 64];
        // Cannot fail: the buffer is exactly twice the input.
        if hex::encode_to_slice(self.0, &mut digits).is_err() {
            return Err(fmt::Error);
        }
        f.write_str(std::str::from_utf8(&digits).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Hash32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Hash32 {
    type Err = ParseError;

    /// Parses 64 hexadecimal digits in either case, with an optional `0x`.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
        let mut bytes = [0u8; 32];
        hex::decode_to_slice(digits, &mut bytes).map_err(|_| {
            ParseError(format!("'{}' is not a hash: give 64 hexadecimal digits", excerpt(text)))
        })?;
        Ok(Self(bytes))
    }
}

serialised_as_text!(Hash32);

impl From<[u8; 32]> for Hash32 {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_parse_in_either_case_and_with_an_optional_prefix() {
        let lower = "ab".repeat(32);
        let hash: Hash32 = lower.parse().unwrap();
        assert_eq!(hash, lower.to_uppercase().parse().unwrap());
        assert_eq!(hash, format!("0x{lower}").parse().unwrap());
        assert_eq!(hash.to_string(), lower);
    }

    #[test]
    fn other_texts_are_refused_as_hashes() {
        for text in ["", "0x", "ab", &"ab".repeat(33), &"zz".repeat(32), &"é".repeat(32)] {
            assert!(text.parse::<Hash32>().is_err(), "{text}");
        }
    }
}
