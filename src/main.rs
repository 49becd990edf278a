//! The `orrery` binary: runs the command line and turns a failure into a message and an exit code.

mod cli;

use std::process::ExitCode;

use rustix::fs::Mode;

fn main() -> ExitCode {
    // Files that this process and its child processes create are accessible to its user alone.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    orrery::process::keep_freed_memory();
    orrery::process::keep_descriptors_from_children();
    match cli::run(cli::arguments()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            cli::output::note(&failure);
            failure.exit_code()
        }
    }
}
