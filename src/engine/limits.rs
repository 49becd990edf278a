//! The limits of a run, and the record of the first limit that it reached.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use orrery_settings::Programs;
use parking_lot::Mutex;
use soroban_env_host::Error;
use soroban_env_host::xdr::{ScErrorCode, ScErrorType};
use wasmtime::ResourceLimiter;

use super::settings::{MAX_TABLE_ELEMENTS, MAX_TABLES};
use super::thread_clock::ThreadClock;

/// Limits of one run. All are inclusive: a value equal to the limit is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Number of program instructions, as counted by wasmtime's fuel.
    pub fuel: u64,
    /// Maximum duration of the run. The time of state lookups does not count, nor does the time
    /// spent waiting for a processor until the run has lasted [`MAX_WALL_FACTOR`] times this long: the result
    /// of a run must not depend on the load of the machine.
    pub wall: Duration,
    /// Linear memory of all instances that exist at the same time, in bytes.
    pub memory: usize,
    /// Number of emits, including those that are rolled back.
    pub emits: u32,
    /// Size of all emitted values as XDR in bytes, including those that are rolled back.
    pub emitted_bytes: usize,
    /// Number of fields of one emitted struct.
    pub columns: usize,
    /// Nesting depth of an emitted value; the struct itself is level 1.
    pub depth: usize,
}

impl From<&Programs> for Limits {
    fn from(settings: &Programs) -> Self {
        Self {
            fuel: u64::from(settings.fuel_millions.get()) * 1_000_000,
            wall: settings.run_ms.duration(),
            memory: settings.memory_mib.bytes() as usize,
            emits: settings.emits.get(),
            emitted_bytes: settings.emitted_kib.bytes() as usize,
            columns: settings.columns.get() as usize,
            depth: settings.depth.get() as usize,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::from(&Programs::default())
    }
}

/// Budget for host functions and for contracts that no program replaces, in instructions of the
/// network's cost model: more than twice what a transaction may use. The host cannot be
/// interrupted, so this limits its time.
pub(super) const HOST_INSTRUCTIONS: u64 = 1_000_000_000;
/// Memory budget for host objects in bytes, by the same model: ten times what a transaction may
/// use.
pub(super) const HOST_MEMORY: u64 = 400 << 20;

/// Factor by which the total duration of a run may exceed its time limit while other work occupies
/// the processors.
pub(super) const MAX_WALL_FACTOR: u32 = 10;

/// Why a run must end, even if the guest would continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stop {
    /// The program reached a limit or emitted an invalid row.
    Guest(String),
    /// Entries that the run needs are unknown, or their lookup failed.
    State,
    /// An internal failure, not caused by the program.
    Internal(String),
}

/// Error with which the host unwinds a stopped run. A calling contract cannot catch it.
pub(super) const STOPPED: Error =
    Error::from_type_and_code(ScErrorType::Budget, ScErrorCode::ExceededLimit);

/// Counters and flags of one run, shared with wasmtime and the watch thread.
#[derive(Debug)]
pub(super) struct Bounds {
    pub(super) limits: Limits,
    /// Clock of the thread that executes the run.
    thread: ThreadClock,
    began: Moment,
    untimed: Mutex<UntimedWork>,
    overdue: AtomicBool,
    memory: AtomicUsize,
    stopped: AtomicBool,
    stop_reason: Mutex<Option<Stop>>,
}

/// A point in time on the wall clock and on a thread's CPU clock.
#[derive(Debug, Clone, Copy)]
struct Moment {
    at: Instant,
    /// CPU time of the thread up to then.
    used: Duration,
}

impl Moment {
    /// Returns the current time for the calling thread.
    fn now() -> Self {
        Self { at: Instant::now(), used: ThreadClock::of_current_thread() }
    }
}

/// Time that the run's thread spent on other work than the program's.
#[derive(Debug, Default)]
struct UntimedWork {
    took: Duration,
    cpu_time: Duration,
    /// Start of the other work in progress; `None` while the thread runs the program.
    since: Option<Moment>,
}

/// A stopped run, as wasmtime carries it through the guest's frames.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the run was stopped")]
pub(super) struct Stopped;

impl Bounds {
    /// Creates the bounds of a run that begins now on the calling thread.
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            thread: ThreadClock::own(),
            began: Moment::now(),
            untimed: Mutex::default(),
            overdue: AtomicBool::new(false),
            memory: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            stop_reason: Mutex::new(None),
        }
    }

    /// Executes work on the run's thread without counting its time.
    pub(super) fn untimed<T>(&self, work: impl FnOnce() -> T) -> T {
        self.untimed.lock().since = Some(Moment::now());
        let result = work();
        let mut untimed = self.untimed.lock();
        if let Some(since) = untimed.since.take() {
            let now = Moment::now();
            untimed.took += now.at.saturating_duration_since(since.at);
            untimed.cpu_time += now.used.saturating_sub(since.used);
        }
        result
    }

    /// Returns the time that counts towards the limit. May be called from any thread.
    pub(super) fn used(&self) -> Duration {
        let untimed = self.untimed.lock();
        let (at, used) = match untimed.since {
            Some(since) => (since.at, Some(since.used)),
            None => (Instant::now(), self.thread.used()),
        };
        let elapsed = at.saturating_duration_since(self.began.at).saturating_sub(untimed.took);
        let other = self.began.used + untimed.cpu_time;
        // Where the system does not report CPU time, all elapsed time counts.
        used.map_or(elapsed, |used| used.saturating_sub(other).max(elapsed / MAX_WALL_FACTOR))
    }

    /// Returns the CPU time that the run has used. Must be called on the run's thread.
    pub(super) fn cpu_time(&self) -> Duration {
        let other = self.began.used + self.untimed.lock().cpu_time;
        ThreadClock::of_current_thread().saturating_sub(other)
    }

    /// Stops the run. Only the first reason is kept.
    pub(super) fn stop(&self, why: Stop) -> Stopped {
        self.stop_reason.lock().get_or_insert(why);
        self.stopped.store(true, Ordering::Relaxed);
        Stopped
    }

    /// Marks the run as overdue; [`check`](Self::check) then stops it.
    pub(super) fn set_overdue(&self) {
        self.overdue.store(true, Ordering::Relaxed);
    }

    /// Returns an error if the run was stopped or is overdue.
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

    pub(super) fn stop_reason(&self) -> Option<Stop> {
        self.stop_reason.lock().clone()
    }

    pub(super) fn out_of_fuel(&self) -> Stopped {
        let most = self.limits.fuel;
        self.stop(Stop::Guest(format!("the program used more than {most} units of fuel")))
    }
}

/// Displays a duration in seconds.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s", self.0.as_secs_f64())
    }
}

/// Displays a size in MiB, KiB or bytes.
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

/// Limits the memory and tables of one instance. Dropping it returns the instance's memory to the
/// run.
pub(super) struct Growth {
    bounds: Arc<Bounds>,
    reserved: usize,
}

impl Growth {
    pub(super) fn new(bounds: Arc<Bounds>) -> Self {
        Self { bounds, reserved: 0 }
    }
}

impl Drop for Growth {
    fn drop(&mut self) {
        self.bounds.memory.fetch_sub(self.reserved, Ordering::Relaxed);
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
        self.reserved += more;
        Ok(true)
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(desired <= MAX_TABLE_ELEMENTS && maximum.is_none_or(|maximum| desired <= maximum))
    }

    fn instances(&self) -> usize {
        1
    }

    fn tables(&self) -> usize {
        MAX_TABLES as usize
    }

    fn memories(&self) -> usize {
        1
    }
}
