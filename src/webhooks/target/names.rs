//! Looking names up, so that connections are made to addresses that were checked and to no others.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::address::{Denied, Policy};
use crate::source::http::root_cause;

/// Finds the addresses of a name.
pub type Lookup = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync>;

/// Asks the operating system.
pub fn system_lookup() -> Lookup {
    Arc::new(|name| {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    })
}

/// A name of which no address can be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum NameError {
    /// It cannot be looked up.
    #[error("{0}")]
    Unknown(String),
    /// All of its addresses are denied; this is one.
    #[error(transparent)]
    Denied(Denied),
    /// There is none.
    #[error("the name has no address")]
    NoAddress,
}

/// Gives the allowed addresses of names.
pub(super) struct AllowedNames {
    pub lookup: Lookup,
    pub policy: Arc<Policy>,
}

impl AllowedNames {
    /// Those of a name, at least one.
    pub(super) async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, NameError> {
        let found = (self.lookup)(name.to_owned()).await;
        let found = found.map_err(|error| NameError::Unknown(root_cause(&error)))?;
        allowed(&found, &self.policy)
    }
}

/// Those of the addresses that are allowed, at least one.
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
