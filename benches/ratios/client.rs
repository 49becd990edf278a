//! A minimal HTTP/1.1 client: one kept-alive connection, one request at a time.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tokio::net::TcpSocket;

/// Read timeout. Longer than any response takes, so that a hanging run ends.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A connection with its authorisation header and receive buffer.
pub struct Client {
    stream: TcpStream,
    headers: String,
    buffer: Vec<u8>,
}

impl Client {
    /// Connects. Every request carries this token.
    pub fn connect(address: SocketAddr, token: &str) -> io::Result<Self> {
        let authorization = format!("Authorization: Bearer {token}\r\n");
        Self::on(TcpStream::connect(address)?, &authorization)
    }

    /// Connects from an address of this machine. Requests carry no token.
    pub fn connect_from(address: SocketAddr, from: [u8; 4]) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let stream = runtime.block_on(async {
            let socket = TcpSocket::new_v4()?;
            socket.bind((from, 0).into())?;
            socket.connect(address).await?.into_std()
        })?;
        stream.set_nonblocking(false)?;
        Self::on(stream, "")
    }

    fn on(stream: TcpStream, authorization: &str) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let headers = format!("Host: localhost\r\n{authorization}");
        Ok(Self { stream, headers, buffer: vec![0; 1 << 20] })
    }

    /// Sends a GET request and returns the body of the response. Any status other than 200 is an
    /// error.
    pub fn get(&mut self, path: &str) -> io::Result<&[u8]> {
        let request = format!("GET {path} HTTP/1.1\r\n{}\r\n", self.headers);
        self.ask(request.as_bytes())
    }

    /// Like [`Client::get`], but deletes.
    pub fn delete(&mut self, path: &str) -> io::Result<&[u8]> {
        let request = format!("DELETE {path} HTTP/1.1\r\n{}\r\n", self.headers);
        self.ask(request.as_bytes())
    }

    /// Like [`Client::get`], but posts JSON.
    pub fn post(&mut self, path: &str, json: &[u8]) -> io::Result<&[u8]> {
        let headers = &self.headers;
        let length = json.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\n{headers}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        );
        self.ask(&[head.as_bytes(), json].concat())
    }

    fn ask(&mut self, request: &[u8]) -> io::Result<&[u8]> {
        self.stream.write_all(request)?;
        let mut filled = 0;
        let answer = loop {
            if filled == self.buffer.len() {
                self.buffer.resize(2 * filled, 0);
            }
            let read = self.stream.read(&mut self.buffer[filled..])?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            filled += read;
            if let Some(answer) = Answer::begin(&self.buffer[..filled])?
                && answer.end <= filled
            {
                break answer;
            }
        };
        match answer.status.as_str() {
            "200" => Ok(&self.buffer[answer.start..answer.end]),
            status => {
                let body = String::from_utf8_lossy(&self.buffer[answer.start..answer.end]);
                Err(io::Error::other(format!("{status}: {body}")))
            }
        }
    }
}

/// Returns the Content-Length in a message head.
pub fn content_length(head: &str) -> Option<usize> {
    head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    })
}

/// Status of a response whose head has arrived, and where its body starts and ends in the buffer.
struct Answer {
    status: String,
    start: usize,
    end: usize,
}

impl Answer {
    fn begin(bytes: &[u8]) -> io::Result<Option<Self>> {
        let Some(head) = bytes.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(&bytes[..head]);
        let length = content_length(&text);
        let status = text.split(' ').nth(1).unwrap_or_default().to_owned();
        match length {
            Some(length) => Ok(Some(Self { status, start: head + 4, end: head + 4 + length })),
            None => Err(io::Error::other(format!("not an answer of known length: {text}"))),
        }
    }
}
