//! Answers from what consumers of the feed keep are never older than what the store itself answers: a request waits
//! until they have done their work with every ledger that could be read when it came.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::timeout;

use super::{ApiError, Deps};
use crate::domain::LedgerSeq;
use crate::store::Store;

/// Hears of consumers that get on.
pub(super) struct Progress(Arc<Notify>);

impl Progress {
    /// That of a store's consumers.
    pub(super) fn of(store: &Store) -> Self {
        let moved = Arc::new(Notify::new());
        let told = Arc::downgrade(&moved);
        store.listen_to_consumers(move || {
            told.upgrade().inspect(|moved| moved.notify_waiters()).is_some()
        });
        Self(moved)
    }

    /// Waits until consumers have done their work with all that is stored now, which mostly they have; says what the
    /// newest ledger is. They are given as long as a question may take.
    ///
    /// # Errors
    /// [`ApiError::NotReady`] when they need longer, as they do when older ledgers come by the thousand or an index
    /// is new, and when they are not registered.
    pub(super) async fn reached(
        &self,
        deps: &Deps,
        consumers: &[&'static str],
    ) -> Result<Option<LedgerSeq>, ApiError> {
        let store = &deps.store;
        // Before the place: a ledger that comes in between is not claimed.
        let newest = store.ends().latest;
        let place = store.last_place();
        let behind =
            || consumers.iter().find(|name| !store.has_passed(name, place).is_some_and(|has| has));
        let Some(name) = behind() else { return Ok(newest) };
        if store.has_passed(name, place).is_none() {
            return Err(ApiError::NotReady(format!("nothing is indexed as '{name}' here")));
        }
        let reached = async {
            loop {
                let moved = self.0.notified();
                tokio::pin!(moved);
                // From here on it is heard; what was before is seen.
                moved.as_mut().enable();
                if behind().is_none() {
                    return;
                }
                moved.await;
            }
        };
        timeout(deps.settings.scan.time, reached).await.map(|()| newest).map_err(|_| {
            let (name, ledgers) = match behind() {
                Some(name) => (name, store.consumer(name).map_or(0, |it| it.lag)),
                None => (name, 0),
            };
            ApiError::NotReady(format!("'{name}' has yet to index {ledgers} stored ledgers"))
        })
    }
}
