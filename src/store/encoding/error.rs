//! Errors of the store.

use std::io;
use std::path::{Path, PathBuf};

use orrery_ledger::domain::{LedgerSeq, Network};
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
    /// The account of this process may not see what is in the directory.
    #[error(
        "the data directory {} belongs to {owner} and cannot be read: run this as {owner}, for example with sudo -u {owner}",
        directory.display()
    )]
    Forbidden {
        /// The data directory.
        directory: PathBuf,
        /// Name of the account that owns it, or `#` and its number.
        owner: String,
    },
    /// The directory contains no store, and no network was given with which to create one.
    #[error("the data directory {} holds nothing yet: name the network", .0.display())]
    Empty(PathBuf),
    /// The directory belongs to another network.
    #[error("the data directory {} holds {stored}, not {wanted}: give another directory for {wanted}", directory.display())]
    NetworkMismatch {
        /// The data directory.
        directory: PathBuf,
        /// Network of the stored ledgers.
        stored: Box<Network>,
        /// Network that was requested.
        wanted: Box<Network>,
    },
    /// The directory has a format that this version neither supports nor can upgrade.
    #[error(
        "the data directory has format {found}, this version of orrery reads {supported}: use the version that wrote it, or import or follow the ledgers again into a new directory"
    )]
    Format {
        /// Version on disk.
        found: FormatVersion,
        /// Version of this build.
        supported: FormatVersion,
    },
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
    /// A file of the database differs from what was written.
    #[error(
        "{} is damaged at byte {at}: restore a backup of the data directory, or import the ledgers into a new one",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Byte offset at which the damaged part begins.
        at: u64,
    },
    /// A file of the database is missing.
    #[error(
        "{} is missing: restore a backup of the data directory, or import the ledgers into a new one",
        .0.display()
    )]
    Incomplete(PathBuf),
    /// RocksDB cannot open the directory or continue reading it.
    #[error(
        "the database in {} cannot be read ({reason}): restore a backup of the data directory, or import the ledgers into a new one",
        directory.display()
    )]
    Unreadable {
        /// The data directory.
        directory: PathBuf,
        /// Error message of RocksDB.
        reason: String,
    },
    /// The process may not open as many files as the database needs.
    #[error(
        "this process may open too few files for the database: raise `ulimit -n`, or LimitNOFILE= in the systemd unit, to 1024 or more"
    )]
    TooFewDescriptors,
    /// An acknowledged write is no longer stored.
    #[error(
        "ledger {ledger} had been stored and was acknowledged, but the database ends before it: restore a backup of the whole data directory, or remove {} to continue with the remaining ledgers",
        note.display()
    )]
    Lost {
        /// The last acknowledged ledger.
        ledger: LedgerSeq,
        /// The file that records it.
        note: PathBuf,
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
    /// An index or a kind of consumers names a column family that is built in or that another one
    /// uses. Contains which of both, and the family.
    #[error("{0} is registered for the family '{1}', which is already in use")]
    FamilyTaken(&'static str, &'static str),
    /// A ledger was prepared for a store with different indexes.
    #[error("the ledger was prepared for other indexes than this store has")]
    IndexMismatch,
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
    /// A stored raw ledger is not what the network agreed on.
    #[error("the stored raw form of ledger {ledger} cannot be used: {reason}")]
    Raw {
        /// The ledger.
        ledger: LedgerSeq,
        /// Why not.
        reason: String,
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
}

/// How the C library describes the error `EMFILE`.
pub(crate) const NO_DESCRIPTOR: &str = "Too many open files";

impl StoreError {
    /// Converts an error of RocksDB into [`Self::Unreadable`] for a data directory, or into
    /// [`Self::TooFewDescriptors`].
    pub(crate) fn while_reading(self, directory: &Path) -> Self {
        match self {
            Self::Database(reason) if reason.contains(NO_DESCRIPTOR) => Self::TooFewDescriptors,
            Self::Io { source, .. } if source.to_string().contains(NO_DESCRIPTOR) => {
                Self::TooFewDescriptors
            }
            Self::Database(reason) => Self::Unreadable { directory: directory.to_owned(), reason },
            other => other,
        }
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
