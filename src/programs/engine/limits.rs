//! What a run may use, and the record of the first limit that it reached.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use soroban_env_host::Error;
use soroban_env_host::xdr::{ScErrorCode, ScErrorType};
use wasmtime::ResourceLimiter;

use super::thread_clock::ThreadClock;

/// What one run may use. All are inclusive: what equals a limit passes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Instructions of the program, by wasmtime's count.
    pub fuel: u64,
    /// Time from the start of the run, without the time that looking up state takes, and without the time
    /// that it waits for a processor, up to [`WAITS`] times this: what a run gives must not depend on
    /// what else the machine does.
    pub wall: Duration,
    /// Linear memory of all instances that live at a time, in bytes.
    pub memory: usize,
    /// Emits, those that are rolled back included.
    pub emits: u32,
    /// Bytes of all emitted values as XDR, those that are rolled back included.
    pub emitted_bytes: usize,
    /// Fields of one emitted struct.
    pub columns: usize,
    /// Nesting of an emitted value; the struct itself is level 1.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            fuel: 1_000_000_000,
            wall: Duration::from_secs(2),
            memory: 64 << 20,
            emits: 1_000,
            emitted_bytes: 1 << 20,
            columns: 100,
            depth: 8,
        }
    }
}

/// Work of host functions and of contracts without a program, by the network's own cost model: more
/// than twice what a transaction may use there. Nothing interrupts the host, so this bounds its time.
pub(super) const HOST_INSTRUCTIONS: u64 = 1_000_000_000;
/// Memory of host objects by the same model, in bytes: ten times what a transaction may use there.
pub(super) const HOST_MEMORY: u64 = 400 << 20;

/// How many times the limit of its time a run may last in all, when others have the processors.
pub(super) const WAITS: u32 = 10;

/// Why a run cannot go on, whatever the guest does about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stop {
    /// The program reached a limit or emitted what is no row.
    Guest(String),
    /// Entries that it needs are not known, or looking them up failed.
    State,
    /// Our own fault.
    Ours(String),
}

/// The error with which the host unwinds a stopped run: one that no caller can catch.
pub(super) const STOPPED: Error =
    Error::from_type_and_code(ScErrorType::Budget, ScErrorCode::ExceededLimit);

/// Counters and flags of one run that wasmtime and the watching thread reach as well.
#[derive(Debug)]
pub(super) struct Bounds {
    pub(super) limits: Limits,
    /// The thread that runs it.
    thread: ThreadClock,
    began: Moment,
    aside: Mutex<Aside>,
    overdue: AtomicBool,
    memory: AtomicUsize,
    stopped: AtomicBool,
    why: Mutex<Option<Stop>>,
}

/// A time of a thread.
#[derive(Debug, Clone, Copy)]
struct Moment {
    at: Instant,
    /// How long the thread had had a processor.
    used: Duration,
}

impl Moment {
    /// Now, of the calling thread.
    fn now() -> Self {
        Self { at: Instant::now(), used: ThreadClock::used_by_own() }
    }
}

/// What a run's thread did that is not the program's work.
#[derive(Debug, Default)]
struct Aside {
    took: Duration,
    on_processor: Duration,
    /// When the thread turned to something else, if it is at that now.
    since: Option<Moment>,
}

/// A stopped run, as wasmtime carries it through the guest's frames.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the run was stopped")]
pub(super) struct Stopped;

impl Bounds {
    /// Of a run that begins now, on this thread.
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            thread: ThreadClock::own(),
            began: Moment::now(),
            aside: Mutex::default(),
            overdue: AtomicBool::new(false),
            memory: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            why: Mutex::new(None),
        }
    }

    /// Does something on the run's thread whose time does not count.
    pub(super) fn aside<T>(&self, work: impl FnOnce() -> T) -> T {
        self.aside.lock().since = Some(Moment::now());
        let result = work();
        let mut aside = self.aside.lock();
        if let Some(since) = aside.since.take() {
            let now = Moment::now();
            aside.took += now.at.saturating_duration_since(since.at);
            aside.on_processor += now.used.saturating_sub(since.used);
        }
        result
    }

    /// Time that counts, seen from any thread.
    pub(super) fn used(&self) -> Duration {
        let aside = self.aside.lock();
        let (at, used) = match aside.since {
            Some(since) => (since.at, Some(since.used)),
            None => (Instant::now(), self.thread.used()),
        };
        let elapsed = at.saturating_duration_since(self.began.at).saturating_sub(aside.took);
        let other = self.began.used + aside.on_processor;
        // Where the system does not say, all of it counts.
        used.map_or(elapsed, |used| used.saturating_sub(other).max(elapsed / WAITS))
    }

    /// How long the run has had a processor. To be asked on its thread.
    pub(super) fn on_processor(&self) -> Duration {
        let other = self.began.used + self.aside.lock().on_processor;
        ThreadClock::used_by_own().saturating_sub(other)
    }

    /// Stops the run. The first reason is the one that counts.
    pub(super) fn stop(&self, why: Stop) -> Stopped {
        self.why.lock().get_or_insert(why);
        self.stopped.store(true, Ordering::Relaxed);
        Stopped
    }

    /// Says that the time is over; noticed by [`check`](Self::check).
    pub(super) fn set_overdue(&self) {
        self.overdue.store(true, Ordering::Relaxed);
    }

    /// Whether the run may go on.
    pub(super) fn check(&self) -> Result<(), Stopped> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(Stopped);
        }
        if self.overdue.load(Ordering::Relaxed) {
            let most = Seconds(self.limits.wall);
            return Err(self.stop(Stop::Guest(format!("the program ran for more than {most}"))));
        }
        Ok(())
    }

    pub(super) fn why(&self) -> Option<Stop> {
        self.why.lock().clone()
    }

    pub(super) fn out_of_fuel(&self) -> Stopped {
        let most = self.limits.fuel;
        self.stop(Stop::Guest(format!("the program used more than {most} units of fuel")))
    }
}

/// A duration for people.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s", self.0.as_secs_f64())
    }
}

/// Bytes for people.
pub(super) struct Bytes(pub(super) usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n >= 1 << 20 && n % (1 << 20) == 0 => write!(f, "{} MiB", n >> 20),
            n if n >= 1 << 10 && n % (1 << 10) == 0 => write!(f, "{} KiB", n >> 10),
            n => write!(f, "{n} bytes"),
        }
    }
}

/// Allows one instance its memory and tables, and gives the memory back when the instance goes.
pub(super) struct Growth {
    bounds: Arc<Bounds>,
    held: usize,
}

impl Growth {
    pub(super) fn new(bounds: Arc<Bounds>) -> Self {
        Self { bounds, held: 0 }
    }
}

impl Drop for Growth {
    fn drop(&mut self) {
        self.bounds.memory.fetch_sub(self.held, Ordering::Relaxed);
    }
}

impl ResourceLimiter for Growth {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let more = desired.saturating_sub(current);
        let most = self.bounds.limits.memory;
        let used = self.bounds.memory.load(Ordering::Relaxed);
        if used.saturating_add(more) > most {
            let why = format!("the program used more than {} of memory", Bytes(most));
            return Err(wasmtime::Error::new(self.bounds.stop(Stop::Guest(why))));
        }
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        self.bounds.memory.store(used + more, Ordering::Relaxed);
        self.held += more;
        Ok(true)
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let most = super::settings::MOST_TABLE_ELEMENTS;
        Ok(desired <= most && maximum.is_none_or(|maximum| desired <= maximum))
    }

    fn instances(&self) -> usize {
        1
    }

    fn tables(&self) -> usize {
        super::settings::MOST_TABLES as usize
    }

    fn memories(&self) -> usize {
        1
    }
}
