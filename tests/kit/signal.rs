//! Sends signals to the processes of a test without the `kill` program, which not every machine
//! has.

pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

/// Sends a signal; returns whether there was such a process.
pub fn send(process: u32, signal: Signal) -> bool {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    process.is_some_and(|process| kill_process(process, signal).is_ok())
}
