//! `orrery compile`: the child process that a service starts to compile one module. Not for direct
//! use.

use clap::Args;
use orrery::process::close_inherited_descriptors;
use orrery::programs::engine::compiler;

use super::Failure;

/// Compiles one program for a running service, which starts it
#[derive(Debug, Args)]
pub struct Compile {
    /// Bytes of the largest linear memory of an instance
    #[arg(long, value_name = "BYTES")]
    instance_memory: usize,
}

impl Compile {
    /// Compiles the module that is read from standard input.
    pub fn run(self) -> Result<(), Failure> {
        close_inherited_descriptors();
        Ok(compiler::run(self.instance_memory)?)
    }
}
