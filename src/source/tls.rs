//! TLS for connections that are made without the HTTP client of [`super::http`], with the same trust.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::http::{HttpError, root_cause};

/// A connection that is encrypted, and whose other side has shown who it is.
pub type TlsStream = tokio_rustls::client::TlsStream<TcpStream>;

/// Trusts the certificates that the system trusts.
#[derive(Clone)]
pub struct Tls(TlsConnector);

impl Tls {
    /// Reads which certificates the system trusts. Where there are none, every other side is refused.
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

    /// Encrypts a connection to this host, a name or an address.
    ///
    /// # Errors
    /// [`HttpError::NoConnection`]
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
