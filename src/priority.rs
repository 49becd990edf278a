//! Which threads give way to which. Ledgers that come in are stored first; then requests are answered and
//! programs run; then all that can wait.
//!
//! A thread keeps the priority of the thread that started it, and without privileges can only lower its
//! own: so each thread that others do not wait for says so itself, and is not used for anything else.

use rustix::process::{getpriority_process, setpriority_process};

/// How soon a thread gets a processor when there are more threads than processors. Threads that say
/// nothing, as those that store new ledgers, come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Somebody waits for it: requests, and programs on new ledgers.
    Prompt,
    /// It is done when it is done: older ledgers, and programs that use much time.
    Patient,
}

impl Priority {
    /// Whether the calling thread has the lowest priority.
    pub fn is_patient() -> bool {
        getpriority_process(None).unwrap_or_default() >= Self::Patient.nice()
    }

    /// The nice value, of which each step makes a share of the processor some 1.25 times smaller
    /// (setpriority(2), sched(7)).
    fn nice(self) -> i32 {
        match self {
            Self::Prompt => 10,
            Self::Patient => 19,
        }
    }

    /// Gives the calling thread this priority, unless it has a lower one.
    pub fn take(self) {
        // Linux has priorities of threads, and this is about the one that calls (setpriority(2), "BUGS").
        let now = getpriority_process(None).unwrap_or_default();
        if now < self.nice()
            && let Err(error) = setpriority_process(None, self.nice())
        {
            tracing::debug!("a thread keeps its priority: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn is_of_one_thread_and_is_handed_down() {
        let before = getpriority_process(None).unwrap();
        let lowered = thread::spawn(|| {
            Priority::Prompt.take();
            let child = thread::spawn(|| getpriority_process(None).unwrap()).join().unwrap();
            let own = getpriority_process(None).unwrap();
            Priority::Patient.take();
            Priority::Prompt.take();
            (own, child, getpriority_process(None).unwrap())
        });
        assert_eq!(lowered.join().unwrap(), (10.max(before), 10.max(before), 19.max(before)));
        assert_eq!(getpriority_process(None).unwrap(), before);
    }
}
