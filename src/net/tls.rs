//! TLS for connections made without the HTTP client of [`super::http`], with the same trusted
//! certificates.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::http::{HttpError, root_cause};

/// An encrypted connection to a server whose certificate was verified.
pub type TlsStream = tokio_rustls::client::TlsStream<TcpStream>;

/// A TLS connector that trusts the certificates that the system trusts.
#[derive(Clone)]
pub struct Tls(TlsConnector);

impl Tls {
    /// Loads the system's trusted certificates. When there are none, every handshake fails.
    pub fn new() -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = || {
            ClientConfig::builder_with_provider(Arc::clone(&provider))
                .with_protocol_versions(rustls::DEFAULT_VERSIONS)
                .unwrap_or_else(|error| unreachable!("ring knows the default versions: {error}"))
        };
        let mut config = match builder().with_platform_verifier() {
            Ok(trusting) => trusting.with_no_client_auth(),
            Err(error) => {
                tracing::warn!(
                    "HTTPS will not work before certificates of authorities are installed: {error}"
                );
                let nobody = rustls::RootCertStore::empty();
                builder().with_root_certificates(nobody).with_no_client_auth()
            }
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self(TlsConnector::from(Arc::new(config)))
    }

    /// Starts TLS on a connection to `host`, a DNS name or an IP address.
    ///
    /// # Errors
    /// [`HttpError::NoConnection`] when `host` is not valid or the handshake fails.
    pub async fn over(&self, host: &str, stream: TcpStream) -> Result<TlsStream, HttpError> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| HttpError::NoConnection(error.to_string()))?;
        let connected = self.0.connect(name, stream).await;
        connected.map_err(|error| HttpError::NoConnection(root_cause(&error)))
    }
}

impl Default for Tls {
    fn default() -> Self {
        Self::new()
    }
}
