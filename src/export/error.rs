//! Why an export cannot go on.

use std::io;
use std::path::{Path, PathBuf};

use arrow::error::ArrowError;
use parquet::errors::ParquetError;

use crate::domain::{LedgerRange, LedgerSeq, ProgramId};
use crate::source::lake::ObjectsError;
use crate::store::StoreError;
use crate::tables::TablesError;

/// Why an export cannot go on. What the manifest names is whole in every case.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The place cannot be one of an export.
    #[error("{place} is no place for an export: {reason}")]
    Place {
        /// As it was given, without secrets.
        place: String,
        /// What is wrong, and what to give.
        reason: String,
    },
    /// Ledgers that are wanted are not stored.
    #[error("ledgers {} to {} are not stored, so they cannot be exported", .0.first, .0.last)]
    Missing(LedgerRange),
    /// Events of ledgers that are wanted have been pruned.
    #[error("events of ledgers before {0} have been pruned: export from {0}")]
    Pruned(LedgerSeq),
    /// Retention removed some of these ledgers while they were exported.
    #[error("ledgers {} to {} were removed by retention while they were exported", .0.first, .0.last)]
    Lost(LedgerRange),
    /// There is something else.
    #[error("{0} is neither empty nor an export: name another place")]
    NotAnExport(String),
    /// It holds ledgers of another network.
    #[error("{place} holds an export of the network '{exported}', not of '{stored}'")]
    OtherNetwork {
        /// Where the export is.
        place: String,
        /// Passphrase that its manifest names.
        exported: String,
        /// Passphrase of the store.
        stored: String,
    },
    /// Another one writes there.
    #[error(
        "another export is writing to {0}: wait until it has ended (one in a bucket that was killed counts as \
         ended after ten minutes)"
    )]
    InUse(String),
    /// Another one has begun to write there meanwhile.
    #[error("another export has begun to write to {0}: only one may")]
    TakenOver(String),
    /// The manifest was there before and is no more.
    #[error("the manifest of the export in {0} has vanished: restore it, or name another place")]
    Vanished(String),
    /// The manifest says something that this version does not write.
    #[error("{place} is not a manifest that this version can go on with: {reason}")]
    Manifest {
        /// Where the manifest is.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// It was told to end.
    #[error("the export was interrupted")]
    Interrupted,
    /// A file or directory cannot be read or written.
    #[error("cannot use {}: {source}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// A bucket cannot be read or written.
    #[error(transparent)]
    Objects(#[from] ObjectsError),
    /// There can be no runtime for requests to a bucket.
    #[error("requests to a bucket cannot be made: {0}")]
    Runtime(io::Error),
    /// Rows cannot be made into columns.
    #[error("rows cannot be made into columns: {0}")]
    Columns(#[from] ArrowError),
    /// A Parquet file cannot be written.
    #[error("a Parquet file cannot be written: {0}")]
    Parquet(#[from] ParquetError),
    /// Rows of a program cannot be made into columns.
    #[error("rows of program {program} cannot be made into columns: {source}")]
    Rows {
        /// The program.
        program: ProgramId,
        /// What is wrong with them.
        source: TablesError,
    },
    /// What the store says.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ExportError {
    /// What kind of trouble it is, as the end of a sentence that names no place: everybody may read it.
    pub fn trouble(&self) -> &'static str {
        match self {
            Self::Parquet(ParquetError::External(_)) => "its place cannot be read or written",
            Self::File { .. } | Self::Objects(_) | Self::Runtime(_) => {
                "its place cannot be read or written"
            }
            Self::InUse(_) | Self::TakenOver(_) => "another export writes to its place",
            Self::NotAnExport(_) | Self::Place { .. } => "its place holds something else",
            Self::OtherNetwork { .. } => "its place holds another network",
            Self::Vanished(_) | Self::Manifest { .. } => "its manifest cannot be used",
            Self::Columns(_) | Self::Parquet(_) | Self::Rows { .. } => {
                "a file of it cannot be made"
            }
            Self::Missing(_) | Self::Pruned(_) | Self::Lost(_) => "ledgers of it are gone",
            Self::Interrupted => "it was interrupted",
            Self::Store(_) => "the store fails",
        }
    }

    /// Whether it is about rows of one program, which would fail again, and not about the place or the whole store.
    pub(super) fn is_about_rows(&self) -> bool {
        match self {
            // What the operating system says while a file is written comes as this one.
            Self::Parquet(ParquetError::External(_)) => false,
            Self::Rows { .. } | Self::Parquet(_) | Self::Store(StoreError::Corrupt { .. }) => true,
            _ => false,
        }
    }

    /// Whether it says that the place is not to be written to, which waiting does not heal.
    pub fn is_wrong_place(&self) -> bool {
        matches!(
            self,
            Self::Place { .. }
                | Self::NotAnExport(_)
                | Self::OtherNetwork { .. }
                | Self::Manifest { .. }
                | Self::Objects(ObjectsError::Address { .. })
        )
    }
}

/// Adds the path to what the operating system says.
pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> ExportError {
    let path = path.to_owned();
    move |source| ExportError::File { path, source }
}
