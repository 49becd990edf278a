//! A stand-in for the SQL worker with a fault, for tests of the parent process. The name under
//! which it is called selects the fault. It is never installed.
//!
//! A frame consists of the length of head and body, the caller's number and the length of the head
//! (4 bytes each, little-endian), the head in JSON, and the body.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// Longer than any test.
const FOR_EVER: Duration = Duration::from_secs(3600);

struct Socket(std::fs::File);

impl Socket {
    fn read(&mut self) -> io::Result<(u32, Value)> {
        let mut start = [0; 12];
        self.0.read_exact(&mut start)?;
        let word = |at: usize| u32::from_le_bytes(start[at..at + 4].try_into().unwrap());
        let mut body = vec![0; word(0) as usize];
        self.0.read_exact(&mut body)?;
        Ok((word(4), serde_json::from_slice(&body[..word(8) as usize])?))
    }

    fn write(&mut self, id: u32, head: &Value, body: &[u8]) -> io::Result<()> {
        let head = head.to_string();
        for word in [head.len() + body.len(), id as usize, head.len()] {
            self.0.write_all(&u32::try_from(word).unwrap().to_le_bytes())?;
        }
        self.0.write_all(head.as_bytes())?;
        self.0.write_all(body)
    }
}

fn main() -> io::Result<()> {
    let program = std::env::args_os().next().unwrap_or_default();
    let way = Path::new(&program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut socket = Socket(io::stdin().as_fd().try_clone_to_owned()?.into());
    let (id, opening) = socket.read()?;
    // Without its file, a worker is ended.
    if let Some(file) = opening["open"]["file"].as_str() {
        std::fs::File::create(file)?;
    }
    let walls = json!({ "files": way != "unconfined", "calls": true });
    socket.write(id, &json!({ "ready": walls }), b"")?;
    let opened = json!({ "commit": 0, "programs": [], "watermarks": {}, "fillings": [] });
    socket.write(id, &json!({ "opened": opened }), b"")?;
    if way == "reads_nothing" {
        thread::sleep(FOR_EVER);
    }
    if way == "talks" {
        thread::spawn(|| while io::stderr().write_all(b"and another thing\n").is_ok() {});
    }
    loop {
        let (id, request) = socket.read()?;
        match way.as_str() {
            "says_nothing" => {}
            "talks_nonsense" => socket.0.write_all(&[0xff; 64])?,
            "announces_too_much" => {
                socket.0.write_all(&[0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0, 1, 0, 0, 0])?
            }
            "answers_something_else" => socket.write(id, &json!({ "digest": "x" }), b"")?,
            "loses_its_transaction" => {
                let failure = json!({ "kind": "transaction_ended", "message": "it is gone" });
                socket.write(id, &json!({ "failed": failure }), b"")?;
            }
            _ if request.get("query").is_some() => socket.write(id, &json!("answered"), b"[]")?,
            _ if request == json!("stop") => return Ok(()),
            _ => {}
        }
    }
}
