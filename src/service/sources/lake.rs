//! Lakes as sources, and other data directories in their place.

use std::path::Path;

use super::SourcesError;
use super::stored::StoreSource;
use crate::domain::{LedgerSeq, LedgerSource, Network};
use crate::net::buckets::{BucketSettings, S3Credentials};
use crate::settings::{Source, is_directory};
use crate::source::lake::{GivenLayout, Lake, LakeSettings, LakeSource};

/// Region of the public buckets, which are on AWS.
const PUBLIC_REGION: &str = "us-east-2";

/// Opens a lake, or the data directory at its address. A directory is checked now, because a wrong
/// one does not recover; a remote lake is not.
pub(super) async fn open(
    address: &str,
    is_public: bool,
    source: &Source,
    network: &Network,
    near: Option<LedgerSeq>,
) -> Result<Box<dyn LedgerSource>, SourcesError> {
    let directory = Path::new(address);
    if StoreSource::exists_in(directory) {
        return Ok(Box::new(StoreSource::open(directory, network)?));
    }
    let settings = settings(source, address, is_public);
    if is_directory(address) {
        Lake::open_as(settings.files()?, network, &settings.layout, near).await?;
    }
    Ok(Box::new(LakeSource::connect(&settings, network, near)?))
}

/// Returns the settings of a lake at an address. What is configured for lakes does not apply to a public
/// one.
fn settings(source: &Source, address: &str, is_public: bool) -> LakeSettings {
    let is_s3 = address.starts_with("s3://");
    if is_public {
        return LakeSettings::from(BucketSettings {
            region: is_s3.then(|| PUBLIC_REGION.to_owned()),
            credentials: S3Credentials::Anonymous,
            ..BucketSettings::at(address)
        });
    }
    let (region, endpoint) =
        if is_s3 { (&*source.s3_region, &*source.s3_endpoint) } else { ("", "") };
    let secret = source.s3_secret_access_key.as_option();
    let key = secret.map(|secret| (&*source.s3_access_key_id, secret));
    let number = |number: u32| Some(number).filter(|number| *number > 0);
    LakeSettings {
        bucket: BucketSettings::configured(address, region, endpoint, key),
        layout: GivenLayout {
            ledgers_per_batch: number(source.lake_ledgers_per_batch),
            batches_per_partition: number(source.lake_batches_per_partition),
            extension: None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::buckets::AccessKey;

    #[test]
    fn what_is_configured_applies_to_the_own_lake() {
        let source = Source {
            s3_region: "eu-west-1".to_owned(),
            s3_access_key_id: "ID".to_owned(),
            s3_secret_access_key: "SECRET".into(),
            lake_ledgers_per_batch: 64,
            ..Source::default()
        };
        let (id, secret) = ("ID".to_owned(), "SECRET".to_owned());
        let key = S3Credentials::Key(AccessKey { id, secret, session_token: None });
        let own = settings(&source, "s3://mine/lake", false);
        assert_eq!(own.bucket.region.as_deref(), Some("eu-west-1"));
        assert_eq!((own.bucket.credentials, own.bucket.endpoint), (key, None));
        assert_eq!(
            (own.layout.ledgers_per_batch, own.layout.batches_per_partition),
            (Some(64), None)
        );
        assert_eq!(settings(&source, "gs://mine/lake", false).bucket.region, None);
        let public = settings(&source, "s3://theirs/lake", true);
        assert_eq!(public.bucket.region.as_deref(), Some("us-east-2"));
        assert_eq!(public.bucket.credentials, S3Credentials::Anonymous);
        assert_eq!(public.layout, GivenLayout::default());
    }
}
