//! Scheduling priorities of threads. Storing new ledgers comes first, then answering requests and
//! running programs, then background work.
//!
//! A thread inherits the priority of the thread that started it, and without privileges can only
//! lower its own. So each lower-priority thread lowers its own priority when it starts, and is not
//! used for other work.

mod runtime;

pub use runtime::PromptRuntime;

use std::ffi::CStr;

use rustix::process::{getpriority_process, setpriority_process};
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

/// How soon a thread gets a processor when there are more threads than processors. Threads that set
/// no priority, such as those that store new ledgers, come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// For latency-sensitive work: requests, programs on new ledgers, and webhooks.
    Prompt,
    /// For background work: older ledgers, programs that use much time, compilation of modules. The
    /// thread gets processor time that no other thread uses (`SCHED_IDLE`, sched(7)). With a nice
    /// value alone, a busy thread still delays threads that wake up, as after each write to the
    /// disk: with Linux 6.18, a third fewer ledgers were stored beside two such threads, and as
    /// many as usual beside idle ones. Such a thread must not hold for long a lock that other
    /// threads need.
    Background,
}

/// Returns the nice value of the calling thread; a thread with a larger value gives way to one with
/// a smaller value. Returns 0, the default, if it cannot be read.
pub fn nice() -> i32 {
    getpriority_process(None).unwrap_or_default()
}

/// Sets the process name that `top` shows, which is that of the calling thread if it is the main
/// thread; at most 15 bytes. A process started from `/proc/self/exe` would be called `exe`.
pub fn name_process(name: &CStr) {
    if let Err(error) = rustix::thread::set_name(name) {
        tracing::debug!("the process keeps its name: {error}");
    }
}

impl Priority {
    /// Returns whether the calling thread has the lowest priority.
    pub fn is_background() -> bool {
        nice() >= Self::Background.nice()
    }

    /// Returns the nice value; each step up divides a thread's share of the processor by about 1.25
    /// (setpriority(2), sched(7)).
    fn nice(self) -> i32 {
        match self {
            Self::Prompt => 10,
            Self::Background => 19,
        }
    }

    /// Lowers the calling thread to this priority, unless it already has a lower one.
    pub fn apply_to_current_thread(self) {
        // Set before the nice value, because this changes that too.
        if self == Self::Background {
            let policy = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
            let set =
                set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy);
            if let Err(error) = set {
                tracing::debug!("a thread keeps its scheduling policy: {error:?}");
            }
        }
        // On Linux priorities belong to threads, and this call changes the calling one
        // (setpriority(2), "BUGS").
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
    fn priority_is_per_thread_and_inherited_by_its_children() {
        let before = getpriority_process(None).unwrap();
        let lowered = thread::spawn(|| {
            Priority::Prompt.apply_to_current_thread();
            let child = thread::spawn(|| getpriority_process(None).unwrap()).join().unwrap();
            let own = getpriority_process(None).unwrap();
            Priority::Background.apply_to_current_thread();
            Priority::Prompt.apply_to_current_thread();
            (own, child, getpriority_process(None).unwrap())
        });
        assert_eq!(lowered.join().unwrap(), (10.max(before), 10.max(before), 19.max(before)));
        assert_eq!(getpriority_process(None).unwrap(), before);
    }

    /// Returns the scheduling policy of the calling thread (proc_pid_stat(5), field 41; 5 is
    /// `SCHED_IDLE`).
    fn policy() -> u32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        // The second field may contain blanks; the third follows its closing parenthesis.
        let after = stat.rsplit_once(')').unwrap().1;
        after.split_whitespace().nth(41 - 3).unwrap().parse().unwrap()
    }

    #[test]
    fn scheduling_policy_is_per_thread_and_inherited() {
        let before = policy();
        let idle = thread::spawn(|| {
            Priority::Background.apply_to_current_thread();
            (policy(), thread::spawn(policy).join().unwrap(), Priority::is_background())
        });
        assert_eq!(idle.join().unwrap(), (5, 5, true));
        assert_eq!(policy(), before);
    }
}
