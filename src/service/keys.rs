//! The keys and tokens of a data directory.

use std::path::{Path, PathBuf};

use super::ServiceError;
use crate::auth::section::{Auth, PublicKeyFile};
use crate::auth::{PublicKey, Tokens};
use crate::domain::Network;

/// Directory of keys and tokens in the data directory.
const SECRETS: &str = "secrets";

/// Returns the directory of the keys and tokens of a data directory.
pub fn secrets(data_dir: &Path) -> PathBuf {
    data_dir.join(SECRETS)
}

/// Opens the keys and tokens of a data directory.
///
/// # Errors
/// When a file cannot be read or is invalid.
pub fn open_tokens(
    data_dir: &Path,
    network: &Network,
    auth: &Auth,
) -> Result<Tokens, ServiceError> {
    let keys = auth.public_keys.iter().map(read_key).collect::<Result<Vec<_>, _>>()?;
    Ok(Tokens::open_with_keys(&secrets(data_dir), network, &keys)?)
}

fn read_key(file: &PublicKeyFile) -> Result<PublicKey, ServiceError> {
    let pem = std::fs::read_to_string(&file.path).map_err(|error| {
        let path = file.path.display();
        ServiceError::Other(format!("cannot read the public key {path}: {error}"))
    })?;
    let PublicKeyFile { kid, algorithm, sub_prefix, .. } = file.clone();
    Ok(PublicKey { kid, algorithm, pem, sub_prefix })
}
