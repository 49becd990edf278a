//! What the HTTP interface and the control socket of a service are opened with: the listening sockets,
//! and the keys and tokens of the data directory.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tokio::net::TcpListener;

use super::{Reader, ServiceError};
use crate::auth::section::{Auth, PublicKeyFile};
use crate::auth::{PublicKey, Tokens};
use crate::control::Listener;
use crate::domain::Network;

/// Directory of keys and tokens in the data directory.
pub const SECRETS: &str = "secrets";

/// The listening sockets of a service. Both are open before it reports that it listens.
pub struct ListeningSockets {
    pub(super) http: TcpListener,
    /// Address of the HTTP interface.
    pub address: SocketAddr,
    pub(super) control: Listener,
}

/// Opens the HTTP address and the control socket of a data directory.
pub async fn listen(
    address: SocketAddr,
    data_dir: &Path,
) -> Result<ListeningSockets, ServiceError> {
    let http = bind(address).await?;
    let unknown = |error: io::Error| refused(address, &error.to_string());
    let address = http.local_addr().map_err(unknown)?;
    Ok(ListeningSockets { http, address, control: Listener::bind(data_dir)? })
}

/// Fails when an address cannot be listened on now, with what to do.
pub fn check_free(address: SocketAddr) -> Result<(), ServiceError> {
    std::net::TcpListener::bind(address)
        .map(drop)
        .map_err(|error| refused(address, &unusable(&error)))
}

async fn bind(address: SocketAddr) -> Result<TcpListener, ServiceError> {
    TcpListener::bind(address).await.map_err(|error| refused(address, &unusable(&error)))
}

fn refused(address: SocketAddr, reason: &str) -> ServiceError {
    ServiceError::Other(format!("cannot listen on {address}: {reason}"))
}

/// Returns why an address cannot be listened on, and what to do.
pub fn unusable(error: &io::Error) -> String {
    let mend = match error.kind() {
        ErrorKind::AddrInUse => {
            "another process uses it: stop that process, or choose another address with --listen"
        }
        ErrorKind::AddrNotAvailable => {
            "this machine does not have that address: choose one of its own with --listen, such as \
             127.0.0.1 for clients on this machine or 0.0.0.0 for all"
        }
        ErrorKind::PermissionDenied => {
            "this account may not use that port: choose one from 1024 on with --listen"
        }
        _ => return error.to_string(),
    };
    mend.to_owned()
}

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
    let mut keys = auth.public_keys.iter().map(read_key).collect::<Result<Vec<_>, _>>()?;
    let writers = Reader::writers(data_dir)?;
    keys.extend(writers.iter().filter_map(|writer| PublicKey::of_directory(writer)));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_used_is_explained() {
        for (kind, mend) in [
            (ErrorKind::AddrInUse, "choose another address with --listen"),
            (ErrorKind::AddrNotAvailable, "choose one of its own with --listen, such as 127.0.0.1"),
            (ErrorKind::PermissionDenied, "choose one from 1024 on with --listen"),
        ] {
            let reason = unusable(&kind.into());
            assert!(reason.contains(mend), "{reason}");
        }
    }
}
