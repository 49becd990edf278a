//! What the registry has to do with members of projects: which selectors a project has, whether there may be more
//! members, and members that are stored.

use super::Registry;
use crate::ProgramError;
use crate::events::Selectors;
use orrery_ledger::domain::Owner;
use orrery_membership::CONSUMER;

/// Number of members of all projects from which on there are no new projects with selectors. One owner may
/// have a quarter.
const MOST_MEMBERS: usize = 1_000_000;

impl Registry {
    /// Returns what selects the contracts of a project.
    pub(super) fn selectors(&self, project: &str) -> Selectors {
        let entry = self.named(project);
        let events = entry.and_then(|it| it.snapshot().manifest.events.clone());
        events.map(|project| project.selectors).unwrap_or_default()
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
        if all >= MOST_MEMBERS {
            return Err(ProgramError::TooManyMembers { most: MOST_MEMBERS, of_owner: false });
        }
        if own >= MOST_MEMBERS / 4 {
            return Err(ProgramError::TooManyMembers { most: MOST_MEMBERS / 4, of_owner: true });
        }
        Ok(())
    }
}
