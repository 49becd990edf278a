//! Resolves names, so that connections are made only to addresses that were checked.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::address::{Denied, Policy};
use orrery_net::http::root_cause;

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
        let found = resolve(&self.lookup, &self.policy, name).await;
        let found = found.map_err(|error| NameError::Unknown(root_cause(&error)))?;
        allowed(&found, &self.policy)
    }
}

/// Resolves a name. `localhost` and all names below it are this machine (RFC 6761, section 6.3),
/// whatever a resolver says of them.
pub(super) async fn resolve(
    lookup: &Lookup,
    policy: &Policy,
    name: &str,
) -> io::Result<Vec<IpAddr>> {
    if !is_localhost(name) {
        return lookup(name.to_owned()).await;
    }
    let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    // An operator who allows one of them means the name, too.
    let allowed = loopback.into_iter().filter(|it| policy.check(*it).is_ok());
    let allowed: Vec<_> = allowed.collect();
    Ok(if allowed.is_empty() { loopback.to_vec() } else { allowed })
}

fn is_localhost(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

/// Returns the allowed addresses in `found`, at least one.
fn allowed(found: &[IpAddr], policy: &Policy) -> Result<Vec<IpAddr>, NameError> {
    let mut denied = NameError::NoAddress;
    let mut allowed = Vec::with_capacity(found.len());
    for address in found {
        match policy.check(*address) {
            Ok(()) => allowed.push(*address),
            Err(one) => denied = NameError::Denied(one.of_name()),
        }
    }
    if allowed.is_empty() { Err(denied) } else { Ok(allowed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn names_of_this_machine_are_not_asked_of_a_resolver() {
        let lookup: Lookup = Arc::new(|_| Box::pin(async { Ok(vec![[8, 8, 8, 8].into()]) }));
        let none = Policy::default();
        let v4 = Policy { allowed: vec!["127.0.0.0/8".parse().unwrap()] };
        for name in ["localhost", "localhost.", "LOCALHOST", "a.localhost", "a.b.Localhost.."] {
            let found = resolve(&lookup, &none, name).await.unwrap();
            assert!(allowed(&found, &none).is_err(), "{name}");
            assert_eq!(found.len(), 2);
            let found = resolve(&lookup, &v4, name).await.unwrap();
            assert_eq!(found, [IpAddr::from([127, 0, 0, 1])], "{name}");
        }
        for name in ["localhost.example", "notlocalhost", "localhos"] {
            let found = resolve(&lookup, &none, name).await.unwrap();
            assert_eq!(found, [IpAddr::from([8, 8, 8, 8])], "{name}");
        }
    }

    #[test]
    fn all_denied_names_get_the_same_sentence() {
        let sentence = |address: &str| {
            let found = [address.parse().unwrap()];
            allowed(&found, &Policy::default()).unwrap_err().to_string()
        };
        let one = sentence("10.0.0.1");
        for other in ["127.0.0.1", "169.254.169.254", "192.168.1.1", "::1", "fd00::1", "2002::1"] {
            assert_eq!(sentence(other), one, "{other}");
        }
    }
}
