//! Projects as those see them who tell users of their events.

use std::sync::Arc;

use super::registry::Entry;
use super::{ProgramError, Programs};
use orrery_executables::Tried;
use orrery_ledger::domain::{ContractId, LedgerSeq, Owner};
use orrery_membership::{KnownMembers, MemberMark, MembersInLedger, Projects, Selected};
use orrery_store::StoreError;

impl Programs {
    /// Returns the program with this project name, unless it has yet to take it.
    fn project(&self, project: &str) -> Option<Arc<Entry>> {
        self.registry.named(project).filter(|_| !project.is_empty())
    }
}

impl Projects for Programs {
    fn readable(&self, owner: &Owner, project: &str) -> Option<String> {
        let entry = self.project(project)?;
        let is_reader = self.registry.readers_of(&entry).contains(owner);
        is_reader.then(|| entry.snapshot().manifest.project_name.clone())
    }

    fn selected(&self, project: &str, ledger: LedgerSeq) -> Result<Option<Selected>, StoreError> {
        let Some(entry) = self.project(project) else { return Ok(None) };
        let manifest = entry.snapshot().manifest;
        self.runner.selected(&manifest, ledger).map(Some).map_err(ProgramError::into_store)
    }

    fn members_in<'p>(
        &'p self,
        project: &str,
        ledger: LedgerSeq,
    ) -> Result<Option<Box<dyn MembersInLedger + 'p>>, StoreError> {
        let Some(entry) = self.project(project) else { return Ok(None) };
        let manifest = entry.snapshot().manifest;
        let members = self.runner.members_in(manifest, ledger);
        Ok(Some(Box::new(members.map_err(ProgramError::into_store)?)))
    }

    fn members(&self, project: &str) -> Arc<[ContractId]> {
        let entry = self.project(project);
        entry.map_or_else(Arc::default, |it| self.runner.all_members(&it.snapshot().manifest))
    }

    fn has_members(&self, project: &str) -> bool {
        self.project(project).is_some_and(|entry| {
            let manifest = entry.snapshot().manifest;
            let selectors = manifest.events.as_ref().map(|project| &project.selectors);
            !manifest.contracts.is_empty()
                || selectors.is_none_or(|selectors| selectors.have_members())
        })
    }

    fn supplied(&self, project: &str) -> Result<Option<Tried>, StoreError> {
        let Some(entry) = self.project(project) else { return Ok(None) };
        let manifest = entry.snapshot().manifest;
        self.runner.supplied(&manifest).map_err(ProgramError::into_store)
    }

    fn contracts(&self, project: &str, most: usize) -> Option<Vec<ContractId>> {
        let entry = self.project(project)?;
        let manifest = entry.snapshot().manifest;
        let selectors = manifest.events.as_ref().map(|project| &project.selectors);
        let has_selectors = selectors.is_some_and(|selectors| !selectors.is_empty());
        if selectors.is_some_and(|selectors| !selectors.all.is_empty()) {
            return None;
        }
        let contracts = match has_selectors {
            false => manifest.contracts.clone(),
            true => self.runner.events.members().of(entry.id, most)?,
        };
        (contracts.len() <= most).then_some(contracts)
    }

    fn has_looked(&self, project: &str, place: u64) -> bool {
        self.project(project).is_none_or(|entry| {
            let manifest = entry.snapshot().manifest;
            let selectors = manifest.events.as_ref().map(|project| &project.selectors);
            let must_look = selectors.is_some_and(|selectors| selectors.have_members());
            // One that is paused or full does not look.
            !must_look || !manifest.running || entry.members.has_looked(place)
        })
    }

    fn known_since(&self, project: &str, mark: Option<MemberMark>) -> KnownMembers {
        let Some(entry) = self.project(project) else { return KnownMembers::default() };
        let known = entry.members.newly_known.lock();
        let program = entry.id;
        if !known.is_read() {
            // More may have become known in an earlier process.
            return KnownMembers { mark, ..KnownMembers::default() };
        }
        // One that replaces another begins with all that it knows.
        let mark = mark.filter(|mark| mark.program == program);
        let (members, more) = known.after(mark.map_or(known.count(), |mark| mark.number));
        KnownMembers { mark: Some(MemberMark { program, number: known.count() }), members, more }
    }
}
