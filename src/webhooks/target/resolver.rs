//! Resolves names, so that connections are made only to addresses that were checked.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::address::{Denied, Policy};
use crate::net::http::root_cause;

/// Resolves a name to its addresses.
pub type Lookup = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync>;

/// Returns a lookup by the operating system's resolver.
pub fn system_lookup() -> Lookup {
    Arc::new(|name| {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    })
}

/// Why a name has no usable address.
#[derive(Debug, thiserror::Error)]
pub(super) enum NameError {
    /// The name cannot be resolved.
    #[error("{0}")]
    Unknown(String),
    /// All of its addresses are denied; this is one of them.
    #[error(transparent)]
    Denied(Denied),
    /// The name has no address.
    #[error("the name has no address")]
    NoAddress,
}

/// Resolves names to their allowed addresses.
pub(super) struct AllowedNames {
    pub lookup: Lookup,
    pub policy: Arc<Policy>,
}

impl AllowedNames {
    /// Returns the allowed addresses of a name, at least one.
    pub(super) async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, NameError> {
        let found = (self.lookup)(name.to_owned()).await;
        let found = found.map_err(|error| NameError::Unknown(root_cause(&error)))?;
        allowed(&found, &self.policy)
    }
}

/// Returns the allowed addresses in `found`, at least one.
fn allowed(found: &[IpAddr], policy: &Policy) -> Result<Vec<IpAddr>, NameError> {
    let mut denied = NameError::NoAddress;
    let mut allowed = Vec::with_capacity(found.len());
    for address in found {
        match policy.check(*address) {
            Ok(()) => allowed.push(*address),
            Err(one) => denied = NameError::Denied(one),
        }
    }
    if allowed.is_empty() { Err(denied) } else { Ok(allowed) }
}
