//! Position of an event on the chain, the only order in which events count, independent of the
//! order in which ledgers are ingested.

use std::fmt;
use std::str::FromStr;

use orrery_store::{RowCodec, row_codec};

/// Position of an event on the chain. Neither its row id nor its transaction's hash can replace it:
/// ledgers may be stored in any order, and one ledger may remove a signer and add it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Ledger sequence.
    pub ledger: u32,
    /// 1-based position of the transaction in apply order.
    pub application_order: u32,
    /// 0-based position of the event in its transaction.
    pub event_index: u32,
}

impl Position {
    /// Stands for no position where one is stored: no event has ledger sequence 0.
    pub(super) const NONE: Self = Self { ledger: 0, application_order: 0, event_index: 0 };

    /// Returns the position, unless it is [`Self::NONE`].
    pub(super) fn known(self) -> Option<Self> {
        (self.ledger > 0).then_some(self)
    }
}

// Byte order equals chain order.
row_codec!(Position { ledger, application_order, event_index });

/// The three numbers, joined by `-`.
impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ledger, application_order, event_index } = self;
        write!(f, "{ledger}-{application_order}-{event_index}")
    }
}

/// The text is not that of a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not the text of a position")]
pub struct NotAPosition;

impl FromStr for Position {
    type Err = NotAPosition;

    fn from_str(text: &str) -> Result<Self, NotAPosition> {
        let mut numbers = text.splitn(3, '-').map(|number| match number.as_bytes() {
            [b'0'..=b'9', ..] => number.parse().map_err(|_| NotAPosition),
            _ => Err(NotAPosition),
        });
        let mut next = || numbers.next().unwrap_or(Err(NotAPosition));
        Ok(Self { ledger: next()?, application_order: next()?, event_index: next()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_positions_sort_in_chain_order() {
        let at = |ledger, application_order, event_index| Position {
            ledger,
            application_order,
            event_index,
        };
        let ordered = [at(0, 0, 0), at(1, 2, 300), at(1, 3, 0), at(256, 1, 1), at(u32::MAX, 1, 0)];
        assert!(ordered.is_sorted() && ordered.map(|at| at.encode()).is_sorted());
        for position in ordered {
            assert_eq!(Position::decode(&position.encode()), Some(position));
        }
        for position in ordered {
            assert_eq!(position.to_string().parse(), Ok(position));
        }
        for text in ["", "1", "1-2", "1-2-", "1-2-+3", "1-2-3-4", "a-2-3", "1-2-4294967296"] {
            assert_eq!(text.parse::<Position>(), Err(NotAPosition), "{text}");
        }
        assert_eq!(at(1, 2, 300).encode(), [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 1, 44]);
        assert_eq!(Position::decode(&[0; 11]), None);
        assert_eq!(Position::decode(&[0; 13]), None);
    }
}
