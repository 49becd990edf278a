//! Of which contracts it is recorded what they hold, as `[index] storage` says: all, those that somebody
//! watches, or none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::watch;

use super::ServiceError;
use super::tasks::is_stopping;
use crate::contract_data::{CONSUMER, ContractData, Scope, fill_some, scope, set_scope, watch};
use crate::domain::LedgerSeq;
use crate::observe::health::Health;
use crate::programs::Programs;
use crate::programs::manifest::projects_with_storage;
use crate::settings::RecordedStorage;
use crate::store::{LedgerConsumer, Store, StoreError};
use crate::webhooks::registry::Registry;

/// Name of the thread that adds rows for contracts that are watched from now on.
pub(super) const WATCHED_STORAGE: &str = "watched_storage";
/// Interval between two looks for such contracts.
const LOOK_EVERY: Duration = Duration::from_millis(500);

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

/// Watches the contracts of projects and of webhooks about what they hold, and adds the rows that those lack which are new, until `stop` turns
/// true.
pub(super) fn watch_regularly(
    store: &Arc<Store>,
    (programs, webhooks): (&Programs, &Registry),
    health: &Health,
    stop: &watch::Receiver<bool>,
) {
    let mut members = None;
    while !is_stopping(stop) {
        match watch_new(store, (programs, webhooks), &mut members, stop) {
            Ok(()) => recovered(health),
            Err(error) => {
                tracing::error!("the rows of watched contracts cannot be added: {error}");
                health.down(WATCHED_STORAGE, "the store fails: the log says why");
            }
        }
        thread::sleep(LOOK_EVERY);
    }
}

fn recovered(health: &Health) {
    if health.is_down(WATCHED_STORAGE) {
        health.up(WATCHED_STORAGE);
    }
}

fn watch_new(
    store: &Arc<Store>,
    (programs, webhooks): (&Programs, &Registry),
    members: &mut Option<u64>,
    stop: &watch::Receiver<bool>,
) -> Result<(), StoreError> {
    let contracts = programs.watched_contracts().into_iter().chain(webhooks.watched_contracts());
    let all: BTreeMap<_, _> = contracts.map(|it| (it, LedgerSeq(0))).collect();
    watch(store, &all)?;
    watch_members(store, programs, members)?;
    while !is_stopping(stop) && fill_some(store)? {
        // One that was created just now is not kept waiting by those with much to read.
        watch_members(store, programs, members)?;
    }
    Ok(())
}

/// Watches the members of projects that record what these hold, if there are others than in the version `seen`.
fn watch_members(
    store: &Arc<Store>,
    programs: &Programs,
    seen: &mut Option<u64>,
) -> Result<(), StoreError> {
    // Read before the members, of which there may be more meanwhile.
    let version = programs.members_version();
    if *seen == Some(version) {
        return Ok(());
    }
    watch(store, &programs.unwatched_members()?)?;
    *seen = Some(version);
    Ok(())
}

/// Whether an open data directory records only what contracts hold that somebody watches.
pub(super) fn is_watched(store: &Store) -> Result<bool, StoreError> {
    Ok(store.consumer(CONSUMER).is_some() && scope(store)? == Scope::Watched)
}
