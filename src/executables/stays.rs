//! The times in which a contract ran a code, as far as what is stored says them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use super::lookup::{Lookup, Ran, Side, ran};
use super::rows::{self, Change, TRANSACTIONS};
use super::value::{Before, Executable, id_of, instance_key};
use orrery_ledger::domain::{ContractId, Hash32, LedgerSeq};
use orrery_store::{Mark, StoreError, TransactionPosition};

/// The first position of all.
const FIRST: TransactionPosition =
    TransactionPosition { ledger: LedgerSeq(0), application_order: 0 };

/// Number of changes of entries to which a contract refers that are read, in multiples of those that count.
const MOST_READ: usize = 4;

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

/// The times in which a contract ran some codes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stays {
    /// In the order of the chain.
    pub stays: Vec<Stay>,
    /// Whether they are cut: the contract has changed its code so often that not all changes were looked at. The last
    /// one has no end then, unless it is among these.
    pub are_cut: bool,
}

/// The transactions that changed a contract's instance, each with what it says of that, and those that changed
/// entries to which the contract refers.
type Changes = BTreeMap<TransactionPosition, Option<Change>>;

impl Lookup<'_> {
    /// Returns the times in which a contract ran one of these codes, by the first `most` changes of the contract
    /// and of entries that it refers to. `last` is a transaction after all that are stored.
    pub fn stays(
        &self,
        contract: &ContractId,
        codes: &[Hash32],
        last: TransactionPosition,
        most: usize,
    ) -> Result<Stays, StoreError> {
        let mut walk = Walk { stays: Vec::new(), now: None };
        let (changes, are_cut) = self.changes_of(contract, most)?;
        for (at, change) in changes {
            let ran = |side| match change.as_ref().and_then(|change| said(change, side)) {
                Some(ran) => Ok(ran),
                None => self.ran(contract, at, side),
            };
            let (before, after) = (ran(Side::Before)?, ran(Side::After)?);
            walk.step(&before, codes, at, false);
            let has_begun = match &before {
                Ran::Unknown(_) => self.has_changed(contract, at, &after)?,
                _ => true,
            };
            walk.step(&after, codes, at, has_begun);
        }
        // Behind changes that are not looked at, an end would be another one with each ledger.
        if !are_cut {
            let ran = self.ran(contract, last, Side::Before)?;
            walk.step(&ran, codes, last, false);
        }
        walk.stays.extend(walk.now);
        Ok(Stays { stays: walk.stays, are_cut })
    }

    /// Returns the hash of a transaction with which such a time begins or ends, also where it is not stored any more;
    /// `None` where nothing says it.
    pub fn transaction(&self, at: TransactionPosition) -> Result<Option<Hash32>, StoreError> {
        if let Some(hash) = TRANSACTIONS.get(self.view(), &(Mark, at))? {
            return Ok(Some(hash));
        }
        if let Some(events) = self.events()
            && let Some(hash) = events.hash_of(at)?
        {
            return Ok(Some(hash));
        }
        let mut found = None;
        self.store().entry_reader(at.ledger)?.transaction(at, |record| {
            found = Some(Hash32(*record.tx));
        })?;
        Ok(found)
    }

    /// Whether a contract that runs something after a transaction ran something else before it, or was not there.
    fn has_changed(
        &self,
        contract: &ContractId,
        at: TransactionPosition,
        after: &Ran,
    ) -> Result<bool, StoreError> {
        let before = self.ran_there(contract, at, Side::Before)?;
        Ok(!matches!(before, Ran::Unknown(_)) && before != *after)
    }

    /// Returns the first changes of what a contract runs, and whether there are more.
    fn changes_of(
        &self,
        contract: &ContractId,
        most: usize,
    ) -> Result<(Changes, bool), StoreError> {
        let Some(instance) = instance_key(contract) else { return Ok((Changes::new(), false)) };
        let (mut changes, mut entries) = (Changes::new(), Vec::new());
        // One more says whether there are more.
        let of_each = most.saturating_add(1);
        for (at, change) in rows::earliest(self.view(), &id_of(&instance), of_each)? {
            entries.extend(change.references().map(id_of));
            changes.insert(at, Some(change));
        }
        if let Some(events) = self.events() {
            let mut told = 0;
            events.visit_from(contract, FIRST, |at, update| {
                entries.extend(update.references().map(id_of));
                changes.entry(at).or_default();
                told += 1;
                Ok(if told < of_each { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
            })?;
        }
        let mut are_cut = cut(&mut changes, most);
        // What a contract has referred to, and how often that was changed, is up to its author.
        let (mut known, mut left) = (BTreeSet::new(), MOST_READ.saturating_mul(most));
        while let Some(entry) = entries.pop() {
            if !known.insert(entry) {
                continue;
            }
            let of_entry = rows::earliest(self.view(), &entry, of_each.min(left))?;
            left = left.saturating_sub(of_entry.len().max(1));
            for (at, _) in of_entry {
                changes.entry(at).or_default();
            }
            are_cut |= cut(&mut changes, most);
            if left == 0 {
                are_cut = true;
                break;
            }
        }
        Ok((changes, are_cut))
    }
}

/// Keeps the first `most` changes. Returns whether there were more.
fn cut(changes: &mut Changes, most: usize) -> bool {
    let are_more = changes.len() > most;
    while changes.len() > most {
        changes.pop_last();
    }
    are_more
}

/// Returns what a change of a contract's instance says that the contract ran at one side of it; `None` where it does
/// not, or names another entry.
fn said(change: &Change, side: Side) -> Option<Ran> {
    let executable = match (side, &change.before) {
        (Side::After, _) => change.after.as_ref(),
        (Side::Before, Before::Held { executable, .. }) => Some(executable),
        (Side::Before, Before::Absent) => None,
        (Side::Before, Before::Unknown) => return None,
    };
    match executable {
        Some(Executable::Reference(_)) => None,
        other => Some(ran(other.cloned())),
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
