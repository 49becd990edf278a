//! Stored form of changes of members in the row log.
//!
//! Layout of a change, integers big-endian: contract (32 bytes), its number among those of the contract by the
//! selector (4), what happened (1), whether a module follows (1) and its hash (32), ledger (4), hash of the
//! transaction (32; zeros for none), unit of the close time of the ledger (1: 0 for seconds, 1 for milliseconds),
//! that time (8), and the selector after its length (4).

use std::iter;

use crate::rows::{Damaged, Reader, length};
use orrery_ledger::domain::{CloseTime, ContractId, Hash32, LedgerSeq, TxHash};
use orrery_tables::event_tables::{MemberChange, MemberChangeKind};

/// A change of a member, with where it is in the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedMember {
    /// The change.
    pub change: MemberChange,
    /// Its ledger.
    pub ledger: LedgerSeq,
    /// Its transaction; zeros where that is before the stored ledgers.
    pub transaction: TxHash,
    /// Close time of the ledger.
    pub closed_at: CloseTime,
}

/// Changes of members, in stored form.
#[derive(Debug, Clone, Copy, Default)]
pub struct LoggedMembers<'a>(pub(in crate::events) &'a [u8]);

impl LoggedMembers<'_> {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> LoggedMembers<'a> {
    /// The changes in stored order; ends with the first that is damaged.
    pub fn iter(&self) -> impl Iterator<Item = Result<LoggedMember, Damaged>> + use<'a> {
        let mut rest = Reader(self.0);
        iter::from_fn(move || {
            if rest.0.is_empty() {
                return None;
            }
            let change = read(&mut rest);
            if change.is_err() {
                rest = Reader(&[]);
            }
            Some(change)
        })
    }
}

impl LoggedMember {
    /// Writes the stored form.
    ///
    /// # Errors
    /// [`Damaged`] when the selector is longer than the form allows, which none is.
    pub fn write(&self, to: &mut Vec<u8>) -> Result<(), Damaged> {
        let MemberChange { contract, selector, kind, wasm, number } = &self.change;
        to.extend_from_slice(contract.as_bytes());
        to.extend_from_slice(&number.to_be_bytes());
        to.push(*kind as u8);
        to.push(u8::from(wasm.is_some()));
        to.extend_from_slice(wasm.as_ref().map_or(&[], |hash| hash.as_bytes().as_slice()));
        to.extend_from_slice(&self.ledger.0.to_be_bytes());
        to.extend_from_slice(self.transaction.as_bytes());
        let (unit, time) = match self.closed_at {
            CloseTime::Seconds(seconds) => (0, seconds),
            CloseTime::Milliseconds(milliseconds) => (1, milliseconds),
        };
        to.push(unit);
        to.extend_from_slice(&time.to_be_bytes());
        to.extend_from_slice(&length(selector.len())?);
        to.extend_from_slice(selector.as_bytes());
        Ok(())
    }
}

fn read(from: &mut Reader<'_>) -> Result<LoggedMember, Damaged> {
    let contract = ContractId(from.array()?);
    let number = u32::from_be_bytes(from.array()?);
    let [kind] = from.array()?;
    let kind = *MemberChangeKind::ALL.get(usize::from(kind)).ok_or(Damaged)?;
    let wasm = match from.array()? {
        [0] => None,
        [_] => Some(Hash32(from.array()?)),
    };
    let ledger = LedgerSeq(u32::from_be_bytes(from.array()?));
    let transaction = TxHash::from(from.array()?);
    let [unit] = from.array()?;
    let time = u64::from_be_bytes(from.array()?);
    let closed_at = match unit {
        0 => CloseTime::Seconds(time),
        _ => CloseTime::Milliseconds(time),
    };
    let selector = String::from_utf8(from.part()?.to_vec()).map_err(|_| Damaged)?;
    let change = MemberChange { contract, selector, kind, wasm, number };
    Ok(LoggedMember { change, ledger, transaction, closed_at })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_round_trip_and_truncated_ones_are_damaged() {
        let change = |kind, wasm, number| LoggedMember {
            change: MemberChange {
                contract: ContractId([9; 32]),
                selector: "wasm ab".to_owned(),
                kind,
                wasm,
                number,
            },
            ledger: LedgerSeq(7),
            transaction: TxHash::from([3; 32]),
            closed_at: CloseTime::Milliseconds(1_700),
        };
        let changes = [
            change(MemberChangeKind::Joined, Some(Hash32([4; 32])), 0),
            change(MemberChangeKind::Announced, None, 1),
        ];
        let mut bytes = Vec::new();
        changes.iter().for_each(|change| change.write(&mut bytes).unwrap());
        let read: Vec<_> = LoggedMembers(&bytes).iter().map(Result::unwrap).collect();
        assert_eq!(read, changes);
        let last = LoggedMembers(&bytes[..bytes.len() - 1]).iter().last().unwrap();
        assert_eq!(last, Err(Damaged));
    }
}
