//! A connection to the server that breaks where a test wants it to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Where the next connection breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Break {
    Nowhere,
    /// The server never gets the next `COMMIT`.
    BeforeCommit,
    /// The server commits, and the client never hears of it.
    AfterCommit,
    /// Within the data of a `COPY`.
    InCopy,
}

/// A proxy, which breaks one connection for each time that it is told to.
pub struct Proxy {
    pub address: SocketAddr,
    next: Arc<AtomicU8>,
}

impl Proxy {
    pub async fn new(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let next = Arc::new(AtomicU8::new(0));
        let shared = Arc::clone(&next);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward(client, port, Arc::clone(&shared)));
            }
        });
        Self { address, next }
    }

    pub fn breaks(&self, next: Break) {
        self.next.store(next as u8, Ordering::SeqCst);
    }
}

async fn forward(client: TcpStream, port: u16, next: Arc<AtomicU8>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let back = tokio::spawn(async move {
        let mut buffer = [0; 8192];
        while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
            if to_client.write_all(&buffer[..length]).await.is_err() {
                break;
            }
        }
    });
    let mut buffer = [0; 8192];
    while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
        let has = |text: &[u8]| buffer[..length].windows(text.len()).any(|it| it == text);
        let take = |expected: Break| {
            let (from, to) = (expected as u8, Break::Nowhere as u8);
            next.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        if has(b"COMMIT\0") && take(Break::BeforeCommit) {
            break;
        }
        if has(b"COMMIT\0") && take(Break::AfterCommit) {
            // No byte of the answer passes.
            back.abort();
            let _ = to_server.write_all(&buffer[..length]).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
            break;
        }
        if has(b"PGCOPY\n") && take(Break::InCopy) {
            let _ = to_server.write_all(&buffer[..length / 2]).await;
            break;
        }
        if to_server.write_all(&buffer[..length]).await.is_err() {
            break;
        }
    }
    back.abort();
}
