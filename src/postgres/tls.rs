//! TLS to a server: the certificates that are trusted, and the stream as the driver wants it. Does not know what
//! is said.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

use super::error::{Result, SinkError};
use super::url::{Authorities, Protection};

/// Makes TLS connections to one host.
pub(super) struct Tls {
    connector: TlsConnector,
    host: ServerName<'static>,
}

impl Tls {
    /// Reads the certificates of the authorities.
    ///
    /// # Errors
    /// When they cannot be read, or the host's name is none.
    pub fn new(host: &str, protection: Protection, authorities: &Authorities) -> Result<Self> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| SinkError::Refused(format!("'{host}' is no name of a host")))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(rustls::DEFAULT_VERSIONS)
            .map_err(|error| SinkError::Refused(format!("TLS cannot be set up: {error}")))?;
        let config = match (protection, authorities) {
            (Protection::Unverified, _) => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
                .with_no_client_auth(),
            (_, Authorities::System) => builder
                .with_platform_verifier()
                .map_err(|error| {
                    SinkError::Refused(format!(
                        "the certificates that this system trusts cannot be read ({error}): install \
                         ca-certificates, or name a file by sslrootcert"
                    ))
                })?
                .with_no_client_auth(),
            (_, Authorities::File(path)) => {
                builder.with_root_certificates(roots(path)?).with_no_client_auth()
            }
        };
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), host: name })
    }
}

/// Reads the certificates in a PEM file.
fn roots(path: &std::path::Path) -> Result<RootCertStore> {
    let refused = |error: &dyn std::fmt::Display| {
        let path = path.display();
        SinkError::Refused(format!(
            "the certificates of sslrootcert, {path}, cannot be read: {error}"
        ))
    };
    let pem = std::fs::read(path).map_err(|error| refused(&error))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| refused(&error))?;
        roots.add(certificate).map_err(|error| refused(&error))?;
    }
    match roots.is_empty() {
        true => Err(refused(&"there is none in it")),
        false => Ok(roots),
    }
}

/// Takes every certificate, if its owner has the key.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// An encrypted connection.
pub(super) struct Encrypted(tokio_rustls::client::TlsStream<TcpStream>);

impl TlsConnect<TcpStream> for Tls {
    type Stream = Encrypted;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted>> + Send>>;

    fn connect(self, stream: TcpStream) -> Self::Future {
        Box::pin(async move { self.connector.connect(self.host, stream).await.map(Encrypted) })
    }
}

/// Passwords are not bound to the certificate: SCRAM without channel binding.
impl TlsStream for Encrypted {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
