//! A lake in an S3-compatible store: the objects of a bucket below a prefix. Requests are signed in
//! their query (SigV4), or not at all when there are no credentials. Where listing is allowed, the
//! inverted numbers in the keys bring the newest file first.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use reqwest::{Client, Method, Url};
use rusty_s3::actions::{ListObjectsV2, ListObjectsV2Response};
use rusty_s3::{Bucket, Credentials, S3Action};
use tokio::time::Instant;

use super::objects::{Addressing, Answer, Objects};
use super::{LakeError, ObjectStore, layout};

/// For so long a signature is good. Clocks may differ by minutes, and a request is sent at once.
const SIGNED_FOR: Duration = Duration::from_secs(15 * 60);
/// After listing was refused, it is tried again so much later: rights are given while a service runs.
const LISTING_REFUSED_FOR: Duration = Duration::from_secs(10 * 60);
/// Pages of one listing; foreign objects between the ledgers may fill some.
const MOST_PAGES: usize = 8;
/// Names on one page when directories are listed, the most that S3 gives.
const DIRECTORIES_ON_PAGE: usize = 1000;
/// Sorts before every key of a batch file and behind the manifest, which has no place among them.
const BEFORE_BATCHES: &str = "/";

/// Objects of a bucket.
pub struct S3 {
    objects: Objects<Signed>,
    /// Listing is not tried before this time.
    no_listing_before: Mutex<Option<Instant>>,
}

#[derive(Clone)]
struct Signed {
    bucket: Arc<Bucket>,
    /// Empty, or with a slash at its end.
    prefix: String,
    credentials: Option<Arc<Credentials>>,
}

impl S3 {
    /// The lake below `prefix`; anonymous without credentials.
    pub fn new(
        client: Client,
        bucket: Bucket,
        prefix: &str,
        credentials: Option<Credentials>,
    ) -> Self {
        let prefix = match prefix.trim_matches('/') {
            "" => String::new(),
            prefix => format!("{prefix}/"),
        };
        let (bucket, credentials) = (Arc::new(bucket), credentials.map(Arc::new));
        Self::at(client, Signed { bucket, prefix, credentials })
    }

    fn at(client: Client, signed: Signed) -> Self {
        let objects = Objects::new(client, signed);
        Self { objects, no_listing_before: Mutex::default() }
    }

    /// One page of the objects below the prefix, or none when listing is refused or not known.
    async fn page(
        &self,
        shape: impl FnOnce(&mut ListObjectsV2<'_>),
    ) -> Result<Option<ListObjectsV2Response>, LakeError> {
        if self.no_listing_before.lock().is_some_and(|time| Instant::now() < time) {
            return Ok(None);
        }
        let signed = &self.objects.addressing;
        let mut action = signed.bucket.list_objects_v2(signed.credentials.as_deref());
        action.with_prefix(&*signed.prefix);
        shape(&mut action);
        let url = action.sign(SIGNED_FOR);
        match self.objects.ask(Method::GET, url, "", None).await? {
            Answer::Found(response) => {
                let body = self.objects.body(response, "").await?;
                Ok(Some(self.parse(&body)?))
            }
            Answer::Forbidden(words) => {
                self.objects.missing_unless_refused("", &words).await?;
                self.cannot_list(&words);
                Ok(None)
            }
            Answer::Missing => {
                self.cannot_list("the server knows no listing");
                Ok(None)
            }
            Answer::NoSuchMethod(words) => {
                self.cannot_list(&words);
                Ok(None)
            }
        }
    }

    fn cannot_list(&self, words: &str) {
        let place = self.place("");
        tracing::info!("{place} cannot be listed ({words}): its ends are found by asking for keys");
        *self.no_listing_before.lock() = Some(Instant::now() + LISTING_REFUSED_FOR);
    }

    fn parse(&self, body: &[u8]) -> Result<ListObjectsV2Response, LakeError> {
        let text = in_one_namespace(&String::from_utf8_lossy(body));
        ListObjectsV2::parse_response(&text).map_err(|error| {
            let place = self.place("");
            LakeError::transport(place, format!("the listing is not understood: {error}"))
        })
    }

    async fn keys(&self, after: &str, most: usize) -> Result<Option<Vec<String>>, LakeError> {
        let prefix = &self.objects.addressing.prefix;
        let mut after =
            format!("{prefix}{}", if after.is_empty() { BEFORE_BATCHES } else { after });
        let mut keys = Vec::new();
        for _ in 0..MOST_PAGES {
            let shape = |list: &mut ListObjectsV2<'_>| {
                list.with_start_after(after.clone());
                list.with_max_keys(most);
            };
            let Some(page) = self.page(shape).await? else { return Ok(None) };
            let Some(last) = page.contents.last() else { break };
            after.clone_from(&last.key);
            let more = page.next_continuation_token.is_some();
            let below = page.contents.iter().filter_map(|object| object.key.strip_prefix(prefix));
            let batches = below.filter(|key| layout::range_of(key).is_some());
            keys.extend(batches.take(most - keys.len()).map(str::to_owned));
            if keys.len() == most || !more {
                break;
            }
        }
        Ok(Some(keys))
    }

    async fn names_of_directories(&self) -> Result<Option<Vec<String>>, LakeError> {
        let prefix = &self.objects.addressing.prefix;
        let mut names = Vec::new();
        let mut token: Option<String> = None;
        for _ in 0..MOST_PAGES {
            let shape = |list: &mut ListObjectsV2<'_>| {
                list.with_delimiter("/");
                list.with_max_keys(DIRECTORIES_ON_PAGE);
                if let Some(token) = token.take() {
                    list.with_continuation_token(token);
                }
            };
            let Some(page) = self.page(shape).await? else { return Ok(None) };
            let directories = page.common_prefixes.iter();
            let below = directories.filter_map(|common| common.prefix.strip_prefix(prefix));
            names.extend(below.map(|name| name.trim_end_matches('/').to_owned()));
            match page.next_continuation_token {
                Some(next) => token = Some(next),
                None => break,
            }
        }
        Ok(Some(names))
    }
}

/// Some servers write the listing in a namespace of their own, or in none; the elements are the same.
fn in_one_namespace(listing: &str) -> String {
    const S3: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

    let Some(start) = listing.find("<ListBucketResult") else { return listing.to_owned() };
    let name_end = start + "<ListBucketResult".len();
    let Some(length) = listing[name_end..].find('>') else { return listing.to_owned() };
    let tag_end = name_end + length;
    let slash = if listing[..tag_end].ends_with('/') { "/" } else { "" };
    format!("<ListBucketResult xmlns=\"{S3}\"{slash}{}", &listing[tag_end..])
}

impl Addressing for Signed {
    fn url(&self, method: &Method, key: &str) -> Url {
        let (key, credentials) = (format!("{}{key}", self.prefix), self.credentials.as_deref());
        if *method == Method::HEAD {
            self.bucket.head_object(credentials, &key).sign(SIGNED_FOR)
        } else {
            self.bucket.get_object(credentials, &key).sign(SIGNED_FOR)
        }
    }

    fn place(&self, key: &str) -> String {
        let whole = format!("s3://{}/{}{key}", self.bucket.name(), self.prefix);
        whole.trim_end_matches('/').to_owned()
    }

    fn when_refused(&self) -> &'static str {
        if self.credentials.is_some() {
            "check bucket and prefix, and that the credentials are right and may read the objects \
             (s3:GetObject) and list the bucket (s3:ListBucket)"
        } else {
            "it was asked without credentials: check bucket and prefix, and give an access key, in \
             the settings or as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, if it is not public"
        }
    }

    fn bucket_and_region(&self) -> Option<(&str, &str)> {
        Some((self.bucket.name(), self.bucket.region()))
    }
}

impl ObjectStore for S3 {
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, LakeError>> {
        self.objects.get(key).boxed()
    }

    fn exists<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<bool, LakeError>> {
        self.objects.exists(key).boxed()
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

    fn below(&self, directory: &str) -> Arc<dyn ObjectStore> {
        let mut signed = self.objects.addressing.clone();
        signed.prefix.push_str(&format!("{directory}/"));
        Arc::new(Self::at(self.objects.client().clone(), signed))
    }

    fn place(&self, key: &str) -> String {
        self.objects.addressing.place(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(tag: &str) -> String {
        format!(
            "<?xml version=\"1.0\"?><{tag}><Name>b</Name><IsTruncated>false</IsTruncated>\
             <Contents><Key>p/FFFFFFFD--2.xdr.zst</Key></Contents></ListBucketResult>"
        )
    }

    #[test]
    fn reads_listings_of_any_namespace() {
        for tag in [
            "ListBucketResult",
            "ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"",
            "ListBucketResult xmlns='http://doc.s3.amazonaws.com/2006-03-01'",
        ] {
            let parsed = ListObjectsV2::parse_response(&in_one_namespace(&listing(tag))).unwrap();
            assert_eq!(parsed.contents.len(), 1, "{tag}");
            assert_eq!(parsed.contents[0].key, "p/FFFFFFFD--2.xdr.zst");
        }
        let empty = ListObjectsV2::parse_response(&in_one_namespace("<ListBucketResult/>"));
        assert!(empty.unwrap().contents.is_empty());
        for text in ["", "<html></html>", "<ListBucketResult"] {
            assert!(ListObjectsV2::parse_response(&in_one_namespace(text)).is_err(), "{text}");
        }
    }
}
