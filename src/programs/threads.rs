//! The threads that run programs on new and on stored ledgers and copy rows into tables.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use super::backfills::Backfills;
use super::engine::{BACKGROUND_RUNS, THREAD_STACK};
use super::feed_report::report;
use super::feeder::Feeder;
use super::lanes::{Lane, Lanes};
use super::live::Live;
use crate::observe::health::Health;
use crate::priority::Priority;

/// Threads that run programs on new ledgers, with the lane that each serves.
const LIVE_THREADS: [(&str, Lane); 2] = [("programs-1", Lane::Fast), ("programs-2", Lane::Fast)];
/// Such threads that have low priority.
const BACKGROUND_LIVE_THREADS: [(&str, Lane); 4] = [
    ("programs-new", Lane::New),
    ("programs-asking-1", Lane::Upstream),
    ("programs-asking-2", Lane::Upstream),
    ("programs-slow", Lane::Slow),
];
/// Low-priority threads that run programs on stored ledgers.
const BACKFILL_THREADS: [(&str, Lane); 3] = [
    ("programs-backfill-new", Lane::New),
    ("programs-backfill", Lane::Fast),
    ("programs-backfill-slow", Lane::Slow),
];
/// Threads that copy rows into tables, each for a different owner.
const FEEDER_THREADS: [&str; 4] = ["tables-1", "tables-2", "tables-3", "tables-4"];

/// Starts the threads; those that the system refuses are reported to health.
pub(super) fn start(
    lanes: &Arc<Lanes>,
    live: &Arc<Live>,
    backfills: &Arc<Backfills>,
    feeder: &Arc<Feeder>,
    health: &Arc<Health>,
) -> Vec<JoinHandle<()>> {
    // Each backfill thread may use a second one.
    const { assert!(BACKGROUND_LIVE_THREADS.len() + 2 * BACKFILL_THREADS.len() == BACKGROUND_RUNS) };
    let mut threads = Vec::new();
    let prompt = LIVE_THREADS.map(|(name, lane)| (name, lane, Priority::Prompt));
    let background = BACKGROUND_LIVE_THREADS.map(|(name, lane)| (name, lane, Priority::Background));
    for (name, lane, priority) in prompt.into_iter().chain(background) {
        let (lanes, live) = (Arc::clone(lanes), Arc::clone(live));
        threads.extend(spawn(name, priority, health, move || {
            lanes.work(lane, |program| live.turn(program, lane));
        }));
    }
    for (name, lane) in BACKFILL_THREADS {
        let backfills = Arc::clone(backfills);
        let work = move || backfills.work(lane);
        threads.extend(spawn(name, Priority::Background, health, work));
    }
    for name in FEEDER_THREADS {
        let (feeder, reports) = (Arc::clone(feeder), Arc::clone(health));
        threads.extend(spawn(name, Priority::Prompt, health, move || {
            feeder.work(|summary| report(summary, &reports));
        }));
    }
    threads
}

/// Starts a thread; returns `None` and reports to health when the system refuses.
fn spawn(
    name: &str,
    priority: Priority,
    health: &Health,
    work: impl FnOnce() + Send + 'static,
) -> Option<JoinHandle<()>> {
    let thread = thread::Builder::new().name(name.to_owned()).stack_size(THREAD_STACK);
    let started = thread.spawn(move || {
        priority.apply_to_current_thread();
        work();
    });
    started
        .inspect_err(|error| {
            health.down("program threads", format!("a thread cannot start: {error}"))
        })
        .ok()
}
