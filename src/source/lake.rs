//! A ledger data lake: a tree of batch files under a manifest, in the layout of SEP-54. Knows keys
//! and ranges; leaves transport to an [`ObjectStore`] and the files' content to
//! [`records`](super::records).

mod directory;
mod layout;
mod source;

use std::io::Cursor;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, Stream, StreamExt};

pub use directory::Directory;
pub use layout::{Layout, Manifest};
pub use source::LakeSource;

use super::records::{RecordError, Records};
use super::{Origin, RawLedger};
use crate::domain::{LedgerRange, LedgerSeq, Network};

/// Files that are fetched and taken apart at the same time.
const PARALLEL_FILES: usize = 4;

/// Keys that are looked at to find the newest: some may be files that are still being written.
const NEWEST_KEYS: usize = 16;

/// Why a lake could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LakeError {
    /// The manifest is missing.
    #[error("{0} is not a ledger lake: it has no {file}", file = Manifest::FILE_NAME)]
    NoManifest(String),
    /// The manifest is wrong.
    #[error("the lake manifest {place} is wrong: {reason}")]
    Manifest {
        /// Where it lies.
        place: String,
        /// What is wrong.
        reason: String,
    },
    /// It holds another network.
    #[error("{place} holds ledgers of the network {found}, not of {wanted}")]
    WrongNetwork {
        /// The manifest.
        place: String,
        /// Network of the lake.
        found: String,
        /// Network that was asked for.
        wanted: String,
    },
    /// A file in the middle is missing.
    #[error("the lake {place} has a gap: ledger {ledger} is missing (expected in {key})")]
    Gap {
        /// The lake.
        place: String,
        /// First ledger that is missing.
        ledger: LedgerSeq,
        /// Where it should be.
        key: String,
    },
    /// A file's content is wrong.
    #[error("cannot take ledgers from {place}: {source}")]
    Content {
        /// The file.
        place: String,
        /// What is wrong with it.
        source: RecordError,
    },
    /// A file does not hold the ledgers that its name promises.
    #[error("{place} holds {found}, but its name promises {promised}")]
    OtherLedgers {
        /// The file.
        place: String,
        /// What it holds, in words.
        found: String,
        /// What its name says.
        promised: LedgerRange,
    },
    /// The transport failed.
    #[error("cannot read {place}: {reason}")]
    Transport {
        /// What was asked for.
        place: String,
        /// What the transport says.
        reason: String,
    },
}

/// A place where objects lie under keys: a directory now; HTTP servers and S3 have the same verbs.
pub trait ObjectStore: Send + Sync {
    /// The object's bytes, or none when there is no such key.
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Vec<u8>>, LakeError>>;

    /// Whether the key exists.
    fn exists(&self, key: &str) -> BoxFuture<'_, Result<bool, LakeError>>;

    /// The first `most` keys of batch files in lexicographic order, which is newest first; none when
    /// this store cannot list.
    fn first_keys(&self, most: usize) -> BoxFuture<'_, Result<Option<Vec<String>>, LakeError>>;

    /// The full name of a key, or of the whole store for an empty one, for messages.
    fn place(&self, key: &str) -> String;
}

/// An open lake.
#[derive(Clone)]
pub struct Lake {
    store: Arc<dyn ObjectStore>,
    layout: Layout,
    passphrase: Option<String>,
}

impl Lake {
    /// Reads the manifest and refuses a lake of another network.
    pub async fn open(store: Arc<dyn ObjectStore>, network: &Network) -> Result<Self, LakeError> {
        let Some(text) = store.get(Manifest::FILE_NAME).await? else {
            return Err(LakeError::NoManifest(store.place("")));
        };
        let place = store.place(Manifest::FILE_NAME);
        let manifest = Manifest::parse(&place, &text)?;
        manifest.check_network(&place, network)?;
        let any_key = store.first_keys(1).await?.and_then(|keys| keys.into_iter().next());
        let layout = Layout::new(&manifest, any_key.as_deref());
        Ok(Self { store, layout, passphrase: manifest.network_passphrase })
    }

    /// How its keys are composed.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The newest ledger in it, or none when it is empty; by listing where the store can, else by
    /// probing forward from `known`, a ledger that it is known to hold.
    pub async fn newest(&self, known: LedgerSeq) -> Result<Option<LedgerSeq>, LakeError> {
        match self.store.first_keys(NEWEST_KEYS).await? {
            Some(keys) => {
                let whole = keys.iter().find(|key| self.layout.is_key(key));
                Ok(whole.and_then(|key| layout::range_of(key)).map(|range| range.last))
            }
            None => self.newest_by_probing(known).await,
        }
    }

    /// The newest ledger, found by doubling steps forward from `known` and halving back. Assumes
    /// that there is no gap; none when `known` itself is missing.
    pub async fn newest_by_probing(
        &self,
        known: LedgerSeq,
    ) -> Result<Option<LedgerSeq>, LakeError> {
        if !self.has(known).await? {
            return Ok(None);
        }
        let batch = self.layout.batch_of(known);
        let size = self.layout.ledgers_per_batch();
        // Both count batches from that of `known`: the first is there, the second is not.
        let (mut present, mut absent) = (0u32, 1u32);
        while let Some(probe) = forward(batch.first, absent, size)
            && self.has(probe).await?
        {
            present = absent;
            absent = absent.saturating_mul(2);
        }
        while absent - present > 1 {
            let middle = present + (absent - present) / 2;
            match forward(batch.first, middle, size) {
                Some(probe) if self.has(probe).await? => present = middle,
                _ => absent = middle,
            }
        }
        Ok(forward(batch.first, present, size).map(|ledger| self.layout.batch_of(ledger).last))
    }

    /// The oldest ledger, found by halving between the beginning and `newest`, a ledger that it
    /// holds. Assumes that there is no gap.
    pub async fn oldest(&self, newest: LedgerSeq) -> Result<LedgerSeq, LakeError> {
        let size = self.layout.ledgers_per_batch();
        let (mut low, mut high) = (0u32, newest.0 / size);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.has(LedgerSeq(middle * size)).await? {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok(LedgerSeq(high * size).max(LedgerSeq::FIRST))
    }

    /// Whether the file with `ledger` exists.
    pub async fn has(&self, ledger: LedgerSeq) -> Result<bool, LakeError> {
        self.store.exists(&self.layout.key_of(ledger)).await
    }

    /// The ledgers of a bounded range in order. A missing file inside it is an error.
    pub fn read(&self, range: LedgerRange) -> impl Stream<Item = Result<RawLedger, LakeError>> {
        let size = self.layout.ledgers_per_batch();
        let first = range.first.max(LedgerSeq::FIRST);
        let batches = if range.is_empty() { 0..0 } else { first.0 / size..range.last.0 / size + 1 };
        let lake = self.clone();
        stream::iter(batches)
            .map(move |batch| {
                let lake = lake.clone();
                let wanted = LedgerSeq(batch.saturating_mul(size)).max(first);
                async move { (wanted, lake.file_of(wanted).await) }
            })
            .buffered(PARALLEL_FILES)
            .flat_map({
                let lake = self.clone();
                move |(wanted, file)| {
                    let ledgers = match file {
                        Ok(Some(ledgers)) => ledgers.into_iter().map(Ok).collect(),
                        Ok(None) => vec![Err(lake.gap(wanted))],
                        Err(error) => vec![Err(error)],
                    };
                    stream::iter(ledgers)
                }
            })
            .filter(move |ledger| {
                let inside = ledger.as_ref().map_or(true, |ledger| {
                    ledger.sequence >= first && ledger.sequence <= range.last
                });
                std::future::ready(inside)
            })
    }

    /// All ledgers of the file that holds `ledger`; none when there is no such file.
    pub async fn file_of(&self, ledger: LedgerSeq) -> Result<Option<Vec<RawLedger>>, LakeError> {
        let key = self.layout.key_of(ledger);
        let Some(bytes) = self.store.get(&key).await? else { return Ok(None) };
        let place = self.store.place(&key);
        let promised = self.layout.batch_of(ledger);
        let unpacked = tokio::task::spawn_blocking({
            let place = place.clone();
            move || unpack(&place, bytes, promised)
        });
        match unpacked.await {
            Ok(ledgers) => ledgers.map(Some),
            Err(error) => Err(LakeError::Transport { place, reason: error.to_string() }),
        }
    }

    fn gap(&self, ledger: LedgerSeq) -> LakeError {
        let key = self.layout.key_of(ledger);
        LakeError::Gap { place: self.store.place(""), ledger, key }
    }
}

/// The first ledger of the batch that lies `batches` after that of `first`.
fn forward(first: LedgerSeq, batches: u32, size: u32) -> Option<LedgerSeq> {
    first.0.checked_add(batches.checked_mul(size)?).map(LedgerSeq)
}

/// Takes a batch file apart and holds it to its name. The very first batch may begin at ledger 2.
fn unpack(place: &str, bytes: Vec<u8>, promised: LedgerRange) -> Result<Vec<RawLedger>, LakeError> {
    let content = |source| LakeError::Content { place: place.to_owned(), source };
    let name: Arc<str> = Arc::from(place);
    let mut ledgers = Vec::new();
    for record in Records::new(Cursor::new(bytes)).map_err(content)? {
        let (sequence, xdr) = record.map_err(content)?;
        let origin = Origin { name: Arc::clone(&name), position: None };
        ledgers.push(RawLedger { sequence, xdr, origin });
    }
    let first = promised.first.max(LedgerSeq::FIRST);
    let expected = (first.0..=promised.last.0).map(LedgerSeq);
    if ledgers.iter().map(|ledger| ledger.sequence).eq(expected) {
        return Ok(ledgers);
    }
    let found = match (ledgers.first(), ledgers.last()) {
        (Some(first), Some(last)) => format!("ledgers {} to {}", first.sequence, last.sequence),
        _ => "no ledger".to_owned(),
    };
    Err(LakeError::OtherLedgers { place: place.to_owned(), found, promised })
}

#[cfg(test)]
mod tests;
