//! Which threads give way to which. Ledgers that come in are stored first; then requests are answered and
//! programs run; then all that can wait.
//!
//! A thread keeps the priority of the thread that started it, and without privileges can only lower its
//! own: so each thread that others do not wait for says so itself, and is not used for anything else.

mod runtime;

pub use runtime::PromptRuntime;

use std::ffi::CStr;

use rustix::process::{getpriority_process, setpriority_process};
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

/// How soon a thread gets a processor when there are more threads than processors. Threads that say
/// nothing, as those that store new ledgers, come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Somebody waits for it: requests, programs on new ledgers, and webhooks.
    Prompt,
    /// Nobody waits for it: older ledgers, programs that use much time, modules that are compiled.
    /// It gets what nobody else uses (`SCHED_IDLE`, sched(7)). With a nice value alone a busy thread still
    /// delays those that wake up, as from each write to the disk: a kernel of Linux 6.18 stored a third fewer
    /// ledgers beside two of them, and as many beside idle ones. Such a thread must hold no lock for long
    /// that others wait for.
    Background,
}

/// The nice value of the calling thread: of two, the one with the larger value gives way. The lowest where
/// it cannot be read.
pub fn nice() -> i32 {
    getpriority_process(None).unwrap_or_default()
}

/// Names the process as `top` shows it, by its first thread; of at most 15 bytes. A process that was started from
/// `/proc/self/exe` would be `exe`.
pub fn name_process(name: &CStr) {
    if let Err(error) = rustix::thread::set_name(name) {
        tracing::debug!("the process keeps its name: {error}");
    }
}

impl Priority {
    /// Whether the calling thread has the lowest priority.
    pub fn is_background() -> bool {
        nice() >= Self::Background.nice()
    }

    /// The nice value, of which each step makes a share of the processor some 1.25 times smaller
    /// (setpriority(2), sched(7)).
    fn nice(self) -> i32 {
        match self {
            Self::Prompt => 10,
            Self::Background => 19,
        }
    }

    /// Gives the calling thread this priority, unless it has a lower one.
    pub fn take(self) {
        // Before the nice value, which it sets as well.
        if self == Self::Background {
            let policy = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
            let set =
                set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy);
            if let Err(error) = set {
                tracing::debug!("a thread keeps its scheduling policy: {error:?}");
            }
        }
        // Linux has priorities of threads, and this is about the one that calls (setpriority(2), "BUGS").
        if nice() < self.nice()
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
            Priority::Background.take();
            Priority::Prompt.take();
            (own, child, getpriority_process(None).unwrap())
        });
        assert_eq!(lowered.join().unwrap(), (10.max(before), 10.max(before), 19.max(before)));
        assert_eq!(getpriority_process(None).unwrap(), before);
    }

    /// The scheduling policy of the calling thread (proc_pid_stat(5), field 41; 5 is `SCHED_IDLE`).
    fn policy() -> u32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        // The second field may have blanks; the third comes after its parenthesis.
        let after = stat.rsplit_once(')').unwrap().1;
        after.split_whitespace().nth(41 - 3).unwrap().parse().unwrap()
    }

    #[test]
    fn the_policy_is_handed_down_and_changes_no_other_thread() {
        let before = policy();
        let idle = thread::spawn(|| {
            Priority::Background.take();
            (policy(), thread::spawn(policy).join().unwrap(), Priority::is_background())
        });
        assert_eq!(idle.join().unwrap(), (5, 5, true));
        assert_eq!(policy(), before);
    }
}
