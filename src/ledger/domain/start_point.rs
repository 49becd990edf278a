//! Ledger at which an empty store begins.

use std::fmt;
use std::str::FromStr;

use super::{LedgerSeq, ParseError};

/// First ledger that is requested from a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartPoint {
    /// Newest ledger of the source.
    Tip,
    /// First ledger for which a network has metadata.
    Genesis,
    /// Oldest ledger of the source.
    Oldest,
    /// The ledger with this sequence number.
    At(LedgerSeq),
}

impl FromStr for StartPoint {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "tip" => Ok(Self::Tip),
            "genesis" => Ok(Self::Genesis),
            "oldest" => Ok(Self::Oldest),
            number => {
                let digits = number.bytes().all(|c| c.is_ascii_digit());
                let sequence = number.parse().ok().filter(|sequence| digits && *sequence > 0);
                let start = sequence.map(|s| Self::At(LedgerSeq(s).max(LedgerSeq::FIRST)));
                start.ok_or_else(|| {
                    ParseError(format!(
                        "'{}' is not a ledger to start from: give tip, genesis, oldest or a sequence \
                         number",
                        super::excerpt(text)
                    ))
                })
            }
        }
    }
}

impl fmt::Display for StartPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tip => f.write_str("tip"),
            Self::Genesis => f.write_str("genesis"),
            Self::Oldest => f.write_str("oldest"),
            Self::At(sequence) => sequence.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_points_round_trip_and_others_are_refused() {
        for text in ["tip", "genesis", "oldest", "63092982"] {
            assert_eq!(text.parse::<StartPoint>().unwrap().to_string(), text);
        }
        // Ledger 1 itself has no metadata, so the start is ledger 2.
        assert_eq!("1".parse(), Ok(StartPoint::At(LedgerSeq::FIRST)));
        for wrong in ["", "0", "Tip", "+5", "-1", "4294967296", "latest"] {
            let error = wrong.parse::<StartPoint>().unwrap_err().to_string();
            assert!(error.contains("tip, genesis, oldest or"), "{error}");
        }
    }
}
