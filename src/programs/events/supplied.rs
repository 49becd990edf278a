//! The interfaces that users supplied, in memory: those of one owner take no place from those of
//! another, and each goes with its project.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::known::KnownInterface;
use crate::storage;
use orrery_ledger::domain::{Owner, ProgramId};
use orrery_store::{Store, StoreError};

/// Memory of the interfaces of one owner, and of all together, in bytes. Above it, those that were
/// used longest ago are read again when they are needed. The newest one stays, whatever it takes.
const MOST_OF_OWNER: usize = 8 << 20;
const MOST_OF_ALL: usize = 64 << 20;

/// Interfaces that users supplied, in memory.
#[derive(Default)]
pub struct SuppliedInterfaces(Mutex<State>);

#[derive(Default)]
struct State {
    held: BTreeMap<ProgramId, Held>,
    /// Number of uses so far.
    uses: u64,
}

struct Held {
    owner: Owner,
    interface: Arc<KnownInterface>,
    /// Number of its last use.
    used: u64,
}

impl SuppliedInterfaces {
    /// Returns the interface of a project, if it is in memory.
    pub(crate) fn get(&self, program: ProgramId) -> Option<Arc<KnownInterface>> {
        let mut state = self.0.lock();
        state.uses += 1;
        let used = state.uses;
        let held = state.held.get_mut(&program)?;
        held.used = used;
        Some(Arc::clone(&held.interface))
    }

    /// Keeps the interface of a project, unless that was deleted.
    pub(crate) fn keep(
        &self,
        store: &Store,
        (program, owner): (ProgramId, &Owner),
        interface: Arc<KnownInterface>,
    ) -> Result<(), StoreError> {
        let mut state = self.0.lock();
        // Under the lock: whoever deletes the project takes its interface away after that.
        if store.shared_row(&storage::manifest(program))?.is_none() {
            return Ok(());
        }
        state.uses += 1;
        let held = Held { owner: owner.clone(), interface, used: state.uses };
        state.held.insert(program, held);
        state.shrink(MOST_OF_OWNER, |held| held.owner == *owner);
        state.shrink(MOST_OF_ALL, |_| true);
        Ok(())
    }

    /// Takes the interface of a deleted project out of memory.
    pub(crate) fn forget(&self, program: ProgramId) {
        self.0.lock().held.remove(&program);
    }

    /// Memory that they take together, in bytes.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.0.lock().held.values().map(|held| held.interface.bytes()).sum()
    }
}

impl State {
    /// Takes those of these out of memory that were used longest ago, until the rest takes at most as
    /// many bytes, or is one.
    fn shrink(&mut self, most: usize, is_one: impl Fn(&Held) -> bool) {
        let own = self.held.iter().filter(|(_, held)| is_one(held));
        let mut by_use: Vec<(u64, ProgramId, usize)> =
            own.map(|(id, held)| (held.used, *id, held.interface.bytes())).collect();
        by_use.sort_unstable();
        let mut bytes: usize = by_use.iter().map(|(.., bytes)| bytes).sum();
        by_use.pop();
        for (_, program, of_this) in by_use {
            if bytes <= most {
                break;
            }
            self.held.remove(&program);
            bytes -= of_this;
        }
    }
}
