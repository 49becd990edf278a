//! The sockets on which a service takes requests.

use std::net::SocketAddr;
use std::path::Path;

use tokio::net::TcpListener;

use super::ServiceError;
use crate::control::Listener;

/// The listening sockets of a service. Both are open before it reports that it listens.
pub struct ListeningSockets {
    pub(super) http: TcpListener,
    /// Address of the HTTP interface.
    pub address: SocketAddr,
    pub(super) control: Listener,
}

/// Opens the HTTP address and the control socket of a data directory.
///
/// # Errors
/// [`ServiceError::Listen`], [`ServiceError::Control`]
pub async fn listen(
    address: SocketAddr,
    data_dir: &Path,
) -> Result<ListeningSockets, ServiceError> {
    let http = bind(address).await?;
    let unknown =
        |error: std::io::Error| ServiceError::Listen { address, reason: error.to_string() };
    let address = http.local_addr().map_err(unknown)?;
    Ok(ListeningSockets { http, address, control: Listener::bind(data_dir)? })
}

async fn bind(address: SocketAddr) -> Result<TcpListener, ServiceError> {
    TcpListener::bind(address).await.map_err(|error| {
        let reason = match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                "another process uses it: stop that process, or choose another address with --listen".to_owned()
            }
            _ => error.to_string(),
        };
        ServiceError::Listen { address, reason }
    })
}
