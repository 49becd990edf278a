//! Runs the built binary as a user would: a command to its end, or a service.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use super::client::HTTP;
use super::program;
use super::signal::{self, Signal};
use super::wait::wait_until;

/// Arguments with which a service listens on a free port, and says in its log on which.
const SERVE: [&str; 5] = ["serve", "--listen", "127.0.0.1:0", "--log-format", "json"];
/// The data directory of services with a working directory of their own, in that directory.
const DATA_DIR: &str = "d";

/// The built binary, without the `ORRERY_*` variables of the environment in which the tests run.
pub fn orrery() -> Command {
    command(&program::orrery())
}

/// As [`orrery`], in a working directory.
pub fn orrery_in(directory: &Path) -> Command {
    let mut command = orrery();
    command.current_dir(directory);
    command
}

/// As [`orrery`], for any program file.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ORRERY_") {
            command.env_remove(name);
        }
    }
    command
}

/// How a command ended.
#[derive(Debug)]
pub struct Ran {
    /// Exit code; -1 if a signal ended it.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// What it printed. Asserts that it succeeded.
    #[track_caller]
    pub fn succeeded(&self) -> &str {
        assert_eq!(self.code, 0, "{}", self.stderr);
        &self.stdout
    }

    /// The JSON that it printed. Asserts that it succeeded.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(self.succeeded()).unwrap()
    }

    /// Asserts that the command failed with this exit code, printed nothing to stdout, and that the
    /// last line of stderr is a sentence that contains all of `parts`.
    #[track_caller]
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

/// Runs the binary to its end, in a working directory.
pub fn run(directory: &Path, arguments: &[&str]) -> Ran {
    orrery_in(directory).args(arguments).output().unwrap().into()
}

/// Writes the settings file of a working directory; returns the arguments that name it.
pub fn configure(directory: &Path, settings: &str) -> [&'static str; 2] {
    std::fs::write(directory.join("orrery.toml"), settings).unwrap();
    ["--config", "orrery.toml"]
}

/// Issues a token of a data directory for an owner.
pub fn token(data_dir: &Path, owner: &str) -> String {
    token_with(data_dir, owner, &[])
}

/// As [`token`], with more arguments.
pub fn token_with(data_dir: &Path, owner: &str, arguments: &[&str]) -> String {
    issue_token(orrery(), data_dir, owner, arguments)
}

fn issue_token(mut program: Command, data_dir: &Path, owner: &str, arguments: &[&str]) -> String {
    let issue = program.args(["token", "issue", "--sub", owner, "--data-dir"]).arg(data_dir);
    let issued: Ran = issue.args(arguments).output().unwrap().into();
    issued.succeeded().trim().to_owned()
}

/// A running `orrery serve` or `orrery demo`; killed when dropped.
pub struct Service {
    child: Child,
    /// Address and port on which it listens.
    pub address: String,
    /// URL of its root.
    pub base: String,
    program: PathBuf,
    data_dir: PathBuf,
    token: OnceLock<String>,
    log: File,
}

impl Service {
    /// Serves a data directory, without a source and without rate limits.
    pub fn start(data_dir: &Path) -> Self {
        Self::start_with(data_dir, &[])
    }

    /// As [`Self::start`], with settings as environment variables.
    pub fn start_with(data_dir: &Path, settings: &[(&str, &str)]) -> Self {
        Self::serve(orrery(), data_dir, &["--no-source"], settings)
    }

    /// As [`Self::start`], with another program file.
    pub fn start_from(program: &Path, data_dir: &Path) -> Self {
        Self::serve(command(program), data_dir, &["--no-source"], &[])
    }

    /// As [`Self::start_with`], but follows the source that the settings name.
    pub fn follow(data_dir: &Path, settings: &[(&str, &str)]) -> Self {
        Self::serve(orrery(), data_dir, &[], settings)
    }

    fn serve(
        mut program: Command,
        data_dir: &Path,
        arguments: &[&str],
        settings: &[(&str, &str)],
    ) -> Self {
        let unlimited = ("ORRERY_LIMITS_REQUESTS_PER_SECOND", "0");
        program.env(unlimited.0, unlimited.1).envs(settings.iter().copied());
        program.args(SERVE).args(arguments).arg("--data-dir").arg(data_dir);
        Self::spawn(program, data_dir).unwrap_or_else(|log| panic!("{log}"))
    }

    /// Serves the data directory `d` of the network `local` in a working directory, without rate
    /// limits.
    pub fn local(directory: &Path, arguments: &[&str]) -> Self {
        Self::local_from(&program::orrery(), directory, arguments)
            .unwrap_or_else(|log| panic!("{log}"))
    }

    /// As [`Self::local`], with another program file; returns the log if it refuses to start.
    pub fn local_from(
        program: &Path,
        directory: &Path,
        arguments: &[&str],
    ) -> Result<Self, String> {
        let mut command = command(program);
        command.current_dir(directory).env("ORRERY_LIMITS_REQUESTS_PER_SECOND", "0").args(SERVE);
        command.args(["--network", "local", "--data-dir", DATA_DIR]).args(arguments);
        Self::spawn(command, &directory.join(DATA_DIR))
    }

    /// Serves in a working directory, with these arguments. Without `--config` it follows no source:
    /// the default sources of the networks are public servers, which tests must not contact.
    pub fn start_in(directory: &Path, arguments: &[&str]) -> Self {
        let no_source = if arguments.contains(&"--config") { None } else { Some("--no-source") };
        let mut command = orrery_in(directory);
        command.args(SERVE).args(no_source).args(arguments);
        Self::spawn(command, &directory.join(DATA_DIR)).unwrap_or_else(|log| panic!("{log}"))
    }

    /// Spawns a command that serves a data directory and logs in JSON, and waits until it listens.
    /// Returns the log if it ends before.
    pub fn spawn(mut command: Command, data_dir: &Path) -> Result<Self, String> {
        let log = tempfile::tempfile().unwrap();
        command.stdout(Stdio::null()).stderr(log.try_clone().unwrap());
        let mut service = Self::of(&mut command, data_dir, log);
        let listening = wait_until("it says where it listens, or ends", || {
            let has_ended = service.child.try_wait().unwrap().is_some();
            let lines = service.log();
            let listening = lines.iter().find(|line| line["message"] == "listening");
            match listening {
                _ if has_ended => Some(Err(written(&service.log))),
                Some(line) => Some(Ok(line["address"].as_str().unwrap().to_owned())),
                None => None,
            }
        });
        service.listens_on(&listening?);
        Ok(service)
    }

    /// Starts a demo in the data directory `d` of a working directory; also returns what it says of
    /// itself as JSON.
    pub fn demo(directory: &Path, arguments: &[&str]) -> (Self, Value) {
        let (mut demo, mut lines) = Self::demo_lines(directory, arguments, Some("--json"));
        let told: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
        demo.listens_on_site(told["site"].as_str().unwrap());
        (demo, told)
    }

    /// As [`Self::demo`], but returns what it says to people.
    pub fn demo_in_words(directory: &Path, arguments: &[&str]) -> (Self, Vec<String>) {
        let (mut demo, mut lines) = Self::demo_lines(directory, arguments, None);
        let mut said: Vec<String> = Vec::new();
        while !said.last().is_some_and(|line| line.starts_with("More: ")) {
            said.push(lines.next().unwrap());
        }
        let site = said.iter().find_map(|line| line.strip_prefix("Its site: ")).unwrap();
        demo.listens_on_site(site);
        (demo, said)
    }

    fn demo_lines(
        directory: &Path,
        arguments: &[&str],
        json: Option<&str>,
    ) -> (Self, impl Iterator<Item = String> + use<>) {
        let mut command = orrery_in(directory);
        command.args(["demo", "--listen", "127.0.0.1:0", "--data-dir", DATA_DIR]).args(json);
        command.args(arguments).stdout(Stdio::piped());
        let log = tempfile::tempfile().unwrap();
        let mut demo = Self::of(&mut command, &directory.join(DATA_DIR), log);
        let stdout = BufReader::new(demo.child.stdout.take().unwrap());
        (demo, stdout.lines().map(Result::unwrap))
    }

    fn listens_on_site(&mut self, site: &str) {
        self.listens_on(site.trim_start_matches("http://").trim_end_matches('/'));
    }

    /// From here on, the process is killed when the service is dropped.
    fn of(command: &mut Command, data_dir: &Path, log: File) -> Self {
        let (address, base, token) = (String::new(), String::new(), OnceLock::new());
        let (program, data_dir) = (command.get_program().into(), data_dir.to_owned());
        Self { child: command.spawn().unwrap(), address, base, program, data_dir, token, log }
    }

    fn listens_on(&mut self, address: &str) {
        self.address = address.to_owned();
        self.base = format!("http://{address}");
    }

    /// Log entries so far. A line that is not JSON is a string.
    pub fn log(&self) -> Vec<Value> {
        let entry = |line: &str| serde_json::from_str(line).unwrap_or(Value::String(line.into()));
        written(&self.log).lines().map(entry).collect()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Memory of the process in bytes; `figure` is a field of `/proc/PID/status`
    /// (proc_pid_status(5)).
    pub fn memory(&self, figure: &str) -> u64 {
        memory(self.child.id(), figure).unwrap()
    }

    /// As [`Self::memory`], of all its children together that have not ended.
    pub fn memory_of_children(&self, figure: &str) -> u64 {
        children(self.child.id()).into_iter().filter_map(|child| memory(child, figure)).sum()
    }

    /// Bytes that the process and its children, those that have ended too, have read or written;
    /// `figure` is a field of `/proc/PID/io` (proc_pid_io(5)). Of a child that is confined only root
    /// sees it, until the child has ended.
    pub fn io(&self, figure: &str) -> u64 {
        let of = |line: &str| line.strip_prefix(figure)?.strip_prefix(": ")?.parse().ok();
        let io = |process: u32| {
            // A child that has ended counts for its parent.
            let io = std::fs::read_to_string(format!("/proc/{process}/io"));
            io.map_or(0, |io| io.lines().find_map(of).unwrap())
        };
        io(self.child.id()) + children(self.child.id()).into_iter().map(io).sum::<u64>()
    }

    /// A token of the service's data directory.
    pub fn token(&self) -> &str {
        self.token.get_or_init(|| issue_token(command(&self.program), &self.data_dir, "tests", &[]))
    }

    /// Status and JSON of the response to a path, with a token or without.
    pub fn ask(&self, path: &str, token: Option<&str>) -> (u16, Value) {
        let mut request = HTTP.get(format!("{}{path}", self.base));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let answer = request.send().unwrap();
        (answer.status().as_u16(), answer.json().unwrap())
    }

    /// JSON of the response to a path.
    pub fn get(&self, path: &str) -> Value {
        let (status, answer) = self.ask(path, Some(self.token()));
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    pub fn health(&self) -> Value {
        self.ask("/rest/health", None).1
    }

    pub fn metrics(&self) -> String {
        HTTP.get(format!("{}/metrics", self.base)).send().unwrap().text().unwrap()
    }

    /// Waits until health satisfies a condition.
    pub fn wait_for_health(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        wait_until(what, || {
            let health = self.health();
            if is(&health) { Ok(health) } else { Err(health) }
        })
    }

    /// Waits until the service is up and has stored up to this ledger.
    pub fn wait_until_stored(&self, ledger: u32) -> Value {
        self.wait_for_health(&format!("ledger {ledger} is stored"), |health| {
            health["service_latest_ledger"] == ledger && health["service"] == "up"
        })
    }

    /// All rows of a route, page by page; `cursor` is the column that continues a list.
    pub fn rows(&self, path: &str, cursor: &str) -> Vec<Value> {
        let mut all: Vec<Value> = Vec::new();
        loop {
            let after = match all.last() {
                Some(last) => format!("&cursor={}", last[cursor].to_string().trim_matches('"')),
                None => String::new(),
            };
            let page = self.get(&format!("{path}{after}"));
            let page = page.as_array().unwrap_or_else(|| panic!("{path}{after}: {page}"));
            if page.is_empty() {
                return all;
            }
            all.extend_from_slice(page);
        }
    }

    /// As [`Self::rows`], without the ids of the rows.
    pub fn rows_without_ids(&self, path: &str, cursor: &str) -> Vec<Value> {
        let mut rows = self.rows(path, cursor);
        rows.iter_mut().for_each(|row| drop(row.as_object_mut().unwrap().remove("id")));
        rows
    }

    pub fn signal(&self, signal: Signal) {
        assert!(signal::send(self.child.id(), signal));
    }

    /// Waits until the process ends; returns its exit code.
    pub fn end(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// Sends a signal, waits until the process ends, and returns its exit code.
    pub fn end_with(self, signal: Signal) -> Option<i32> {
        self.signal(signal);
        self.end()
    }

    /// Stops the service as its supervisor would.
    pub fn stop(self) {
        assert_eq!(self.end_with(Signal::TERM), Some(0));
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Memory of a process in bytes, as [`Service::memory`] has it; `None` if the process has ended.
fn memory(process: u32, figure: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(figure))?;
    let kilobytes = line.trim_start_matches(':').trim_end_matches("kB").trim();
    Some(kilobytes.parse::<u64>().ok()? << 10)
}

/// The child processes of a process (proc_tid_children(5)).
fn children(process: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let of_thread = |thread: std::io::Result<std::fs::DirEntry>| {
        // The thread may have ended: then its children are those of another.
        std::fs::read_to_string(thread.unwrap().path().join("children")).unwrap_or_default()
    };
    let all: String = threads.map(of_thread).collect();
    all.split_whitespace().map(|id| id.parse().unwrap()).collect()
}

/// What a process has written to a file so far. The file is opened again, because its descriptor
/// shares the position at which the process writes.
pub(crate) fn written(file: &File) -> String {
    let mut bytes = Vec::new();
    let file = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()));
    file.unwrap().read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}
