//! The built program, as a user runs it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::client::HTTP;

/// The program, untouched by the settings of whoever runs the tests.
pub fn orrery() -> Command {
    untouched(env!("CARGO_BIN_EXE_orrery").as_ref())
}

/// As [`orrery`], from another file.
fn untouched(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ORRERY_") {
            command.env_remove(name);
        }
    }
    command
}

/// A running `orrery serve`; it is killed when this is dropped.
pub struct Service {
    child: Child,
    pub base: String,
    token: String,
    log: Arc<Mutex<Vec<Value>>>,
}

/// A token of a data directory for an owner.
pub fn token(directory: &Path, owner: &str) -> String {
    let token = orrery()
        .args(["token", "issue", "--sub", owner, "--data-dir"])
        .arg(directory)
        .output()
        .unwrap();
    assert!(token.status.success(), "{}", String::from_utf8_lossy(&token.stderr));
    String::from_utf8(token.stdout).unwrap().trim().to_owned()
}

impl Service {
    /// Serves a data directory on a free port, without rate limits.
    pub fn start(directory: &Path) -> Self {
        Self::start_with(directory, &[])
    }

    /// As [`Self::start`], with settings as environment variables.
    pub fn start_with(directory: &Path, settings: &[(&str, &str)]) -> Self {
        Self::serve(orrery(), directory, &["--no-source"], settings)
    }

    /// As [`Self::start`], from another file that holds the program.
    pub fn start_from(program: &Path, directory: &Path) -> Self {
        Self::serve(untouched(program), directory, &["--no-source"], &[])
    }

    /// As [`Self::start_with`], following what the settings say.
    pub fn follow(directory: &Path, settings: &[(&str, &str)]) -> Self {
        Self::serve(orrery(), directory, &[], settings)
    }

    fn serve(
        mut program: Command,
        directory: &Path,
        arguments: &[&str],
        settings: &[(&str, &str)],
    ) -> Self {
        let token = token(directory, "tests");
        let mut child = program
            .env("ORRERY_LIMITS_REQUESTS_PER_SECOND", "0")
            .envs(settings.iter().copied())
            .args(["serve", "--listen", "127.0.0.1:0", "--log-format", "json"])
            .args(arguments)
            .arg("--data-dir")
            .arg(directory)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (address, log) = listening_address(&mut child);
        Self { child, base: format!("http://{address}"), token, log }
    }

    /// What it has written to its log since it listens.
    pub fn log(&self) -> Vec<Value> {
        self.log.lock().unwrap().clone()
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// A figure of the process's memory in bytes, as the system names it (proc_pid_status(5)).
    pub fn memory(&self, figure: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(figure)).unwrap();
        let kilobytes = line.trim_start_matches(':').trim_end_matches("kB").trim();
        kilobytes.parse::<u64>().unwrap() << 10
    }

    /// The JSON array at a path.
    pub fn rows(&self, path: &str) -> Vec<Value> {
        let answer =
            HTTP.get(format!("{}{path}", self.base)).bearer_auth(&self.token).send().unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        answer.json().unwrap()
    }

    /// All rows of a route of events, page by page.
    pub fn walk(&self, path: &str) -> Vec<Value> {
        let mut all = self.rows(path);
        loop {
            let Some(last) = all.last() else { return all };
            let page = self.rows(&format!("{path}&cursor={}", last["id"]));
            if page.is_empty() {
                return all;
            }
            all.extend(page);
        }
    }
}

/// Reads the log up to the line that tells the address, and goes on reading so that the log never
/// fills its pipe.
fn listening_address(child: &mut Child) -> (String, Arc<Mutex<Vec<Value>>>) {
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut seen = Vec::new();
    while let Some(Ok(line)) = lines.next() {
        let entry: Value = serde_json::from_str(&line).unwrap_or_default();
        if entry["message"] == "listening" {
            let address = entry["address"].as_str().unwrap().to_owned();
            let log = Arc::<Mutex<Vec<Value>>>::default();
            let read = Arc::clone(&log);
            std::thread::spawn(move || {
                for line in lines.map_while(Result::ok) {
                    // What is no JSON is shown as it is.
                    let entry = serde_json::from_str(&line).unwrap_or(Value::String(line));
                    read.lock().unwrap().push(entry);
                }
            });
            return (address, log);
        }
        seen.push(line);
    }
    panic!("the service ended before it listened: {seen:?}");
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
