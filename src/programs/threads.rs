//! The threads that run programs on new and on stored ledgers and copy rows into tables.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use super::backfills::Backfills;
use super::engine::{BACKGROUND_RUNS, THREAD_STACK};
use super::failures::{BACKFILLS, LIVE};
use super::feed_report::{TABLES, report};
use super::feeder::Feeder;
use super::lanes::{Lane, Lanes};
use super::live::Live;
use super::replacing::Replacements;
use orrery_runtime::observe::health::Health;
use orrery_runtime::priority::Priority;
use orrery_runtime::supervision::Supervised;

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
/// Thread that replaces programs by those that have caught up.
const REPLACING_THREAD: &str = "programs-replacing";

/// The threads of the programs.
#[derive(Default)]
pub(super) struct Threads {
    handles: Vec<JoinHandle<()>>,
    is_stopping: Arc<AtomicBool>,
}

impl Threads {
    /// Starts the threads; those that the system refuses are reported to health.
    pub(super) fn start(
        lanes: &Arc<Lanes>,
        live: &Arc<Live>,
        backfills: &Arc<Backfills>,
        feeder: &Arc<Feeder>,
        replacements: &Arc<Replacements>,
        health: &Arc<Health>,
    ) -> Self {
        // Each backfill thread may use a second one.
        const {
            assert!(BACKGROUND_LIVE_THREADS.len() + 2 * BACKFILL_THREADS.len() == BACKGROUND_RUNS);
        };
        let mut threads = Self::default();
        let prompt = LIVE_THREADS.map(|(name, lane)| (name, lane, Priority::Prompt));
        let background =
            BACKGROUND_LIVE_THREADS.map(|(name, lane)| (name, lane, Priority::Background));
        for (name, lane, priority) in prompt.into_iter().chain(background) {
            let (lanes, live, own) = (Arc::clone(lanes), Arc::clone(live), Arc::clone(health));
            threads.spawn(Supervised::new(name, LIVE, health), priority, health, move || {
                lanes.work(lane, |program| {
                    own.injected().panic_if(name);
                    live.turn(program, lane)
                });
            });
        }
        for (name, lane) in BACKFILL_THREADS {
            let (backfills, own) = (Arc::clone(backfills), Arc::clone(health));
            let supervised = Supervised::new(name, BACKFILLS, health);
            threads.spawn(supervised, Priority::Background, health, move || {
                backfills.work(lane, || own.injected().panic_if(name));
            });
        }
        for name in FEEDER_THREADS {
            let (feeder, reports) = (Arc::clone(feeder), Arc::clone(health));
            let supervised = Supervised::new(name, TABLES, health);
            threads.spawn(supervised, Priority::Prompt, health, move || {
                let before = || reports.injected().panic_if(name);
                feeder.work(before, |summary| report(summary, &reports));
            });
        }
        let (replacements, own) = (Arc::clone(replacements), Arc::clone(health));
        let supervised = Supervised::new(REPLACING_THREAD, LIVE, health);
        threads.spawn(supervised, Priority::Prompt, health, move || {
            replacements.work(|| own.injected().panic_if(REPLACING_THREAD));
        });
        threads
    }

    /// Says that the threads are to end. Each also needs to be woken.
    pub(super) fn begin_stop(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
    }

    /// Waits until the threads have ended.
    pub(super) fn join(&mut self) {
        for thread in self.handles.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the programs did not stop cleanly");
            }
        }
    }

    /// Starts a thread, which calls `work` again after a failure; reports to health when the system
    /// refuses.
    fn spawn(
        &mut self,
        supervised: Supervised,
        priority: Priority,
        health: &Health,
        work: impl FnMut() + Send + 'static,
    ) {
        let thread = thread::Builder::new().name(supervised.name().to_owned());
        let is_stopping = Arc::clone(&self.is_stopping);
        let started = thread.stack_size(THREAD_STACK).spawn(move || {
            priority.apply_to_current_thread();
            supervised.run(|| is_stopping.load(Ordering::SeqCst), work);
        });
        match started {
            Ok(thread) => self.handles.push(thread),
            Err(error) => {
                health.down("program threads", format!("a thread cannot start: {error}"));
            }
        }
    }
}
