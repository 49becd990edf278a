//! Receivers that do with a connection whatever they like.

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

/// A connection that is held for this long is held for ever.
const PATIENCE: Duration = Duration::from_secs(120);

/// A receiver on a port of its own, until it is dropped.
pub struct Hostile {
    pub address: SocketAddr,
    /// Connections that were made to it.
    pub connections: Arc<AtomicUsize>,
    stopped: Arc<AtomicBool>,
}

impl Hostile {
    /// Has every connection treated in this way, each on a thread of its own.
    pub fn start(treat: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        Self::listening(TcpListener::bind("127.0.0.1:0").unwrap(), treat)
    }

    /// The same where a listener was made already.
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
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || treat(stream));
            }
        });
        Self { address, connections, stopped }
    }

    /// One that answers every request with these bytes, and then closes the connection. An answer that does not say so
    /// leaves the sender to find out, perhaps with its next request.
    pub fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::start(move |mut stream| {
            if read(&mut stream, &mut Vec::new()).is_some() {
                // Whoever asked may have gone.
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

/// Waits until the other side closes the connection.
pub fn hold(mut stream: impl Read) {
    while matches!(stream.read(&mut [0; 1024]), Ok(1..)) {}
}

/// Sends these bytes one by one until the other side closes the connection, and then `then` over and over.
pub fn drip(mut stream: TcpStream, bytes: &[u8], then: u8, every: Duration) {
    stream.set_nodelay(true).unwrap();
    for byte in bytes.iter().copied().chain(std::iter::repeat(then)) {
        if stream.write_all(&[byte]).is_err() {
            return;
        }
        thread::sleep(every);
    }
}

/// Sends the same bytes over and over until the other side closes the connection, and says how many that were.
pub fn flood(mut stream: TcpStream, bytes: &[u8]) -> usize {
    let mut sent = 0;
    while let Ok(count @ 1..) = stream.write(bytes) {
        sent += count;
    }
    sent
}

/// Where certificates for `receiver.test` are. They are good until the year 2120.
pub fn certificates() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/webhooks/certificates"))
}

/// A way to speak TLS with one of them.
pub fn tls(certificate: &str) -> Arc<ServerConfig> {
    // Another test of this process may have chosen before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let certificate = CertificateDer::from_pem_file(certificates().join(certificate)).unwrap();
    let key = PrivateKeyDer::from_pem_file(certificates().join("receiver.key")).unwrap();
    let config = ServerConfig::builder().with_no_client_auth();
    Arc::new(config.with_single_cert(vec![certificate], key).unwrap())
}

/// A receiver that speaks TLS, counts requests, and answers each.
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
