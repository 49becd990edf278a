//! Which members of a project became known in this process, and since when each is one.

use std::collections::{BTreeMap, VecDeque};

use super::index::Flags;
use super::stored::{Announcement, StoredMember};
use super::syncing::Found;
use crate::manifest::Manifest;
use crate::registry::Entry;
use crate::runner::Runner;
use crate::{ProgramError, storage};
use orrery_executables::lookup::Lookup;
use orrery_ledger::domain::{ContractId, Hash32, LedgerSeq, ProgramId};
use orrery_membership::{Facts, KnownMember};
use orrery_store::{RowBounds, RowCodec, TransactionPosition};

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

impl Runner {
    /// Returns since when those of changed members are members that were not, or since a later ledger.
    pub(super) fn joined(
        &self,
        entry: &Entry,
        manifest: &Manifest,
        found: &Found,
        changed: &BTreeMap<ContractId, StoredMember>,
    ) -> Result<Vec<KnownMember>, ProgramError> {
        let Some(project) = &manifest.events else { return Ok(Vec::new()) };
        let facts = Facts::new(&self.store)?;
        let codes = &project.selectors.wasm;
        let lookup = match codes.is_empty() {
            true => None,
            false => Some(Lookup::new(&self.store, RowBounds::none())?),
        };
        let mut joined = Vec::new();
        for (contract, member) in changed {
            let flags = found.members.get(contract).copied().unwrap_or_default();
            let before = self.events.members().flags(entry.id, contract);
            if flags.is_empty() || before.has(flags) || member.flags.is_empty() {
                continue;
            }
            let mut since = Vec::new();
            if flags.has(Flags::CREATED) {
                let creation = facts.creation(contract)?;
                since.extend(creation.map(|creation| creation.at.ledger));
            }
            let announced = found.announcements.iter().filter(|((_, it), _)| it == contract);
            since.extend(announced.map(|(_, announcement)| announcement.at.ledger));
            if let Some(lookup) = lookup.as_ref().filter(|_| flags.has(Flags::MAY_RUN)) {
                since.extend(self.first_stay(lookup, contract, codes)?);
            }
            // What may run a code, and is not known to have, is no member yet.
            if let Some(since) = since.into_iter().min() {
                joined.push(KnownMember { contract: *contract, since });
            }
        }
        Ok(joined)
    }

    /// Returns the ledger in which a contract began to run one of these codes, 0 where that is not stored; `None`
    /// where it is not known to have.
    pub(super) fn first_stay(
        &self,
        lookup: &Lookup<'_>,
        contract: &ContractId,
        codes: &[Hash32],
    ) -> Result<Option<LedgerSeq>, ProgramError> {
        let Some(latest) = self.store.ends().latest else { return Ok(None) };
        let last = TransactionPosition { ledger: latest, application_order: u32::MAX };
        let stays = lookup.stays(contract, codes, last)?;
        Ok(stays.first().map(|stay| stay.since.map_or(LedgerSeq(0), |since| since.ledger)))
    }

    /// Returns the ledger in which a factory of a project announced a contract first.
    pub(crate) fn announced(
        &self,
        program: ProgramId,
        contract: &ContractId,
        factories: usize,
    ) -> Result<Option<LedgerSeq>, ProgramError> {
        let mut first: Option<LedgerSeq> = None;
        for selector in (0..=u8::MAX).take(factories) {
            let row = storage::announcement(program, selector, contract);
            let Some(stored) = self.store.shared_row(&row)? else { continue };
            let announcement = Announcement::decode(&stored).ok_or_else(|| row.damaged())?;
            let ledger = announcement.at.ledger;
            first = Some(first.map_or(ledger, |first| first.min(ledger)));
        }
        Ok(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
