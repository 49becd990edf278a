//! A lake behind a plain HTTP(S) server: the key follows the address of the lake. Such a server
//! cannot list, so ends of the lake are found by asking for keys.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use reqwest::{Client, Method, Url};

use super::objects::{Addressing, Objects};
use super::{LakeError, ObjectStore};
use crate::source::http::redacted;

/// Objects at addresses that begin alike.
pub struct Http {
    objects: Objects<Base>,
}

struct Base {
    /// Ends with a slash; a query stays behind every key.
    url: Url,
    /// The same without what may be secret.
    shown: String,
}

impl Http {
    /// The lake at `url`, with or without a slash at its end.
    pub fn new(client: Client, mut url: Url) -> Self {
        if !url.path().ends_with('/') {
            url.set_path(&format!("{}/", url.path()));
        }
        url.set_fragment(None);
        let shown = redacted(&url).trim_end_matches('/').to_owned();
        Self { objects: Objects::new(client, Base { url, shown }) }
    }
}

impl Addressing for Base {
    fn url(&self, _: &Method, key: &str) -> Url {
        let mut url = self.url.clone();
        url.set_path(&format!("{}{key}", self.url.path()));
        url
    }

    fn place(&self, key: &str) -> String {
        if key.is_empty() { self.shown.clone() } else { format!("{}/{key}", self.shown) }
    }

    fn when_refused(&self) -> &'static str {
        "check the address and the rights of the files, or give user and password in the address"
    }

    fn bucket_and_region(&self) -> Option<(&str, &str)> {
        None
    }
}

impl ObjectStore for Http {
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, LakeError>> {
        self.objects.get(key).boxed()
    }

    fn exists<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<bool, LakeError>> {
        self.objects.exists(key).boxed()
    }

    fn keys_after<'a>(
        &'a self,
        _: &'a str,
        _: usize,
    ) -> BoxFuture<'a, Result<Option<Vec<String>>, LakeError>> {
        std::future::ready(Ok(None)).boxed()
    }

    fn directories(&self) -> BoxFuture<'_, Result<Option<Vec<String>>, LakeError>> {
        std::future::ready(Ok(None)).boxed()
    }

    fn below(&self, directory: &str) -> Arc<dyn ObjectStore> {
        let url = self.objects.addressing.url(&Method::GET, directory);
        Arc::new(Self::new(self.objects.client().clone(), url))
    }

    fn place(&self, key: &str) -> String {
        self.objects.addressing.place(key)
    }
}
