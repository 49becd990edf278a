//! Runs the program as a user does, and sends requests to it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use orrery_testkit::client::HTTP;
use orrery_testkit::signal::{self, Signal};

/// Time after which a condition that is waited for counts as failed.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The program that was built with these tests.
pub const THIS_BUILD: &str = env!("CARGO_BIN_EXE_orrery");

/// Returns a command of the program, without the `ORRERY_*` environment variables of the test
/// process.
pub fn orrery(directory: &Path) -> Command {
    command(Path::new(THIS_BUILD), directory)
}

/// Like [`orrery`], for any build of the program.
pub fn command(build: &Path, directory: &Path) -> Command {
    let mut command = Command::new(build);
    command.current_dir(directory);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ORRERY_") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs the program to its end.
pub fn run(directory: &Path, arguments: &[&str]) -> Output {
    orrery(directory).args(arguments).output().unwrap()
}

/// Runs the program and parses the JSON that it prints.
pub fn json(directory: &Path, arguments: &[&str]) -> Value {
    let output = run(directory, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

pub fn wait_until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(start.elapsed() < TIMEOUT, "{what} did not come true");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// `orrery serve` on the data directory `d`; killed when dropped.
pub struct Service {
    pub child: Child,
    pub address: String,
    token: String,
    log: File,
}

impl Service {
    pub fn start(directory: &Path, arguments: &[&str]) -> Self {
        Self::of(Path::new(THIS_BUILD), directory, arguments)
            .unwrap_or_else(|reason| panic!("{reason}"))
    }

    /// Like [`Self::start`], for any build of the program; returns what it printed when it refuses
    /// to start.
    pub fn of(build: &Path, directory: &Path, arguments: &[&str]) -> Result<Self, String> {
        let network = ["--network", "local", "--data-dir", "d"];
        let token = command(build, directory)
            .args(["token", "issue", "--sub", "tests"])
            .args(network)
            .output()
            .unwrap();
        if !token.status.success() {
            return Err(String::from_utf8_lossy(&token.stderr).into_owned());
        }
        let log = tempfile::tempfile().unwrap();
        let child = command(build, directory)
            .env("ORRERY_LIMITS_REQUESTS_PER_SECOND", "0")
            .args(["serve", "--listen", "127.0.0.1:0", "--log-format", "json"])
            .args(network)
            .args(arguments)
            .stderr(log.try_clone().unwrap())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut service = Self {
            child,
            address: String::new(),
            token: String::from_utf8(token.stdout).unwrap().trim().to_owned(),
            log,
        };
        let begun = wait_until("it says where it listens, or ends", || {
            let ended = service.child.try_wait().unwrap().is_some();
            let lines = service.log();
            let listening = lines.iter().find(|line| line["message"] == "listening");
            let address = listening.map(|line| line["address"].as_str().unwrap().to_owned());
            match (address, ended) {
                (Some(address), false) => Some(Ok(address)),
                (_, true) => Some(Err(service.text())),
                (None, false) => None,
            }
        });
        service.address = begun?;
        Ok(service)
    }

    /// Returns everything that was written to the log.
    fn text(&self) -> String {
        let mut text = String::new();
        // Opened again, because the child process shares the file position of the descriptor that
        // it was given, which must not move.
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&self.log));
        File::open(path).unwrap().read_to_string(&mut text).unwrap();
        text
    }

    /// Returns the JSON log lines so far.
    pub fn log(&self) -> Vec<Value> {
        let text = self.text();
        let lines = BufReader::new(text.as_bytes()).lines();
        lines.filter_map(|line| serde_json::from_str(&line.unwrap()).ok()).collect()
    }

    /// Returns the bearer token that authorises requests.
    pub fn token(&self) -> &str {
        &self.token
    }

    pub fn get(&self, path: &str) -> Value {
        let url = format!("http://{}{path}", self.address);
        HTTP.get(url).bearer_auth(&self.token).send().unwrap().json().unwrap()
    }

    pub fn health(&self) -> Value {
        self.get("/rest/health")
    }

    pub fn metrics(&self) -> String {
        let url = format!("http://{}/metrics", self.address);
        HTTP.get(url).send().unwrap().text().unwrap()
    }

    /// Waits until health satisfies `is`.
    pub fn wait_for_health(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let health = self.health();
            if is(&health) {
                return health;
            }
            assert!(start.elapsed() < TIMEOUT, "{what} did not come true: {health}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the service is up and has stored up to this ledger.
    pub fn wait_until_stored(&self, ledger: u32) -> Value {
        self.wait_for_health(&format!("ledger {ledger} is stored"), |health| {
            health["service_latest_ledger"] == ledger && health["service"] == "up"
        })
    }

    /// Returns all rows of a route, page by page, without their ids.
    pub fn rows(&self, path: &str, cursor: &str) -> Vec<Value> {
        let mut all = self.rows_with_ids(path, cursor);
        for row in &mut all {
            row.as_object_mut().unwrap().remove("id");
        }
        all
    }

    /// Returns all rows of a route, page by page.
    pub fn rows_with_ids(&self, path: &str, cursor: &str) -> Vec<Value> {
        let mut all: Vec<Value> = Vec::new();
        loop {
            let after = match all.last() {
                Some(last) => format!("&cursor={}", last[cursor].to_string().trim_matches('"')),
                None => String::new(),
            };
            let page = self.get(&format!("{path}{after}"));
            let page = page.as_array().unwrap_or_else(|| panic!("{path}{after}: {page}")).clone();
            if page.is_empty() {
                return all;
            }
            all.extend(page);
        }
    }

    pub fn signal(&self, signal: Signal) {
        assert!(signal::send(self.child.id(), signal));
    }

    pub fn stop(mut self) {
        self.signal(Signal::TERM);
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
