//! `orrery version`: prints the program's version.

use clap::Args;

use super::{Failure, output};

/// Show the version of the program
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  orrery version")]
pub struct Version {}

impl Version {
    pub fn run(self) -> Result<(), Failure> {
        output::print(concat!("orrery ", env!("CARGO_PKG_VERSION"), "\n"))
    }
}
