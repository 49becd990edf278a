//! Measures the performance goals that are ratios, alternating between both sides, and prints one
//! table.
//!
//! `cargo bench --bench ratios` measures all goals, `-- P1 P5` only these; `--events N` sets the
//! number of events in the large store, `--json FILE` the file for the results. The process fails
//! when a floor is missed.

#[path = "all.rs"]
mod all;

use std::error::Error;
use std::process::ExitCode;

/// Whether every goal is only run, at its smallest size.
const SMALLEST: bool = false;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    all::main()
}
