//! Rows of the index.
//!
//! | Family | Key → value |
//! |---|---|
//! | `changes` | SHA-256 of an entry's XDR `LedgerKey`, ledger and application order of a transaction → what the entry said before and after the transaction |
//! | `code` | SHA-256 of a module → its interface: the joined sections, or why it has none |
//!
//! The numbers in keys of `changes` are inverted, so that a walk goes back in time.

use std::ops::ControlFlow;

use super::value::{Before, Executable};
use crate::domain::{Hash32, LedgerSeq};
use crate::store::{
    ConsumerView, RowFlow, Rows, StoreError, TransactionPosition, malformed_row, read_row,
    scan_rows,
};

const CHANGES: &str = "changes";
const CODE: &str = "code";
/// Column families of the consumer.
pub const FAMILIES: &[&str] = &[CHANGES, CODE];

/// What a transaction said about an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Before the transaction.
    pub before: Before,
    /// After the transaction; `None` when the entry is gone.
    pub after: Option<Executable>,
}

/// What is stored of a module's interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodeInterface {
    /// The joined sections.
    Sections(Vec<u8>),
    /// Why there is none.
    None(String),
}

/// Stored value of an interface that has sections, and of one that has none.
const SECTIONS: u8 = 1;
const NO_SECTIONS: u8 = 0;

/// Stored values of what an entry held before.
const UNKNOWN: u8 = 0;
const ABSENT: u8 = 1;
const HELD: u8 = 2;

impl Change {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(80);
        match &self.before {
            Before::Unknown => out.push(UNKNOWN),
            Before::Absent => out.push(ABSENT),
            Before::Held { executable, since } => {
                out.push(HELD);
                out.extend_from_slice(&since.to_be_bytes());
                let mut value = Vec::new();
                executable.encode(&mut value);
                // Keys of entries have at most some hundred bytes.
                out.extend_from_slice(&(value.len() as u32).to_be_bytes());
                out.extend_from_slice(&value);
            }
        }
        if let Some(after) = &self.after {
            after.encode(&mut out);
        }
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (before, rest) = match *kind {
            UNKNOWN => (Before::Unknown, rest),
            ABSENT => (Before::Absent, rest),
            HELD => {
                let (since, rest) = rest.split_first_chunk()?;
                let (length, rest) = rest.split_first_chunk()?;
                let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
                let (value, rest) = rest.split_at_checked(length)?;
                let since = u32::from_be_bytes(*since);
                (Before::Held { executable: Executable::decode(value)?, since }, rest)
            }
            _ => return None,
        };
        let after = if rest.is_empty() { None } else { Some(Executable::decode(rest)?) };
        Some(Self { before, after })
    }
}

impl CodeInterface {
    fn encode(&self) -> Vec<u8> {
        match self {
            Self::Sections(sections) => [&[SECTIONS], sections.as_slice()].concat(),
            Self::None(reason) => [&[NO_SECTIONS], reason.as_bytes()].concat(),
        }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes.split_first()? {
            (&SECTIONS, sections) => Some(Self::Sections(sections.to_vec())),
            (&NO_SECTIONS, reason) => Some(Self::None(String::from_utf8(reason.to_vec()).ok()?)),
            _ => None,
        }
    }
}

/// Returns the key and the value of a change.
pub fn change_row(
    id: &[u8; 32],
    at: TransactionPosition,
    change: &Change,
) -> (&'static str, Vec<u8>, Vec<u8>) {
    (CHANGES, [id.as_slice(), &inverted(at)].concat(), change.encode())
}

/// Returns the key and the value of a module's interface.
pub fn code_row(hash: &Hash32, interface: &CodeInterface) -> (&'static str, Vec<u8>, Vec<u8>) {
    (CODE, hash.as_bytes().to_vec(), interface.encode())
}

/// Returns what is stored of a module's interface.
///
/// # Errors
/// [`StoreError`] when the database fails, or the row is malformed.
pub fn code_interface(rows: &dyn Rows, hash: &Hash32) -> Result<Option<CodeInterface>, StoreError> {
    read_row(rows, CODE, hash.as_bytes(), CodeInterface::decode)
}

/// Returns the change of an entry at a position or the last one before it.
///
/// # Errors
/// [`StoreError`] when the database fails, or a row is malformed.
pub fn at_or_before(
    rows: &dyn Rows,
    id: &[u8; 32],
    at: TransactionPosition,
) -> Result<Option<(TransactionPosition, Change)>, StoreError> {
    let mut found = None;
    scan_rows(rows, CHANGES, id, &inverted(at), |rest, value| {
        found = Some((position(rest)?, Change::decode(value)?));
        Some(RowFlow::Break(Ok(())))
    })?;
    Ok(found)
}

/// Returns the first change of an entry after a position.
///
/// # Errors
/// [`StoreError`] when the database fails, or a row is malformed.
pub fn after(
    view: &ConsumerView<'_>,
    id: &[u8; 32],
    at: TransactionPosition,
) -> Result<Option<(TransactionPosition, Change)>, StoreError> {
    let start = [id.as_slice(), &inverted(at)].concat();
    let flow = view.scan_back(CHANGES, &start, |key, value| {
        if *key == start {
            return ControlFlow::Continue(());
        }
        let row = |rest: &[u8]| Some((position(rest)?, Change::decode(value)?));
        let own = key.strip_prefix(id.as_slice());
        ControlFlow::Break(own.map(|rest| row(rest).ok_or_else(|| malformed_row(CHANGES, key))))
    })?;
    flow.break_value().flatten().transpose()
}

/// Encodes a position for keys: the later, the smaller.
fn inverted(at: TransactionPosition) -> [u8; 8] {
    let number = u64::from(at.ledger.0) << 32 | u64::from(at.application_order);
    (!number).to_be_bytes()
}

fn position(rest: &[u8]) -> Option<TransactionPosition> {
    let number = !u64::from_be_bytes(rest.try_into().ok()?);
    let [ledger, application_order] = [(number >> 32) as u32, number as u32];
    Some(TransactionPosition { ledger: LedgerSeq(ledger), application_order })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_round_trip_and_later_positions_have_smaller_keys() {
        let code = |byte| Executable::Code(Hash32([byte; 32]));
        let values = [None, Some(code(1)), Some(Executable::Asset), Some(Executable::Other)];
        let values = values.into_iter().chain([Some(Executable::Reference(vec![1, 2, 3]))]);
        for after in values {
            let held = after.clone().map(|executable| Before::Held { executable, since: 77 });
            for before in [Before::Unknown, Before::Absent].into_iter().chain(held) {
                let change = Change { before, after: after.clone() };
                let stored = change.encode();
                assert_eq!(Change::decode(&stored), Some(change));
                assert_eq!(Change::decode(&stored[..0]), None);
                // A key of an entry reaches to the end of the row.
                if !matches!(after, Some(Executable::Reference(_))) {
                    assert_eq!(Change::decode(&[stored, vec![9; 40]].concat()), None);
                }
            }
        }
        let at = |ledger, application_order| TransactionPosition {
            ledger: LedgerSeq(ledger),
            application_order,
        };
        let ordered = [at(1, 2), at(1, 3), at(2, 1), at(u32::MAX, u32::MAX)];
        for two in ordered.windows(2) {
            assert!(inverted(two[0]) > inverted(two[1]));
        }
        for at in ordered {
            assert_eq!(position(&inverted(at)), Some(at));
            let change = Change { before: Before::Absent, after: None };
            assert_eq!(change_row(&[1; 32], at, &change).1.len(), 40);
        }
    }
}
