//! Whose signatures count in a data directory.

use std::path::Path;
use std::sync::Arc;

use super::ServiceError;
use crate::config::Config;
use crate::domain::{Network, NodeId};
use crate::pipeline::Trust;
use crate::sandbox::source;
use crate::store::Store;
use crate::validators::{Organisation, Validators, ValidatorsError};

/// Name of the organisation whose only validator signs the ledgers of a sandbox network.
const SANDBOX: &str = "sandbox";

/// Returns what is checked of the ledgers of a store, and whose signatures count: the validators of
/// the settings or of the network, or else that of the sandbox network in the data directory.
///
/// # Errors
/// When the settings cannot be used for the network, or the sandbox's file is damaged.
pub(super) fn of_store(config: &Config, store: &Store) -> Result<Trust, ServiceError> {
    let validators = of_directory(config, store.network(), store.directory())?;
    let require_attested = config.trust.require_attested;
    Ok(Trust { policy: config.trust.policy(), validators, require_attested })
}

/// Returns the validators whose signatures count in a data directory of a network; `None` when none
/// are known.
///
/// # Errors
/// When the settings cannot be used for the network, or the sandbox's file is damaged.
pub fn of_directory(
    config: &Config,
    network: &Network,
    directory: &Path,
) -> Result<Option<Arc<Validators>>, ServiceError> {
    match config.validators(network)? {
        Some(validators) => Ok(Some(validators)),
        None => Ok(source::known_validator(directory)?.map(only).transpose()?),
    }
}

/// Returns a network's only validator as the trusted one.
pub(super) fn only(key: NodeId) -> Result<Arc<Validators>, ValidatorsError> {
    let organisation = Organisation { name: SANDBOX.to_owned(), validators: vec![key] };
    Validators::new(vec![organisation], 1).map(Arc::new)
}
