//! What a project that replaces another keeps of it: the announcements of members whose events are not stored any
//! more.

use std::collections::BTreeMap;

use super::found::Found;
use super::selectors::{FactorySelector, Selectors};
use super::stored::Announcement;
use crate::manifest::Manifest;
use crate::runner::Runner;
use crate::{ProgramError, storage};
use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSet, ProgramId};
use orrery_store::{RowCodec, Store};

impl Runner {
    /// Adds what the project that this one replaces knows by the same selectors, and nobody can read any more.
    pub(super) fn inherit(
        &self,
        manifest: &Manifest,
        selectors: &Selectors,
        found: &mut Found,
    ) -> Result<(), ProgramError> {
        let Some(replaced) = &manifest.replaces else { return Ok(()) };
        let row = storage::manifest(replaced.program);
        let Some(stored) = self.store.shared_row(&row)? else { return Ok(()) };
        let (old, _) = Manifest::load(&self.store.shared_rows(), &stored)?;
        let Some(old_project) = &old.events else { return Ok(()) };
        let same = same_selectors(&old_project.selectors, selectors);
        for ((selector, contract), announcement) in announcements(&self.store, old.id)? {
            if let Some(new) = same.get(&selector)
                && !self.store.has_all_events(announcement.at.ledger)?
            {
                found.announce(*new, contract, announcement);
            }
        }
        Ok(())
    }
}

/// Returns the ledgers of announcements of a project that another one lacks although it has the same selectors.
pub fn announcements_lost(
    store: &Store,
    (old, old_selectors): (ProgramId, &Selectors),
    (new, new_selectors): (ProgramId, &Selectors),
) -> Result<LedgerSet, ProgramError> {
    let (mut lost, same) = (LedgerSet::default(), same_selectors(old_selectors, new_selectors));
    if same.is_empty() {
        return Ok(lost);
    }
    for ((selector, contract), announcement) in announcements(store, old)? {
        let Some(selector) = same.get(&selector) else { continue };
        // The new one has read what is stored.
        if store.shared_row(&storage::announcement(new, *selector, &contract))?.is_none()
            && !store.has_all_events(announcement.at.ledger)?
        {
            lost.insert(LedgerRange::only(announcement.at.ledger));
        }
    }
    Ok(lost)
}

/// Returns the numbers of the selectors that two projects have both.
fn same_selectors(old: &Selectors, new: &Selectors) -> BTreeMap<u8, u8> {
    let numbers: BTreeMap<&FactorySelector, u8> = new.factories.iter().zip(0..).collect();
    let old = old.factories.iter().zip(0..);
    old.filter_map(|(factory, number)| Some((number, *numbers.get(factory)?))).collect()
}

/// Returns the announcements that a project knows.
pub fn announcements(
    store: &Store,
    program: ProgramId,
) -> Result<BTreeMap<(u8, ContractId), Announcement>, ProgramError> {
    let mut known = BTreeMap::new();
    storage::announcements(store, program, |(selector, contract), row| {
        let damaged = || storage::announcement(program, selector, &contract).damaged();
        known.insert((selector, contract), Announcement::decode(row).ok_or_else(damaged)?);
        Ok(())
    })?;
    Ok(known)
}
