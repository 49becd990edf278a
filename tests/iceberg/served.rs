//! A small HTTP server with a catalogue, for clients on this machine.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use orrery_iceberg::catalog::{Lake, Request, Visible, answer};

/// What the requests were, in their order.
pub type Requests = Arc<Mutex<Vec<String>>>;

/// Serves a catalogue at `/iceberg/v1/` until the process ends. Returns its address and the requests.
pub fn serve(lake: impl Lake + Send + Sync + 'static) -> (String, Requests) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/iceberg", listener.local_addr().unwrap());
    let (lake, requests) = (Arc::new(lake), Requests::default());
    let seen = Arc::clone(&requests);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (lake, seen) = (Arc::clone(&lake), Arc::clone(&seen));
            std::thread::spawn(move || serve_connection(&stream, &*lake, &seen));
        }
    });
    (address, requests)
}

fn serve_connection(mut stream: &TcpStream, lake: &impl Lake, seen: &Requests) {
    let mut lines = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line).unwrap_or_default() == 0 {
            return;
        }
        let (mut tags, mut length) = (None, 0);
        loop {
            let mut header = String::new();
            lines.read_line(&mut header).unwrap();
            let Some((name, value)) = header.split_once(':') else { break };
            match &*name.to_lowercase() {
                "if-none-match" => tags = Some(value.trim().to_owned()),
                "content-length" => length = value.trim().parse().unwrap(),
                _ => {}
            }
        }
        std::io::copy(&mut std::io::Read::take(&mut lines, length), &mut std::io::sink()).unwrap();
        seen.lock().unwrap().push(line.trim().to_owned());
        let mut words = line.split_whitespace();
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        let path = path.strip_prefix("/iceberg").unwrap_or(path);
        let request = Request { method, path, query, if_none_match: tags.as_deref() };
        let response = answer(lake, Visible::All, &request);
        let mut text = format!("HTTP/1.1 {} -\r\n", response.status);
        for (name, value) in &response.headers {
            text += &format!("{name}: {value}\r\n");
        }
        if ![204, 304].contains(&response.status) {
            text += &format!("content-length: {}\r\n", response.body.len());
        }
        if stream.write_all(format!("{text}\r\n{}", response.body).as_bytes()).is_err() {
            return;
        }
    }
}
