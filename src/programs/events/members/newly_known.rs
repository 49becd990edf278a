//! Which members of a project became known, in the order in which they did. Stored with the members, so that those
//! who tell of them go on after a restart where they were.

use std::collections::VecDeque;

use crate::storage;
use orrery_ledger::domain::{ContractId, LedgerSeq, ProgramId};
use orrery_membership::KnownMember;
use orrery_store::{KindChanges, RowCodec, Store, StoreError};

/// Number of members that are remembered, the last ones.
const MOST: usize = 1_000;

/// Members that became known, the last ones.
#[derive(Debug, Default)]
pub struct NewlyKnown {
    last: VecDeque<KnownMember>,
    /// Number of all of them.
    count: u64,
    /// Whether what is stored was read.
    is_read: bool,
}

impl NewlyKnown {
    /// Reads those of a project.
    pub(super) fn read(store: &Store, program: ProgramId) -> Result<Self, StoreError> {
        let mut known = Self { is_read: true, ..Self::default() };
        storage::all_newly_known(store, program, |number, row| {
            let damaged = || storage::newly_known(program, number).damaged();
            let (contract, since) = <(ContractId, LedgerSeq)>::decode(row).ok_or_else(damaged)?;
            known.last.push_back(KnownMember { contract, since });
            known.count = number;
            Ok(())
        })?;
        Ok(known)
    }

    /// Puts the rows of further ones, which [`Self::add`] adds once they are written. Their numbers begin with 1.
    pub(super) fn put(
        &self,
        changes: &mut KindChanges<'_>,
        program: ProgramId,
        further: &[KnownMember],
    ) -> Result<(), StoreError> {
        let kept = kept(self.count + further.len() as u64);
        for (number, member) in (self.count + 1..).zip(further) {
            if number >= kept {
                let row = storage::newly_known(program, number);
                changes.put(&row, (member.contract, member.since).encode())?;
            }
        }
        let first = self.count + 1 - self.last.len() as u64;
        for number in first..kept.min(self.count + 1) {
            changes.delete(&storage::newly_known(program, number))?;
        }
        Ok(())
    }

    /// Whether what is stored was read.
    pub fn is_read(&self) -> bool {
        self.is_read
    }

    /// Returns how many there were so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns those after the first `number`, and how many of these are not remembered any more.
    pub fn after(&self, number: u64) -> (Vec<KnownMember>, u64) {
        let new = usize::try_from(self.count.saturating_sub(number)).unwrap_or(usize::MAX);
        let kept = new.min(self.last.len());
        let members = self.last.iter().skip(self.last.len() - kept).copied().collect();
        (members, (new - kept) as u64)
    }

    pub(super) fn add(&mut self, members: Vec<KnownMember>) {
        self.count += members.len() as u64;
        self.last.extend(members);
        let over = self.last.len().saturating_sub(MOST);
        self.last.drain(..over);
    }
}

/// Returns the number of the first that is remembered of so many.
fn kept(count: u64) -> u64 {
    (count + 1).saturating_sub(MOST as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use orrery_ledger::domain::Network;

    fn member(number: u32) -> KnownMember {
        KnownMember { contract: ContractId([number as u8; 32]), since: LedgerSeq(number) }
    }

    #[test]
    fn the_last_members_are_stored() {
        let directory = tempfile::tempdir().unwrap();
        let network = Network::from_passphrase("members that become known");
        let extensions = storage::extensions();
        let store = Store::open_with(directory.path(), Some(&network), extensions).unwrap();
        let program = ProgramId(7);
        let read = || NewlyKnown::read(&store, program).unwrap();
        let mut known = read();
        assert!(known.is_read() && known.count() == 0);
        for numbers in [0..3, 3..900, 900..900, 900..1_003, 1_003..4_000] {
            let further: Vec<KnownMember> = numbers.map(member).collect();
            storage::change(&store, |changes| known.put(changes, program, &further)).unwrap();
            known.add(further);
            let stored = read();
            assert_eq!((stored.count, &stored.last), (known.count, &known.last));
        }
        assert_eq!(NewlyKnown::read(&store, ProgramId(8)).unwrap().count(), 0);
    }

    #[test]
    fn the_last_members_are_remembered_and_the_others_counted() {
        let mut known = NewlyKnown::default();
        known.add((0..3).map(member).collect());
        assert_eq!(known.after(1), (vec![member(1), member(2)], 0));
        assert_eq!(known.after(known.count()), (Vec::new(), 0));
        known.add((3..1_203).map(member).collect());
        let (members, more) = known.after(3);
        assert_eq!((members.len(), more), (1_000, 200));
        assert_eq!(members[0], member(203));
    }
}
