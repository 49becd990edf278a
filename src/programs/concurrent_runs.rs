//! Runs a program on several stored ledgers concurrently. Runs on different ledgers are
//! independent: a run reads the state that the network had, not the results of other runs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use parking_lot::Mutex;

use super::ProgramError;
use super::effects::{Effects, PART_BYTES};
use super::engine::THREAD_STACK;
use super::registry::Entry;
use super::runner::{Runner, TurnLimits};
use orrery_ledger::domain::ContractId;
use orrery_runtime::priority::Priority;

/// Runs a program on `ledgers`, with a second thread if there is more than one. Returns the results
/// in the order of the ledgers, at least that of the first one. They end with the first run that
/// failed or is incomplete, or before the first ledger for which there was no time.
pub(super) fn run(
    runner: &Runner,
    entry: &Entry,
    contracts: &[ContractId],
    ledgers: Vec<Effects>,
    deadline: Instant,
) -> Vec<Result<Effects, ProgramError>> {
    let is_alone = ledgers.len() < 2;
    let remaining = Mutex::new(ledgers.into_iter().enumerate());
    let ran = Mutex::new(BTreeMap::new());
    let (is_over, bytes) = (AtomicBool::new(false), AtomicUsize::new(0));
    let work = || {
        loop {
            let Some((place, ledger)) = remaining.lock().next() else { return };
            let done = runner.run(entry, contracts, ledger, TurnLimits::with_deadline(deadline));
            match &done {
                Ok(effects) if effects.rest.is_none() => {
                    let held = effects.bytes + bytes.fetch_add(effects.bytes, Ordering::Relaxed);
                    if held >= PART_BYTES {
                        is_over.store(true, Ordering::Relaxed);
                    }
                }
                // Results of later ledgers are not needed.
                Ok(_) | Err(_) => is_over.store(true, Ordering::Relaxed),
            }
            ran.lock().insert(place, done);
            if is_over.load(Ordering::Relaxed) || Instant::now() >= deadline {
                return;
            }
        }
    };
    thread::scope(|scope| {
        if !is_alone {
            let helper = thread::Builder::new().name("programs-beside".to_owned());
            // When the thread cannot be created, the calling thread does all the work.
            let _ = helper.stack_size(THREAD_STACK).spawn_scoped(scope, || {
                Priority::Background.apply_to_current_thread();
                work();
            });
        }
        work();
    });
    complete_prefix(ran.into_inner(), |done| matches!(done, Ok(effects) if effects.rest.is_none()))
}

/// Returns the values at 0, 1, 2, …, up to the first missing one, or up to and including the first
/// one that is not complete.
fn complete_prefix<T>(by_place: BTreeMap<usize, T>, is_complete: impl Fn(&T) -> bool) -> Vec<T> {
    let mut found = Vec::with_capacity(by_place.len());
    for (place, one) in by_place {
        if place != found.len() || found.last().is_some_and(|last| !is_complete(last)) {
            break;
        }
        found.push(one);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_complete_prefix_of_the_results_is_taken() {
        let taken = |places: &[(usize, bool)]| {
            let by_place = places.iter().copied().collect();
            complete_prefix(by_place, |is_complete| *is_complete).len()
        };
        assert_eq!(taken(&[]), 0);
        assert_eq!(taken(&[(0, true), (1, true), (2, true)]), 3);
        assert_eq!(taken(&[(1, true), (2, true)]), 0);
        assert_eq!(taken(&[(0, true), (2, true)]), 1);
        assert_eq!(taken(&[(0, true), (1, false), (2, true)]), 2);
        assert_eq!(taken(&[(0, false), (1, true)]), 1);
    }
}
