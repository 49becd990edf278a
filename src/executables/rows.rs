//! Rows of the index.

use std::ops::ControlFlow;

use super::value::{Before, Executable};
use orrery_ledger::domain::{Hash32, LedgerSeq};
use orrery_store::{
    ConsumerView, Mark, RowCodec, RowFlow, Rows, StoreError, Table, TransactionPosition,
};

/// What transactions said about entries, by the SHA-256 of the entry's XDR `LedgerKey`.
pub const CHANGES: Table<([u8; 32], Inverted), Change> = Table::new("changes");
/// Interfaces of modules, by the SHA-256 of the module.
pub const CODE: Table<Hash32, CodeInterface> = Table::new("code");

/// Hashes of the transactions of these rows: the transactions may be removed. Beside the interfaces, whose keys are longer;
/// rows of earlier versions have none.
pub const TRANSACTIONS: Table<(Mark<b't'>, TransactionPosition), Hash32> = Table::new(CODE.family);

/// What a transaction said about an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Before the transaction.
    pub before: Before,
    /// After the transaction; `None` when the entry is gone.
    pub after: Option<Executable>,
}

impl Change {
    /// Returns the keys of the entries that it says the entry refers to (CAP-85), as XDR `LedgerKey`.
    pub fn references(&self) -> impl Iterator<Item = &[u8]> {
        let before = match &self.before {
            Before::Held { executable, .. } => Some(executable),
            Before::Unknown | Before::Absent => None,
        };
        before.into_iter().chain(&self.after).filter_map(|executable| match executable {
            Executable::Reference(key) => Some(key.as_slice()),
            _ => None,
        })
    }
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

impl RowCodec for Change {
    fn write(&self, to: &mut Vec<u8>) {
        match &self.before {
            Before::Unknown => to.push(UNKNOWN),
            Before::Absent => to.push(ABSENT),
            Before::Held { executable, since } => {
                let value = executable.encode();
                // Keys of entries have at most some hundred bytes.
                (HELD, (*since, value.len() as u32)).write(to);
                to.extend(value);
            }
        }
        if let Some(after) = &self.after {
            after.write(to);
        }
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let before = match u8::read(bytes)? {
            UNKNOWN => Before::Unknown,
            ABSENT => Before::Absent,
            HELD => {
                let (since, length) = <(u32, u32)>::read(bytes)?;
                let value = bytes.split_off(..usize::try_from(length).ok()?)?;
                Before::Held { executable: Executable::decode(value)?, since }
            }
            _ => return None,
        };
        let after = if bytes.is_empty() { None } else { Some(Executable::read(bytes)?) };
        Some(Self { before, after })
    }
}

impl RowCodec for CodeInterface {
    fn write(&self, to: &mut Vec<u8>) {
        let (kind, content) = match self {
            Self::Sections(sections) => (SECTIONS, sections.as_slice()),
            Self::None(reason) => (NO_SECTIONS, reason.as_bytes()),
        };
        to.push(kind);
        to.extend_from_slice(content);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        match <(u8, Vec<u8>)>::read(bytes)? {
            (SECTIONS, sections) => Some(Self::Sections(sections)),
            (NO_SECTIONS, reason) => String::from_utf8(reason).ok().map(Self::None),
            _ => None,
        }
    }
}

/// A position of which the later has the smaller encoding, so that a walk goes back in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inverted(pub TransactionPosition);

impl RowCodec for Inverted {
    fn write(&self, to: &mut Vec<u8>) {
        let TransactionPosition { ledger, application_order } = self.0;
        (!ledger.0, !application_order).write(to);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let (ledger, application_order) = <(u32, u32)>::read(bytes)?;
        let (ledger, application_order) = (LedgerSeq(!ledger), !application_order);
        Some(Self(TransactionPosition { ledger, application_order }))
    }
}

/// Returns the change of an entry at a position or the last one before it.
pub fn at_or_before(
    rows: &dyn Rows,
    id: &[u8; 32],
    at: TransactionPosition,
) -> Result<Option<(TransactionPosition, Change)>, StoreError> {
    let mut found = None;
    CHANGES.scan(rows, id, Some(&(*id, Inverted(at))), |(_, Inverted(at)), change| {
        found = Some((at, change));
        Ok(ControlFlow::Break(()))
    })?;
    Ok(found)
}

/// Returns the last changes of an entry, the latest first.
pub fn latest(
    rows: &dyn Rows,
    id: &[u8; 32],
    most: usize,
) -> Result<Vec<(TransactionPosition, Change)>, StoreError> {
    let mut found = Vec::new();
    CHANGES.scan(rows, id, None, |(_, Inverted(at)), change| {
        found.push((at, change));
        Ok(if found.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(found)
}

/// Returns the first changes of an entry, in the order of the chain.
pub fn earliest(
    view: &ConsumerView<'_>,
    id: &[u8; 32],
    most: usize,
) -> Result<Vec<(TransactionPosition, Change)>, StoreError> {
    let first = TransactionPosition { ledger: LedgerSeq(0), application_order: 0 };
    let mut found = Vec::new();
    CHANGES.scan_back(
        view,
        id,
        &(*id, Inverted(first)),
        |(_, Inverted(at)), change| -> RowFlow {
            found.push((at, change));
            Ok(if found.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        },
    )?;
    Ok(found)
}

/// Returns the first change of an entry after a position.
pub fn after(
    view: &ConsumerView<'_>,
    id: &[u8; 32],
    at: TransactionPosition,
) -> Result<Option<(TransactionPosition, Change)>, StoreError> {
    let mut found = None;
    CHANGES.scan_back(
        view,
        id,
        &(*id, Inverted(at)),
        |(_, Inverted(next)), change| -> RowFlow {
            if next == at {
                return Ok(ControlFlow::Continue(()));
            }
            found = Some((next, change));
            Ok(ControlFlow::Break(()))
        },
    )?;
    Ok(found)
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
            assert!(Inverted(two[0]).encode() > Inverted(two[1]).encode());
        }
        for at in ordered {
            assert_eq!(Inverted::decode(&Inverted(at).encode()), Some(Inverted(at)));
        }
    }

    /// Stores of earlier versions have these bytes.
    #[test]
    fn stored_bytes_are_as_ever() {
        let at = TransactionPosition { ledger: LedgerSeq(258), application_order: 3 };
        let key = format!("{}fffffefdfffffffc", "01".repeat(32));
        assert_eq!(hex::encode(([1u8; 32], Inverted(at)).encode()), key);
        let hash = "02".repeat(32);
        let code = || Executable::Code(Hash32([2; 32]));
        let held = |executable| Before::Held { executable, since: 77 };
        for (before, after, expected) in [
            (Before::Unknown, None, "00".to_owned()),
            (Before::Absent, Some(Executable::Asset), "0102".to_owned()),
            (held(code()), Some(Executable::Other), format!("020000004d0000002101{hash}04")),
            (
                held(Executable::Reference(vec![9, 8])),
                Some(code()),
                format!("020000004d0000000303090801{hash}"),
            ),
        ] {
            assert_eq!(hex::encode(Change { before, after }.encode()), expected);
        }
        for (interface, expected) in [
            (CodeInterface::Sections(vec![9, 8]), vec![1, 9, 8]),
            (CodeInterface::None("no".to_owned()), vec![0, b'n', b'o']),
        ] {
            assert_eq!(interface.encode(), expected);
            assert_eq!(CodeInterface::decode(&expected), Some(interface));
        }
        assert_eq!((CodeInterface::decode(&[2]), CodeInterface::decode(&[0, 0xff])), (None, None));
    }
}
