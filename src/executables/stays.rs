//! The times in which a contract ran a code, as far as what is stored says them.

use std::collections::BTreeSet;

use super::lookup::{Lookup, Ran, Side};
use super::rows;
use super::value::{id_of, instance_key};
use orrery_ledger::domain::{ContractId, Hash32};
use orrery_store::{StoreError, TransactionPosition};

/// Maximum number of changes of a contract, and of entries that it refers to, that are looked at: the first
/// ones.
const MOST_CHANGES: usize = 10_000;

/// A time in which a contract ran a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stay {
    /// The module.
    pub code: Hash32,
    /// The transaction with which it began; `None` when that is not stored.
    pub since: Option<TransactionPosition>,
    /// A transaction in it, or the one with which it ended.
    pub known_at: TransactionPosition,
    /// The transaction with which it ended, or the first one that shows that it has; `None` while it goes on.
    pub until: Option<TransactionPosition>,
}

impl Lookup<'_> {
    /// Returns the times in which a contract ran one of these codes, in the order of the chain. `last` is a
    /// transaction after all that are stored.
    pub fn stays(
        &self,
        contract: &ContractId,
        codes: &[Hash32],
        last: TransactionPosition,
    ) -> Result<Vec<Stay>, StoreError> {
        let mut walk = Walk { stays: Vec::new(), now: None };
        let (changes, are_all) = self.changes_of(contract)?;
        for at in changes {
            for side in [Side::Before, Side::After] {
                let ran = self.ran(contract, at, side)?;
                walk.step(&ran, codes, at, side == Side::After);
            }
        }
        // Behind changes that are not looked at, an end would be another one with each ledger.
        if are_all {
            let ran = self.ran(contract, last, Side::Before)?;
            walk.step(&ran, codes, last, false);
        }
        walk.stays.extend(walk.now);
        Ok(walk.stays)
    }

    /// Returns the transactions that changed a contract's instance, and entries that it refers to, and whether these
    /// are all.
    fn changes_of(
        &self,
        contract: &ContractId,
    ) -> Result<(BTreeSet<TransactionPosition>, bool), StoreError> {
        let (mut positions, mut are_all) = (BTreeSet::new(), true);
        let Some(instance) = instance_key(contract) else { return Ok((positions, are_all)) };
        let (mut entries, mut known) = (vec![id_of(&instance)], BTreeSet::new());
        while let Some(entry) = entries.pop() {
            if !known.insert(entry) {
                continue;
            }
            if positions.len() >= MOST_CHANGES {
                are_all = false;
                break;
            }
            let changes = rows::earliest(self.view(), &entry, MOST_CHANGES)?;
            are_all &= changes.len() < MOST_CHANGES;
            for (position, change) in changes {
                positions.insert(position);
                if entry == id_of(&instance) {
                    entries.extend(change.references().map(id_of));
                }
            }
        }
        while positions.len() > MOST_CHANGES {
            positions.pop_last();
            are_all = false;
        }
        Ok((positions, are_all))
    }
}

/// A walk over what a contract ran.
struct Walk {
    stays: Vec<Stay>,
    now: Option<Stay>,
}

impl Walk {
    /// Goes on to one side of a transaction. What is not known there may be as before.
    fn step(&mut self, ran: &Ran, codes: &[Hash32], at: TransactionPosition, is_change: bool) {
        let code = match ran {
            Ran::Unknown(_) => return,
            Ran::Code(code) => codes.contains(code).then_some(*code),
            Ran::Asset | Ran::Nothing => None,
        };
        if self.now.map(|stay| stay.code) == code {
            return;
        }
        if let Some(stay) = self.now.take() {
            self.stays.push(Stay { until: Some(at), ..stay });
        }
        let since = is_change.then_some(at);
        self.now = code.map(|code| Stay { code, since, known_at: at, until: None });
    }
}
