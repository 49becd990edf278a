//! A way to a server that breaks where a test wants it to.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread;

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
    /// Port of 127.0.0.1 on which it listens.
    pub port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    next: AtomicU8,
    is_over: AtomicBool,
}

impl Proxy {
    /// Listens for connections to the server on this port.
    pub fn new(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::<Shared>::default();
        let own = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                if own.is_over.load(Ordering::SeqCst) {
                    return;
                }
                // Where there is no server, the client finds nobody.
                let Ok(client) = client else { continue };
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                let own = Arc::clone(&own);
                thread::spawn(move || forward(&client, &server, &own));
            }
        });
        Self { port, shared }
    }

    pub fn breaks(&self, next: Break) {
        self.shared.next.store(next as u8, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        // Wakes the thread that listens, if it still does.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    /// Whether the connection breaks here, which it does once.
    fn takes(&self, here: Break) -> bool {
        let (from, to) = (here as u8, Break::Nowhere as u8);
        self.next.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

fn forward(client: &TcpStream, server: &TcpStream, shared: &Shared) {
    for stream in [client, server] {
        stream.set_nodelay(true).unwrap();
    }
    let is_mute = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            answer(client, server, &is_mute);
            end([client, server]);
        });
        ask(client, server, shared, &is_mute);
        if !is_mute.load(Ordering::SeqCst) {
            end([client, server]);
        }
    });
}

/// Passes on what the client sends until the connection breaks.
fn ask(mut client: &TcpStream, mut server: &TcpStream, shared: &Shared, is_mute: &AtomicBool) {
    let mut buffer = [0; 8192];
    while let Ok(length @ 1..) = client.read(&mut buffer) {
        let sent = &buffer[..length];
        let has = |text: &[u8]| sent.windows(text.len()).any(|it| it == text);
        let is_commit = has(b"COMMIT\0");
        if is_commit && shared.takes(Break::BeforeCommit) {
            return;
        }
        is_mute.store(is_commit && shared.takes(Break::AfterCommit), Ordering::SeqCst);
        if has(b"PGCOPY\n") && shared.takes(Break::InCopy) {
            // The server may have ended the connection meanwhile.
            let _ = server.write_all(&sent[..length / 2]);
            return;
        }
        if server.write_all(sent).is_err() || is_mute.load(Ordering::SeqCst) {
            return;
        }
    }
}

/// Passes on what the server answers, until it is to be kept from the client.
fn answer(mut client: &TcpStream, mut server: &TcpStream, is_mute: &AtomicBool) {
    let mut buffer = [0; 8192];
    while let Ok(length @ 1..) = server.read(&mut buffer) {
        if is_mute.load(Ordering::SeqCst) || client.write_all(&buffer[..length]).is_err() {
            return;
        }
    }
}

fn end(streams: [&TcpStream; 2]) {
    for stream in streams {
        // It may have ended by itself.
        let _ = stream.shutdown(Shutdown::Both);
    }
}
