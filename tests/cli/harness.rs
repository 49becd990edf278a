//! Runs the binary in tests, to its end or as a service.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use orrery_testkit::client::HTTP;
use orrery_testkit::signal::{self, Signal};

/// Timeout for a condition, far longer than any of them takes.
const TIMEOUT: Duration = Duration::from_secs(60);

pub fn orrery(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orrery"));
    command.current_dir(directory);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ORRERY_") {
            command.env_remove(name);
        }
    }
    command
}

pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    pub fn json(&self) -> Value {
        assert_eq!(self.code, 0, "{}", self.stderr);
        serde_json::from_str(&self.stdout).unwrap()
    }

    /// Asserts that the command failed with this exit code, printed nothing to stdout, and that the
    /// last line of stderr is a sentence that contains all of `parts`.
    pub fn refuses(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, code, "{}{}", self.stdout, self.stderr);
        assert_eq!(self.stdout, "");
        let sentence = self.stderr.lines().last().unwrap();
        assert!(sentence.starts_with("orrery: "), "{}", self.stderr);
        for part in parts {
            assert!(sentence.contains(part), "'{part}' is not in: {sentence}");
        }
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let code = output.status.code().unwrap_or(-1);
        Self { code, stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

pub fn run(directory: &Path, arguments: &[&str]) -> Ran {
    orrery(directory).args(arguments).output().unwrap().into()
}

pub fn ledgers() -> Option<PathBuf> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/data");
    let root = std::env::var_os("ORRERY_TEST_DATA").map_or_else(|| beside.into(), PathBuf::from);
    let ledgers = root.join("ledgers");
    if ledgers.is_dir() {
        return Some(ledgers);
    }
    println!("skipped: there are no real ledgers in {}", ledgers.display());
    None
}

pub fn wait_until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(start.elapsed() < TIMEOUT, "{what} did not come true");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A service that was started for one test; killed when dropped.
pub struct Service {
    pub child: Child,
    pub address: String,
}

impl Service {
    /// Starts `orrery serve`. Without `--config` it follows no source: the default sources of the
    /// networks are public servers, which tests must not contact.
    pub fn start(directory: &Path, arguments: &[&str]) -> Self {
        let no_source = if arguments.contains(&"--config") { None } else { Some("--no-source") };
        let mut service = orrery(directory);
        service.args(["serve", "--listen", "127.0.0.1:0", "--log-format", "json"]);
        service.args(no_source).args(arguments).stderr(Stdio::piped());
        Self::started(service)
    }

    /// Spawns a prepared command and waits until it logs its address.
    pub fn started(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = loop {
            let line = lines.next().expect("it says where it listens").unwrap();
            let line: Value = serde_json::from_str(&line).expect(&line);
            if line["message"] == "listening" {
                break line["address"].as_str().unwrap().to_owned();
            }
        };
        // Drains stderr, so that the pipe does not fill up.
        thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }

    /// Starts the demo; also returns the nine `curl` commands that it prints.
    pub fn demo(directory: &Path) -> (Self, [String; 9]) {
        Self::demo_with(directory, &[])
    }

    /// As [`Self::demo`], with more arguments.
    pub fn demo_with(directory: &Path, more: &[&str]) -> (Self, [String; 9]) {
        let mut child = orrery(directory)
            .args(["demo", "--listen", "127.0.0.1:0", "--data-dir", "d"])
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        // From here on, the process is killed when `demo` is dropped.
        let mut demo = Self { child, address: String::new() };
        let commands = lines.filter(|line| line.starts_with("curl ")).take(9);
        let commands: [String; 9] = commands.collect::<Vec<_>>().try_into().unwrap();
        let (_, address) = commands[0].split_once("http://").unwrap();
        demo.address = address.split(['/', '\'']).next().unwrap().to_owned();
        (demo, commands)
    }

    pub fn get(&self, path: &str, token: Option<&str>) -> (u16, Value) {
        let mut request = HTTP.get(format!("http://{}{path}", self.address));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let answer = request.send().unwrap();
        let status = answer.status().as_u16();
        (status, answer.json().unwrap())
    }

    pub fn stop(mut self, signal: Signal) -> Option<i32> {
        assert!(signal::send(self.child.id(), signal));
        self.child.wait().unwrap().code()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
