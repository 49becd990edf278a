//! Indexing programs by number, and the people whom they belong to.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{ParseError, excerpt};

/// Number of an indexing program: given out at its deploy, from 1, and never again.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ProgramId(pub u32);

impl fmt::Display for ProgramId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ProgramId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.then(|| text.parse().ok()).flatten();
        number.map(Self).ok_or_else(|| ParseError::Program(excerpt(text)))
    }
}

/// Whoever owns programs and their tables: the `sub` of a token.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Owner(pub String);

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_a_decimal_number() {
        assert_eq!("17".parse(), Ok(ProgramId(17)));
        for text in ["", "-1", "+1", "1.0", "0x1", " 1", "4294967296"] {
            assert!(text.parse::<ProgramId>().is_err(), "{text:?}");
        }
    }
}
