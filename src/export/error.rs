//! Errors that end an export.

use std::io;
use std::path::Path;

use arrow::error::ArrowError;
use parquet::errors::ParquetError;

use orrery_ledger::domain::{LedgerRange, ProgramId};
use orrery_net::buckets::ObjectsError;
use orrery_store::StoreError;
use orrery_tables::TablesError;

/// Result of a step of an export.
pub type Result<T, E = ExportError> = std::result::Result<T, E>;

/// Error that ends an export. The files that the manifest names are complete in every case.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The destination is not usable for an export.
    #[error("{0}")]
    Place(String),
    /// Requested ledgers are not stored.
    #[error("ledgers {} to {} are not stored, so they cannot be exported", .0.first, .0.last)]
    Missing(LedgerRange),
    /// Retention has removed events or transactions of these requested ledgers, among others.
    #[error(
        "retention has removed events or transactions of ledgers {} to {}: export others with --from \
         and --to",
        .0.first,
        .0.last
    )]
    Pruned(LedgerRange),
    /// Retention removed some of these ledgers while they were being exported.
    #[error("ledgers {} to {} were removed by retention while they were exported", .0.first, .0.last)]
    Lost(LedgerRange),
    /// The destination holds files that are not an export.
    #[error("{0} is neither empty nor an export: give another destination")]
    NotAnExport(String),
    /// The destination holds an export of another network.
    #[error("{0}")]
    OtherNetwork(String),
    /// Another export is writing to the destination.
    #[error(
        "another export is writing to {0}: wait until it has ended (an export to a bucket that was killed counts as \
         ended after ten minutes)"
    )]
    InUse(String),
    /// Another export has taken over the destination since this one opened it.
    #[error("another export has begun to write to {0}: only one at a time may write there")]
    TakenOver(String),
    /// The destination had a manifest before and has none now.
    #[error(
        "the manifest of the export in {0} has disappeared: restore it, or give another destination"
    )]
    Vanished(String),
    /// The manifest cannot be parsed or has an unsupported format.
    #[error("{0}")]
    Manifest(String),
    /// The export was interrupted.
    #[error("the export was interrupted")]
    Interrupted,
    /// A file or directory cannot be read or written, or no bucket can be asked.
    #[error("{0}")]
    Io(String),
    /// A bucket cannot be read or written.
    #[error(transparent)]
    Objects(#[from] ObjectsError),
    /// Rows cannot be converted to Arrow columns.
    #[error("rows cannot be converted to columns: {0}")]
    Columns(#[from] ArrowError),
    /// A Parquet file cannot be written.
    #[error("a Parquet file cannot be written: {0}")]
    Parquet(#[from] ParquetError),
    /// Files of a table cannot be merged.
    #[error("files of a table cannot be merged: {0}")]
    Unmerged(String),
    /// Rows of a program cannot be converted to Arrow columns.
    #[error("rows of program {0} cannot be converted to columns: {1}")]
    Rows(ProgramId, TablesError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ExportError {
    /// Describes the kind of error as the end of a sentence. Names no path or bucket, so that it
    /// may be shown to anyone.
    pub fn summary(&self) -> &'static str {
        match self {
            Self::Parquet(ParquetError::External(_)) | Self::Io(_) | Self::Objects(_) => {
                "its destination cannot be read or written"
            }
            Self::InUse(_) | Self::TakenOver(_) => "another export writes to its destination",
            Self::NotAnExport(_) | Self::Place(_) => "its destination holds something else",
            Self::OtherNetwork(_) => "its destination holds another network",
            Self::Vanished(_) | Self::Manifest(_) => "its manifest cannot be used",
            Self::Columns(_) | Self::Parquet(_) | Self::Rows(..) | Self::Unmerged(_) => {
                "one of its files cannot be written"
            }
            Self::Missing(_) | Self::Pruned(_) | Self::Lost(_) => {
                "ledgers that it needs were removed"
            }
            Self::Interrupted => "it was interrupted",
            Self::Store(_) => "the store fails",
        }
    }

    /// Returns whether the error concerns the rows of one program, which would fail again, as
    /// opposed to the destination or the whole store.
    pub(super) fn is_about_rows(&self) -> bool {
        match self {
            // An I/O error while a file is written is reported as this variant.
            Self::Parquet(ParquetError::External(_)) => false,
            Self::Rows(..)
            | Self::Columns(_)
            | Self::Parquet(_)
            | Self::Unmerged(_)
            | Self::Store(StoreError::Corrupt { .. }) => true,
            _ => false,
        }
    }

    /// Returns whether the destination must not be written to as it is. A retry does not help.
    pub fn is_wrong_place(&self) -> bool {
        matches!(
            self,
            Self::Place(_)
                | Self::NotAnExport(_)
                | Self::OtherNetwork(_)
                | Self::Manifest(_)
                | Self::Objects(ObjectsError::Address(_))
        )
    }
}

/// Returns a function that adds `path` to an I/O error.
pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> ExportError {
    move |error| ExportError::Io(format!("cannot use {}: {error}", path.display()))
}
