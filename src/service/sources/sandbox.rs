//! The sandbox network as a source.

use std::sync::Arc;

use super::{Context, SourcesError};
use crate::domain::LedgerSource;
use crate::pipeline::Trust;
use crate::sandbox::source;
use crate::service::{Node, ServiceError, attestation};
use crate::steady::unix_now_ms;

/// Opens the network of a data directory, or begins one.
pub(super) fn open(context: &Context<'_>) -> Result<Box<dyn LedgerSource>, SourcesError> {
    let store = context.store;
    let stored = store.status().latest();
    Ok(Box::new(source::open(store.directory(), store.network(), stored, opening())?.source))
}

/// Returns the parameters of a new network.
pub(super) fn opening() -> source::Opening {
    source::Opening {
        seed: rand::random(),
        close_time: source::CLOSE_TIME,
        clock: Arc::new(unix_now_ms),
    }
}

impl Node {
    /// Trusts the validator of the sandbox network of the data directory, which begins if there is
    /// none, unless validators are trusted already. Must be called before ledgers are stored.
    ///
    /// # Errors
    /// When the network is a public one, or the sandbox's files cannot be read or written.
    pub fn with_sandbox(self, opening: &source::Opening) -> Result<Self, ServiceError> {
        if self.trust().validators.is_some() {
            return Ok(self);
        }
        let store = self.store();
        let key = source::validator(store.directory(), store.network(), opening)?;
        let trust =
            Trust { validators: Some(attestation::only_validator(key)?), ..self.trust().clone() };
        Ok(self.with_trust(trust))
    }
}
