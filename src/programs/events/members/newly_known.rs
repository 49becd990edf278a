//! Which members of a project became known in this process.

use std::collections::VecDeque;

use orrery_membership::KnownMember;

/// Number of members that are remembered, the last ones.
const MOST: usize = 1_000;

/// Members that became known, the last ones.
#[derive(Debug, Default)]
pub struct NewlyKnown {
    last: VecDeque<KnownMember>,
    /// Number of all of them.
    count: u64,
}

impl NewlyKnown {
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

#[cfg(test)]
mod tests {
    use super::*;
    use orrery_ledger::domain::{ContractId, LedgerSeq};

    #[test]
    fn the_last_members_are_remembered_and_the_others_counted() {
        let member = |number: u32| KnownMember {
            contract: ContractId([number as u8; 32]),
            since: LedgerSeq(number),
        };
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
