//! Receivers that handle a connection in any way a test chooses.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::receiver::read;

/// Read timeout of receivers: longer than any test.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A receiver on a port of its own; stops when dropped.
pub struct Hostile {
    pub address: SocketAddr,
    /// Number of connections that were made to it.
    pub connections: Arc<AtomicUsize>,
    stopped: Arc<AtomicBool>,
}

impl Hostile {
    /// Handles every connection with `treat`, on a thread of its own.
    pub fn start(treat: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        Self::listening(TcpListener::bind("127.0.0.1:0").unwrap(), treat)
    }

    /// As [`Self::start`], on an existing listener.
    pub fn listening(
        listener: TcpListener,
        treat: impl Fn(TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let (connections, stopped) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (count, has_stopped, treat) =
            (Arc::clone(&connections), Arc::clone(&stopped), Arc::new(treat));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if has_stopped.load(Ordering::SeqCst) {
                    return;
                }
                let (stream, treat) = (stream.unwrap(), Arc::clone(&treat));
                stream.set_read_timeout(Some(TIMEOUT)).unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || treat(stream));
            }
        });
        Self { address, connections, stopped }
    }

    /// Answers the first request of every connection with these bytes, and closes the connection.
    /// When the response does not announce that, the sender finds out later, perhaps with its next
    /// request.
    pub fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::start(move |mut stream| {
            if read(&mut stream, &mut Vec::new()).is_some() {
                // The client may have disconnected.
                let _ = stream.write_all(&answer);
            }
        })
    }

    pub fn count(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

/// Reads until the peer closes the connection.
pub fn hold(mut stream: impl Read) {
    while matches!(stream.read(&mut [0; 1024]), Ok(1..)) {}
}

/// Sends `bytes` one by one, and then `then` repeatedly, until the peer closes the connection.
pub fn drip(mut stream: TcpStream, bytes: &[u8], then: u8, every: Duration) {
    stream.set_nodelay(true).unwrap();
    for byte in bytes.iter().copied().chain(std::iter::repeat(then)) {
        if stream.write_all(&[byte]).is_err() {
            return;
        }
        thread::sleep(every);
    }
}

/// Sends `bytes` repeatedly until the peer closes the connection. Returns the number of bytes sent.
pub fn flood(mut stream: TcpStream, bytes: &[u8]) -> usize {
    let mut sent = 0;
    while let Ok(count @ 1..) = stream.write(bytes) {
        sent += count;
    }
    sent
}

/// Returns the directory of certificates for `receiver.test`, which are valid until 2120.
pub fn certificates() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/webhooks/certificates"))
}

/// Returns a TLS configuration with one of these certificates.
pub fn tls(certificate: &str) -> Arc<ServerConfig> {
    // Another test of this process may have installed one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let certificate = CertificateDer::from_pem_file(certificates().join(certificate)).unwrap();
    let key = PrivateKeyDer::from_pem_file(certificates().join("receiver.key")).unwrap();
    let config = ServerConfig::builder().with_no_client_auth();
    Arc::new(config.with_single_cert(vec![certificate], key).unwrap())
}

/// Starts a TLS receiver that counts requests and answers each of them.
pub fn speaking_tls(
    config: Arc<ServerConfig>,
    answer: &'static str,
) -> (Hostile, Arc<AtomicUsize>) {
    let requests = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&requests);
    let receiver = Hostile::start(move |stream| {
        let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
        let (mut stream, mut unread) = (StreamOwned::new(connection, stream), Vec::new());
        while read(&mut stream, &mut unread).is_some() {
            count.fetch_add(1, Ordering::SeqCst);
            if stream.write_all(answer.as_bytes()).and_then(|()| stream.flush()).is_err() {
                return;
            }
        }
    });
    (receiver, requests)
}
