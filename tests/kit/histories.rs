//! Runs random test histories, each generated from a seed.

use super::size;

/// Histories between two progress messages.
const REPORT_EVERY: u64 = 500;

/// Calls `history` with each seed from 0 up to `small` or `full` (see [`size`]), on all processors,
/// or only with `ORRERY_TEST_SEED` when that is set.
///
/// # Panics
/// When a history panics; the message names its seed.
pub fn run(small: u64, full: u64, history: impl Fn(u64) + Sync) {
    let given = std::env::var("ORRERY_TEST_SEED").ok().map(|seed| seed.parse::<u64>().unwrap());
    let seeds = given.map_or(0..size::choose(small, full), |seed| seed..seed + 1);
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
