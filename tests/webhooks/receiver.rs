//! A receiver of deliveries: plain HTTP over sockets. It records requests, and the test decides the
//! responses.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;

use super::wire;
use orrery_testkit::wait::wait_until;

/// Timeout for conditions and reads.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A received request.
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

/// Returns the response to a request; `None` closes the connection.
type Answers = dyn Fn(&Received) -> Option<String> + Send + Sync;

struct Shared {
    received: Mutex<Vec<Received>>,
    /// Held from reading bytes off a connection until their request is in `received`.
    taking: Mutex<()>,
    answers: Box<Answers>,
    stopped: AtomicBool,
}

/// A receiver on a port of its own; stops when dropped.
pub struct Receiver {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

/// Returns a response with this status and without a body.
pub fn answer(status: u16) -> Option<String> {
    Some(format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n"))
}

impl Receiver {
    pub fn start(answers: impl Fn(&Received) -> Option<String> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            received: Mutex::default(),
            taking: Mutex::default(),
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

    /// Returns the number of requests once all bytes that were sent have been read.
    pub fn count_when_silent(&self) -> usize {
        let port = self.address.port();
        wait_until("nothing is on its way", || wire::bytes_under_way(port) == 0);
        // Waits until the bytes that were read are recorded.
        let _taking = self.shared.taking.lock();
        self.count()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(mut stream: TcpStream, shared: &Shared) {
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut unread = Vec::new();
    loop {
        // Waits for bytes without reading them.
        if !matches!(stream.peek(&mut [0]), Ok(1)) {
            return;
        }
        let received = {
            let _taking = shared.taking.lock();
            if more(&mut stream, &mut unread).is_none() {
                return;
            }
            let received = parsed(&mut unread);
            // Recorded before it is answered, so that a test that acts on the answer finds it.
            shared.received.lock().extend(received.clone());
            received
        };
        if let Some(received) = received {
            let Some(answer) = (shared.answers)(&received) else { return };
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }
}

/// Returns the next request of a connection; `None` at its end.
pub fn read(stream: &mut impl Read, unread: &mut Vec<u8>) -> Option<Received> {
    loop {
        match parsed(unread) {
            Some(received) => return Some(received),
            None => more(stream, unread)?,
        }
    }
}

/// Removes the first request from `unread`; `None` while it is incomplete. A sender waits for the
/// response before it sends the next request.
fn parsed(unread: &mut Vec<u8>) -> Option<Received> {
    let end = unread.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&unread[..end]).unwrap();
    let mut lines = head.trim_end().split("\r\n");
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length")?.1.parse().unwrap();
    if unread.len() - end < length {
        return None;
    }
    let rest = unread.split_off(end + length);
    let body = std::mem::replace(unread, rest).split_off(end);
    Some(Received { path, headers, body })
}

fn more(stream: &mut impl Read, unread: &mut Vec<u8>) -> Option<()> {
    let mut buffer = [0; 16 * 1024];
    match stream.read(&mut buffer) {
        Ok(0) | Err(_) => None,
        Ok(count) => {
            unread.extend_from_slice(&buffer[..count]);
            Some(())
        }
    }
}
