//! Recomputes signatures from stored raw ledgers, on threads of its own, for the command
//! `orrery rebuild signatures`.

use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::control::RebuildReport;
use crate::pipeline::Trust;
use crate::priority::Priority;
use crate::store::{SignatureSearch, Store, StoreError};
use crate::validators::Validators;
use crate::verify::Policy;

/// Name under which `orrery rebuild` recomputes signatures.
pub(super) const SIGNATURES: &str = "signatures";

/// Why signatures cannot be recomputed, as text that follows the name.
const NO_VALIDATORS: &str =
    "no validators of this network are known: name them in trust.validators";

/// The last recomputation of signatures in this process.
#[derive(Default)]
pub(super) struct SignatureRebuild {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    running: bool,
    progress: SignatureSearch,
    /// Error that ended it, until it is reported.
    failed: Option<StoreError>,
}

impl SignatureRebuild {
    /// Begins to recompute signatures, unless that is under way.
    ///
    /// # Errors
    /// [`StoreError::NotRebuilt`] when no validators are trusted.
    pub(super) fn begin(
        self: &Arc<Self>,
        store: &Arc<Store>,
        trust: &Trust,
    ) -> Result<(), StoreError> {
        let Trust { policy, validators, .. } = trust.clone();
        let refused = || StoreError::NotRebuilt(SIGNATURES.to_owned(), NO_VALIDATORS);
        let validators = validators.ok_or_else(refused)?;
        {
            let mut state = self.state.lock();
            if state.running {
                return Ok(());
            }
            *state = State { running: true, ..State::default() };
        }
        let (shared, store) = (Arc::downgrade(self), Arc::clone(store));
        let work = move || {
            let outcome = recompute(&store, &validators, policy, &shared);
            drop(store);
            if let Some(shared) = shared.upgrade() {
                shared.end(outcome);
            }
        };
        let spawned = thread::Builder::new().name(SIGNATURES.to_owned()).spawn(work);
        if let Err(error) = spawned {
            self.end(Err(no_thread(&error)));
        }
        Ok(())
    }

    fn end(&self, outcome: Result<(), StoreError>) {
        let mut state = self.state.lock();
        (state.running, state.failed) = (false, outcome.err());
        self.ended.notify_all();
    }

    /// Waits until it has ended, or for this long. Returns whether it is still under way.
    pub(super) fn wait(&self, longest: Duration) -> bool {
        let mut state = self.state.lock();
        if state.running {
            self.ended.wait_for(&mut state, longest);
        }
        state.running
    }

    /// Returns the progress.
    ///
    /// # Errors
    /// The error that ended it, once.
    pub(super) fn report(&self) -> Result<RebuildReport, StoreError> {
        let mut state = self.state.lock();
        if let Some(error) = state.failed.take() {
            return Err(error);
        }
        let State { running, progress, .. } = &*state;
        Ok(RebuildReport {
            running: *running,
            done: progress.read,
            of: progress.of,
            lost: progress.without_raw.clone(),
            digest: None,
        })
    }
}

/// Recomputes signatures until nothing is left to do, or `shared` is gone. Raw ledgers are read by
/// a thread of low priority.
fn recompute(
    store: &Store,
    validators: &Validators,
    policy: Policy,
    shared: &Weak<SignatureRebuild>,
) -> Result<(), StoreError> {
    let progress = |search: &SignatureSearch| match shared.upgrade() {
        Some(shared) => {
            shared.state.lock().progress = search.clone();
            ControlFlow::Continue(())
        }
        None => ControlFlow::Break(()),
    };
    let search = || {
        Priority::Background.apply_to_current_thread();
        store.find_signatures(validators, policy, None, progress)
    };
    let found = thread::scope(|scope| {
        let searching = thread::Builder::new().name(SIGNATURES.to_owned());
        let searching = searching.spawn_scoped(scope, search);
        let searching = searching.map_err(|error| no_thread(&error))?;
        let panicked = |_| StoreError::Database("a search has panicked: see the log".to_owned());
        searching.join().map_err(panicked)?
    })?;
    found.map_or(Ok(()), |found| store.record_signatures(&found))
}

fn no_thread(error: &io::Error) -> StoreError {
    StoreError::Database(format!("the thread for signatures cannot be started: {error}"))
}
