//! Delays requests that read consumers' rows until these consumers have processed every ledger that
//! was readable when the request arrived. Such a response is therefore never older than one from
//! the store itself. Responses that say what they lack wait for the newest ledger alone.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use super::storage::StorageError;
use super::{ApiError, Deps};
use orrery_contract_data::CONSUMER as CONTRACT_DATA;
use orrery_ledger::domain::LedgerSeq;
use orrery_store::Store;

/// How long a request waits for ledgers that are older than the newest one.
const OLDER_WAIT: Duration = Duration::from_millis(250);

/// What consumers have processed of the ledgers that were stored when a request arrived.
#[derive(Debug, Clone, Copy)]
pub(super) struct Processed {
    /// Newest of these ledgers; `None` when the store is empty, or there is no consumer to wait for.
    pub as_of: Option<LedgerSeq>,
    /// Whether older ones are missing in the consumers' rows.
    pub lacks_older: bool,
    /// Whether the consumers have no more to do with these ledgers.
    pub is_final: bool,
}

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
    /// case already. The wait is limited to the time limit of a store query.
    ///
    /// # Errors
    /// [`ApiError::NotReady`] when a consumer needs longer, for example during a backfill or while
    /// an index is new, or when it is not registered.
    pub(super) async fn wait_until_current(
        &self,
        deps: &Deps,
        consumers: &[&'static str],
    ) -> Result<Processed, ApiError> {
        let (store, wanted) = (&deps.store, Wanted::of(&deps.store));
        registered(store, consumers)?;
        let has_passed = |name: &str| store.has_passed(name, wanted.place) == Some(true);
        match self.wait_until(consumers, has_passed, deps.settings.limits.scan_ms.duration()).await
        {
            Ok(()) => Ok(wanted.processed(consumers)),
            Err(name) => Err(not_ready(store, name)),
        }
    }

    /// Like [`Self::wait_until_current`], but consumers may have more to do with older ledgers: waits
    /// for these only a little, because it may take minutes until they are done with an import or a
    /// backfill.
    ///
    /// # Errors
    /// [`ApiError::NotReady`] when a consumer has not processed the newest ledger in time, or is not
    /// registered.
    pub(super) async fn wait_for_newest(
        &self,
        deps: &Deps,
        consumers: &[&'static str],
    ) -> Result<Processed, ApiError> {
        let (store, wanted, time) =
            (&deps.store, Wanted::of(&deps.store), deps.settings.limits.scan_ms.duration());
        registered(store, consumers)?;
        let has_taken = |name: &str| store.has_taken(name, wanted.place) == Some(true);
        let for_older = OLDER_WAIT.min(time);
        if self.wait_until(consumers, has_taken, for_older).await.is_err() {
            let has_newest =
                |name: &str| wanted.newest.is_none_or(|it| store.lacks(name, it) == Some(false));
            let rest = time.saturating_sub(for_older);
            if let Err(name) = self.wait_until(consumers, has_newest, rest).await {
                return Err(not_ready(store, name));
            }
        }
        let all = |is: &dyn Fn(&str) -> bool| consumers.iter().all(|name| is(name));
        let has_passed = |name: &str| store.has_passed(name, wanted.place) == Some(true);
        Ok(Processed {
            lacks_older: !all(&has_taken),
            is_final: all(&has_passed),
            ..wanted.processed(consumers)
        })
    }

    /// Waits until `is_done` is true for all of these consumers, for as long as `most`. Returns one of
    /// those for which it is not.
    async fn wait_until(
        &self,
        consumers: &[&'static str],
        is_done: impl Fn(&str) -> bool,
        most: Duration,
    ) -> Result<(), &'static str> {
        let behind = || consumers.iter().copied().find(|name| !is_done(name));
        let Some(name) = behind() else { return Ok(()) };
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
        timeout(most, reached).await.map_err(|_| behind().unwrap_or(name))
    }
}

/// What is stored when a request arrives.
struct Wanted {
    newest: Option<LedgerSeq>,
    place: u64,
}

impl Wanted {
    fn of(store: &Store) -> Self {
        // Read before the place, so that a ledger ingested in between is not reported as included.
        let newest = store.ends().latest;
        Self { newest, place: store.last_place() }
    }

    /// All of it is processed by these consumers.
    fn processed(&self, consumers: &[&'static str]) -> Processed {
        let as_of = self.newest.filter(|_| !consumers.is_empty());
        Processed { as_of, lacks_older: false, is_final: true }
    }
}

fn registered(store: &Store, consumers: &[&'static str]) -> Result<(), ApiError> {
    match consumers.iter().find(|name| store.has_passed(name, 0).is_none()) {
        Some(&CONTRACT_DATA) => Err(StorageError::Off.into()),
        Some(name) => Err(ApiError::NotReady(format!("there is no index '{name}' here"))),
        None => Ok(()),
    }
}

fn not_ready(store: &Store, name: &'static str) -> ApiError {
    let ledgers = store.consumer(name).map_or(0, |it| it.lag);
    ApiError::NotReady(format!("'{name}' has not indexed {ledgers} stored ledgers yet"))
}
