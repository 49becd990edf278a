//! The program `orrery`: arguments to exit code and one sentence.
#![deny(unsafe_code)]

mod cli;

use std::process::ExitCode;

use clap::Parser;
use rustix::fs::Mode;

fn main() -> ExitCode {
    // What this program stores, and what the programs that it starts store, is its account's alone.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    orrery::memory::keep_freed_memory();
    match cli::run(cli::Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report();
            failure.exit_code()
        }
    }
}
