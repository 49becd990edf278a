//! Contract ids and their strkey.

use std::fmt;
use std::str::FromStr;

use stellar_strkey::Contract;

use super::ParseError;

/// Id of a contract; displayed and serialised as a strkey that starts with `C` (SEP-23).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContractId(pub [u8; 32]);

impl ContractId {
    /// Returns the bytes of the id.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for ContractId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Contract(self.0).to_string().as_str())
    }
}

impl fmt::Debug for ContractId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

const EXPECTED: &str = "a contract ID: give a strkey of 56 characters that starts with C";

impl FromStr for ContractId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Contract::from_string(text)
            .map(|contract| Self(contract.0))
            .map_err(|_| ParseError::of_strkey(text, &['C'], EXPECTED))
    }
}

serialised_as_text!(ContractId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strkeys_round_trip() {
        let text = "CAS3J7GYLGXMF6TDJBBYYSE3HQ6BBSMLNUQ34T6TZMYMW2EVH34XOWMA";
        let id: ContractId = text.parse().unwrap();
        assert_eq!(id.to_string(), text);
    }

    #[test]
    fn other_strkeys_and_wrong_checksums_are_refused() {
        for text in [
            "",
            "C",
            "GA7QYNF7SOWQ3GLR2BGMZEHXAVIRZA4KVWLTJJFC7MGXUA74P7UJVSGZ",
            "CAS3J7GYLGXMF6TDJBBYYSE3HQ6BBSMLNUQ34T6TZMYMW2EVH34XOWMB",
            "cas3j7gylgxmf6tdjbbyyse3hq6bbsmlnuq34t6tzmymw2evh34xowma",
        ] {
            assert!(text.parse::<ContractId>().is_err(), "{text}");
        }
    }
}
