//! Lakes as sources, and other data directories in their place.

use std::path::Path;

use super::stored::StoredLedgers;
use super::{Context, SourcesError};
use crate::domain::LedgerSource;
use crate::net::buckets::{AccessKey, BucketSettings, S3Credentials};
use crate::settings::{LakeCredentials, LakeSpec};
use crate::source::lake::{GivenLayout, Lake, LakeSettings, LakeSource};

/// Opens a lake, or the data directory at its address. A directory is checked now, because a wrong
/// one does not recover; a remote lake is not.
pub(super) async fn open(
    lake: &LakeSpec,
    context: &Context<'_>,
) -> Result<Box<dyn LedgerSource>, SourcesError> {
    let (network, near) = (context.store.network(), context.need.first);
    let directory = Path::new(&lake.address);
    if StoredLedgers::exists_in(directory) {
        return Ok(Box::new(StoredLedgers::open(directory, network)?));
    }
    let settings = settings(lake);
    if lake.is_directory() {
        Lake::open_as(settings.files()?, network, &settings.layout, near).await?;
    }
    Ok(Box::new(LakeSource::connect(&settings, network, near)?))
}

fn settings(lake: &LakeSpec) -> LakeSettings {
    let bucket = BucketSettings {
        endpoint: lake.endpoint.clone(),
        region: lake.region.clone(),
        credentials: match &lake.credentials {
            LakeCredentials::Environment => S3Credentials::Environment,
            LakeCredentials::Anonymous => S3Credentials::Anonymous,
            LakeCredentials::Key { id, secret } => S3Credentials::Key(AccessKey {
                id: id.clone(),
                secret: secret.reveal().to_owned(),
                session_token: None,
            }),
        },
        ..BucketSettings::at(&lake.address)
    };
    let layout = GivenLayout {
        ledgers_per_batch: lake.ledgers_per_batch,
        batches_per_partition: lake.batches_per_partition,
        extension: None,
    };
    LakeSettings { bucket, layout }
}
