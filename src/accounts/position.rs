//! Position of an event on the chain, the only order in which events count, independent of the
//! order in which ledgers are ingested.

use std::fmt;
use std::str::FromStr;

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
    /// Number of bytes that [`Self::encode`] returns.
    pub const LEN: usize = 12;

    /// Encodes the position for keys: byte order equals chain order.
    pub fn encode(self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        let parts = [self.ledger, self.application_order, self.event_index];
        for (place, part) in out.chunks_exact_mut(4).zip(parts) {
            place.copy_from_slice(&part.to_be_bytes());
        }
        out
    }

    /// Decodes a position; `None` unless there are exactly [`Self::LEN`] bytes.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (parts, []) = bytes.as_chunks::<4>() else { return None };
        let [ledger, application_order, event_index] = parts else { return None };
        let number = |part: &[u8; 4]| u32::from_be_bytes(*part);
        Some(Self {
            ledger: number(ledger),
            application_order: number(application_order),
            event_index: number(event_index),
        })
    }
}

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
        assert!(ordered.is_sorted() && ordered.map(Position::encode).is_sorted());
        for position in ordered {
            assert_eq!(Position::decode(&position.encode()), Some(position));
        }
        for position in ordered {
            assert_eq!(position.to_string().parse(), Ok(position));
        }
        for text in ["", "1", "1-2", "1-2-", "1-2-+3", "1-2-3-4", "a-2-3", "1-2-4294967296"] {
            assert_eq!(text.parse::<Position>(), Err(NotAPosition), "{text}");
        }
        assert_eq!(Position::decode(&[0; 11]), None);
        assert_eq!(Position::decode(&[0; 13]), None);
    }
}
