//! Why tables cannot be changed or read.

use std::path::PathBuf;

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
    /// DuckDB rejects the change, and would reject it again. Nothing of it was applied.
    #[error("DuckDB rejects the change: {0}")]
    Refused(String),
    /// Rows that do not continue those in the table.
    #[error("program {program} has rows up to {watermark}, and these come after {after}")]
    OutOfStep {
        /// The program.
        program: ProgramId,
        /// Last row log entry in the tables.
        watermark: u64,
        /// Row log entry that the rows follow.
        after: u64,
    },
    /// Rows of a program that the tables do not have.
    #[error("program {0} is not known to the tables of this owner")]
    UnknownProgram(ProgramId),
    /// A row for a table that does not exist.
    #[error("program {program} has no table for '{target}'")]
    UnknownTarget {
        /// The program.
        program: ProgramId,
        /// The target.
        target: String,
    },
    /// A value that does not match its column, because it was not admitted.
    #[error("column '{column}' of '{target}' cannot hold this value: {reason}")]
    NotAdmitted {
        /// The target.
        target: String,
        /// The column.
        column: String,
        /// What is wrong with the value.
        reason: String,
    },
    /// Rows cannot be encoded as Arrow.
    #[error("rows cannot be packed: {0}")]
    Packing(#[from] arrow::error::ArrowError),
    /// A file in the owner's directory cannot be used.
    #[error("the directory of tables {path} cannot be used: {error}")]
    Directory {
        /// Path of the directory.
        path: PathBuf,
        /// The I/O error.
        error: std::io::Error,
    },
}
