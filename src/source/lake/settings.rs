//! What leads to a lake: its address, and for S3 the endpoint, the region and the credentials. Makes
//! the store of them, without asking it anything.

use std::fmt;
use std::sync::Arc;

use reqwest::Url;
use rusty_s3::{Bucket, BucketError, Credentials, UrlStyle};

use super::{Directory, GivenLayout, Http, LakeError, ObjectStore, S3};
use crate::source::http::{HttpError, Timeouts, client, redacted};

/// Region of stores that have none, and of the oldest part of AWS.
const DEFAULT_REGION: &str = "us-east-1";

/// Where a lake lies and how it is read.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct LakeSettings {
    /// A directory, `file:///path`, `http://…`, `https://…` or `s3://bucket/prefix`.
    pub address: String,
    /// Address of an S3-compatible server that is not AWS.
    pub endpoint: Option<String>,
    /// Region of the bucket.
    pub region: Option<String>,
    /// Who asks an S3 store.
    pub credentials: S3Credentials,
    /// What a lake without a manifest does not say of itself.
    pub layout: GivenLayout,
    /// How long to wait for a server.
    pub timeouts: Timeouts,
}

/// Who asks an S3 store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum S3Credentials {
    /// Whom the environment names in `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and, for a while,
    /// `AWS_SESSION_TOKEN`; nobody when it names none.
    #[default]
    Environment,
    /// Nobody: requests are not signed.
    Anonymous,
    /// The owner of this key.
    Key(AccessKey),
}

/// An access key. Only its presence is ever shown.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessKey {
    /// Its public half.
    pub id: String,
    /// Its secret half.
    pub secret: String,
    /// Goes with a key that is valid for a while.
    pub session_token: Option<String>,
}

impl fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessKey(…)")
    }
}

impl fmt::Debug for LakeSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LakeSettings")
            .field("address", &shown(&self.address))
            .field("endpoint", &self.endpoint.as_deref().map(shown))
            .field("region", &self.region)
            .field("credentials", &self.credentials)
            .field("layout", &self.layout)
            .field("timeouts", &self.timeouts)
            .finish()
    }
}

/// An address without what may be secret.
fn shown(address: &str) -> String {
    match Url::parse(address) {
        Ok(url) if url.has_host() => redacted(&url),
        _ if address.contains('@') => "…".to_owned(),
        _ => address.to_owned(),
    }
}

impl LakeSettings {
    /// A lake at an address, with nothing else to say about it.
    pub fn at(address: impl Into<String>) -> Self {
        Self { address: address.into(), ..Self::default() }
    }

    /// The store that the settings lead to, with what the process's environment adds.
    ///
    /// # Errors
    /// [`LakeError::Address`] when the settings make no sense.
    pub fn store(&self) -> Result<Arc<dyn ObjectStore>, LakeError> {
        self.store_in(|name| std::env::var(name).ok())
    }

    /// The same with an environment that is given.
    ///
    /// # Errors
    /// As [`Self::store`].
    pub fn store_in(
        &self,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Arc<dyn ObjectStore>, LakeError> {
        self.check_extension()?;
        let environment = |name: &str| environment(name).filter(|value| !value.trim().is_empty());
        if !self.address.contains("://") {
            self.only_for_s3()?;
            return match &*self.address {
                "" => Err(self.wrong("it is empty: give a directory or an address")),
                path => Ok(Arc::new(Directory::new(path))),
            };
        }
        let url = Url::parse(&self.address).map_err(|error| self.wrong(error))?;
        if url.scheme() != "s3" {
            self.only_for_s3()?;
        }
        match url.scheme() {
            "file" => match url.to_file_path() {
                Ok(path) => Ok(Arc::new(Directory::new(path))),
                Err(()) => Err(self.wrong("it is no path on this machine: write file:///path")),
            },
            "http" | "https" => Ok(Arc::new(Http::new(self.client()?, url))),
            "s3" => self.s3(&url, environment),
            scheme => Err(self.wrong(format!(
                "{scheme}:// is not known: give a directory, http://, https:// or s3://bucket/prefix \
                 (other stores speak S3 at an endpoint of theirs)"
            ))),
        }
    }

    fn s3(
        &self,
        url: &Url,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Arc<dyn ObjectStore>, LakeError> {
        let plain = url.username().is_empty()
            && url.password().is_none()
            && (url.port(), url.query(), url.fragment()) == (None, None, None);
        if !plain {
            return Err(self.wrong("write it as s3://bucket/prefix and nothing else"));
        }
        // Not from the URL, which would change letters and dots.
        let path = self.address.split_once("://").map_or("", |(_, path)| path);
        let (name, prefix) = path.split_once('/').unwrap_or((path, ""));
        let dots = prefix.split('/').any(|word| matches!(word, "." | ".."));
        if name.is_empty() || dots {
            return Err(self.wrong("write it as s3://bucket/prefix, without . and .. in it"));
        }
        let region = self.region.clone();
        let region = region.or_else(|| environment("AWS_REGION"));
        let region = region.or_else(|| environment("AWS_DEFAULT_REGION"));
        let region = region.unwrap_or_else(|| DEFAULT_REGION.to_owned());
        let endpoint = self.endpoint.clone();
        let endpoint = endpoint.or_else(|| environment("AWS_ENDPOINT_URL_S3"));
        let endpoint = endpoint.or_else(|| environment("AWS_ENDPOINT_URL"));
        let bucket = match endpoint {
            Some(endpoint) => self.bucket_at(&endpoint, name, region)?,
            None => self.bucket_of_aws(name, region)?,
        };
        let credentials = self.credentials(environment);
        Ok(Arc::new(S3::new(self.client()?, bucket, prefix, credentials)))
    }

    fn bucket_at(&self, endpoint: &str, name: &str, region: String) -> Result<Bucket, LakeError> {
        let wrong = |error: String| {
            let shown = shown(endpoint);
            self.wrong(format!("its endpoint {shown} is none ({error}): write https://host:port"))
        };
        let url = Url::parse(endpoint).map_err(|error| wrong(error.to_string()))?;
        let bucket = Bucket::new(url, UrlStyle::Path, name.to_owned(), region);
        bucket.map_err(|error| wrong(bucket_error(error)))
    }

    fn bucket_of_aws(&self, name: &str, region: String) -> Result<Bucket, LakeError> {
        let top = if region.starts_with("cn-") { "com.cn" } else { "com" };
        let wrong = |error: String| self.wrong(error);
        let endpoint = Url::parse(&format!("https://s3.{region}.amazonaws.{top}"))
            .map_err(|error| wrong(format!("there is no region {region} ({error})")))?;
        // A dot in the name does not fit the certificate, and a capital letter no host.
        let style = if name.contains('.') || name.contains(|c: char| c.is_ascii_uppercase()) {
            UrlStyle::Path
        } else {
            UrlStyle::VirtualHost
        };
        let bucket = Bucket::new(endpoint, style, name.to_owned(), region);
        bucket.map_err(|error| wrong(bucket_error(error)))
    }

    fn credentials(&self, environment: impl Fn(&str) -> Option<String>) -> Option<Credentials> {
        let key = match &self.credentials {
            S3Credentials::Anonymous => return None,
            S3Credentials::Key(key) => key.clone(),
            S3Credentials::Environment => AccessKey {
                id: environment("AWS_ACCESS_KEY_ID")?,
                secret: environment("AWS_SECRET_ACCESS_KEY")?,
                session_token: environment("AWS_SESSION_TOKEN"),
            },
        };
        Some(match key.session_token {
            Some(token) => Credentials::new_with_token(key.id, key.secret, token),
            None => Credentials::new(key.id, key.secret),
        })
    }

    fn client(&self) -> Result<reqwest::Client, LakeError> {
        client(self.timeouts).map_err(|error: HttpError| self.wrong(error))
    }

    fn only_for_s3(&self) -> Result<(), LakeError> {
        if self.endpoint.is_none() && self.region.is_none() {
            return Ok(());
        }
        Err(self.wrong("an endpoint and a region belong to s3:// addresses: remove them"))
    }

    fn check_extension(&self) -> Result<(), LakeError> {
        let known = |c: u8| c.is_ascii_alphanumeric() || b"._-".contains(&c);
        match &self.layout.extension {
            Some(extension) if extension.is_empty() || !extension.bytes().all(known) => Err(self
                .wrong(format!(
                    "its files cannot end in '.xdr.{extension}': give what follows .xdr. in their \
                     names, such as zst"
                ))),
            _ => Ok(()),
        }
    }

    fn wrong(&self, reason: impl ToString) -> LakeError {
        LakeError::Address { address: shown(&self.address), reason: reason.to_string() }
    }
}

fn bucket_error(error: BucketError) -> String {
    match error {
        BucketError::UnsupportedScheme => "it is neither http nor https".to_owned(),
        BucketError::MissingHost => "it has no host".to_owned(),
        BucketError::ParseError(error) => format!("the bucket does not fit into it: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &str) -> Option<String> {
        None
    }

    fn place(settings: &LakeSettings) -> String {
        settings.store_in(nothing).unwrap().place("a/b.xdr.zst")
    }

    #[test]
    fn reads_every_kind_of_address() {
        for (address, shown) in [
            ("/srv/lake", "/srv/lake/a/b.xdr.zst"),
            ("lake", "lake/a/b.xdr.zst"),
            ("file:///srv/a%20lake", "/srv/a lake/a/b.xdr.zst"),
            ("http://127.0.0.1:8000/x", "http://127.0.0.1:8000/x/a/b.xdr.zst"),
            ("https://me:word@lakes.example/?key=1", "https://lakes.example/a/b.xdr.zst"),
            ("s3://bucket", "s3://bucket/a/b.xdr.zst"),
            ("s3://bucket/v1.1/pubnet/", "s3://bucket/v1.1/pubnet/a/b.xdr.zst"),
        ] {
            assert_eq!(place(&LakeSettings::at(address)), shown, "{address}");
        }
    }

    #[test]
    fn refuses_what_makes_no_sense_in_one_sentence() {
        let at = |address: &str| LakeSettings::at(address);
        let endpoint = |address: &str, endpoint: &str| LakeSettings {
            endpoint: Some(endpoint.to_owned()),
            ..at(address)
        };
        let extension = |extension: &str| LakeSettings {
            layout: GivenLayout { extension: Some(extension.to_owned()), ..GivenLayout::default() },
            ..at("/srv/lake")
        };
        for (settings, reason) in [
            (at(""), "it is empty"),
            (at("gs://bucket/x"), "gs:// is not known"),
            (at("s3:///prefix"), "s3://bucket/prefix"),
            (at("s3://bucket/a/../b"), "without . and .."),
            (at("s3://id:secret@bucket/a"), "and nothing else"),
            (at("https://"), "empty host"),
            (at("file://host/path"), "no path on this machine"),
            (endpoint("/srv/lake", "https://s3.example"), "belong to s3:// addresses"),
            (endpoint("s3://bucket", "minio:9000"), "it has no host"),
            (endpoint("s3://bucket", "ftp://minio"), "neither http nor https"),
            (endpoint("s3://bucket", "nothing"), "its endpoint nothing is none"),
            (extension("a/b"), "'.xdr.a/b'"),
        ] {
            let error = settings.store_in(nothing).err().expect(reason).to_string();
            assert!(error.contains(reason), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn composes_the_addresses_of_s3() {
        let signed = |settings: &LakeSettings, name: &str| {
            let region = settings.region.clone().unwrap_or_else(|| DEFAULT_REGION.to_owned());
            let bucket = match &settings.endpoint {
                Some(endpoint) => settings.bucket_at(endpoint, name, region),
                None => settings.bucket_of_aws(name, region),
            };
            bucket.unwrap().base_url().to_string()
        };
        let mut settings = LakeSettings::at("s3://x");
        settings.region = Some("us-east-2".to_owned());
        let public = signed(&settings, "aws-public-blockchain");
        assert_eq!(public, "https://aws-public-blockchain.s3.us-east-2.amazonaws.com/");
        assert_eq!(signed(&settings, "a.b"), "https://s3.us-east-2.amazonaws.com/a.b/");
        settings.endpoint = Some("http://127.0.0.1:9000".to_owned());
        assert_eq!(signed(&settings, "lake"), "http://127.0.0.1:9000/lake/");
    }

    #[test]
    fn finds_credentials_where_they_usually_are() {
        let environment = |name: &str| match name {
            "AWS_ACCESS_KEY_ID" => Some("ID-of-it".to_owned()),
            "AWS_SECRET_ACCESS_KEY" => Some("THE-SECRET".to_owned()),
            _ => None,
        };
        let mut settings = LakeSettings::at("s3://bucket");
        let found = settings.credentials(environment).unwrap();
        assert_eq!((found.key(), found.secret(), found.token()), ("ID-of-it", "THE-SECRET", None));
        assert!(settings.credentials(nothing).is_none());
        settings.credentials = S3Credentials::Key(AccessKey {
            id: "mine".to_owned(),
            secret: "THE-SECRET".to_owned(),
            session_token: Some("THE-SECRET-too".to_owned()),
        });
        let found = settings.credentials(environment).unwrap();
        assert_eq!((found.key(), found.token()), ("mine", Some("THE-SECRET-too")));
        settings.address = "https://me:THE-SECRET@host/x?sig=THE-SECRET".to_owned();
        let debug = format!("{settings:?}");
        assert!(!debug.contains("SECRET") && !debug.contains("mine"), "{debug}");
        settings.credentials = S3Credentials::Anonymous;
        assert!(settings.credentials(environment).is_none());
    }
}
