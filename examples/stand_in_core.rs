//! A stand-in for stellar-core, for tests of the source that runs one. It has the same command line
//! and streams recorded ledgers. It is never installed.
//!
//! `script.json` in its directory configures it, and `calls.log` there records its calls. Like
//! stellar-core, it keeps the sequence of its last closed ledger in its working directory, writes a
//! ledger before it counts it as closed, and on an interrupt finishes the current write before it
//! exits.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;
use toml::{Table, Value};

/// A checkpoint ends before each multiple of this sequence number.
const CHECKPOINT: u32 = 64;
const DATABASE: &str = "stellar.db";
const UPGRADED: &str = "upgraded";

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Protocol of the newest ledger, as `/info` reports it.
static PROTOCOL: AtomicU32 = AtomicU32::new(0);

#[derive(Deserialize)]
#[serde(default)]
struct Script {
    /// Output of the command `version`.
    version: String,
    /// File of ledgers, each after a record mark, and its index: lines `SEQUENCE OFFSET LENGTH`.
    frames: PathBuf,
    index: PathBuf,
    /// Whether to stream from the beginning of the checkpoint.
    early: bool,
    /// Pause between two ledgers, in microseconds.
    pause_us: u64,
    ignores_interrupt: bool,
    /// Whether to leave a child process behind that keeps the descriptors.
    leaves_child: bool,
    /// Network that `/info` reports; empty for the configured one.
    info_network: String,
    /// File that must exist before anything is streamed; empty for none.
    waits_for: PathBuf,
    /// Behaviour of the query port; read again for each request.
    query: Query,
    /// Responses of `/tx`, in order; the last one is repeated.
    submitted: Vec<serde_json::Value>,
    faults: Vec<Fault>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            version: "v26.0.0\nledger protocol version: 26\n".to_owned(),
            frames: PathBuf::new(),
            index: PathBuf::new(),
            early: false,
            pause_us: 0,
            ignores_interrupt: false,
            leaves_child: false,
            info_network: String::new(),
            waits_for: PathBuf::new(),
            query: Query::default(),
            submitted: Vec::new(),
            faults: Vec::new(),
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Query {
    /// JSON file with a list for each key in base64, oldest first: a ledger, and the response of
    /// `getledgerentry` from that ledger on. Other keys are not found.
    entries: PathBuf,
    fault: Option<QueryFault>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum QueryFault {
    /// Responds that it is booting.
    Booting,
    /// Responds with 503.
    Unavailable,
    /// Does not respond and keeps the connection open.
    Silent,
    /// Responds as of the first ledger.
    Behind,
}

/// Values of a key, each with the ledger from which on it holds.
type Versions = Vec<(u32, serde_json::Value)>;

#[derive(Deserialize)]
struct Fault {
    /// First word of the command.
    command: String,
    /// Ledger before which the fault happens; 0 for the beginning of the command.
    #[serde(default)]
    at: u32,
    what: What,
    /// Number of times.
    #[serde(default = "once")]
    times: u32,
}

fn once() -> u32 {
    1
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "snake_case")]
enum What {
    /// Aborts between two ledgers.
    Crash,
    /// Aborts inside a ledger.
    Tear,
    /// Exits with an error.
    Exit,
    /// Exits without an error.
    End,
    /// Omits the ledger.
    Skip,
    /// Writes the ledger twice.
    Repeat,
    /// Writes a record mark without its first bit.
    NoMark,
    /// Writes a record mark that announces two gigabytes.
    Huge,
    /// Writes a complete record that is not a ledger.
    Garbage,
    /// Stops writing.
    Hang,
    /// Writes the ledger in many small pieces, and then again as a whole.
    Dribble,
}

struct StandIn {
    home: PathBuf,
    script: Script,
    config: Table,
    command: String,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let home = Path::new(&arguments[0]).parent().expect("called by its path").to_owned();
    let script = fs::read_to_string(home.join("script.json")).expect("a script");
    let script: Script = serde_json::from_str(&script).expect("the script is JSON");
    note_call(&home, &arguments[1..]);
    if arguments.get(1).map(String::as_str) == Some("version") {
        print!("{}", script.version);
        return;
    }
    let [_, conf, file, console, command @ ..] = &arguments[..] else { exit(2) };
    if conf != "--conf" || console != "--console" || command.is_empty() {
        exit(2);
    }
    let config = fs::read_to_string(file).expect("a configuration");
    let config = config.parse().expect("the configuration is TOML");
    let stand_in = StandIn { home, script, config, command: command[0].clone() };
    stand_in.heed_interrupts();
    if let Some(what) = stand_in.fault_at(0) {
        stand_in.fail(what, None, &[]);
    }
    let words: Vec<_> = command.iter().map(String::as_str).collect();
    match words[..] {
        ["offline-info"] => stand_in.offline_info(),
        ["new-db"] => stand_in.close(1),
        ["catchup", range] => stand_in.catch_up(range),
        ["catchup", range, "--metadata-output-stream", "fd:3"] => stand_in.replay(range),
        ["run", "--metadata-output-stream", "fd:3"] => stand_in.run(),
        _ => exit(2),
    }
}

/// Records the arguments and open descriptors, one line per call.
fn note_call(home: &Path, arguments: &[String]) {
    let mut descriptors = BTreeMap::new();
    for entry in fs::read_dir("/proc/self/fd").expect("/proc").flatten() {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        let number: u32 = entry.file_name().to_string_lossy().parse().expect("a number");
        // The directory that is being read is open, too.
        if !target.ends_with("fd") {
            descriptors.insert(number, target);
        }
    }
    let numbers: Vec<_> = descriptors.keys().map(u32::to_string).collect();
    let line = format!("{}\t{}\n", arguments.join(" "), numbers.join(","));
    let file = OpenOptions::new().create(true).append(true).open(home.join("calls.log"));
    file.expect("calls.log").write_all(line.as_bytes()).expect("calls.log");
}

/// Writes a log line as core does, and exits if the parent is gone.
fn log(level: &str, text: &str) {
    let line = format!("2026-08-01T10:00:00.000 GABCD [Ledger {level}] {text}\n");
    if std::io::stdout().write_all(line.as_bytes()).is_err() {
        exit(13);
    }
}

fn refuse(text: &str) -> ! {
    log("ERROR", text);
    exit(1)
}

impl StandIn {
    fn heed_interrupts(&self) {
        let ignores = self.script.ignores_interrupt;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let signal = {
            let _inside = runtime.enter();
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())
        };
        let mut signal = signal.expect("a signal handler");
        thread::spawn(move || {
            runtime.block_on(async {
                while signal.recv().await.is_some() {
                    if !ignores {
                        INTERRUPTED.store(true, Ordering::SeqCst);
                    }
                }
            });
        });
    }

    /// Waits, and exits on an interrupt.
    fn pause(&self, duration: Duration) {
        let until = Instant::now() + duration;
        loop {
            if INTERRUPTED.load(Ordering::SeqCst) {
                log("INFO", "interrupted");
                exit(0);
            }
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return;
            }
            thread::sleep(rest.min(Duration::from_millis(5)));
        }
    }

    /// Continues without ledgers, and logs lines, as the real one always does.
    fn idle(&self) -> ! {
        loop {
            self.pause(Duration::from_millis(100));
            log("INFO", "waiting");
        }
    }

    fn is_set(&self, key: &str) -> bool {
        self.config.get(key).and_then(Value::as_bool) == Some(true)
    }

    fn closed(&self) -> Option<u32> {
        fs::read_to_string(DATABASE).ok()?.parse().ok()
    }

    fn close(&self, ledger: u32) {
        fs::write("stellar.db.new", ledger.to_string()).expect("the database");
        fs::rename("stellar.db.new", DATABASE).expect("the database");
    }

    fn offline_info(&self) {
        let Some(closed) = self.closed() else { refuse("no database") };
        log("INFO", "looking");
        println!("{{\n   \"info\" : {{ \"ledger\" : {{ \"num\" : {closed} }} }}\n}}");
    }

    /// `N/0`: catches up to ledger N without a stream.
    fn catch_up(&self, range: &str) {
        let Some((last, "0")) = range.split_once('/') else { exit(2) };
        let last = last.parse().expect("a ledger");
        if self.closed() != Some(1) {
            refuse("the database is not new");
        }
        log("INFO", &format!("catching up to {last}"));
        self.close(last);
    }

    /// `T/COUNT`: streams COUNT ledgers, up to T.
    fn replay(&self, range: &str) {
        let (last, count) = range.split_once('/').expect("a range");
        let (last, count): (u32, u32) =
            (last.parse().expect("a ledger"), count.parse().expect("a count"));
        if self.closed() != Some(1) || !self.is_set("RUN_STANDALONE") {
            refuse("not ready for a replay");
        }
        self.stream(last - count + 1, Some(last));
    }

    fn run(&self) {
        let Some(closed) = self.closed() else { refuse("no database") };
        let alone = self.is_set("RUN_STANDALONE");
        if closed == 1 && !alone && !self.is_set("CATCHUP_COMPLETE") {
            refuse("it would begin at the newest checkpoint");
        }
        // A network keeps its protocol once it was upgraded.
        PROTOCOL.store(if Path::new(UPGRADED).exists() { 26 } else { 0 }, Ordering::SeqCst);
        self.serve_http();
        self.serve_queries();
        while !self.script.waits_for.as_os_str().is_empty() && !self.script.waits_for.exists() {
            self.pause(Duration::from_millis(5));
        }
        self.stream(closed + 1, None);
        self.idle();
    }

    #[expect(clippy::zombie_processes, reason = "the child is to outlive this process")]
    fn stream(&self, first: u32, last: Option<u32>) {
        let mut output = OpenOptions::new().append(true).open("/proc/self/fd/3").expect("fd 3");
        if self.script.leaves_child {
            Command::new("sleep").arg("30").spawn().expect("a child");
        }
        let begin =
            if self.script.early { (first / CHECKPOINT * CHECKPOINT).max(2) } else { first };
        let frames = File::open(&self.script.frames).expect("frames");
        let index = fs::read_to_string(&self.script.index).expect("an index");
        let mut all = Vec::new();
        for line in index.lines() {
            let mut numbers = line.split(' ').map(|word| word.parse::<u64>().expect("a number"));
            let (sequence, offset) = (numbers.next().expect("3"), numbers.next().expect("3"));
            let sequence = u32::try_from(sequence).expect("a ledger");
            all.push((sequence, offset, numbers.next().expect("3") as usize));
        }
        let wanted = |sequence: u32| sequence >= begin && last.is_none_or(|last| sequence <= last);
        for (sequence, offset, length) in all.into_iter().filter(|entry| wanted(entry.0)) {
            // Replayed ledgers come without a pause.
            let pause = if sequence < first { 0 } else { self.script.pause_us };
            self.pause(Duration::from_micros(pause));
            let mut frame = vec![0; length];
            frames.read_exact_at(&mut frame, offset).expect("a frame");
            let skips = self.fault_at(sequence).is_some_and(|what| {
                self.fail(what, Some(&mut output), &frame);
                what == What::Skip
            });
            if !skips && output.write_all(&frame).is_err() {
                exit(13);
            }
            if self.closed().is_none_or(|closed| closed < sequence) {
                self.close(sequence);
            }
            log("INFO", &format!("closed ledger {sequence}"));
        }
    }

    /// Returns the fault that is due before `ledger`, if there is one.
    fn fault_at(&self, ledger: u32) -> Option<What> {
        for (number, fault) in self.script.faults.iter().enumerate() {
            if fault.command != self.command || fault.at != ledger {
                continue;
            }
            for time in 0..fault.times {
                let mark = self.home.join(format!("fault-{number}-{time}"));
                if OpenOptions::new().write(true).create_new(true).open(mark).is_ok() {
                    return Some(fault.what);
                }
            }
        }
        None
    }

    /// Executes a fault. Returns if the ledger is to be written after it, or omitted.
    fn fail(&self, what: What, output: Option<&mut File>, frame: &[u8]) {
        let write = |bytes: &[u8]| {
            if let Some(output) = &output {
                let mut output: &File = output;
                output.write_all(bytes).expect("the stream");
            }
        };
        match what {
            What::Crash => std::process::abort(),
            What::Tear => {
                write(&frame[..frame.len() / 2]);
                std::process::abort();
            }
            What::Exit => refuse("it was told to fail"),
            What::End => exit(0),
            What::Skip => {}
            What::Repeat => write(frame),
            What::NoMark => {
                write(&[0x7f, 0, 0, 1, 2, 3, 4, 5]);
                self.idle();
            }
            What::Huge => {
                write(&[0xff; 64]);
                self.idle();
            }
            What::Garbage => {
                write(&[0x80, 0, 0, 8, 9, 9, 9, 9, 9, 9, 9, 9]);
                self.idle();
            }
            What::Hang => self.idle(),
            What::Dribble => {
                let (most, last) = frame.split_at(frame.len() - 1);
                for piece in most.chunks(97) {
                    write(piece);
                    thread::sleep(Duration::from_micros(50));
                }
                write(last);
            }
        }
    }

    /// Serves `/info`, `/upgrades` and `/tx`, if a port is configured.
    fn serve_http(&self) {
        let port = self.config.get("HTTP_PORT").and_then(Value::as_integer).unwrap_or(0);
        if port == 0 {
            return;
        }
        let configured = self.config["NETWORK_PASSPHRASE"].as_str().expect("a passphrase");
        let given = &self.script.info_network;
        let network = if given.is_empty() { configured } else { given }.to_owned();
        let home = self.home.clone();
        let port = u16::try_from(port).expect("a port");
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
        thread::spawn(move || {
            let mut submitted = 0;
            for mut stream in listener.incoming().flatten() {
                let path = read_path(&mut stream);
                let version = PROTOCOL.load(Ordering::SeqCst);
                let mut body = serde_json::json!({ "info": {
                    "network": network, "state": "Synced!", "ledger": { "version": version } } });
                if path.starts_with("/upgrades") {
                    note_call(&home, &[path]);
                    fs::write(UPGRADED, "").expect("the database");
                    PROTOCOL.store(26, Ordering::SeqCst);
                } else if let Some(blob) = path.strip_prefix("/tx?blob=") {
                    note_call(&home, &["tx".to_owned(), percent_decoded(blob)]);
                    let script = fs::read_to_string(home.join("script.json")).expect("the script");
                    let script: Script = serde_json::from_str(&script).expect("the script is JSON");
                    let answers = script.submitted;
                    let last = answers.len().saturating_sub(1);
                    body = answers.into_iter().nth(last.min(submitted)).unwrap_or_default();
                    submitted += 1;
                }
                // The client may be gone.
                let _ = write_answer(&mut stream, "200 OK", &body.to_string());
            }
        });
    }

    /// Serves requests for ledger entries, if a port is configured.
    fn serve_queries(&self) {
        let port = self.config.get("HTTP_QUERY_PORT").and_then(Value::as_integer).unwrap_or(0);
        if port == 0 {
            return;
        }
        let home = self.home.clone();
        let port = u16::try_from(port).expect("a port");
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let home = home.clone();
                // The client may be gone.
                thread::spawn(move || drop(answer_query(&home, stream)));
            }
        });
    }
}

fn answer_query(home: &Path, mut stream: TcpStream) -> std::io::Result<()> {
    let Some((path, body)) = read_question(&mut stream)? else {
        return write_answer(&mut stream, "400 Bad Request", "");
    };
    let script = fs::read_to_string(home.join("script.json"))?;
    let Script { query, .. } = serde_json::from_str(&script).expect("the script is JSON");
    let closed = fs::read_to_string(DATABASE)?.parse().expect("a ledger");
    note_call(home, std::slice::from_ref(&path));
    match query.fault {
        Some(QueryFault::Booting) => {
            let error = r#"{"error": "Core is booting, try again later"}"#;
            write_answer(&mut stream, "404 Not Found", error)
        }
        Some(QueryFault::Unavailable) => write_answer(&mut stream, "503 Service Unavailable", ""),
        // Waits until the client gives up.
        Some(QueryFault::Silent) => stream.read(&mut [0]).map(drop),
        Some(QueryFault::Behind) => answer(&mut stream, &query, 1, &path, &body),
        None => answer(&mut stream, &query, closed, &path, &body),
    }
}

/// Returns the path of a request without a body; empty if nothing is received.
fn read_path(stream: &mut TcpStream) -> String {
    let (mut head, mut piece) = (Vec::new(), [0; 4096]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(length) => head.extend_from_slice(&piece[..length]),
        }
    }
    let head = String::from_utf8_lossy(&head);
    head.split(' ').nth(1).unwrap_or_default().to_owned()
}

/// Returns the path and body of a request. Like the real one, it learns the length of a body only
/// from `Content-Length`.
fn read_question(stream: &mut TcpStream) -> std::io::Result<Option<(String, String)>> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let length = stream.read(&mut piece)?;
        bytes.extend_from_slice(&piece[..length]);
        let text = String::from_utf8_lossy(&bytes);
        let (head, body) = match text.split_once("\r\n\r\n") {
            None if length > 0 => continue,
            None => return Ok(None),
            Some(parts) => parts,
        };
        let announced = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let Some(announced) = announced.and_then(|number| number.parse::<usize>().ok()) else {
            return Ok(None);
        };
        if body.len() >= announced || length == 0 {
            let path = head.split(' ').nth(1).unwrap_or_default();
            return Ok(Some((path.to_owned(), body.to_owned())));
        }
    }
}

fn write_answer(stream: &mut TcpStream, status: &str, body: &str) -> std::io::Result<()> {
    let kind = if status.starts_with("200") { "application/json" } else { "text/html" };
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nContent-Type: {kind}");
    stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes())
}

/// Responds as of a ledger, like the two methods of the query port.
fn answer(
    stream: &mut TcpStream,
    query: &Query,
    ledger: u32,
    path: &str,
    body: &str,
) -> std::io::Result<()> {
    let keys: Vec<_> = body.split('&').filter_map(|pair| pair.strip_prefix("key=")).collect();
    let keys: Vec<_> = keys.into_iter().map(percent_decoded).collect();
    let is_raw = match path {
        "/getledgerentryraw" => true,
        "/getledgerentry" => false,
        _ => return write_answer(stream, "404 Not Found", "<b>Welcome to stellar-core!</b>"),
    };
    let distinct: BTreeSet<_> = keys.iter().collect();
    // All TTL keys begin like this: their type is 9.
    let refused = keys.iter().any(|key| key.starts_with("AAAACQ")) || distinct.len() < keys.len();
    if keys.is_empty() || refused && !is_raw {
        return write_answer(
            stream,
            "404 Not Found",
            "Duplicate keys, or none, or of times to live",
        );
    }
    let text = fs::read_to_string(&query.entries)?;
    let known: BTreeMap<String, Versions> = serde_json::from_str(&text).expect("entries");
    let absent = serde_json::json!({ "state": "not-found" });
    let found = keys.iter().map(|key| {
        let versions = known.get(key).into_iter().flatten().rev();
        let version = versions.map(|(since, item)| (*since, item)).find(|one| one.0 <= ledger);
        version.map_or(&absent, |(_, item)| item).clone()
    });
    let there = |item: &serde_json::Value| item.get("entry").cloned();
    let entries: Vec<_> = match is_raw {
        false => found.collect(),
        true => {
            let entries = found.filter_map(|item| there(&item));
            entries.map(|entry| serde_json::json!({ "entry": entry })).collect()
        }
    };
    let body = serde_json::json!({ "entries": entries, "ledgerSeq": ledger });
    write_answer(stream, "200 OK", &body.to_string())
}

fn percent_decoded(text: &str) -> String {
    let text = text.replace('+', " ");
    percent_encoding::percent_decode_str(&text).decode_utf8_lossy().into_owned()
}
