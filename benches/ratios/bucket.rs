//! A bucket that speaks as much of S3's protocol as snapshots need, holds its objects in memory, and sends them at a
//! given rate: a real one is another machine, behind a network.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use orrery::priority::Priority;
use parking_lot::Mutex;

use super::client::content_length;

/// Name of the bucket.
pub const BUCKET: &str = "ratios";
/// Number of bytes that are sent at a time.
const CHUNK: usize = 256 << 10;
/// The same for all objects, which nobody compares.
const MODIFIED: &str = "Mon, 30 Nov 2026 00:00:00 GMT";

/// An object, and the number of the write that made it.
type Object = (u64, Arc<Vec<u8>>);

/// A bucket on its own port, stopped when dropped.
pub struct Bucket {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    objects: Mutex<BTreeMap<String, Object>>,
    writes: AtomicU64,
    /// Bytes per second; 0 when there is no limit.
    rate: AtomicU64,
    /// When the next byte may be sent.
    next: Mutex<Option<Instant>>,
    stopped: AtomicBool,
}

impl Bucket {
    /// Starts listening.
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, shared) = (listener.local_addr()?, Arc::<Shared>::default());
        let own = Arc::clone(&shared);
        thread::spawn(move || {
            // It must not compete with what is measured for processors.
            Priority::Prompt.apply_to_current_thread();
            for stream in listener.incoming() {
                if own.stopped.load(Ordering::Relaxed) {
                    return;
                }
                let own = Arc::clone(&own);
                // Errors are ignored: the client notices a broken connection.
                thread::spawn(move || stream.and_then(|stream| serve(stream, &own)));
            }
        });
        Ok(Self { address, shared })
    }

    /// Returns the address of the server, for clients of S3.
    pub fn endpoint(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Sends this many bytes per second from now on, over all connections; 0 for no limit.
    pub fn limit(&self, bytes_per_second: u64) {
        self.shared.rate.store(bytes_per_second, Ordering::Relaxed);
        *self.shared.next.lock() = None;
    }

    /// Returns the keys that begin with `prefix`, with the lengths of the objects.
    pub fn keys(&self, prefix: &str) -> Vec<(String, u64)> {
        let objects = self.shared.objects.lock();
        let below = objects.iter().filter(|(key, _)| key.starts_with(prefix));
        below.map(|(key, (_, bytes))| (key.clone(), bytes.len() as u64)).collect()
    }

    /// Removes the objects whose keys begin with `prefix`.
    pub fn remove(&self, prefix: &str) {
        self.shared.objects.lock().retain(|key, _| !key.starts_with(prefix));
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        // Wakes the listening thread. The error is ignored: the thread may have ended already.
        let _ = TcpStream::connect(self.address);
    }
}

/// A request as it came.
struct Asked {
    method: String,
    key: String,
    query: String,
    head: String,
    body: Vec<u8>,
}

fn serve(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::new();
    while let Some(asked) = receive(&mut stream, &mut buffer)? {
        shared.answer(&mut stream, asked)?;
    }
    Ok(())
}

/// Reads the next request; `None` when the connection has ended.
fn receive(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<Asked>> {
    let mut chunk = vec![0; 64 << 10];
    loop {
        let head = buffer.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4);
        if let Some(end) = head {
            let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
            let mut rest = buffer.split_off(end);
            let length = content_length(&head).unwrap_or(0);
            while rest.len() < length {
                let read = stream.read(&mut chunk)?;
                if read == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                rest.extend_from_slice(&chunk[..read]);
            }
            *buffer = rest.split_off(length);
            let mut words = head.split(' ');
            let method = words.next().unwrap_or_default().to_owned();
            let target = words.next().unwrap_or_default();
            let (path, query) = target.split_once('?').unwrap_or((target, ""));
            let key = path.trim_start_matches('/').strip_prefix(BUCKET).unwrap_or_default();
            let (key, query) = (key.trim_start_matches('/').to_owned(), query.to_owned());
            return Ok(Some(Asked { method, key, query, head, body: rest }));
        }
        let read = stream.read(&mut chunk)?;
        if read == 0 {
            return Ok(None);
        }
        buffer.extend_from_slice(&chunk[..read]);
    }
}

impl Asked {
    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

impl Shared {
    fn answer(&self, stream: &mut TcpStream, asked: Asked) -> io::Result<()> {
        match &*asked.method {
            "GET" if asked.key.is_empty() => self.list(stream, &asked.query),
            "GET" => {
                let found = self.objects.lock().get(&asked.key).cloned();
                let Some((number, bytes)) = found else { return empty(stream, "404 Not Found", 0) };
                head(stream, "200 OK", number, bytes.len())?;
                for chunk in bytes.chunks(CHUNK) {
                    self.wait(chunk.len());
                    stream.write_all(chunk)?;
                }
                Ok(())
            }
            "PUT" => self.put(stream, asked),
            "DELETE" => {
                self.objects.lock().remove(&asked.key);
                empty(stream, "204 No Content", 0)
            }
            _ => empty(stream, "501 Not Implemented", 0),
        }
    }

    fn put(&self, stream: &mut TcpStream, asked: Asked) -> io::Result<()> {
        let mut objects = self.objects.lock();
        let found = objects.get(&asked.key).map(|(number, _)| format!("\"{number}\""));
        let is_refused = match (asked.header("if-none-match"), asked.header("if-match")) {
            (Some(_), _) => found.is_some(),
            (_, Some(tag)) => found.as_deref() != Some(tag),
            (None, None) => false,
        };
        if is_refused {
            drop(objects);
            return empty(stream, "412 Precondition Failed", 0);
        }
        let number = 1 + self.writes.fetch_add(1, Ordering::Relaxed);
        objects.insert(asked.key, (number, Arc::new(asked.body)));
        drop(objects);
        empty(stream, "200 OK", number)
    }

    fn list(&self, stream: &mut TcpStream, query: &str) -> io::Result<()> {
        let prefix = query.split('&').find_map(|word| word.strip_prefix("prefix="));
        let prefix = prefix.unwrap_or_default().replace("%2F", "/");
        let mut body = String::from("<ListBucketResult><IsTruncated>false</IsTruncated>");
        for (key, (number, bytes)) in self.objects.lock().iter() {
            if key.starts_with(&prefix) {
                // Writing to a text does not fail.
                let _ = write!(
                    body,
                    "<Contents><Key>{key}</Key><LastModified>2026-11-30T00:00:00.000Z</LastModified>\
                     <ETag>\"{number}\"</ETag><Size>{}</Size></Contents>",
                    bytes.len()
                );
            }
        }
        body += "</ListBucketResult>";
        head(stream, "200 OK", 0, body.len())?;
        stream.write_all(body.as_bytes())
    }

    /// Waits until this many bytes may be sent.
    fn wait(&self, bytes: usize) {
        let rate = self.rate.load(Ordering::Relaxed);
        if rate == 0 {
            return;
        }
        let takes = Duration::from_secs_f64(bytes as f64 / rate as f64);
        let at = {
            let mut next = self.next.lock();
            let at = next.unwrap_or_else(Instant::now).max(Instant::now()) + takes;
            *next = Some(at);
            at
        };
        thread::sleep(at.saturating_duration_since(Instant::now()));
    }
}

fn head(stream: &mut TcpStream, status: &str, number: u64, length: usize) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nETag: \"{number}\"\r\nLast-Modified: {MODIFIED}\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())
}

fn empty(stream: &mut TcpStream, status: &str, number: u64) -> io::Result<()> {
    head(stream, status, number, 0)
}
