//! A lake on the network, through `object_store`: a bucket of S3, Google or Azure below a prefix,
//! or a web server. Where listing is allowed, the inverted numbers in the keys bring the newest
//! file first; a web server cannot list.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use orrery_net::buckets::{Patience, Refusal, Root, innermost, refusal};
use orrery_net::object_store;
use orrery_net::object_store::list::PaginatedListOptions;
use orrery_net::object_store::path::Path;
use orrery_net::object_store::{ListResult, ObjectStoreExt};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::access::{Access, Meaning};
use super::error::LakeError;
use super::files::LakeFiles;
use super::layout;

/// Time after which a refused listing is tried again: permissions may be granted while the service
/// runs.
const LISTING_RETRY_DELAY: Duration = Duration::from_secs(10 * 60);
/// Maximum number of pages in one listing; foreign objects between the ledgers may fill some.
const MAX_PAGES: usize = 8;
/// Page size when directories or any files are listed, the maximum of S3.
const KEYS_ON_PAGE: usize = 1000;
/// Start of a listing: sorts before every key of a batch file and after the manifest, which is
/// skipped.
const BEFORE_BATCHES: &str = "/";

/// How a listing ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listed {
    /// With the last page, or when enough was found.
    Whole,
    /// Before the last page.
    CutOff,
    /// It is refused or not supported.
    Impossible,
}

/// Objects of a lake on the network.
pub struct Remote {
    root: Root,
    access: Access,
    /// Time before which listing is not tried again.
    no_listing_before: Mutex<Option<Instant>>,
}

impl Remote {
    /// Creates a client for the lake at `root`.
    pub(super) fn new(root: Root) -> Self {
        Self { root, access: Access::default(), no_listing_before: Mutex::default() }
    }

    fn path(&self, key: &str) -> object_store::Result<Path> {
        Ok(Path::parse(format!("{}{key}", self.root.prefix))?)
    }

    async fn download(&self, key: &str) -> object_store::Result<Bytes> {
        let path = self.path(key)?;
        Patience::SHORT.ask(|| async { self.root.store.get(&path).await?.bytes().await }).await
    }

    async fn head(&self, key: &str) -> object_store::Result<()> {
        let path = self.path(key)?;
        Patience::SHORT.ask(|| async { self.root.store.head(&path).await.map(drop) }).await
    }

    /// Interprets the answer to a request for a key; returns `None` when the key does not exist.
    async fn interpret<T>(
        &self,
        key: &str,
        answer: object_store::Result<T>,
    ) -> Result<Option<T>, LakeError> {
        match answer.map_err(|error| refusal(&error)) {
            Ok(answer) => {
                self.access.readable(key);
                Ok(Some(answer))
            }
            Err(Refusal::Missing) => Ok(None),
            Err(Refusal::Forbidden(words)) => {
                self.missing_unless_refused(key, words).await.map(|()| None)
            }
            Err(refusal) => Err(self.error(key, refusal)),
        }
    }

    /// Interprets a 403 for `key`: the key is missing, unless nothing can be read.
    ///
    /// # Errors
    /// [`LakeError::Refused`]
    async fn missing_unless_refused(&self, key: &str, words: String) -> Result<(), LakeError> {
        match self.access.meaning_for(key) {
            Meaning::Missing => return Ok(()),
            Meaning::Refused => {}
            Meaning::Probe(witness) => {
                match self.head(&witness).await.map_err(|error| refusal(&error)) {
                    Ok(()) => {
                        self.access.readable(&witness);
                        return Ok(());
                    }
                    Err(Refusal::Missing | Refusal::Forbidden(_)) => {}
                    Err(refusal) => return Err(self.error(&witness, refusal)),
                }
            }
        }
        Err(self.error(key, Refusal::Credentials(words)))
    }

    fn error(&self, key: &str, refusal: Refusal) -> LakeError {
        let place = self.place(key);
        match refusal {
            Refusal::Forbidden(words) | Refusal::Credentials(words) => {
                let advice = &self.root.when_refused;
                LakeError::Refused(format!("{place} may not be read: {words}; {advice}"))
            }
            Refusal::TooLong(most) => LakeError::too_large(&place, "is", most),
            Refusal::OtherRegion { words, right } => match self.root.bucket_and_region.clone() {
                Some((bucket, given)) => {
                    let right = right.map_or_else(
                        || ": set the region that it is in".to_owned(),
                        |right| format!(" but in {right}: set that region"),
                    );
                    LakeError::Other(format!(
                        "the bucket {bucket} is not in the region {given}{right}"
                    ))
                }
                None => LakeError::transport(&place, words),
            },
            Refusal::Failed { words, delay: Some(delay), .. } => {
                LakeError::RetryAfter { sentence: format!("cannot read {place}: {words}"), delay }
            }
            Refusal::Failed { words, delay: None, .. } => LakeError::transport(&place, words),
            Refusal::Missing | Refusal::NoSuchMethod(_) | Refusal::Changed(_) => {
                LakeError::transport(&place, refusal)
            }
        }
    }

    /// Reads the pages of a listing until `enough` returns true.
    async fn list(
        &self,
        mut options: PaginatedListOptions,
        mut enough: impl FnMut(ListResult) -> bool + Send,
    ) -> Result<Listed, LakeError> {
        let Some(listing) = &self.root.listing else { return Ok(Listed::Impossible) };
        if self.no_listing_before.lock().is_some_and(|time| Instant::now() < time) {
            return Ok(Listed::Impossible);
        }
        let prefix = Some(&*self.root.prefix).filter(|prefix| !prefix.is_empty());
        for _ in 0..MAX_PAGES {
            let list = || async { listing.list_paginated(prefix, options.clone()).await };
            let page = match Patience::SHORT.ask(list).await {
                Ok(page) => page,
                Err(error) => return self.cannot_list(&error).await.map(|()| Listed::Impossible),
            };
            options.page_token = page.page_token;
            if enough(page.result) || options.page_token.is_none() {
                return Ok(Listed::Whole);
            }
        }
        Ok(Listed::CutOff)
    }

    async fn cannot_list(&self, error: &object_store::Error) -> Result<(), LakeError> {
        let words = match (Refusal::of(error), error) {
            (Some(Refusal::Forbidden(words)), _) => {
                self.missing_unless_refused("", words.clone()).await?;
                words
            }
            (Some(Refusal::Missing), _) => "the server does not support listing".to_owned(),
            (Some(Refusal::NoSuchMethod(words)), _) => words,
            (Some(refusal), _) => return Err(self.error("", refusal)),
            (None, object_store::Error::InvalidPath { .. }) => {
                "it holds objects whose names are not paths".to_owned()
            }
            (None, _) => {
                let words = format!("the listing is not understood: {}", innermost(error));
                return Err(self.error("", Refusal::failed(words)));
            }
        };
        let place = self.place("");
        tracing::info!("{place} cannot be listed ({words}): its ends are found by probing keys");
        *self.no_listing_before.lock() = Some(Instant::now() + LISTING_RETRY_DELAY);
        Ok(())
    }

    /// Returns the first misnamed key on the first page of a listing.
    async fn first_misnamed(&self) -> Result<Option<String>, LakeError> {
        let mut found = None;
        let options = PaginatedListOptions {
            max_keys: Some(KEYS_ON_PAGE),
            ..PaginatedListOptions::default()
        };
        self.list(options, |page| {
            let paths = page.objects.iter().map(|object| object.location.as_ref());
            let mut below = paths.filter_map(|path| path.strip_prefix(&*self.root.prefix));
            found = below.find(|key| layout::may_be_misnamed(key)).map(str::to_owned);
            true
        })
        .await?;
        Ok(found)
    }

    async fn keys(&self, after: &str, most: usize) -> Result<Option<Vec<String>>, LakeError> {
        let prefix = &self.root.prefix;
        let after = if after.is_empty() { BEFORE_BATCHES } else { after };
        let options = PaginatedListOptions {
            offset: Some(format!("{prefix}{after}")),
            max_keys: Some(most),
            ..PaginatedListOptions::default()
        };
        let mut keys = Vec::new();
        let listed = self.list(options, |page| {
            let paths = page.objects.iter().map(|object| object.location.as_ref());
            let below = paths.filter_map(|path| path.strip_prefix(&**prefix));
            // Some servers ignore where a listing is to begin.
            let batches = below.filter(|key| *key > after && layout::range_of(key).is_some());
            keys.extend(batches.take(most - keys.len()).map(str::to_owned));
            keys.len() == most
        });
        // Where other objects fill all pages, nothing is known of the ledgers behind them.
        Ok(match listed.await? {
            Listed::Impossible => None,
            Listed::CutOff if keys.is_empty() => None,
            Listed::CutOff | Listed::Whole => Some(keys),
        })
    }

    async fn names_of_directories(&self) -> Result<Option<Vec<String>>, LakeError> {
        let options = PaginatedListOptions {
            delimiter: Some("/".into()),
            max_keys: Some(KEYS_ON_PAGE),
            ..PaginatedListOptions::default()
        };
        let mut names = Vec::new();
        let listed = self.list(options, |page| {
            let directories = page.common_prefixes.iter().map(Path::as_ref);
            let below = directories.filter_map(|path| path.strip_prefix(&*self.root.prefix));
            names.extend(below.map(str::to_owned));
            false
        });
        Ok((listed.await? != Listed::Impossible).then_some(names))
    }
}

impl LakeFiles for Remote {
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, LakeError>> {
        async move { self.interpret(key, self.download(key).await).await }.boxed()
    }

    fn exists<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<bool, LakeError>> {
        async move { Ok(self.interpret(key, self.head(key).await).await?.is_some()) }.boxed()
    }

    fn keys_after<'a>(
        &'a self,
        after: &'a str,
        most: usize,
    ) -> BoxFuture<'a, Result<Option<Vec<String>>, LakeError>> {
        self.keys(after, most).boxed()
    }

    fn directories(&self) -> BoxFuture<'_, Result<Option<Vec<String>>, LakeError>> {
        self.names_of_directories().boxed()
    }

    fn misnamed(&self) -> BoxFuture<'_, Result<Option<String>, LakeError>> {
        self.first_misnamed().boxed()
    }

    fn below(&self, directory: &str) -> Arc<dyn LakeFiles> {
        let mut root = self.root.clone();
        root.prefix.push_str(&format!("{directory}/"));
        root.place.push_str(&format!("/{directory}"));
        Arc::new(Self::new(root))
    }

    fn place(&self, key: &str) -> String {
        let Root { place, .. } = &self.root;
        if key.is_empty() { place.clone() } else { format!("{place}/{key}") }
    }
}
