//! What the registry has to do with members of projects: which selectors a project has, whether there may be more
//! members, and members that are stored.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Entry, Registry, Replace, Watch};
use crate::ProgramError;
use crate::events::Selectors;
use orrery_ledger::domain::{ContractId, Owner, ProgramId};
use orrery_membership::CONSUMER;

impl Registry {
    /// Checks what can be checked of a new project without looking anything up in what is stored.
    ///
    /// # Errors
    /// [`ProgramError`], with what the owner can do about it.
    pub(crate) fn check_watch(&self, owner: &Owner, watch: &Watch) -> Result<(), ProgramError> {
        self.check_name(owner, &watch.project_name, watch.replace)?;
        let keeps = watch.replace != Replace::No
            && watch.contracts.is_empty()
            && watch.selectors.is_empty();
        match keeps {
            true => self.check_members(owner, &self.selectors(&watch.project_name)),
            false => self.check_members(owner, &watch.selectors.clone().checked()?),
        }
    }

    /// Returns what selects the contracts of a project.
    pub(super) fn selectors(&self, project: &str) -> Selectors {
        let entry = self.named(project);
        let events = entry.and_then(|it| it.snapshot().manifest.events.clone());
        events.map(|project| project.selectors).unwrap_or_default()
    }

    /// Returns the members of all projects that record what their contracts hold.
    pub(crate) fn recorded_members(&self) -> BTreeSet<ContractId> {
        let has_storage = |entry: &Arc<Entry>| {
            let manifest = entry.snapshot().manifest;
            let project = manifest.events.as_ref();
            project.is_some_and(|it| it.has_storage && it.selectors.have_members())
        };
        let all = self.all();
        let recording: BTreeSet<ProgramId> =
            all.iter().filter(|entry| has_storage(entry)).map(|entry| entry.id).collect();
        match recording.is_empty() {
            true => BTreeSet::new(),
            false => self.members.of_all(&recording).into_iter().collect(),
        }
    }

    /// Returns a number that is another one once a project has other members.
    pub(crate) fn members_version(&self) -> u64 {
        self.members.version()
    }

    /// Checks whether a project with these selectors may be created now.
    pub(super) fn check_members(
        &self,
        owner: &Owner,
        selectors: &Selectors,
    ) -> Result<(), ProgramError> {
        if !selectors.have_members() {
            return Ok(());
        }
        if self.store.consumer(CONSUMER).is_none() {
            let problem = "cannot be used: who created contracts is not recorded here".to_owned();
            return Err(ProgramError::Value { name: "selectors", problem });
        }
        let counts = self.members.counts();
        let all: usize = counts.values().sum();
        let own = self.manifests(owner).iter().filter_map(|it| counts.get(&it.id)).sum::<usize>();
        let most = self.members.most_of_all();
        if all >= most {
            return Err(ProgramError::TooManyMembers { most, of_owner: false });
        }
        if own >= most / 4 {
            return Err(ProgramError::TooManyMembers { most: most / 4, of_owner: true });
        }
        Ok(())
    }
}
