//! Settings of a lake: its address, and for a bucket the endpoint, the region and the credentials.
//! Creates the store that they describe, without sending a request.

use std::fmt;
use std::sync::Arc;

use reqwest::Url;

use super::buckets::{Bucket, web_server};
use super::{Directory, GivenLayout, LakeError, LakeFiles};
use crate::source::http::{HttpError, Timeouts, client, redacted};

/// Location of a lake, and how it is read.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct LakeSettings {
    /// A directory, `file:///path`, `http://…`, `https://…`, or a bucket of S3, Google or Azure:
    /// `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`.
    pub address: String,
    /// Address of a server with buckets other than those of AWS, Google and Azure.
    pub endpoint: Option<String>,
    /// Region of an S3 bucket.
    pub region: Option<String>,
    /// Credentials for a bucket.
    pub credentials: S3Credentials,
    /// Layout of a lake without a manifest.
    pub layout: GivenLayout,
    /// Timeouts of requests to a server.
    pub timeouts: Timeouts,
}

/// Credentials for a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum S3Credentials {
    /// Credentials from the environment: for S3 `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and,
    /// if temporary, `AWS_SESSION_TOKEN`; for Google `GOOGLE_APPLICATION_CREDENTIALS`; for Azure
    /// `AZURE_STORAGE_KEY` or `AZURE_STORAGE_SAS_TOKEN`. Requests are not signed when none is set.
    #[default]
    Environment,
    /// No credentials: requests are not signed.
    Anonymous,
    /// This access key for S3; credentials from the environment for Google and Azure.
    Key(AccessKey),
}

/// An access key. Its `Debug` output shows only that it is present.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessKey {
    /// Access key ID, the public half.
    pub id: String,
    /// Secret access key.
    pub secret: String,
    /// Session token of a temporary key.
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

/// Formats an address without possible secrets.
pub(super) fn shown(address: &str) -> String {
    match Url::parse(address) {
        Ok(url) if url.has_host() => redacted(&url),
        _ if address.contains('@') => "…".to_owned(),
        _ => address.to_owned(),
    }
}

impl LakeSettings {
    /// Creates settings for a lake at an address, with defaults for everything else.
    pub fn at(address: impl Into<String>) -> Self {
        Self { address: address.into(), ..Self::default() }
    }

    /// Creates the store that the settings and the process's environment describe.
    ///
    /// # Errors
    /// [`LakeError::Address`] when the settings are invalid.
    pub fn files(&self) -> Result<Arc<dyn LakeFiles>, LakeError> {
        self.files_in(|name| std::env::var(name).ok())
    }

    /// Creates the store that the settings and a given environment describe.
    ///
    /// # Errors
    /// As [`Self::files`].
    pub fn files_in(
        &self,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Arc<dyn LakeFiles>, LakeError> {
        self.check_extension()?;
        let environment = |name: &str| environment(name).filter(|value| !value.trim().is_empty());
        let Some((scheme, path)) = self.address.split_once("://") else {
            self.only_for_buckets()?;
            return match &*self.address {
                "" => Err(self.wrong("it is empty: give a directory or an address")),
                path => Ok(Arc::new(Directory::new(path))),
            };
        };
        let scheme = scheme.to_ascii_lowercase();
        if self.region.is_some() && scheme != "s3" {
            return Err(self.wrong("a region belongs to s3:// addresses: remove it"));
        }
        let remote = match &*scheme {
            "s3" => Bucket::read(self, &scheme, path)?.s3(environment)?,
            "gs" => Bucket::read(self, &scheme, path)?.google(environment)?,
            "az" => Bucket::read(self, &scheme, path)?.azure(environment)?,
            "http" | "https" => {
                self.only_for_buckets()?;
                let wrong = |error| {
                    self.wrong(format!(
                        "it is not a web server's address ({error}): write {scheme}://host/path"
                    ))
                };
                web_server(self, Url::parse(&self.address).map_err(wrong)?)?
            }
            "file" => {
                self.only_for_buckets()?;
                let path = Url::parse(&self.address).ok().and_then(|url| url.to_file_path().ok());
                let wrong = || self.wrong("it is no path on this machine: write file:///path");
                return Ok(Arc::new(Directory::new(path.ok_or_else(wrong)?)));
            }
            _ => {
                let is_scheme = |c: u8| c.is_ascii_alphanumeric() || b"+-.".contains(&c);
                let begins = match scheme.bytes().all(is_scheme) {
                    true => format!("{scheme}://"),
                    false => "its scheme".to_owned(),
                };
                return Err(self.wrong(format!(
                    "{begins} is not known: give a directory, http://, https://, \
                     s3://bucket/prefix, gs://bucket/prefix or az://container/prefix (for other \
                     stores that speak S3, set an endpoint)"
                )));
            }
        };
        Ok(Arc::new(remote))
    }

    /// Returns the key that signs requests to S3; `None` when requests are not signed.
    pub(super) fn key_of_s3(
        &self,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Option<AccessKey> {
        match &self.credentials {
            S3Credentials::Anonymous => None,
            S3Credentials::Key(key) => Some(key.clone()),
            S3Credentials::Environment => Some(AccessKey {
                id: environment("AWS_ACCESS_KEY_ID")?,
                secret: environment("AWS_SECRET_ACCESS_KEY")?,
                session_token: environment("AWS_SESSION_TOKEN"),
            }),
        }
    }

    pub(super) fn client(&self) -> Result<reqwest::Client, LakeError> {
        client(self.timeouts).map_err(|error: HttpError| self.wrong(error))
    }

    fn only_for_buckets(&self) -> Result<(), LakeError> {
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

    pub(super) fn wrong(&self, reason: impl ToString) -> LakeError {
        LakeError::Address { address: shown(&self.address), reason: reason.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &str) -> Option<String> {
        None
    }

    fn place(settings: &LakeSettings) -> String {
        let environment = |name: &str| (name == "AZURE_STORAGE_ACCOUNT").then(|| "it".to_owned());
        settings.files_in(environment).unwrap().place("a/b.xdr.zst")
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
            ("gs://bucket/x", "gs://bucket/x/a/b.xdr.zst"),
            ("az://container", "az://container/a/b.xdr.zst"),
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
            (at("ftp://bucket/x"), "ftp:// is not known"),
            (at("me:secret@host://x"), "its scheme is not known"),
            (at("az://container/x"), "AZURE_STORAGE_ACCOUNT"),
            (
                at("s3://a b/x"),
                "the lake address s3://a b/x cannot be used: the name of a bucket may have only \
                 letters, digits, '.', '_' and '-': write s3://bucket/prefix",
            ),
            (at("gs://bücket"), "the name of a bucket may have only letters"),
            (at("az://a+b/x"), "the name of a container may have only letters"),
            (
                at("gs://bucket/a//b"),
                "write gs://bucket/prefix, without . and .. in it, and without empty parts",
            ),
            (at("s3:///prefix"), "it names no bucket: write s3://bucket/prefix"),
            (at("s3://bucket/a/../b"), "without . and .."),
            (at("s3://id:secret@bucket/a"), "and nothing else"),
            (at("s3://id secret@bucket/a"), "and nothing else"),
            (at("s3://bucket:9000/a"), "and nothing else"),
            (at("s3://bucket/a?key=secret"), "and nothing else"),
            (at("https://"), "a web server's address (empty host): write https://host/path"),
            (
                at("http://a b/x"),
                "a web server's address (invalid international domain name): write http://",
            ),
            (at("file://host/path"), "no path on this machine"),
            (at("file://a b/path"), "no path on this machine"),
            (endpoint("/srv/lake", "https://s3.example"), "belong to s3:// addresses"),
            (endpoint("s3://bucket", "minio:9000"), "it has no host"),
            (endpoint("s3://bucket", "ftp://minio"), "neither http nor https"),
            (endpoint("s3://bucket", "nothing"), "its endpoint nothing is not valid"),
            (extension("a/b"), "'.xdr.a/b'"),
        ] {
            let error = settings.files_in(nothing).err().expect(reason).to_string();
            assert!(error.contains(reason), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn finds_credentials_where_they_usually_are() {
        let environment = |name: &str| match name {
            "AWS_ACCESS_KEY_ID" => Some("ID-of-it".to_owned()),
            "AWS_SECRET_ACCESS_KEY" => Some("THE-SECRET".to_owned()),
            _ => None,
        };
        let mut settings = LakeSettings::at("s3://bucket");
        let key = |id: &str, session_token: Option<&str>| AccessKey {
            id: id.to_owned(),
            secret: "THE-SECRET".to_owned(),
            session_token: session_token.map(str::to_owned),
        };
        assert!(settings.key_of_s3(environment) == Some(key("ID-of-it", None)));
        assert!(settings.key_of_s3(nothing).is_none());
        let mine = key("mine", Some("THE-SECRET-too"));
        settings.credentials = S3Credentials::Key(mine.clone());
        assert!(settings.key_of_s3(environment) == Some(mine));
        settings.address = "https://me:THE-SECRET@host/x?sig=THE-SECRET".to_owned();
        let debug = format!("{settings:?}");
        assert!(!debug.contains("SECRET") && !debug.contains("mine"), "{debug}");
        settings.credentials = S3Credentials::Anonymous;
        assert!(settings.key_of_s3(environment).is_none());
    }
}
