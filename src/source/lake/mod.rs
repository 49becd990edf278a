//! Reads a ledger data lake: a tree of batch files below a manifest, in the layout of SEP-54.
//! Handles keys and ranges; leaves storage to [`LakeFiles`] and the content of files to
//! [`records`](super::records).
//!
//! - [`settings`] parses an address, which is a [`directory`] or something [`remote`].
//! - [`open`] finds the manifest and the layout.
//! - [`range`] finds the newest and the oldest ledger with few requests.
//! - [`prefetch`] downloads and unpacks files in order.

mod access;
mod directory;
mod error;
mod layout;
mod open;
mod prefetch;
mod range;
mod remote;
mod settings;
mod source;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, Stream, StreamExt};
use orrery_ledger::domain::{LedgerRange, LedgerSeq, Origin, RawLedger};

pub use directory::Directory;
pub use error::LakeError;
pub use layout::{Layout, Manifest};
pub use open::GivenLayout;
pub use settings::LakeSettings;
pub use source::LakeSource;

use super::records::{Record, Records};
use open::ResetDirectory;
use prefetch::ReadAhead;

/// Maximum size of a ledger in a lake, in bytes after decompression: fifty times the largest seen
/// on the public network. Limits the damage of a decompression bomb.
const LONGEST_LEDGER: u64 = 64 << 20;

/// Maximum size of all ledgers in one file, in bytes after decompression.
const MAX_UNPACKED: u64 = 512 << 20;

/// Storage that holds files under keys: a directory, a bucket or a web server. Has only the
/// operations that a lake needs, so that tests can simulate it.
pub trait LakeFiles: Send + Sync {
    /// Returns the object's bytes, or `None` when the key does not exist.
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, LakeError>>;

    /// Returns whether the key exists.
    fn exists<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<bool, LakeError>>;

    /// Returns the first `most` keys of batch files after `after` in lexicographic order, which is
    /// newest first; `None` when this store cannot list. An empty `after` starts with the newest.
    fn keys_after<'a>(
        &'a self,
        after: &'a str,
        most: usize,
    ) -> BoxFuture<'a, Result<Option<Vec<String>>, LakeError>>;

    /// Returns the names of the directories at the root; `None` when this store cannot list.
    fn directories(&self) -> BoxFuture<'_, Result<Option<Vec<String>>, LakeError>>;

    /// Returns the store whose root is a directory of this one.
    fn below(&self, directory: &str) -> Arc<dyn LakeFiles>;

    /// Returns the full name of a key, or of the whole store for an empty key, for messages. Holds
    /// no secrets.
    fn place(&self, key: &str) -> String;
}

/// An open lake.
#[derive(Clone)]
pub struct Lake {
    store: Arc<dyn LakeFiles>,
    layout: Layout,
    passphrase: Option<String>,
    /// The directory that was chosen, in a lake with one directory for each reset of the network.
    reset_directory: Option<ResetDirectory>,
}

impl Lake {
    /// Returns the layout of the lake's keys.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the location of the lake, for messages.
    pub fn place(&self) -> String {
        self.store.place("")
    }

    /// Returns whether the file with `ledger` exists.
    pub async fn has(&self, ledger: LedgerSeq) -> Result<bool, LakeError> {
        self.store.exists(&self.layout.key_of(ledger)).await
    }

    /// Streams the ledgers of a bounded range in order, with read-ahead. A missing file inside the
    /// range is an error; the stream ends after the first error.
    pub fn read(&self, range: LedgerRange) -> impl Stream<Item = Result<RawLedger, LakeError>> {
        let next = (!range.is_empty()).then(|| range.first.max(LedgerSeq::FIRST));
        let start = (self.clone(), ReadAhead::default(), next);
        let files = stream::unfold(start, move |(lake, mut ahead, next)| async move {
            let next = next.filter(|next| *next <= range.last)?;
            let (file, after) = match ahead.file(&lake, next, range.last).await {
                Ok(Some(ledgers)) => (Ok(ledgers), lake.layout.batch_of(next).last.next()),
                Ok(None) => (Err(lake.gap(next)), None),
                Err(error) => (Err(error), None),
            };
            Some((file, (lake, ahead, after)))
        });
        files.flat_map(move |file| {
            let ledgers = match file {
                Ok(mut ledgers) => {
                    ledgers.retain(|ledger| ledger.sequence <= range.last);
                    ledgers.into_iter().map(Ok).collect()
                }
                Err(error) => vec![Err(error)],
            };
            stream::iter(ledgers)
        })
    }

    /// Returns all ledgers of the file that holds `ledger`; `None` when the file does not exist.
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
            Err(error) => Err(LakeError::transport(place, error)),
        }
    }

    fn gap(&self, ledger: LedgerSeq) -> LakeError {
        let key = self.layout.key_of(ledger);
        LakeError::Gap { place: self.place(), ledger, key }
    }
}

/// Unpacks a batch file and checks that it holds the ledgers that its name promises. The very first
/// batch may begin at ledger 2.
fn unpack(place: &str, bytes: Bytes, promised: LedgerRange) -> Result<Vec<RawLedger>, LakeError> {
    let content = |source| LakeError::Content { place: place.to_owned(), source };
    let name: Arc<str> = Arc::from(place);
    let mut ledgers = Vec::new();
    let mut total = 0u64;
    for record in Records::of(bytes, LONGEST_LEDGER).map_err(content)? {
        let Record { sequence, xdr, compressed } = record.map_err(content)?;
        total += xdr.len() as u64;
        if total > MAX_UNPACKED {
            let (place, verb) = (place.to_owned(), "unpacks to");
            return Err(LakeError::TooLarge { place, verb, most: MAX_UNPACKED });
        }
        let origin = Origin { name: Arc::clone(&name), position: None };
        ledgers.push(RawLedger { sequence, xdr, compressed, origin });
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
mod simulated;
#[cfg(test)]
mod tests;
