//! Delays requests that read consumers' rows until these consumers have processed every ledger that
//! was readable when the request arrived. Such a response is therefore never older than one from
//! the store itself.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::timeout;

use super::{ApiError, Deps};
use crate::domain::LedgerSeq;
use crate::store::Store;

/// Receives a notification whenever a consumer has made progress.
pub(super) struct ConsumerWait(Arc<Notify>);

impl ConsumerWait {
    /// Subscribes to the progress of a store's consumers.
    pub(super) fn of(store: &Store) -> Self {
        let moved = Arc::new(Notify::new());
        let waker = Arc::downgrade(&moved);
        store.listen_to_consumers(move || {
            waker.upgrade().inspect(|moved| moved.notify_waiters()).is_some()
        });
        Self(moved)
    }

    /// Waits until consumers have processed all ledgers that are stored now, which is usually the
    /// case already. Returns the newest of these ledgers; `None` when the store is empty, or there
    /// is no consumer to wait for. The wait is limited to the time limit of a store query.
    ///
    /// # Errors
    /// [`ApiError::NotReady`] when a consumer needs longer, for example during a backfill or while
    /// an index is new, or when it is not registered.
    pub(super) async fn wait_until_current(
        &self,
        deps: &Deps,
        consumers: &[&'static str],
    ) -> Result<Option<LedgerSeq>, ApiError> {
        if consumers.is_empty() {
            return Ok(None);
        }
        let store = &deps.store;
        // Read before the place, so that a ledger ingested in between is not reported as included.
        let newest = store.ends().latest;
        let place = store.last_place();
        let behind =
            || consumers.iter().find(|name| !store.has_passed(name, place).is_some_and(|has| has));
        let Some(name) = behind() else { return Ok(newest) };
        if store.has_passed(name, place).is_none() {
            return Err(ApiError::NotReady(format!("there is no index '{name}' here")));
        }
        let reached = async {
            loop {
                let moved = self.0.notified();
                tokio::pin!(moved);
                // Later progress sends a notification; earlier progress is found by the check
                // below.
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
            ApiError::NotReady(format!("'{name}' has not indexed {ledgers} stored ledgers yet"))
        })
    }
}
