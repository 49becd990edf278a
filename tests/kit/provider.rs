//! An HTTP server on a loopback port that responds, and fails, as a script says, down to the bytes
//! on the wire. Does not depend on ledgers.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;

/// A request as it was received.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub at: Instant,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(given, _)| given == name);
        found.next().map(|(_, value)| value.as_str())
    }
}

/// A response and how it is delivered.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    pub delivery: Delivery,
}

/// How a response goes over the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Completely.
    Whole,
    /// The full length is announced, and the connection is closed after this many bytes of the
    /// body.
    CutAfter(usize),
    /// This length is announced, and the connection is closed after the body.
    Announced(usize),
    /// This many bytes at a time, with a pause after each chunk.
    Slowly(usize, Duration),
    /// Nothing is sent, and the connection stays open.
    Never,
    /// Nothing is sent, the sending side is closed, and the receiving side stays open.
    HalfClosed,
    /// The connection is closed without a response.
    Refused,
}

impl Reply {
    pub fn new(status: u16, kind: &str, body: impl Into<Vec<u8>>) -> Self {
        let headers = vec![("content-type", kind.to_owned())];
        Self { status, headers, body: body.into(), delivery: Delivery::Whole }
    }

    pub fn json(value: &serde_json::Value) -> Self {
        Self::new(200, "application/json", value.to_string())
    }

    /// A response with a status and a short HTML body.
    pub fn status(status: u16) -> Self {
        Self::new(status, "text/html", "<html>It is not what you think.</html>")
    }

    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub fn delivered(self, delivery: Delivery) -> Self {
        Self { delivery, ..self }
    }

    /// Compresses the body with gzip, as a proxy does.
    pub fn gzip(mut self) -> Self {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&self.body).unwrap();
        self.body = encoder.finish().unwrap();
        self.header("content-encoding", "gzip")
    }
}

type Script = dyn Fn(&Request) -> Reply + Send + Sync;

/// A running server; dropping it stops it and closes all connections.
pub struct Provider {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<thread::JoinHandle<()>>,
}

struct Shared {
    script: Box<Script>,
    requests: Mutex<Vec<Request>>,
    connections: Mutex<HashMap<u64, TcpStream>>,
    numbers: AtomicU64,
    stopped: AtomicBool,
}

impl Provider {
    /// Responds as `script` says, on a free port.
    pub fn start(script: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::start_at(free, script)
    }

    /// As [`Self::start`], at a given address.
    pub fn start_at(
        address: SocketAddr,
        script: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            script: Box::new(script),
            requests: Mutex::default(),
            connections: Mutex::default(),
            numbers: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        });
        let accepting = thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.accept(&listener)
        });
        Self { address, shared, accepting: Some(accepting) }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// URL of a path, which begins with `/`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// All requests so far, in the order of arrival.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap().clone()
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        drop(TcpStream::connect(self.address));
        self.accepting.take().unwrap().join().unwrap();
        for connection in self.shared.connections.lock().unwrap().values() {
            // The connection may be closed already.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn accept(self: Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            if self.stopped.load(Ordering::SeqCst) {
                return;
            }
            stream.set_nodelay(true).unwrap();
            let number = self.numbers.fetch_add(1, Ordering::SeqCst);
            let kept = stream.try_clone().unwrap();
            self.connections.lock().unwrap().insert(number, kept);
            let shared = Arc::clone(&self);
            thread::spawn(move || {
                // The client may close the connection at any time.
                let _ = shared.serve(stream);
                shared.connections.lock().unwrap().remove(&number);
            });
        }
    }

    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        if reader.fill_buf()?.first().is_some_and(|byte| !byte.is_ascii_uppercase()) {
            // Servers respond like this when a client starts a TLS handshake on a plain port.
            return stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
        }
        while let Some(request) = read_request(&mut reader)? {
            self.requests.lock().unwrap().push(request.clone());
            let reply = (self.script)(&request);
            let body = if request.method == "HEAD" { &[][..] } else { &*reply.body };
            let goes_on = deliver(&mut stream, &mut reader, &reply, body)?;
            if !goes_on {
                stream.shutdown(Shutdown::Both)?;
                break;
            }
        }
        Ok(())
    }
}

fn read_request(reader: &mut BufReader<TcpStream>) -> std::io::Result<Option<Request>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let mut words = lines[0].split(' ').map(str::to_owned);
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let headers: Vec<(String, String)> = lines[1..]
        .iter()
        .map(|line| line.split_once(':').unwrap())
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let mut request = Request { method, target, headers, body: Vec::new(), at: Instant::now() };
    let length = request.header("content-length").map_or(0, |text| text.parse().unwrap());
    request.body = vec![0; length];
    reader.read_exact(&mut request.body)?;
    Ok(Some(request))
}

/// Sends the head of the reply and `body`, which is the body of the reply or empty. Returns whether
/// the connection can be used again.
fn deliver(
    stream: &mut TcpStream,
    reader: &mut BufReader<TcpStream>,
    reply: &Reply,
    body: &[u8],
) -> std::io::Result<bool> {
    let mut head = format!("HTTP/1.1 {} As Told\r\n", reply.status);
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    let announced = match reply.delivery {
        Delivery::Announced(length) => length,
        _ => reply.body.len(),
    };
    head += &format!("content-length: {announced}\r\n\r\n");
    match reply.delivery {
        Delivery::Refused => return Ok(false),
        Delivery::Never => return wait_for_end(reader),
        Delivery::HalfClosed => {
            stream.shutdown(Shutdown::Write)?;
            return wait_for_end(reader);
        }
        Delivery::Whole => {
            stream.write_all(head.as_bytes())?;
            stream.write_all(body)?;
        }
        Delivery::CutAfter(bytes) => {
            stream.write_all(head.as_bytes())?;
            stream.write_all(&body[..bytes.min(body.len())])?;
            return Ok(false);
        }
        Delivery::Announced(_) => {
            stream.write_all(head.as_bytes())?;
            stream.write_all(body)?;
            return Ok(false);
        }
        Delivery::Slowly(bytes, pause) => {
            stream.write_all(head.as_bytes())?;
            for piece in body.chunks(bytes) {
                stream.write_all(piece)?;
                // The pause is the scripted behaviour, not a wait for a condition.
                thread::sleep(pause);
            }
        }
    }
    Ok(true)
}

/// Reads until the client closes the connection.
fn wait_for_end(reader: &mut BufReader<TcpStream>) -> std::io::Result<bool> {
    std::io::copy(reader, &mut std::io::sink())?;
    Ok(false)
}
