//! HTTP over a raw socket: sends what an HTTP library would refuse to send, and reads the response
//! byte by byte.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Timeout after which a missing response counts as a hang.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A response as it was received.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    /// The value of a header that must not be repeated.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(given, _)| given == name);
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} is repeated: {:?}", self.headers);
        value
    }

    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts that this is a well-formed error with this status and code, and returns its message.
    pub fn error(&self, status: u16, code: &str) -> String {
        let body = self.json();
        assert_eq!((self.status, body["code"].as_str()), (status, Some(code)), "{body}");
        let sentence = body["error"].as_str().unwrap().to_owned();
        assert!(sentence.len() > 20 && !sentence.contains('\n'), "{sentence}");
        sentence
    }
}

/// A connection that stays open from one request to the next.
pub struct Connection {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Connection {
    pub fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, unread: Vec::new() }
    }

    /// Sends raw bytes; fails when the server has already closed the connection.
    pub fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Closes the sending side of the connection.
    pub fn finish_sending(&mut self) {
        self.stream.shutdown(std::net::Shutdown::Write).unwrap();
    }

    /// Sends a request with these additional headers and reads the response.
    pub fn request(&mut self, method: &str, target: &str, headers: &[(&str, &str)]) -> Answer {
        let mut head = format!("{method} {target} HTTP/1.1\r\nhost: localhost\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        self.send(format!("{head}\r\n").as_bytes()).unwrap();
        self.answer(method == "HEAD")
    }

    /// Reads one response. A response to HEAD has no body, whatever its headers announce.
    pub fn answer(&mut self, to_head: bool) -> Answer {
        loop {
            let mut answer = self.head();
            if answer.status == 100 {
                continue;
            }
            let length = answer.header("content-length").map_or(0, |text| text.parse().unwrap());
            if !to_head && answer.status != 204 {
                assert_eq!(answer.header("transfer-encoding"), None, "lengths are announced");
                while self.unread.len() < length {
                    self.read_more().expect("the body is complete");
                }
                answer.body = self.unread.drain(..length).collect();
            }
            return answer;
        }
    }

    /// Reads the bytes that have come, or waits for some; returns their number, 0 when the server has
    /// closed its side.
    pub fn read_bytes(&mut self) -> u64 {
        let mut buffer = [0; 16 * 1024];
        self.read(&mut buffer).expect("bytes, or the end") as u64
    }

    /// Reads a few bytes; returns whether any arrived before the server closed its side.
    pub fn read_some(&mut self) -> bool {
        let mut buffer = [0; 1024];
        matches!(self.read(&mut buffer), Ok(1..))
    }

    /// Reads available bytes. A read with a timeout is interrupted when the process is stopped and
    /// continued (signal(7)); it is retried then.
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            match self.stream.read(buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }

    /// Whether the server has closed its side, with nothing left to read.
    pub fn is_closed_by_server(&mut self) -> bool {
        self.unread.is_empty() && self.read_more().is_none()
    }

    fn head(&mut self) -> Answer {
        let end = loop {
            match self.unread.windows(4).position(|window| window == b"\r\n\r\n") {
                Some(end) => break end,
                None => self.read_more().expect("an answer, not a dropped connection"),
            }
        };
        let head: Vec<u8> = self.unread.drain(..end + 4).collect();
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines
            .map(|line| line.split_once(':').unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Answer { status, headers, body: Vec::new() }
    }

    fn read_more(&mut self) -> Option<()> {
        let mut buffer = [0; 16 * 1024];
        match self.read(&mut buffer) {
            Ok(0) => None,
            Ok(count) => {
                self.unread.extend_from_slice(&buffer[..count]);
                Some(())
            }
            Err(error) => panic!("no answer in {TIMEOUT:?}: {error}"),
        }
    }
}
