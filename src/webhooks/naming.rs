//! Names of the events that are sent. A body is made once and kept, so it waits for the index of names:
//! for a bounded time, after which it is made without what is missing, and says so.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::executables::{InterfaceReader, Interfaces, Lacking, Waited};
use crate::store::{RowBounds, StoreError};

/// How long new deliveries wait for the index at most before they go on without it, until it has caught
/// up: some thousand ledgers, as after a start.
const MOST_WAITED: Duration = Duration::from_secs(10);

/// Interfaces by which events are named.
#[derive(Default)]
pub(super) struct Naming {
    interfaces: OnceLock<Arc<Interfaces>>,
    /// Whether new deliveries have waited for the index in vain, and it has not caught up since.
    goes_on_without_index: AtomicBool,
}

impl Naming {
    /// Sets the interfaces. Without them, deliveries have no names.
    pub fn set(&self, interfaces: Arc<Interfaces>) {
        // A second service of one process would set the same.
        let _ = self.interfaces.set(interfaces);
    }

    /// Returns a reader of the interfaces, which reads stored ones that are not in memory on this thread.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails.
    pub fn reader(&self) -> Result<Option<InterfaceReader<'_>>, StoreError> {
        self.interfaces.get().map(|interfaces| interfaces.loading_reader()).transpose()
    }

    /// Returns a reader of the interfaces that are in memory.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails.
    pub fn reader_of_memory(&self) -> Result<Option<InterfaceReader<'_>>, StoreError> {
        self.interfaces.get().map(|interfaces| interfaces.reader(RowBounds::none())).transpose()
    }

    /// Waits until the interfaces that a reader lacked have been read into memory by the thread that
    /// does so, at most this long. Returns whether they have.
    pub fn wait_until_read(&self, lacking: &Lacking, most: Duration) -> bool {
        self.interfaces.get().is_none_or(|it| it.wait_until_has(lacking, most))
    }

    /// Waits until the events of a ledger at this place in the feed can be named.
    pub fn wait_for_new(&self, place: u64) {
        let Some(interfaces) = self.interfaces.get() else { return };
        let goes_on = self.goes_on_without_index.load(Ordering::Relaxed);
        let most = if goes_on { Duration::ZERO } else { MOST_WAITED };
        let is_indexed = interfaces.wait_while_indexing(place, most) == Waited::Indexed;
        self.goes_on_without_index.store(!is_indexed, Ordering::Relaxed);
    }

    /// Waits until the events of a ledger at this place in the feed can be named, at most this long.
    pub fn wait(&self, place: u64, most: Duration) -> Waited {
        self.interfaces.get().map_or(Waited::Stuck, |it| it.wait_while_indexing(place, most))
    }
}
