//! Looking names up, so that connections are made to addresses that were checked and to no others: the
//! client is handed what this resolver lets through, and never looks a name up again by itself.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::address::{Denied, Policy};

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

/// A name of which no address is allowed.
#[derive(Debug, thiserror::Error)]
pub(super) enum NameError {
    /// All of its addresses are denied; this is one.
    #[error(transparent)]
    Denied(Denied),
    /// There is none.
    #[error("the name has no address")]
    NoAddress,
}

/// Gives the client the allowed addresses of a name.
pub(super) struct AllowedNames {
    pub lookup: Lookup,
    pub policy: Arc<Policy>,
}

impl Resolve for AllowedNames {
    fn resolve(&self, name: Name) -> Resolving {
        let (found, policy) = ((self.lookup)(name.as_str().to_owned()), Arc::clone(&self.policy));
        Box::pin(async move {
            let allowed = allowed(&found.await?, &policy)?;
            let addresses = allowed.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(addresses) as Addrs)
        })
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
