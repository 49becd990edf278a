//! CPU time of a thread, readable from another thread.

use std::fs;
use std::time::Duration;

use rustix::thread::Pid;
use rustix::time::{ClockId, clock_gettime};

/// CPU clock of a thread of this process.
#[derive(Debug)]
pub struct ThreadClock(Pid);

impl ThreadClock {
    /// Returns the clock of the calling thread.
    pub(super) fn own() -> Self {
        Self(rustix::thread::gettid())
    }

    /// Returns the CPU time of the calling thread since it started. Faster than [`Self::used`].
    pub fn of_current_thread() -> Duration {
        clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
    }

    /// Returns the CPU time of the thread since it started, a few milliseconds out of date; `None`
    /// when the thread has ended or the system does not report it.
    pub(super) fn used(&self) -> Option<Duration> {
        // Fields: nanoseconds on a processor, nanoseconds waiting for one, time slices (Linux,
        // Documentation/scheduler/sched-stats.rst).
        let path = format!("/proc/self/task/{}/schedstat", self.0.as_raw_nonzero());
        let said = fs::read_to_string(path).ok()?;
        said.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Instant;

    use super::*;

    const WORK: Duration = Duration::from_millis(30);

    #[test]
    fn the_clock_counts_cpu_time_and_not_waiting() {
        let (sender, receiver) = channel();
        let (go, wait) = channel::<()>();
        let worker = thread::spawn(move || {
            sender.send(ThreadClock::own()).unwrap();
            wait.recv().unwrap();
            let before = ThreadClock::of_current_thread();
            while ThreadClock::of_current_thread() < before + WORK {}
            sender.send(ThreadClock::own()).unwrap();
            wait.recv().unwrap();
        });
        let of_worker = receiver.recv().unwrap();
        let begun = Instant::now();
        while begun.elapsed() < 2 * WORK {
            thread::yield_now();
        }
        let waiting = of_worker.used().unwrap();
        assert!(waiting < WORK, "{waiting:?}");
        go.send(()).unwrap();
        receiver.recv().unwrap();
        let working = of_worker.used().unwrap();
        assert!(working >= WORK / 2, "{working:?}");
        go.send(()).unwrap();
        worker.join().unwrap();
        // The kernel takes a moment to remove the thread.
        let begun = Instant::now();
        while let Some(used) = of_worker.used() {
            assert!(begun.elapsed() < Duration::from_secs(10), "{used:?}");
            thread::yield_now();
        }
    }
}
