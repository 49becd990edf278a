//! Errors of the store.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use orrery_ledger::domain::LedgerSeq;
use orrery_ledger::verify::VerifyError;

use super::bytes::Malformed;
use super::columns::Family;
use super::format_version::FormatVersion;

/// Error of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has the directory open.
    #[error("the data directory {} is in use by another orrery process: stop it, or give another directory", .0.display())]
    InUse(PathBuf),
    /// The directory contains no store, and no network was given with which to create one.
    #[error("the data directory {} holds nothing yet: name the network", .0.display())]
    Empty(PathBuf),
    /// The directory has an older format, and was opened read-only, so that it cannot be upgraded.
    #[error(
        "the data directory has format {found}, which the next start of orrery upgrades to \
         {wanted}: start the service with it once, then try again"
    )]
    NotUpgraded {
        /// Version on disk.
        found: FormatVersion,
        /// Version of this build.
        wanted: FormatVersion,
    },
    /// A file or directory could not be used.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the file or directory.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file that records acknowledged writes is damaged.
    #[error(
        "{} is damaged: no stored data is lost, and the next start writes the file again",
        .0.display()
    )]
    DamagedAcknowledgement(PathBuf),
    /// RocksDB failed; contains its message.
    #[error("the database failed: {0}")]
    Database(String),
    /// A built-in column family is missing.
    #[error("the database has no family '{0}': the data directory is damaged")]
    MissingFamily(&'static str),
    /// A column family belongs to no registered consumer, or not to the one that names it.
    #[error("no consumer has registered the family '{0}'")]
    UnknownFamily(String),
    /// No consumer of this name is registered.
    #[error("there is no consumer '{0}'")]
    UnknownConsumer(String),
    /// The rows of the named consumer cannot be rebuilt, for the given reason.
    #[error("the data of consumer '{0}' cannot be rebuilt: {1}")]
    NotRebuilt(String, &'static str),
    /// Rows that are rebuilt would lack ledgers that the present rows include.
    #[error(
        "the data of consumer '{name}' includes {ledgers} ledgers, the first being {first} and the last {last}, of which \
         retention has removed something since: give --allow-loss to rebuild it without them"
    )]
    RebuildLoses {
        /// Name of the consumer.
        name: String,
        /// Number of these ledgers.
        ledgers: u64,
        /// The first of them.
        first: LedgerSeq,
        /// The last of them.
        last: LedgerSeq,
    },
    /// A record has an encoding that no version writes.
    #[error(
        "the record {key} in '{family}' is damaged: restore a backup, or import the ledgers into a new directory"
    )]
    Corrupt {
        /// Column family of the record.
        family: &'static str,
        /// Key of the record in hexadecimal.
        key: String,
    },
    /// A covered ledger has no row.
    #[error("ledger {0} is covered but its record is missing: the data directory is damaged")]
    Missing(LedgerSeq),
    /// zstd failed on a record or a raw ledger.
    #[error("a ledger could not be compressed or decompressed: {0}")]
    Compression(io::Error),
    /// The ledger does not link to the stored chain.
    #[error(transparent)]
    Chain(#[from] VerifyError),
    /// Anything else, such as a damaged file, with what to do.
    #[error("{0}")]
    Other(String),
}

/// How the C library describes the error `EMFILE`.
pub(crate) const NO_DESCRIPTOR: &str = "Too many open files";

impl StoreError {
    /// Converts an error of RocksDB while a data directory is opened or read, with what to do.
    pub(crate) fn while_reading(self, directory: &Path) -> Self {
        match self {
            Self::Database(reason) if reason.contains(NO_DESCRIPTOR) => Self::too_few_descriptors(),
            Self::Io { source, .. } if source.to_string().contains(NO_DESCRIPTOR) => {
                Self::too_few_descriptors()
            }
            Self::Database(reason) => Self::Other(format!(
                "the database in {} cannot be read ({reason}): restore a backup of the data \
                 directory, or import the ledgers into a new one",
                directory.display()
            )),
            other => other,
        }
    }

    /// Returns the error of a process that may not open as many files as the database needs.
    pub fn too_few_descriptors() -> Self {
        Self::Other(
            "this process may open too few files for the database: raise `ulimit -n`, or \
             LimitNOFILE= in the systemd unit, to 1024 or more"
                .to_owned(),
        )
    }

    /// Returns the error of a file of the database that is `how`, such as missing.
    pub(crate) fn damaged(path: &Path, how: impl Display) -> Self {
        Self::Other(format!(
            "{} is {how}: restore a backup of the data directory, or import the ledgers into a new one",
            path.display()
        ))
    }
}

/// Converts a decoding error of a row into an error that names the row.
pub(crate) fn corrupt(
    family: Family,
    key: impl AsRef<[u8]>,
) -> impl FnOnce(Malformed) -> StoreError {
    move |Malformed| damaged_row(family.name(), key.as_ref())
}

/// Returns the error for a row that is damaged.
pub(crate) fn damaged_row(family: &'static str, key: &[u8]) -> StoreError {
    StoreError::Corrupt { family, key: hex::encode(key) }
}
