//! The least receiver of deliveries there can be: it reads a request, notes when that came, and answers 200.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use orrery::priority::Priority;
use parking_lot::Mutex;

use crate::client::content_length;
use crate::running::until;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// A receiver on a port of its own, until it is dropped.
pub struct Sink {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// When the first byte of each request came.
    came: Mutex<Vec<Instant>>,
    /// The first request.
    sample: Mutex<Option<Posted>>,
    stopped: AtomicBool,
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Posted {
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Sink {
    /// Begins to listen.
    pub fn start() -> Result<Self, Box<dyn Error>> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, shared) = (listener.local_addr()?, Arc::<Shared>::default());
        let own = Arc::clone(&shared);
        thread::spawn(move || {
            // Receivers are elsewhere: here, they must not take what the service keeps for ingestion.
            Priority::Prompt.take();
            for stream in listener.incoming() {
                if own.stopped.load(Ordering::Relaxed) {
                    return;
                }
                let own = Arc::clone(&own);
                // A connection that breaks is the sender's to notice.
                thread::spawn(move || stream.and_then(|stream| serve(stream, &own)));
            }
        });
        Ok(Self { address, shared })
    }

    /// An endpoint here.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    /// How many requests have come.
    pub fn count(&self) -> usize {
        self.shared.came.lock().len()
    }

    /// Waits until so many have come.
    pub fn until(&self, count: usize) -> Result<(), Box<dyn Error>> {
        until(&format!("{count} deliveries have come"), || self.count() >= count)
    }

    /// When the requests came, and forgets it.
    pub fn take(&self) -> Vec<Instant> {
        std::mem::take(&mut *self.shared.came.lock())
    }

    /// The first request.
    pub fn sample(&self) -> Option<Posted> {
        self.shared.sample.lock().clone()
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        // Wakes the thread, which may have ended by itself.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut buffer, mut filled) = (vec![0; 64 << 10], 0);
    let mut came = Instant::now();
    loop {
        if let Some((head, end)) = whole(&buffer[..filled]) {
            shared.came.lock().push(came);
            shared.sample.lock().get_or_insert_with(|| posted(&buffer[..end], head));
            stream.write_all(ANSWER)?;
            buffer.copy_within(end..filled, 0);
            filled -= end;
            came = Instant::now();
            continue;
        }
        if filled == buffer.len() {
            buffer.resize(2 * filled, 0);
        }
        let read = stream.read(&mut buffer[filled..])?;
        if read == 0 {
            return Ok(());
        }
        if filled == 0 {
            came = Instant::now();
        }
        filled += read;
    }
}

/// Where the head and the whole of a request end, once all of it has come.
fn whole(bytes: &[u8]) -> Option<(usize, usize)> {
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let end = head + content_length(&String::from_utf8_lossy(&bytes[..head])).unwrap_or(0);
    (end <= bytes.len()).then_some((head, end))
}

fn posted(request: &[u8], head: usize) -> Posted {
    let text = String::from_utf8_lossy(&request[..head]);
    let mut lines = text.lines();
    let path = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or("/").to_owned();
    let headers = lines.filter_map(|line| line.split_once(':'));
    let headers = headers.map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    Posted { path, headers: headers.collect(), body: request[head..].to_vec() }
}
