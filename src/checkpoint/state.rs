//! The state file of a checkpoint, which names the buckets of the state, and the hash over them that
//! the header of the ledger has.
//!
//! Source of the format: stellar-core's `HistoryArchiveState` and `BucketListBase::getHash`. A bucket's
//! name is the SHA-256 of its bytes, that of an empty one 32 zero bytes. A level is
//! `SHA-256(curr ‖ snap)`, a list `SHA-256(level 0 ‖ … ‖ level 10)`, and from protocol 23 on the header
//! has `SHA-256(live ‖ hot archive)`. What is merged at the moment (`next`) is not hashed.

use orrery_ledger::decode::BucketList;
use orrery_ledger::domain::{Hash32, LedgerSeq, Network, excerpt, shortened};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use stellar_xdr::{LedgerHeader, Limits, ReadXdr};

use crate::error::{CheckpointError, Result};

/// Number of levels of a list of buckets.
pub(crate) const LEVELS: usize = 11;
/// First protocol whose headers hash the hot archive, too.
const HOT_ARCHIVE_PROTOCOL: u32 = 23;
/// Name of an empty bucket.
const EMPTY: Hash32 = Hash32([0; 32]);
/// Maximum nesting of a header's XDR.
const DEPTH: u32 = 500;

/// What the header of a ledger says of the state at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commitment {
    /// The ledger.
    pub ledger: LedgerSeq,
    /// Its protocol version.
    pub protocol: u32,
    /// Its `bucketListHash`.
    pub bucket_list_hash: Hash32,
}

impl Commitment {
    /// Reads an XDR `LedgerHeader`.
    ///
    /// # Errors
    /// When the bytes are no header.
    pub fn of_header(xdr: &[u8]) -> Result<Self, stellar_xdr::Error> {
        let limits = Limits { depth: DEPTH, len: xdr.len() };
        let header = LedgerHeader::from_xdr(xdr, limits)?;
        Ok(Self {
            ledger: LedgerSeq(header.ledger_seq),
            protocol: header.ledger_version,
            bucket_list_hash: Hash32(header.bucket_list_hash.0),
        })
    }

    pub(crate) fn has_hot_archive(&self) -> bool {
        self.protocol >= HOT_ARCHIVE_PROTOCOL
    }
}

/// One bucket of a state that is not empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bucket {
    pub list: BucketList,
    /// Place in the list: 0 is the newest, `curr` of level 0, then its `snap`.
    pub age: u8,
    pub hash: Hash32,
}

/// The buckets of a network's state, whose hash is that of the header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkState {
    pub(crate) commitment: Commitment,
    /// In the order in which they count: the newest of each list first.
    pub(crate) buckets: Vec<Bucket>,
}

/// The members of a state file that are used. Others, such as `server`, mean nothing for the state.
#[derive(Deserialize)]
struct StateFile {
    version: u32,
    #[serde(rename = "currentLedger")]
    ledger: u32,
    /// Absent in archives that were created long ago.
    #[serde(rename = "networkPassphrase")]
    passphrase: Option<String>,
    #[serde(rename = "currentBuckets")]
    live: Vec<Level>,
    #[serde(rename = "hotArchiveBuckets")]
    hot_archive: Option<Vec<Level>>,
}

#[derive(Deserialize)]
struct Level {
    curr: String,
    snap: String,
}

/// The newest checkpoint of an archive, as its `.well-known` file has it.
#[derive(Deserialize)]
pub(crate) struct Newest {
    #[serde(rename = "currentLedger")]
    pub ledger: u32,
}

impl NetworkState {
    /// Reads a state file, whose name is `file`.
    ///
    /// # Errors
    /// When it is not the state that the header names.
    pub(crate) fn read(
        file: &str,
        text: &[u8],
        commitment: Commitment,
        network: &Network,
    ) -> Result<Self> {
        let refused = |reason: String| CheckpointError::refused(file, reason);
        let found: StateFile = parsed(file, text)?;
        let Commitment { ledger, protocol, .. } = commitment;
        if !matches!(found.version, 1 | 2) {
            let version = found.version;
            return Err(refused(format!("it has version {version}, and 1 and 2 can be read")));
        }
        if found.ledger != ledger.0 {
            return Err(refused(format!("it is of ledger {}, not of {ledger}", found.ledger)));
        }
        if let Some(passphrase) = found.passphrase.filter(|it| it != network.passphrase()) {
            let theirs = excerpt(&passphrase);
            return Err(refused(format!("it is of the network '{theirs}', not of {network}")));
        }
        let has_hot_archive = found.version == 2;
        if has_hot_archive != found.hot_archive.is_some() {
            return Err(refused("only version 2 has hotArchiveBuckets".to_owned()));
        }
        if has_hot_archive != commitment.has_hot_archive() {
            let has = if has_hot_archive { "has" } else { "lacks" };
            return Err(refused(format!(
                "it {has} a hot archive, which the network has from protocol \
                 {HOT_ARCHIVE_PROTOCOL} on, and ledger {ledger} is of protocol {protocol}"
            )));
        }
        let live = names(found.live).map_err(&refused)?;
        let hot_archive = found.hot_archive.map(names).transpose().map_err(&refused)?;
        let hash = match &hot_archive {
            None => list_hash(&live),
            Some(hot_archive) => digest(&[list_hash(&live), list_hash(hot_archive)]),
        };
        if hash != commitment.bucket_list_hash {
            return Err(refused(format!(
                "the hash of its buckets is {hash}, and the header of ledger {ledger} has {}",
                commitment.bucket_list_hash
            )));
        }
        let live = of_list(BucketList::Live, live);
        let hot_archive =
            hot_archive.into_iter().flat_map(|names| of_list(BucketList::HotArchive, names));
        Ok(Self { commitment, buckets: live.chain(hot_archive).collect() })
    }

    /// Returns what the header says of this state.
    pub fn commitment(&self) -> Commitment {
        self.commitment
    }
}

/// Parses the state of an archive in a file.
pub(crate) fn parsed<T: DeserializeOwned>(file: &str, text: &[u8]) -> Result<T> {
    serde_json::from_slice(text).map_err(|error| {
        // It may quote what stands there.
        let error = shortened(&error.to_string(), 160);
        CheckpointError::refused(file, format!("it is not the state of an archive: {error}"))
    })
}

/// Returns the names of a list's buckets: `curr` and `snap` of level 0, then those of level 1, and so
/// on.
fn names(levels: Vec<Level>) -> Result<Vec<Hash32>, String> {
    if levels.len() != LEVELS {
        return Err(format!("it has {} levels instead of {LEVELS}", levels.len()));
    }
    let names = levels.iter().flat_map(|level| [&level.curr, &level.snap]);
    names.map(|name| parse(name)).collect()
}

/// Parses a hash as stellar-core writes it.
fn parse(name: &str) -> Result<Hash32, String> {
    let is_plain = name.len() == 2 * Hash32::LEN
        && name.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c));
    name.parse().ok().filter(|_| is_plain).ok_or_else(|| {
        let shown = excerpt(name);
        format!("'{shown}' is not the name of a bucket")
    })
}

fn digest(hashes: &[Hash32]) -> Hash32 {
    let mut digest = Sha256::new();
    hashes.iter().for_each(|hash| digest.update(hash.as_bytes()));
    Hash32(digest.finalize().into())
}

fn list_hash(names: &[Hash32]) -> Hash32 {
    let levels: Vec<_> = names.chunks(2).map(digest).collect();
    digest(&levels)
}

fn of_list(list: BucketList, names: Vec<Hash32>) -> impl Iterator<Item = Bucket> {
    let buckets = (0..).zip(names).map(move |(age, hash)| Bucket { list, age, hash });
    buckets.filter(|bucket| bucket.hash != EMPTY)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SHA-256 of 64 zero bytes, and of eleven of those: what an empty list has.
    #[test]
    fn an_empty_list_has_the_hash_of_stellar_core() {
        let empty = list_hash(&[EMPTY; 2 * LEVELS]);
        let level = Hash32(Sha256::digest([0; 64]).into());
        assert_eq!(
            level.to_string(),
            "f5a5fd42d16a20302798ef6ed309979b43003d2320d9f0e8ea9831a92759fb4b"
        );
        assert_eq!(empty, digest(&[level; LEVELS]));
        assert_eq!(digest(&[EMPTY, EMPTY]), level);
    }

    #[test]
    fn names_are_exactly_sixty_four_small_digits() {
        let name = "ab".repeat(32);
        assert_eq!(parse(&name), Ok(Hash32([0xab; 32])));
        for wrong in [name.to_uppercase(), format!("0x{}", &name[2..]), name[1..].to_owned()] {
            assert!(parse(&wrong).is_err(), "{wrong}");
        }
    }
}
