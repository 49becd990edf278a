//! `orrery sql-worker`: the child process that a service starts for the SQL of one owner. Not for
//! direct use.

use clap::Args;
use orrery::process::close_inherited_descriptors;
use orrery::tables::worker;

use super::Failure;

/// Keeps the tables of one owner for a running service, which starts it
#[derive(Debug, Args)]
pub struct SqlWorker {}

impl SqlWorker {
    /// Runs until the service ends it.
    pub fn run(self) -> Result<(), Failure> {
        close_inherited_descriptors();
        Ok(worker::run()?)
    }
}
