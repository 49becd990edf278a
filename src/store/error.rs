//! Why the store could not answer or write.

use std::io;
use std::path::PathBuf;

use super::FormatVersion;
use crate::domain::{LedgerHash, LedgerSeq, Network};

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
    /// The directory could not be used.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// RocksDB failed.
    #[error("the database failed: {0}")]
    Database(String),
    /// A family that every store has is not there.
    #[error("the database has no family '{0}': the data directory is damaged")]
    MissingFamily(&'static str),
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
    /// Another ledger of the same sequence is stored.
    #[error(
        "ledger {sequence} has hash {given}, but the stored one has {stored}: the network was reset or the source is wrong; use a new data directory for another chain"
    )]
    Conflict {
        /// Its sequence.
        sequence: LedgerSeq,
        /// Hash of the stored ledger.
        stored: LedgerHash,
        /// Hash of the ledger given.
        given: LedgerHash,
    },
    /// A ledger does not follow the one before it.
    #[error(
        "ledger {sequence} follows a ledger with hash {previous_hash}, but the one before it has {stored}: the network was reset or the source is wrong; use a new data directory for another chain"
    )]
    BrokenLink {
        /// The later of the two.
        sequence: LedgerSeq,
        /// Which hash it names as the one before.
        previous_hash: LedgerHash,
        /// Which hash the one before has.
        stored: LedgerHash,
    },
}
