//! Signals to the processes of a test, without a program that not every machine has.

pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

/// Sends it; whether there was such a process.
pub fn send(process: u32, signal: Signal) -> bool {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    process.is_some_and(|process| kill_process(process, signal).is_ok())
}
