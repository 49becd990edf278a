//! Keys of validators and their strkey.

use std::fmt;
use std::str::FromStr;

use stellar_strkey::ed25519::PublicKey;

use super::ParseError;

/// Public key (ed25519) of a validator; displayed and serialised as a strkey that starts
/// with `G` (SEP-23).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub [u8; 32]);

impl NodeId {
    /// Returns the bytes of the key.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PublicKey(self.0).to_string().as_str())
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

const EXPECTED: &str = "the key of a validator: give a strkey of 56 characters that starts with G";

impl FromStr for NodeId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        PublicKey::from_string(text)
            .map(|key| Self(key.0))
            .map_err(|_| ParseError::of_strkey(text, &['G'], EXPECTED))
    }
}

serialised_as_text!(NodeId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strkeys_round_trip_and_others_are_refused() {
        let text = "GCGB2S2KGYARPVIA37HYZXVRM2YZUEXA6S33ZU5BUDC6THSB62LZSTYH";
        assert_eq!(text.parse::<NodeId>().unwrap().to_string(), text);
        assert!(
            "CAS3J7GYLGXMF6TDJBBYYSE3HQ6BBSMLNUQ34T6TZMYMW2EVH34XOWMA".parse::<NodeId>().is_err()
        );
        let mistyped = text.replace("PVIA", "PVIB").parse::<NodeId>().unwrap_err();
        assert!(mistyped.to_string().contains("' is mistyped: the checksum"), "{mistyped}");
    }
}
