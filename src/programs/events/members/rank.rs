//! When a contract became a member of a project: of more than a project may have, those stay that became members
//! first in the chain.

use orrery_ledger::domain::LedgerSeq;
use orrery_store::{RowCodec, TransactionPosition};

/// When a contract became a member. The least stays first; of equal ones, the contract with the least id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    class: u8,
    at: TransactionPosition,
    /// 0, or the number of an event in the transaction, from 1.
    index: u32,
}

/// The position of what has none.
const NOWHERE: TransactionPosition =
    TransactionPosition { ledger: LedgerSeq(0), application_order: 0 };

impl Rank {
    /// The project names it.
    pub const NAMED: Self = Self { class: 0, at: NOWHERE, index: 0 };
    /// It is not known to be one, but may be: as far as is known, it may run a code of the project.
    pub const NOT_KNOWN: Self = Self { class: 2, at: NOWHERE, index: 0 };

    /// It became one by a transaction; by none of the first ledger of a range, if it was one before.
    pub fn at(at: TransactionPosition) -> Self {
        Self { class: 1, at, index: 0 }
    }

    /// It became one by the event with this index in a transaction.
    pub fn at_event(at: TransactionPosition, index: u32) -> Self {
        Self { index: index.saturating_add(1), ..Self::at(at) }
    }

    /// Returns the ledger in which it became one; `None` where it is not known to be one, or is named.
    pub fn since(self) -> Option<LedgerSeq> {
        (self.class == 1).then_some(self.at.ledger)
    }
}

impl Default for Rank {
    fn default() -> Self {
        Self::NOT_KNOWN
    }
}

impl RowCodec for Rank {
    fn write(&self, to: &mut Vec<u8>) {
        ((self.class, self.at), self.index).write(to);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let ((class, at), index) = <((u8, TransactionPosition), u32)>::read(bytes)?;
        Some(Self { class, at, index })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_first_in_the_chain_comes_first() {
        let at = |ledger, order| TransactionPosition {
            ledger: LedgerSeq(ledger),
            application_order: order,
        };
        let in_order = [
            Rank::NAMED,
            Rank::at(at(2, 0)),
            Rank::at(at(2, 1)),
            Rank::at_event(at(2, 1), 0),
            Rank::at_event(at(2, 1), 1),
            Rank::at(at(2, 2)),
            Rank::at(at(3, 1)),
            Rank::NOT_KNOWN,
        ];
        assert!(in_order.is_sorted());
        for rank in in_order {
            assert_eq!(Rank::decode(&rank.encode()), Some(rank));
        }
        let since = in_order.map(|rank| rank.since().map(|ledger| ledger.0));
        assert_eq!(since, [None, Some(2), Some(2), Some(2), Some(2), Some(2), Some(3), None]);
    }
}
