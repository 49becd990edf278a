//! A ledger data lake: a tree of batch files under a manifest, in the layout of SEP-54. Knows keys
//! and ranges; leaves where they lie to [`LakeFiles`] and what is in the files to
//! [`records`](super::records).
//!
//! Where it lies: [`settings`] reads an address, which is a [`directory`] or something [`remote`], with
//! what [`buckets`] and [`transport`] give to `object_store`. What it is: [`opening`] finds manifest and layout. What it has: [`ends`] finds the newest and
//! the oldest ledger, with few questions. What is in it: [`ahead`] downloads and unpacks in order.
//!
//! [`objects`] is no lake: a bucket that is written to, with the same settings and client.

mod access;
mod ahead;
mod buckets;
mod directory;
mod ends;
mod error;
mod layout;
mod objects;
mod opening;
mod remote;
mod settings;
mod source;
mod transport;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, Stream, StreamExt};

pub use directory::Directory;
pub use error::LakeError;
pub use layout::{Layout, Manifest};
pub use objects::{ObjectVersion, Objects, ObjectsError};
pub use opening::GivenLayout;
pub use settings::{AccessKey, LakeSettings, S3Credentials};
pub use source::LakeSource;

use super::records::{Record, Records};
use super::{Origin, RawLedger};
use crate::domain::{LedgerRange, LedgerSeq};
use ahead::ReadAhead;
use opening::ResetDirectory;

/// Longest file that is downloaded, in bytes as it lies in the store. A file of the public network's
/// lake has 180 kB, one with 64 ledgers 12 MB.
const MOST_DOWNLOADED: u64 = 128 << 20;

/// Longest ledger in a lake, in bytes after decompression: fifty times what the public network has
/// shown. It bounds what a file that was made to unpack to very much can do.
const LONGEST_LEDGER: u64 = 64 << 20;

/// Most bytes that one file may unpack to.
const MOST_UNPACKED: u64 = 512 << 20;

/// A place where files lie under keys: a directory, a bucket or a web server. Asks no more than a lake
/// needs, so that it can be imagined in tests.
pub trait LakeFiles: Send + Sync {
    /// The object's bytes, or none when there is no such key.
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, LakeError>>;

    /// Whether the key exists.
    fn exists<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<bool, LakeError>>;

    /// The first `most` keys of batch files behind `after` in lexicographic order, which is newest
    /// first; none when this store cannot list. An empty `after` begins with the newest.
    fn keys_after<'a>(
        &'a self,
        after: &'a str,
        most: usize,
    ) -> BoxFuture<'a, Result<Option<Vec<String>>, LakeError>>;

    /// Names of the directories at the root; none when this store cannot list.
    fn directories(&self) -> BoxFuture<'_, Result<Option<Vec<String>>, LakeError>>;

    /// The store whose root is a directory of this one.
    fn below(&self, directory: &str) -> Arc<dyn LakeFiles>;

    /// The full name of a key, or of the whole store for an empty one, for messages. Holds no secrets.
    fn place(&self, key: &str) -> String;
}

/// An open lake.
#[derive(Clone)]
pub struct Lake {
    store: Arc<dyn LakeFiles>,
    layout: Layout,
    passphrase: Option<String>,
    /// The directory that was chosen among several, one for each reset of the network.
    reset_directory: Option<ResetDirectory>,
}

impl Lake {
    /// How its keys are composed.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Where it lies, for messages.
    pub fn place(&self) -> String {
        self.store.place("")
    }

    /// Whether the file with `ledger` exists.
    pub async fn has(&self, ledger: LedgerSeq) -> Result<bool, LakeError> {
        self.store.exists(&self.layout.key_of(ledger)).await
    }

    /// The ledgers of a bounded range in order, downloaded ahead. A missing file inside it is an error;
    /// the stream ends after the first.
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
            Err(error) => Err(LakeError::transport(place, error)),
        }
    }

    fn gap(&self, ledger: LedgerSeq) -> LakeError {
        let key = self.layout.key_of(ledger);
        LakeError::Gap { place: self.place(), ledger, key }
    }
}

/// Takes a batch file apart and holds it to its name. The very first batch may begin at ledger 2.
fn unpack(place: &str, bytes: Bytes, promised: LedgerRange) -> Result<Vec<RawLedger>, LakeError> {
    let content = |source| LakeError::Content { place: place.to_owned(), source };
    let name: Arc<str> = Arc::from(place);
    let mut ledgers = Vec::new();
    let mut total = 0u64;
    for record in Records::of(bytes, LONGEST_LEDGER).map_err(content)? {
        let Record { sequence, xdr, compressed } = record.map_err(content)?;
        total += xdr.len() as u64;
        if total > MOST_UNPACKED {
            let (place, verb) = (place.to_owned(), "unpacks to");
            return Err(LakeError::TooLarge { place, verb, most: MOST_UNPACKED });
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
mod imagined;
#[cfg(test)]
mod tests;
