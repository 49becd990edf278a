//! Why tables cannot be changed or read.

use orrery_ledger::domain::ProgramId;

/// Why tables cannot be changed or read.
#[derive(Debug, thiserror::Error)]
pub enum TablesError {
    /// The process or its file is unavailable at the moment. The caller must read the watermarks
    /// again afterwards.
    #[error("{0}")]
    Unavailable(String),
    /// No worker permit became free in time; holds the total number of permits.
    #[error("all {0} SQL workers are in use by other owners")]
    AllWorkersBusy(usize),
    /// The change is rejected, and would be again. Nothing of it was applied.
    #[error("{0}")]
    Refused(String),
    /// Rows cannot be encoded as Arrow.
    #[error("rows cannot be packed: {0}")]
    Packing(#[from] arrow::error::ArrowError),
    /// Rows do not continue those in the tables, or a file cannot be used.
    #[error("{0}")]
    Other(String),
}

impl TablesError {
    /// Returns the error for a row of a table that does not exist.
    pub fn unknown_target(program: ProgramId, target: &str) -> Self {
        Self::Refused(format!("program {program} has no table for '{target}'"))
    }
}
