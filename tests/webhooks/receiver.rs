//! A receiver of deliveries: plain HTTP over sockets, which notes what came and answers what it is told to.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;

/// A delivery as it came.
#[derive(Debug, Clone)]
pub struct Received {
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Received {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str())
    }

    pub fn id(&self) -> String {
        self.header("x-service-delivery").unwrap().to_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// What a receiver answers; nothing when it closes the connection.
type Answers = dyn Fn(&Received) -> Option<String> + Send + Sync;

struct Shared {
    received: Mutex<Vec<Received>>,
    answers: Box<Answers>,
    stopped: AtomicBool,
}

/// A receiver on a port of its own, until it is dropped.
pub struct Receiver {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

/// An answer with this status and nothing else.
pub fn answer(status: u16) -> Option<String> {
    Some(format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n"))
}

impl Receiver {
    pub fn start(answers: impl Fn(&Received) -> Option<String> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            received: Mutex::default(),
            answers: Box::new(answers),
            stopped: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if own.stopped.load(Ordering::SeqCst) {
                    return;
                }
                let (Ok(stream), own) = (stream, Arc::clone(&own)) else { continue };
                thread::spawn(move || serve(stream, &own));
            }
        });
        Self { address, shared }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn received(&self) -> Vec<Received> {
        self.shared.received.lock().clone()
    }

    pub fn count(&self) -> usize {
        self.shared.received.lock().len()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(mut stream: TcpStream, shared: &Shared) {
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let mut unread = Vec::new();
    while let Some(received) = read(&mut stream, &mut unread) {
        // It counts as received before it is answered: whoever asks afterwards finds it.
        shared.received.lock().push(received.clone());
        let Some(answer) = (shared.answers)(&received) else { return };
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// The next request of a connection; none at its end.
fn read(stream: &mut TcpStream, unread: &mut Vec<u8>) -> Option<Received> {
    let end = loop {
        match unread.windows(4).position(|window| window == b"\r\n\r\n") {
            Some(end) => break end,
            None => more(stream, unread)?,
        }
    };
    let head = String::from_utf8(unread.drain(..end + 4).collect()).unwrap();
    let mut lines = head.trim_end().split("\r\n");
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length")?.1.parse().unwrap();
    while unread.len() < length {
        more(stream, unread)?;
    }
    Some(Received { path, headers, body: unread.drain(..length).collect() })
}

fn more(stream: &mut TcpStream, unread: &mut Vec<u8>) -> Option<()> {
    let mut buffer = [0; 16 * 1024];
    match stream.read(&mut buffer) {
        Ok(0) | Err(_) => None,
        Ok(count) => {
            unread.extend_from_slice(&buffer[..count]);
            Some(())
        }
    }
}
