//! Of which contracts it is recorded what they hold, as `[index] storage` says: all, those that somebody
//! watches, or none.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::ServiceError;
use super::tasks::is_stopping;
use crate::contract_data::{
    CONSUMER, ContractData, Filling, Scope, fill_some, remove_some, scope, set_scope, set_watched,
};
use crate::domain::{ContractId, LedgerSeq};
use crate::membership::Facts;
use crate::observe::health::Health;
use crate::programs::Programs;
use crate::programs::manifest::projects_with_storage;
use crate::settings::RecordedStorage;
use crate::store::{Extensions, LedgerConsumer, Store, StoreError};
use crate::webhooks::registry::Registry;

/// Name of the thread that adds rows for contracts that are watched from now on, and removes those of
/// contracts that are no longer watched.
pub(super) const WATCHED_STORAGE: &str = "watched_storage";
/// Interval between two looks for such contracts.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Longest pause between two passes over the stored ledgers.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// Makes an open data directory record what the setting says. What does not fit it any more is removed.
///
/// # Errors
/// When nothing is to be recorded although projects do; errors of the store.
pub(super) fn apply(store: &Store, storage: RecordedStorage) -> Result<(), ServiceError> {
    let scope = match storage {
        RecordedStorage::All => Scope::All,
        RecordedStorage::Watched => Scope::Watched,
        RecordedStorage::Off => return forget(store),
    };
    if set_scope(store, scope)? {
        tracing::warn!(
            "index.storage has changed: what contracts hold is recorded anew from the stored ledgers"
        );
    }
    Ok(())
}

fn forget(store: &Store) -> Result<(), ServiceError> {
    let projects = projects_with_storage(store)?;
    if let Some(first) = projects.first() {
        return Err(ServiceError::Other(format!(
            "index.storage is off, and {} of the projects record what their contracts hold, such as \
             '{first}': set it to watched, or delete or replace them before",
            projects.len()
        )));
    }
    if store.forget_consumer(&ContractData.spec())? {
        tracing::warn!("index.storage is off: what was recorded of what contracts hold is removed");
    }
    Ok(())
}

/// Returns the parts without the index of contract data where an existing directory has none.
pub(super) fn as_stored(mut extensions: Extensions) -> Extensions {
    extensions.only_if_known.push(CONSUMER);
    extensions
}

/// Keeps what is recorded that of the contracts which projects and webhooks watch: adds the rows that new
/// ones lack, and removes those of contracts that nobody watches any more, until `stop` turns true.
pub(super) fn watch_regularly(
    store: &Arc<Store>,
    sources: (&Programs, &Registry),
    health: &Health,
    stop: &watch::Receiver<bool>,
) {
    let mut upkeep = Upkeep::default();
    while !is_stopping(stop) {
        let has_worked = upkeep.step(store, sources, Instant::now());
        match &has_worked {
            Ok(_) => recovered(health),
            Err(error) => {
                tracing::error!("the rows of watched contracts cannot be kept up: {error}");
                health.down(WATCHED_STORAGE, "the store fails: the log says why");
            }
        }
        if !has_worked.unwrap_or(false) {
            thread::sleep(LOOK_EVERY);
        }
    }
}

fn recovered(health: &Health) {
    if health.is_down(WATCHED_STORAGE) {
        health.up(WATCHED_STORAGE);
    }
}

/// What has been done for watched contracts, and what is left.
struct Upkeep {
    /// The members of projects that record what these hold, and in which version of the members of all
    /// projects they were these.
    members: BTreeSet<ContractId>,
    version: Option<u64>,
    /// The contracts besides these members that were watched at the last look, once all of them are, and all
    /// of the members.
    settled: Option<BTreeSet<ContractId>>,
    /// When the last look was.
    looked: Option<Instant>,
    /// Whether rows may have to be removed, and added.
    removes: bool,
    fills: bool,
    pauses: Pauses,
}

impl Default for Upkeep {
    /// Before the first look, what a former run has left is not known.
    fn default() -> Self {
        Self {
            members: BTreeSet::new(),
            version: None,
            settled: None,
            looked: None,
            removes: true,
            fills: true,
            pauses: Pauses::default(),
        }
    }
}

impl Upkeep {
    /// Looks which contracts are watched, if the last look is long ago, and does some of what is left.
    /// Returns whether there may be more to do at once.
    fn step(
        &mut self,
        store: &Arc<Store>,
        sources: (&Programs, &Registry),
        now: Instant,
    ) -> Result<bool, StoreError> {
        if self.looked.is_none_or(|looked| now.saturating_duration_since(looked) >= LOOK_EVERY) {
            self.look(store, sources)?;
            self.looked = Some(now);
        }
        if self.removes {
            self.removes = remove_some(store)?;
            return Ok(true);
        }
        if !self.fills || !self.pauses.may_fill(now) {
            return Ok(false);
        }
        let filling = fill_some(store)?;
        self.pauses.after(filling, now, Instant::now());
        self.fills = filling != Filling::Done;
        Ok(self.fills)
    }

    /// Makes the contracts that somebody watches now those that are watched.
    fn look(
        &mut self,
        store: &Store,
        (programs, webhooks): (&Programs, &Registry),
    ) -> Result<(), StoreError> {
        // Read before the members, of which there may be more meanwhile.
        let version = programs.members_version();
        if self.version != Some(version) {
            let members = programs.recorded_members();
            if self.members != members {
                (self.members, self.settled) = (members, None);
            }
            self.version = Some(version);
        }
        let mut named = programs.watched_contracts();
        named.extend(webhooks.watched_contracts());
        if self.settled.as_ref() == Some(&named) {
            return Ok(());
        }
        let facts = Facts::new(store)?;
        // No ledger before its creation says anything of a contract.
        let first = |contract: &ContractId| {
            let creation = facts.creation(contract);
            creation.map(|found| found.map_or(LedgerSeq(0), |creation| creation.at.ledger))
        };
        let are_watched = set_watched(store, &(&self.members | &named), first)?;
        self.settled = are_watched.then_some(named);
        (self.removes, self.fills) = (true, true);
        Ok(())
    }
}

/// The pauses between passes over the stored ledgers: each as long as the pass before it took. Without
/// them, whoever watches one new contract after the other would keep a thread busy for ever.
#[derive(Debug, Default)]
struct Pauses {
    /// When the pass that is under way began.
    begun: Option<Instant>,
    /// When the next one may begin.
    until: Option<Instant>,
}

impl Pauses {
    fn may_fill(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until <= now)
    }

    /// Notes what a part of a pass, which began and ended at these moments, has left to do.
    fn after(&mut self, filling: Filling, began: Instant, ended: Instant) {
        let begun = *self.begun.get_or_insert(began);
        match filling {
            Filling::GoesOn => {}
            Filling::Ended => {
                let took = ended.saturating_duration_since(begun);
                self.until = ended.checked_add(took.min(LONGEST_PAUSE));
                self.begun = None;
            }
            Filling::Done => self.begun = None,
        }
    }
}

/// Whether an open data directory records only what contracts hold that somebody watches.
pub(super) fn is_watched(store: &Store) -> Result<bool, StoreError> {
    Ok(store.consumer(CONSUMER).is_some() && scope(store)? == Scope::Watched)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_as_long_as_the_pass_before_it_and_has_a_bound() {
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let mut pauses = Pauses::default();
        assert!(pauses.may_fill(begun));
        pauses.after(Filling::GoesOn, begun, after(2));
        assert!(pauses.may_fill(after(2)));
        pauses.after(Filling::Ended, after(2), after(5));
        assert!(!pauses.may_fill(after(9)) && pauses.may_fill(after(10)));
        // Nothing was left: the next pass begins when it is needed.
        pauses.after(Filling::Done, after(20), after(20));
        pauses.after(Filling::GoesOn, after(1000), after(1001));
        pauses.after(Filling::Ended, after(3000), after(3001));
        assert!(!pauses.may_fill(after(3600)) && pauses.may_fill(after(3601)));
    }
}
