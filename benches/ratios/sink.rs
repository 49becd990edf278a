//! A minimal receiver of webhook deliveries: reads a request, records its time of arrival, and
//! responds with 200.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use orrery::priority::Priority;
use parking_lot::Mutex;

use super::client::content_length;
use super::running::wait_until;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// A receiver on its own port, stopped when dropped.
pub struct Sink {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Arrival time of the first byte of each request.
    came: Mutex<Vec<Instant>>,
    /// The first request.
    sample: Mutex<Option<Posted>>,
    stopped: AtomicBool,
}

/// A received request.
#[derive(Debug, Clone)]
pub struct Posted {
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Sink {
    /// Starts listening.
    pub fn start() -> Result<Self, Box<dyn Error>> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, shared) = (listener.local_addr()?, Arc::<Shared>::default());
        let own = Arc::clone(&shared);
        thread::spawn(move || {
            // Real receivers run on other machines; this one must not compete with ingestion for
            // processors.
            Priority::Prompt.apply_to_current_thread();
            for stream in listener.incoming() {
                if own.stopped.load(Ordering::Relaxed) {
                    return;
                }
                let own = Arc::clone(&own);
                // Errors are ignored: the sender notices a broken connection.
                thread::spawn(move || stream.and_then(|stream| serve(stream, &own)));
            }
        });
        Ok(Self { address, shared })
    }

    /// Returns the URL of an endpoint of this receiver.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    /// Returns the number of received requests.
    pub fn count(&self) -> usize {
        self.shared.came.lock().len()
    }

    /// Waits until `count` requests have arrived.
    pub fn wait_for_count(&self, count: usize) -> Result<(), Box<dyn Error>> {
        wait_until(&format!("{count} deliveries have come"), || self.count() >= count)
    }

    /// Returns the arrival times of the requests, and clears them.
    pub fn take(&self) -> Vec<Instant> {
        std::mem::take(&mut *self.shared.came.lock())
    }

    /// Returns the first request.
    pub fn sample(&self) -> Option<Posted> {
        self.shared.sample.lock().clone()
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        // Wakes the listening thread. The error is ignored: the thread may have ended already.
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

/// Returns where the head and the whole request end, once all of it has arrived.
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
