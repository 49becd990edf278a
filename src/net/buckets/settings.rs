//! Settings of stored objects on the network: their address, and for a bucket the endpoint, the
//! region and the credentials.

use std::fmt;

use reqwest::Url;

use super::patience::Patience;
use crate::http::{HttpError, Timeouts, client, redacted};

/// Location of stored objects, and how they are requested.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct BucketSettings {
    /// `http://…`, `https://…`, or a bucket of S3, Google or Azure: `s3://bucket/prefix`,
    /// `gs://bucket/prefix`, `az://container/prefix`.
    pub address: String,
    /// Address of a server with buckets other than those of AWS, Google and Azure.
    pub endpoint: Option<String>,
    /// Region of an S3 bucket.
    pub region: Option<String>,
    /// Credentials for a bucket.
    pub credentials: S3Credentials,
    /// Timeouts of requests to a server.
    pub timeouts: Timeouts,
    /// How often a request for objects that are written is sent, if it may succeed a moment later.
    pub patience: Patience,
}

/// Settings that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the address {address} cannot be used: {reason}")]
pub struct AddressError {
    /// The address as given, without secrets.
    pub address: String,
    /// The reason, and what to give instead.
    pub reason: String,
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

impl fmt::Debug for BucketSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketSettings")
            .field("address", &shown(&self.address))
            .field("endpoint", &self.endpoint.as_deref().map(shown))
            .field("region", &self.region)
            .field("credentials", &self.credentials)
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

impl BucketSettings {
    /// Creates settings for an address, with defaults for everything else.
    pub fn at(address: impl Into<String>) -> Self {
        Self { address: address.into(), ..Self::default() }
    }

    /// Creates settings for an address as an operator configures them: an empty region or endpoint, and
    /// no key, stand for what the environment says.
    pub fn configured(
        address: &str,
        region: &str,
        endpoint: &str,
        key: Option<(&str, &str)>,
    ) -> Self {
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let key = key.map(|(id, secret)| AccessKey {
            id: id.to_owned(),
            secret: secret.to_owned(),
            session_token: None,
        });
        Self {
            region: given(region),
            endpoint: given(endpoint),
            credentials: key.map_or(S3Credentials::Environment, S3Credentials::Key),
            ..Self::at(address)
        }
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

    pub(super) fn client(&self) -> Result<reqwest::Client, AddressError> {
        client(self.timeouts).map_err(|error: HttpError| self.wrong(error))
    }

    /// Refuses a region at an address with another scheme than `s3`.
    ///
    /// # Errors
    /// When there is one.
    pub fn check_region(&self, scheme: &str) -> Result<(), AddressError> {
        if self.region.is_some() && scheme != "s3" {
            return Err(self.wrong("a region belongs to s3:// addresses: remove it"));
        }
        Ok(())
    }

    /// Refuses settings of a bucket, for an address that is none.
    ///
    /// # Errors
    /// When there is an endpoint or a region.
    pub fn check_has_no_bucket(&self) -> Result<(), AddressError> {
        if self.endpoint.is_none() && self.region.is_none() {
            return Ok(());
        }
        Err(self.wrong("an endpoint and a region belong to s3:// addresses: remove them"))
    }

    /// Returns an error about the address.
    pub fn wrong(&self, reason: impl ToString) -> AddressError {
        AddressError { address: shown(&self.address), reason: reason.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_read_from_the_usual_environment_variables() {
        let environment = |name: &str| match name {
            "AWS_ACCESS_KEY_ID" => Some("ID-of-it".to_owned()),
            "AWS_SECRET_ACCESS_KEY" => Some("THE-SECRET".to_owned()),
            _ => None,
        };
        let nothing = |_: &str| None;
        let mut settings = BucketSettings::at("s3://bucket");
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
