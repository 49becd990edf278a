//! Opens the destination of an export, and names the exporter.

use std::time::Duration;

use sha2::{Digest, Sha256};

use super::unix_now;
use crate::config::Config;
use crate::export::{Destination, ExportError, ExporterIdentity, Interrupt};
use crate::net::buckets::{BucketSettings, Patience};
use crate::net::http::Timeouts;
use crate::settings::Export;

/// Idle timeout of requests to a bucket: a whole object must be sent, and its response begin,
/// within this time.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(120);

/// Files that identify the machine or container. `/proc/sys` is not used, because a hardened
/// service cannot read it.
const MACHINE: [&str; 2] = ["/etc/machine-id", "/etc/hostname"];

/// Length of an exporter's identifier, in hexadecimal digits.
const ID_DIGITS: usize = 16;

/// Opens the destination `to` of an export. Requests to a bucket are cancelled when `interrupt` is
/// raised.
///
/// # Errors
/// When `to` is not a valid destination.
pub fn export_destination(
    to: &str,
    config: &Config,
    role: ExportRole,
    interrupt: Interrupt,
) -> Result<Destination, ExportError> {
    let Export { s3_region, s3_endpoint, s3_access_key_id, s3_secret_access_key, .. } =
        &config.export;
    let (region, endpoint) =
        if to.contains("://") { (&**s3_region, &**s3_endpoint) } else { ("", "") };
    let key = s3_secret_access_key.as_option().map(|secret| (&**s3_access_key_id, secret));
    let settings = BucketSettings {
        patience: match role {
            // The service repeats what has failed, and says so meanwhile.
            ExportRole::Service => Patience::SHORT,
            ExportRole::Manual => Patience::LONG,
        },
        timeouts: Timeouts { idle: UPLOAD_TIMEOUT, ..Timeouts::default() },
        ..BucketSettings::configured(to, region, endpoint, key)
    };
    let identity = ExporterIdentity { id: id(config, role), clock: unix_now, random: rand::random };
    Destination::of(&settings, identity, interrupt)
}

/// Which program exports a data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportRole {
    /// The service, continuously.
    Service,
    /// `orrery export`, run by the operator.
    Manual,
}

/// Returns an identifier that distinguishes exporters to the same bucket by machine, data directory
/// and role. It is a hash that reveals none of them.
fn id(config: &Config, role: ExportRole) -> String {
    let directory = std::fs::canonicalize(&config.data_dir).unwrap_or(config.data_dir.clone());
    let mut hash = Sha256::new();
    // If neither file can be read, the directory alone identifies the exporter.
    MACHINE.iter().for_each(|file| hash.update(std::fs::read(file).unwrap_or_default()));
    hash.update(directory.as_os_str().as_encoded_bytes());
    hash.update([role as u8]);
    let mut id = hex::encode(hash.finalize());
    id.truncate(ID_DIGITS);
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_are_told_apart() {
        let config = Config::default();
        let other = Config { data_dir: "elsewhere".into(), ..Config::default() };
        let ids = [
            id(&config, ExportRole::Service),
            id(&config, ExportRole::Manual),
            id(&other, ExportRole::Service),
        ];
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2], "{ids:?}");
        assert_eq!(ids[0], id(&config, ExportRole::Service));
        assert_eq!(ids[0].len(), ID_DIGITS);
    }
}
