//! A strict client of server-sent events: it parses the chunks of the body and the lines in them
//! itself, according to the standard (html.spec.whatwg.org, section 9.2.6).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// Silence after which a stream counts as hanging.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What a stream sent.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamItem {
    /// A message: its type, the last event id at that moment, and its data.
    Message { kind: String, id: String, data: Value },
    /// A comment.
    Comment(String),
    /// A block without a message or comment text, such as an id or a retry time.
    Nothing,
    /// The end of the body.
    End,
    /// The connection broke, or stayed silent for the time given.
    Broken,
}

/// An open stream: its request was answered with 200.
pub struct Reader {
    stream: TcpStream,
    /// Bytes of the chunked body that are not parsed yet.
    raw: Vec<u8>,
    /// Text of the body whose lines are not parsed yet.
    text: Vec<u8>,
    has_ended: bool,
    /// Whether silence is a failure of the test.
    is_patient: bool,
    /// Last event id, as a client keeps it.
    pub last_id: String,
}

/// An error response, or status 0 when the connection failed.
#[derive(Debug)]
pub struct Refused {
    pub status: u16,
    pub body: String,
}

impl Reader {
    /// Opens a stream with a token, and with a `Last-Event-ID` if there is one.
    pub fn open(
        address: SocketAddr,
        token: &str,
        query: &str,
        last_id: Option<&str>,
    ) -> Result<Self, Refused> {
        let after = last_id.map(|id| format!("last-event-id: {id}\r\n")).unwrap_or_default();
        Self::open_with(address, query, &format!("authorization: Bearer {token}\r\n{after}"))
    }

    /// Opens a stream with additional header lines.
    pub fn open_with(address: SocketAddr, query: &str, lines: &str) -> Result<Self, Refused> {
        let broken = |error: std::io::Error| Refused { status: 0, body: error.to_string() };
        let mut stream = TcpStream::connect(address).map_err(broken)?;
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let request = format!(
            "GET /rest/events/stream?{query} HTTP/1.1\r\nhost: x\r\naccept-encoding: gzip\r\n{lines}\r\n"
        );
        stream.write_all(request.as_bytes()).map_err(broken)?;
        let mut raw = Vec::new();
        let end = loop {
            if let Some(at) = raw.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            let mut piece = [0; 4096];
            match stream.read(&mut piece) {
                Ok(length @ 1..) => raw.extend_from_slice(&piece[..length]),
                Ok(0) => return Err(Refused { status: 0, body: "closed".into() }),
                Err(error) => return Err(broken(error)),
            }
        };
        let head = String::from_utf8(raw.drain(..end).collect()).unwrap().to_lowercase();
        let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
        if status != 200 {
            stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            let _ = stream.read_to_end(&mut raw);
            return Err(Refused { status, body: String::from_utf8_lossy(&raw).into_owned() });
        }
        for line in ["content-type: text/event-stream", "transfer-encoding: chunked", "no-store"] {
            assert!(head.contains(line), "{head}");
        }
        assert!(!head.contains("content-encoding") && !head.contains("content-length"), "{head}");
        let last_id = String::new();
        Ok(Self { stream, raw, text: Vec::new(), has_ended: false, is_patient: true, last_id })
    }

    /// Returns the next item.
    pub fn next(&mut self) -> StreamItem {
        loop {
            if let Some(result) = self.parsed() {
                return result;
            }
            if self.has_ended {
                return StreamItem::End;
            }
            if let Some(broken) = self.chunk() {
                return broken;
            }
        }
    }

    /// Returns the next message; `None` when the stream ends or the connection breaks.
    pub fn message(&mut self) -> Option<(String, String, Value)> {
        loop {
            match self.next() {
                StreamItem::Message { kind, id, data } => return Some((kind, id, data)),
                StreamItem::Comment(_) | StreamItem::Nothing => {}
                StreamItem::End | StreamItem::Broken => return None,
            }
        }
    }

    /// As [`Self::message`], but also `None` when the connection is silent for `time`.
    pub fn message_within(&mut self, time: Duration) -> Option<(String, String, Value)> {
        self.stream.set_read_timeout(Some(time)).unwrap();
        self.is_patient = false;
        let message = self.message();
        self.is_patient = true;
        self.stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        message
    }

    /// Returns the next `count` events.
    pub fn events(&mut self, count: usize) -> Vec<Value> {
        let mut events = Vec::new();
        while events.len() < count {
            let (kind, id, data) = self.message().expect("the stream goes on");
            assert_eq!(kind, "message", "{data}");
            assert_eq!(id, data["id"].to_string(), "the id of a message is the event's");
            events.push(data);
        }
        events
    }

    /// Reads up to a block without a message, and returns the last event id then: the stream's
    /// position.
    pub fn position(&mut self) -> u64 {
        loop {
            match self.next() {
                StreamItem::Nothing if !self.last_id.is_empty() => {
                    return self.last_id.parse().unwrap();
                }
                StreamItem::End | StreamItem::Broken => panic!("the stream ended"),
                _ => {}
            }
        }
    }

    /// Moves one chunk of the body to the text. Returns an item only when the connection breaks.
    fn chunk(&mut self) -> Option<StreamItem> {
        loop {
            if let Some(end) = self.raw.windows(2).position(|window| window == b"\r\n") {
                let size = std::str::from_utf8(&self.raw[..end]).unwrap();
                let size = usize::from_str_radix(size, 16).unwrap();
                if self.raw.len() >= end + 2 + size + 2 {
                    let chunk: Vec<u8> = self.raw.drain(..end + 2 + size + 2).collect();
                    self.text.extend_from_slice(&chunk[end + 2..end + 2 + size]);
                    self.has_ended = size == 0;
                    return None;
                }
            }
            let mut piece = [0; 16 << 10];
            match self.stream.read(&mut piece) {
                Ok(length @ 1..) => self.raw.extend_from_slice(&piece[..length]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    if !self.is_patient {
                        return Some(StreamItem::Broken);
                    }
                    panic!("the stream says nothing for {TIMEOUT:?}")
                }
                _ => return Some(StreamItem::Broken),
            }
        }
    }

    /// Removes the next block from the text and parses it; `None` while it is incomplete.
    fn parsed(&mut self) -> Option<StreamItem> {
        let end = self.text.windows(2).position(|window| window == b"\n\n")? + 2;
        let block = String::from_utf8(self.text.drain(..end).collect()).unwrap();
        let (mut kind, mut data, mut comment) = (String::new(), Vec::new(), None);
        for line in block.lines().filter(|line| !line.is_empty()) {
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
            match field {
                "" => comment = Some(value),
                "id" => self.last_id = value,
                "event" => kind = value,
                "data" => data.push(value),
                "retry" => assert!(value.parse::<u32>().is_ok(), "{block}"),
                _ => panic!("an unknown field: {block}"),
            }
        }
        if data.is_empty() {
            return Some(match comment {
                Some(comment) if !comment.is_empty() => StreamItem::Comment(comment),
                _ => StreamItem::Nothing,
            });
        }
        let data = serde_json::from_str(&data.join("\n")).unwrap();
        let kind = if kind.is_empty() { "message".to_owned() } else { kind };
        Some(StreamItem::Message { kind, id: self.last_id.clone(), data })
    }
}
