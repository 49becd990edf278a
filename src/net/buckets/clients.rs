//! Configures `object_store` from settings and the environment, for buckets of S3, Google and Azure
//! and for web servers. Rejects values that would make it panic in a request, such as a line break
//! in a token.

use std::sync::Arc;

use object_store::aws::AmazonS3Builder;
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::list::PaginatedListStore;
use object_store::multipart::MultipartStore;
use object_store::{ObjectStore, RetryConfig, StaticCredentialProvider};
use reqwest::Url;

use super::settings::{AccessKey, AddressError, BucketSettings, S3Credentials, shown};
use super::transport::Transport;
use crate::http::redacted;

/// Default region: that of stores without regions, and the oldest of AWS.
const DEFAULT_REGION: &str = "us-east-1";
const UNREADABLE_CREDENTIALS: &str = "the credentials for it cannot be read";
/// Environment variables with credentials for Google, as Google's own libraries and `object_store`
/// name them.
const GOOGLE: [(&str, GoogleConfigKey); 3] = [
    ("GOOGLE_SERVICE_ACCOUNT", GoogleConfigKey::ServiceAccount),
    ("GOOGLE_SERVICE_ACCOUNT_KEY", GoogleConfigKey::ServiceAccountKey),
    ("GOOGLE_APPLICATION_CREDENTIALS", GoogleConfigKey::ApplicationCredentials),
];
/// Environment variables with credentials for Azure, as Azure's command line and `object_store`
/// name them.
const AZURE: [(&str, AzureConfigKey); 4] = [
    ("AZURE_STORAGE_KEY", AzureConfigKey::AccessKey),
    ("AZURE_STORAGE_ACCOUNT_KEY", AzureConfigKey::AccessKey),
    ("AZURE_STORAGE_SAS_TOKEN", AzureConfigKey::SasKey),
    ("AZURE_STORAGE_TOKEN", AzureConfigKey::Token),
];

/// A place with objects on the network, and the client to reach it.
#[derive(Clone)]
pub struct Root {
    /// The client.
    pub store: Arc<dyn ObjectStore>,
    /// The same client, if it can list.
    pub listing: Option<Arc<dyn PaginatedListStore>>,
    /// The same client, if it can send objects in parts.
    pub parts: Option<Arc<dyn MultipartStore>>,
    /// Prefix of every key in the store: empty, or ends with a slash.
    pub prefix: String,
    /// Location of the root for messages, without a trailing slash and without secrets.
    pub place: String,
    /// The bucket and its configured region; `None` for anything other than S3.
    pub bucket_and_region: Option<(String, String)>,
    /// Advice when reading is refused, as the end of a sentence.
    pub when_refused: &'static str,
}

impl BucketSettings {
    /// Creates the client that the settings and an environment describe.
    ///
    /// # Errors
    /// When the settings are invalid.
    pub fn open(&self, environment: impl Fn(&str) -> Option<String>) -> Result<Root, AddressError> {
        let environment = |name: &str| environment(name).filter(|value| !value.trim().is_empty());
        let (scheme, path) = self.address.split_once("://").unwrap_or_default();
        let scheme = scheme.to_ascii_lowercase();
        self.check_region(&scheme)?;
        match &*scheme {
            "s3" => Bucket::read(self, &scheme, path)?.s3(environment),
            "gs" => Bucket::read(self, &scheme, path)?.google(environment),
            "az" => Bucket::read(self, &scheme, path)?.azure(environment),
            "http" | "https" => {
                self.check_has_no_bucket()?;
                let wrong = |error| {
                    self.wrong(format!(
                        "it is not a web server's address ({error}): write {scheme}://host/path"
                    ))
                };
                web_server(self, Url::parse(&self.address).map_err(wrong)?)
            }
            _ => {
                let is_scheme = |c: u8| c.is_ascii_alphanumeric() || b"+-.".contains(&c);
                let begins = if scheme.bytes().all(is_scheme) {
                    format!("{scheme}://")
                } else {
                    "its scheme".to_owned()
                };
                Err(self.wrong(format!(
                    "{begins} is not known: give a directory, http://, https://, \
                     s3://bucket/prefix, gs://bucket/prefix or az://container/prefix (for other \
                     stores that speak S3, set an endpoint)"
                )))
            }
        }
    }
}

/// A bucket and the prefix of all its keys.
pub(super) struct Bucket<'a> {
    settings: &'a BucketSettings,
    name: &'a str,
    /// Empty, or ends with a slash.
    prefix: String,
}

impl<'a> Bucket<'a> {
    /// Parses `bucket/prefix`, which follows `scheme://` in the address. Not parsed as a URL,
    /// because that would change the case of letters and resolve dots.
    pub fn read(
        settings: &'a BucketSettings,
        scheme: &str,
        path: &'a str,
    ) -> Result<Self, AddressError> {
        let noun = if scheme == "az" { "container" } else { "bucket" };
        let wrong = |reason: &str, rest: &str| {
            let reason = if reason.is_empty() { String::new() } else { format!("{reason}: ") };
            Err(settings.wrong(format!("{reason}write {scheme}://{noun}/prefix{rest}")))
        };
        let (name, prefix) = path.split_once('/').unwrap_or((path, ""));
        if name.contains(['@', ':']) || path.contains(['?', '#']) {
            return wrong("", " and nothing else");
        }
        if name.is_empty() {
            return wrong(&format!("it names no {noun}"), "");
        }
        if !is_name(name) {
            let has = "only letters, digits, '.', '_' and '-'";
            return wrong(&format!("the name of a {noun} may have {has}"), "");
        }
        let prefix = prefix.trim_matches('/');
        let bad = |word: &str| {
            matches!(word, "" | "." | "..") || word.contains(|c: char| c.is_ascii_control())
        };
        if !prefix.is_empty() && prefix.split('/').any(bad) {
            return wrong("", ", without . and .. in it, and without empty parts");
        }
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Ok(Self { settings, name, prefix })
    }

    /// Returns a client for the bucket in S3, or in an S3-compatible store at its own endpoint. Objects are
    /// deleted one by one, because not every S3-compatible store supports bulk deletion.
    pub fn s3(self, environment: impl Fn(&str) -> Option<String>) -> Result<Root, AddressError> {
        let key = self.settings.key_of_s3(&environment);
        let when_refused = when_refused_s3(key.is_some());
        let region = self.region(&environment)?;
        let builder = self.s3_builder(&region, key, &environment)?;
        let built = builder.with_disable_bulk_delete(true).build();
        let mut root = self.root("s3", built, when_refused)?;
        root.bucket_and_region = Some((self.name.to_owned(), region));
        Ok(root)
    }

    /// Returns the prefix of all keys, which is empty or ends with a slash, and the location for
    /// messages, without a trailing slash.
    fn prefix_and_place(&self, scheme: &str) -> (String, String) {
        let place = format!("{scheme}://{}/{}", self.name, self.prefix);
        (self.prefix.clone(), place.trim_end_matches('/').to_owned())
    }

    fn region(&self, environment: impl Fn(&str) -> Option<String>) -> Result<String, AddressError> {
        let region = self.settings.region.clone();
        let region = region.or_else(|| environment("AWS_REGION"));
        let region = region.or_else(|| environment("AWS_DEFAULT_REGION"));
        let region = region.unwrap_or_else(|| DEFAULT_REGION.to_owned());
        if is_name(&region) {
            return Ok(region);
        }
        Err(self.settings.wrong(format!("there is no region {region:?}")))
    }

    fn s3_builder(
        &self,
        region: &str,
        key: Option<AccessKey>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<AmazonS3Builder, AddressError> {
        let endpoint = self.settings.endpoint.clone();
        let endpoint = endpoint.or_else(|| environment("AWS_ENDPOINT_URL_S3"));
        let endpoint = endpoint.or_else(|| environment("AWS_ENDPOINT_URL"));
        let china = || format!("https://s3.{region}.amazonaws.com.cn");
        let endpoint = endpoint.or_else(|| region.starts_with("cn-").then(china));
        // A dot in the bucket's name does not match the certificate, and a capital letter is
        // invalid in a host name.
        let fits = !self.name.contains(|c: char| c == '.' || c.is_ascii_uppercase());
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(self.name)
            .with_region(region)
            .with_virtual_hosted_style_request(endpoint.is_none() && fits)
            .with_http_connector(self.transport()?)
            .with_retry(no_retries());
        if let Some(endpoint) = endpoint {
            builder = builder.with_endpoint(self.server(&endpoint)?);
        }
        let Some(AccessKey { id, secret, session_token }) = key else {
            return Ok(builder.with_skip_signature(true));
        };
        if ![&id, &secret].into_iter().chain(&session_token).all(|word| is_plain(word)) {
            return Err(self.settings.wrong("its access key holds spaces or line breaks"));
        }
        let builder = builder.with_access_key_id(id).with_secret_access_key(secret);
        Ok(match session_token {
            Some(token) => builder.with_token(token),
            None => builder,
        })
    }

    /// Returns a client for the bucket at Google.
    pub fn google(
        self,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Root, AddressError> {
        let mut builder = GoogleCloudStorageBuilder::new()
            .with_bucket_name(self.name)
            .with_http_connector(self.transport()?)
            .with_retry(no_retries());
        if let Some(endpoint) = &self.settings.endpoint {
            builder = builder.with_base_url(&self.server(endpoint)?);
        }
        let named = self.named(&GOOGLE, environment);
        if named.is_empty() {
            // Otherwise `object_store` would look for credentials in files of the user's home, and
            // ask a server of Google's.
            let nobody = GcpCredential { bearer: String::new() };
            builder = builder
                .with_credentials(Arc::new(StaticCredentialProvider::new(nobody)))
                .with_skip_signature(true);
        }
        for (key, value) in &named {
            builder = builder.with_config(*key, value);
        }
        let when_refused = "check bucket and prefix, and that the account in the file that \
                            GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT names may \
                            read it; without such a file only public objects can be read";
        self.root("gs", builder.build(), when_refused)
    }

    /// Returns a client for the container of an Azure storage account.
    pub fn azure(self, environment: impl Fn(&str) -> Option<String>) -> Result<Root, AddressError> {
        let settings = self.settings;
        let account = ["AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME"];
        let Some(account) = account.into_iter().find_map(&environment) else {
            return Err(settings.wrong("name its storage account in AZURE_STORAGE_ACCOUNT"));
        };
        if !account.bytes().all(|c| c.is_ascii_alphanumeric()) {
            return Err(settings.wrong("AZURE_STORAGE_ACCOUNT is not a storage account name"));
        }
        let mut builder = MicrosoftAzureBuilder::new()
            .with_account(account)
            .with_container_name(self.name)
            .with_http_connector(self.transport()?)
            .with_retry(no_retries());
        if let Some(endpoint) = &settings.endpoint {
            builder = builder.with_endpoint(self.server(endpoint)?);
        }
        let named = self.named(&AZURE, environment);
        if !named.iter().all(|(_, value)| is_plain(value)) {
            return Err(settings.wrong("its key holds spaces or line breaks"));
        }
        if named.is_empty() {
            builder = builder.with_skip_signature(true);
        }
        for (key, value) in &named {
            builder = builder.with_config(*key, value);
        }
        let when_refused = "check container and prefix, and AZURE_STORAGE_KEY or \
                            AZURE_STORAGE_SAS_TOKEN; without one only public objects can be read";
        self.root("az", builder.build(), when_refused)
    }

    /// Returns the settings that the environment holds; none when requests are to be anonymous.
    fn named<K: Copy>(
        &self,
        names: &[(&str, K)],
        environment: impl Fn(&str) -> Option<String>,
    ) -> Vec<(K, String)> {
        if self.settings.credentials == S3Credentials::Anonymous {
            return Vec::new();
        }
        let value = |(name, key): &(&str, K)| environment(name).map(|value| (*key, value));
        names.iter().filter_map(value).collect()
    }

    /// Checks the address of a server other than the provider's usual one, and returns it without a
    /// trailing slash.
    fn server(&self, endpoint: &str) -> Result<String, AddressError> {
        let wrong = |reason: &str| {
            let shown = shown(endpoint);
            let form = "write https://host:port";
            self.settings.wrong(format!("its endpoint {shown} is not valid ({reason}): {form}"))
        };
        let mut url = Url::parse(endpoint).map_err(|error| wrong(&error.to_string()))?;
        if !url.has_host() {
            return Err(wrong("it has no host"));
        }
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong("it is neither http nor https"));
        }
        url.set_query(None);
        url.set_fragment(None);
        Ok(url.as_str().trim_end_matches('/').to_owned())
    }

    fn transport(&self) -> Result<Transport, AddressError> {
        Ok(Transport::new(self.settings.client()?))
    }

    fn root<S: ObjectStore + PaginatedListStore + MultipartStore>(
        &self,
        scheme: &str,
        built: object_store::Result<S>,
        when_refused: &'static str,
    ) -> Result<Root, AddressError> {
        // The error may hold a part of the credentials, so it is dropped.
        let wrong = |_| self.settings.wrong(UNREADABLE_CREDENTIALS);
        let store = Arc::new(built.map_err(wrong)?);
        let (prefix, place) = self.prefix_and_place(scheme);
        Ok(Root {
            listing: Some(Arc::clone(&store) as Arc<dyn PaginatedListStore>),
            parts: Some(Arc::clone(&store) as Arc<dyn MultipartStore>),
            store,
            prefix,
            place,
            bucket_and_region: None,
            when_refused,
        })
    }
}

/// Returns a client for reading the objects behind a web server. The key is appended to the path of
/// the address; the query of the address stays in every request.
fn web_server(settings: &BucketSettings, mut url: Url) -> Result<Root, AddressError> {
    url.set_fragment(None);
    let place = redacted(&url).trim_end_matches('/').to_owned();
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    let builder = HttpBuilder::new()
        .with_url(url.as_str())
        .with_http_connector(Transport::new(settings.client()?))
        .with_retry(no_retries());
    let store = builder.build().map_err(|_| settings.wrong("it is not a web server's address"))?;
    Ok(Root {
        store: Arc::new(store),
        listing: None,
        parts: None,
        prefix: String::new(),
        place,
        bucket_and_region: None,
        when_refused: "check the address and the rights of the files, or give user and password in the \
                       address",
    })
}

/// Disables retries in `object_store`: the follower retries, and meanwhile asks other sources.
fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

/// Returns whether the word can be the name of a bucket or region, and part of an address.
fn is_name(word: &str) -> bool {
    let known = |c: u8| c.is_ascii_alphanumeric() || b"._-".contains(&c);
    !word.is_empty() && word.bytes().all(known)
}

/// Returns whether the word can be part of a header.
fn is_plain(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|c| c.is_ascii_graphic())
}

fn when_refused_s3(signed: bool) -> &'static str {
    if signed {
        "check bucket and prefix, and that the credentials are right and may read the objects \
         (s3:GetObject) and list the bucket (s3:ListBucket)"
    } else {
        "it was asked without credentials: check bucket and prefix, and give an access key, in \
         the settings or as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, if it is not public"
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use object_store::path::Path;
    use object_store::signer::Signer;
    use reqwest::Method;

    use super::*;

    #[tokio::test]
    async fn s3_object_urls_are_composed() {
        for (address, endpoint, region, object) in [
            (
                "s3://aws-public-blockchain/v1.1",
                None,
                "us-east-2",
                "https://aws-public-blockchain.s3.us-east-2.amazonaws.com/a/b",
            ),
            ("s3://a.b", None, "us-east-2", "https://s3.us-east-2.amazonaws.com/a.b/a/b"),
            ("s3://Old", None, "us-east-1", "https://s3.us-east-1.amazonaws.com/Old/a/b"),
            ("s3://x", None, "cn-north-1", "https://s3.cn-north-1.amazonaws.com.cn/x/a/b"),
            ("s3://x", Some("http://127.0.0.1:9000/"), "home", "http://127.0.0.1:9000/x/a/b"),
        ] {
            let endpoint = endpoint.map(str::to_owned);
            let settings = BucketSettings { endpoint, ..BucketSettings::at(address) };
            let path = address.strip_prefix("s3://").unwrap();
            let bucket = Bucket::read(&settings, "s3", path).unwrap();
            let key = AccessKey { id: "a".into(), secret: "b".into(), session_token: None };
            let store = bucket.s3_builder(region, Some(key), |_| None).unwrap().build().unwrap();
            let (path, soon) = (Path::from("a/b"), Duration::from_secs(60));
            let mut signed = store.signed_url(Method::GET, &path, soon).await.unwrap();
            signed.set_query(None);
            assert_eq!(signed.as_str(), object);
        }
    }

    #[test]
    fn settings_invalid_in_a_request_are_refused() {
        let refused = |settings: BucketSettings, reason: &str| {
            let error = settings.open(|_| None).err().unwrap().to_string();
            assert!(error.contains(reason) && !error.contains("secret"), "{error}");
        };
        for region in ["us east", "a/b", "", "x\r\ny"] {
            let region = Some(region.to_owned());
            refused(
                BucketSettings { region, ..BucketSettings::at("s3://x") },
                "there is no region",
            );
        }
        for word in ["", "secret\n", "a secret"] {
            let [id, secret] = ["id", word].map(str::to_owned);
            let key = AccessKey { id, secret, session_token: None };
            let credentials = S3Credentials::Key(key);
            refused(
                BucketSettings { credentials, ..BucketSettings::at("s3://x") },
                "its access key",
            );
        }
    }
}
