//! Settings of a lake: its address and its layout. Creates the store that they describe, without
//! sending a request.

use std::sync::Arc;

use orrery_net::buckets::BucketSettings;
use orrery_net::reqwest::Url;

use super::directory::Directory;
use super::error::LakeError;
use super::files::LakeFiles;
use super::layout::GivenLayout;
use super::remote::Remote;

/// Location of a lake, and how it is read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LakeSettings {
    /// Address and credentials. The address may also be a directory, as a path or as
    /// `file:///path`.
    pub bucket: BucketSettings,
    /// Layout of a lake without a manifest.
    pub layout: GivenLayout,
}

impl LakeSettings {
    /// Creates settings for a lake at an address, with defaults for everything else.
    pub fn at(address: impl Into<String>) -> Self {
        BucketSettings::at(address).into()
    }

    /// Creates the store that the settings and the process's environment describe.
    ///
    /// # Errors
    /// When the settings are invalid.
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
        let (bucket, address) = (&self.bucket, &*self.bucket.address);
        let Some((scheme, _)) = address.split_once("://") else {
            bucket.check_has_no_bucket()?;
            if address.is_empty() {
                return Err(bucket.wrong("it is empty: give a directory or an address").into());
            }
            return Ok(Arc::new(Directory::new(address)));
        };
        if scheme.eq_ignore_ascii_case("file") {
            bucket.check_region(scheme)?;
            bucket.check_has_no_bucket()?;
            let path = Url::parse(address).ok().and_then(|url| url.to_file_path().ok());
            let wrong = || bucket.wrong("it is no path on this machine: write file:///path");
            return Ok(Arc::new(Directory::new(path.ok_or_else(wrong)?)));
        }
        Ok(Arc::new(Remote::new(bucket.open(environment)?)))
    }

    fn check_extension(&self) -> Result<(), LakeError> {
        let known = |c: u8| c.is_ascii_alphanumeric() || b"._-".contains(&c);
        match &self.layout.extension {
            Some(extension) if extension.is_empty() || !extension.bytes().all(known) => {
                Err(self.bucket.wrong(format!(
                    "its files cannot end in '.xdr.{extension}': give what follows .xdr. in their \
                     names, such as zst"
                )))?
            }
            _ => Ok(()),
        }
    }
}

impl From<BucketSettings> for LakeSettings {
    fn from(bucket: BucketSettings) -> Self {
        Self { bucket, layout: GivenLayout::default() }
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
    fn every_kind_of_lake_address_is_parsed() {
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
    fn invalid_settings_are_refused() {
        let at = |address: &str| LakeSettings::at(address);
        let endpoint = |address: &str, endpoint: &str| {
            let endpoint = Some(endpoint.to_owned());
            LakeSettings::from(BucketSettings { endpoint, ..BucketSettings::at(address) })
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
}
