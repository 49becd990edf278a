//! Runs random test histories, each generated from a seed.

use std::ops::Range;

use super::size;

/// Histories between two progress messages.
const REPORT_EVERY: u64 = 500;

/// Calls `history` with each seed from 0 up to `small` or `full` (see [`size`]), on all processors. With
/// `ORRERY_TEST_SEED=N` only that one is run, and with `ORRERY_TEST_SEED=N..M` those from `N` up to, but
/// without, `M`: a part of a long run.
///
/// # Panics
/// When a history panics; the message names its seed.
pub fn run(small: u64, full: u64, history: impl Fn(u64) + Sync) {
    let seeds = seeds(small, full);
    let one = |seed: u64| {
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| history(seed)));
        assert!(ran.is_ok(), "ORRERY_TEST_SEED={seed} repeats the failed history");
        if (seed + 1).is_multiple_of(REPORT_EVERY) {
            eprintln!("{} histories", seed + 1);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let seeds = seeds.clone().filter(move |seed| seed % threads == thread);
            scope.spawn(move || seeds.for_each(one));
        }
    });
}

/// Returns the seeds that [`run`] would run, for what runs them one after the other.
///
/// # Panics
/// When `ORRERY_TEST_SEED` is none and no range of them.
pub fn seeds(small: u64, full: u64) -> Range<u64> {
    let given = std::env::var("ORRERY_TEST_SEED").ok();
    given.map_or(0..size::choose(small, full), |given| parse(&given))
}

fn parse(given: &str) -> Range<u64> {
    match given.split_once("..") {
        Some((first, end)) => first.parse().unwrap()..end.parse().unwrap(),
        None => {
            let seed = given.parse().unwrap();
            seed..seed + 1
        }
    }
}
