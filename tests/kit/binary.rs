//! Runs the built binary as a user would.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::client::HTTP;
use super::program;

/// The built binary, without the `ORRERY_*` variables of the environment in which the tests run.
pub fn orrery() -> Command {
    command_without_settings(&program::orrery())
}

/// As [`orrery`], with another program file.
fn command_without_settings(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ORRERY_") {
            command.env_remove(name);
        }
    }
    command
}

/// A running `orrery serve`; killed when dropped.
pub struct Service {
    child: Child,
    pub base: String,
    token: String,
    log: Arc<Mutex<Vec<Value>>>,
}

/// Issues a token of a data directory for an owner.
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

    /// As [`Self::start`], with another program file.
    pub fn start_from(program: &Path, directory: &Path) -> Self {
        Self::serve(command_without_settings(program), directory, &["--no-source"], &[])
    }

    /// As [`Self::start_with`], but follows the source that the settings name.
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

    /// Log entries that the service has written since it started to listen.
    pub fn log(&self) -> Vec<Value> {
        self.log.lock().unwrap().clone()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Memory of the process in bytes; `figure` is a field of `/proc/PID/status`
    /// (proc_pid_status(5)).
    pub fn memory(&self, figure: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(figure)).unwrap();
        let kilobytes = line.trim_start_matches(':').trim_end_matches("kB").trim();
        kilobytes.parse::<u64>().unwrap() << 10
    }

    /// Requests a path and returns the JSON array of the response.
    pub fn rows(&self, path: &str) -> Vec<Value> {
        let answer =
            HTTP.get(format!("{}{path}", self.base)).bearer_auth(&self.token).send().unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        answer.json().unwrap()
    }

    /// All rows of an event route, page by page.
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

/// Reads the log up to the line with the address. A thread goes on reading, so that the pipe does
/// not fill up.
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
                    // A line that is not JSON is kept as a string.
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
