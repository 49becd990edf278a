//! Since when the members of a project are members.

use std::collections::BTreeMap;

use super::changes::MOST_CHANGES;
use super::found::Found;
use super::index::Flags;
use super::stored::{Announcement, StoredMember};
use crate::manifest::Manifest;
use crate::registry::Entry;
use crate::runner::Runner;
use crate::{ProgramError, storage};
use orrery_executables::lookup::Lookup;
use orrery_ledger::domain::{ContractId, Hash32, LedgerSeq, ProgramId};
use orrery_membership::{Facts, KnownMember};
use orrery_store::{RowBounds, RowCodec, TransactionPosition};

/// From what it follows since when contracts are members.
struct Sources<'a, 's> {
    facts: Facts<'s>,
    /// `None` where no contract is selected by what it runs.
    lookup: Option<Lookup<'s>>,
    codes: &'a [Hash32],
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
        let codes = project.selectors.wasm.as_slice();
        let lookup = match codes.is_empty() {
            true => None,
            false => Some(Lookup::new(&self.store, RowBounds::none())?),
        };
        let sources = Sources { facts: Facts::new(&self.store)?, lookup, codes };
        let announced = first_announced(found);
        let factories = project.selectors.factories.len();
        let mut joined = Vec::new();
        for (contract, member) in changed {
            let flags = found.members.get(contract).copied().unwrap_or_default();
            let before = self.events.members().flags(entry.id, contract);
            let announced = announced.get(contract).copied();
            let is_known = before.has(flags) && announced.is_none();
            if flags.is_empty()
                || is_known
                || before.has(Flags::NAMED)
                || member.in_memory().is_empty()
            {
                continue;
            }
            let known = match before.has(Flags::ANNOUNCED) {
                true => self.announced(entry.id, contract, factories)?,
                false => None,
            };
            let known = self.since(&sources, contract, before, known)?;
            if let Some(since) = self.since(&sources, contract, flags, announced)?
                && known.is_none_or(|known| since < known)
            {
                joined.push(KnownMember { contract: *contract, since });
            }
        }
        Ok(joined)
    }

    /// Returns the first ledger in which a contract is a member for these reasons. What may run a code, and is not
    /// known to have, is none yet.
    fn since(
        &self,
        sources: &Sources<'_, '_>,
        contract: &ContractId,
        flags: Flags,
        announced: Option<LedgerSeq>,
    ) -> Result<Option<LedgerSeq>, ProgramError> {
        let mut since: Vec<LedgerSeq> = announced.into_iter().collect();
        if flags.has(Flags::CREATED) {
            let creation = sources.facts.creation(contract)?;
            since.extend(creation.map(|creation| creation.at.ledger));
        }
        if let Some(lookup) = sources.lookup.as_ref().filter(|_| flags.has(Flags::MAY_RUN)) {
            since.extend(self.first_stay(lookup, contract, sources.codes)?);
        }
        Ok(since.into_iter().min())
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
        let stays = lookup.stays(contract, codes, last, MOST_CHANGES)?.stays;
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

/// Returns for each contract the first ledger with an announcement that was found.
fn first_announced(found: &Found) -> BTreeMap<ContractId, LedgerSeq> {
    let mut announced: BTreeMap<ContractId, LedgerSeq> = BTreeMap::new();
    for ((_, contract), announcement) in &found.announcements {
        let ledger = announcement.at.ledger;
        let first = announced.entry(*contract).or_insert(ledger);
        *first = ledger.min(*first);
    }
    announced
}
