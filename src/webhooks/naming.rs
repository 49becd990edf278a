//! Names of the events that are sent. A body is made once and kept, so it waits for the index of names:
//! for a bounded time, after which it is made without what is missing, and says so.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use orrery_executables::{InterfaceReader, Interfaces, Lacking, Waited};
use orrery_ledger::domain::{ContractId, LedgerSeq};
use orrery_store::{RowBounds, StoreError};

/// How long new deliveries wait for the index at once. Whoever else changes deliveries waits for that.
const WAITED_AT_ONCE: Duration = Duration::from_millis(50);

/// Interfaces by which events are named.
#[derive(Default)]
pub(super) struct Naming {
    interfaces: OnceLock<Arc<Interfaces>>,
    index: Mutex<Index>,
}

/// What new deliveries have seen of the index.
#[derive(Default)]
enum Index {
    /// It had their ledgers.
    #[default]
    CaughtUp,
    /// They wait for it since the first of these times; it last advanced at the second, to this
    /// generation.
    Behind(Instant, Instant, u64),
    /// They have waited in vain: those of the ledger at this place were the last that were made without.
    TooSlow(u64),
}

impl Naming {
    /// Sets the interfaces. Without them, deliveries have no names.
    pub fn set(&self, interfaces: Arc<Interfaces>) {
        // A second service of one process would set the same.
        let _ = self.interfaces.set(interfaces);
    }

    /// Returns a reader of the interfaces, which reads stored ones that are not in memory on this thread.
    pub fn reader(&self) -> Result<Option<InterfaceReader<'_>>, StoreError> {
        self.interfaces.get().map(|interfaces| interfaces.loading_reader()).transpose()
    }

    /// Returns the number of decimals of a token as of a ledger, where it is known.
    pub fn decimals(
        &self,
        token: &ContractId,
        as_of: LedgerSeq,
    ) -> Result<Option<u32>, StoreError> {
        self.interfaces.get().map_or(Ok(None), |interfaces| interfaces.decimals(token, as_of))
    }

    /// Returns a reader of the interfaces that are in memory.
    pub fn reader_of_memory(&self) -> Result<Option<InterfaceReader<'_>>, StoreError> {
        self.interfaces.get().map(|interfaces| interfaces.reader(RowBounds::none())).transpose()
    }

    /// Waits until the interfaces that a reader lacked have been read into memory by the thread that
    /// does so, at most this long. Returns whether they have.
    pub fn wait_until_read(&self, lacking: &Lacking, most: Duration) -> bool {
        self.interfaces.get().is_none_or(|it| it.wait_until_has(lacking, most))
    }

    /// Whether deliveries are made now of the events of a ledger at this place in the feed: once these can
    /// be named, or were waited for long enough. Waits for a short time; false: ask again.
    pub fn may_be_made(&self, place: u64) -> bool {
        let Some(interfaces) = self.interfaces.get() else { return true };
        let mut index = self.index.lock();
        if interfaces.has_indexed(place) {
            *index = Index::CaughtUp;
            return true;
        }
        let (now, generation) = (Instant::now(), interfaces.generation());
        let (since, advanced) = match *index {
            // It may have caught up, and yet lack what has only just been stored.
            Index::TooSlow(made) if !interfaces.has_indexed(made) => {
                *index = Index::TooSlow(place);
                return true;
            }
            Index::Behind(since, advanced, before) if before == generation => (since, advanced),
            Index::Behind(since, ..) => (since, now),
            Index::CaughtUp | Index::TooSlow(_) => (now, now),
        };
        let is_stuck = now - advanced >= interfaces.most_waited();
        if is_stuck || now - since >= Interfaces::MOST_WAITED_FOR_INDEX {
            *index = Index::TooSlow(place);
            return true;
        }
        *index = Index::Behind(since, advanced, generation);
        let is_indexed = interfaces.wait_while_indexing(place, WAITED_AT_ONCE) == Waited::Indexed;
        if is_indexed {
            *index = Index::CaughtUp;
        }
        is_indexed
    }

    /// Waits until the events of a ledger at this place in the feed can be named, at most this long.
    pub fn wait(&self, place: u64, most: Duration) -> Waited {
        self.interfaces.get().map_or(Waited::Stuck, |it| it.wait_while_indexing(place, most))
    }
}
