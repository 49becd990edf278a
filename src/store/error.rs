//! Why the store could not answer or write.

use std::io;
use std::path::{Path, PathBuf};

use super::FormatVersion;
use crate::domain::{LedgerSeq, Network};
use crate::verify::VerifyError;

/// Why the store could not answer or write.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has the directory open.
    #[error("the data directory {} is in use by another orrery process: stop it, or give another directory", .0.display())]
    InUse(PathBuf),
    /// There is no store yet, and nobody said for which network to make one.
    #[error("the data directory {} holds nothing yet: name the network", .0.display())]
    Empty(PathBuf),
    /// The directory belongs to another network.
    #[error("the data directory {} holds {stored}, not {wanted}: give another directory for {wanted}", directory.display())]
    OtherNetwork {
        /// The data directory.
        directory: PathBuf,
        /// Whose ledgers it holds.
        stored: Box<Network>,
        /// Which network was asked for.
        wanted: Box<Network>,
    },
    /// A version wrote the directory that this one does not know.
    #[error(
        "the data directory has format {found}, this version of orrery reads {supported}: use the version that wrote it, or a new directory"
    )]
    Format {
        /// Version on disk.
        found: FormatVersion,
        /// Version of this build.
        supported: FormatVersion,
    },
    /// An older version wrote the directory, and it is only to be read.
    #[error(
        "the data directory has format {found}, which the next start of orrery on it brings to {wanted}: \
         start the service on it once, then ask again"
    )]
    NotUpgraded {
        /// Version on disk.
        found: FormatVersion,
        /// Version of this build.
        wanted: FormatVersion,
    },
    /// The directory could not be used.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file of the database is not what was written.
    #[error(
        "{} is damaged at byte {at}: restore a backup of the data directory, or import the ledgers into a new one",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where in it the damaged part begins.
        at: u64,
    },
    /// A file of the database is not there.
    #[error(
        "{} is missing: restore a backup of the data directory, or import the ledgers into a new one",
        .0.display()
    )]
    Incomplete(PathBuf),
    /// RocksDB does not open the directory, or cannot read on.
    #[error(
        "the database in {} cannot be read ({reason}): restore a backup of the data directory, or import the ledgers into a new one",
        directory.display()
    )]
    Unreadable {
        /// The data directory.
        directory: PathBuf,
        /// What RocksDB said.
        reason: String,
    },
    /// Something that was acknowledged is not stored any more.
    #[error(
        "ledger {ledger} had been stored and was acknowledged, but the database ends before it: restore a backup of the whole data directory, or remove {} to go on with the ledgers that are left",
        note.display()
    )]
    Lost {
        /// The last ledger that was acknowledged.
        ledger: LedgerSeq,
        /// The file that says so.
        note: PathBuf,
    },
    /// The file that says what was acknowledged cannot be read.
    #[error(
        "{} is damaged: nothing that is stored is lost with it, and the next start writes it anew",
        .0.display()
    )]
    DamagedPromise(PathBuf),
    /// RocksDB failed.
    #[error("the database failed: {0}")]
    Database(String),
    /// A family that every store has is not there.
    #[error("the database has no family '{0}': the data directory is damaged")]
    MissingFamily(&'static str),
    /// Two indexes want the same family.
    #[error("an index is registered for the family '{0}', which is another's")]
    TakenFamily(&'static str),
    /// A ledger was prepared for a store with other indexes.
    #[error("the ledger was prepared for other indexes than this store has")]
    OtherIndexes,
    /// A consumer of the feed names a family that is not its own, or that nobody registered.
    #[error("no consumer has registered the family '{0}'")]
    UnknownFamily(String),
    /// Nobody has registered a consumer of this name.
    #[error("there is no consumer '{0}'")]
    UnknownConsumer(String),
    /// What a consumer keeps is not built anew.
    #[error("what '{0}' keeps is not built anew: {1}")]
    NotRebuilt(String, &'static str),
    /// A record is not what any version writes.
    #[error(
        "the record {key} in '{family}' is damaged: restore a backup, or import the ledgers into a new directory"
    )]
    Corrupt {
        /// Its family.
        family: &'static str,
        /// Its key in hexadecimal.
        key: String,
    },
    /// A ledger that is covered has no row.
    #[error("ledger {0} is covered but its record is missing: the data directory is damaged")]
    Missing(LedgerSeq),
    /// zstd failed on a raw ledger.
    #[error("a ledger could not be compressed or decompressed: {0}")]
    Compression(io::Error),
    /// The ledger does not belong to the chain that is stored.
    #[error(transparent)]
    Chain(#[from] VerifyError),
}

impl StoreError {
    /// What RocksDB said, as the reason why a data directory cannot be read.
    pub(super) fn while_reading(self, directory: &Path) -> Self {
        match self {
            Self::Database(reason) => Self::Unreadable { directory: directory.to_owned(), reason },
            other => other,
        }
    }
}
