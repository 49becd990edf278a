//! A stand-in for stellar-core (`examples/stand_in_core.rs`): a directory with the program, the
//! ledgers that it streams, its responses and its faults.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::program::example;

/// Length of the record mark before each ledger in a stream, in bytes.
const MARK: u64 = 4;

static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| example("stand_in_core"));

/// A stand-in and the script that it follows.
pub struct StandIn {
    home: TempDir,
    script: Value,
}

/// One invocation of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Arguments without the name of the program, with `FILE` for the path of the configuration.
    pub arguments: String,
    /// File descriptors that were open.
    pub descriptors: BTreeSet<u32>,
}

impl StandIn {
    /// Streams these consecutive ledgers, without faults.
    pub fn of<'a>(ledgers: impl Iterator<Item = (u32, &'a [u8])>) -> Self {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        symlink(&*PROGRAM, path("stellar-core")).unwrap();
        let (mut frames, mut index) = (Vec::new(), String::new());
        for (sequence, ledger) in ledgers {
            let length = MARK + ledger.len() as u64;
            index.push_str(&format!("{sequence} {} {length}\n", frames.len()));
            frames.extend_from_slice(&(1 << 31 | ledger.len() as u32).to_be_bytes());
            frames.extend_from_slice(ledger);
        }
        fs::write(path("frames.xdr"), frames).unwrap();
        fs::write(path("frames.index"), index).unwrap();
        fs::create_dir_all(path("archive/.well-known")).unwrap();
        let own = format!(
            "[QUORUM_SET]\nTHRESHOLD_PERCENT = 100\nVALIDATORS = ['GABC']\n\
             [HISTORY.test]\nget = 'cp {}/{{0}} {{1}}'\n",
            path("archive").display()
        );
        fs::write(path("own.toml"), own).unwrap();
        let script = json!({ "frames": path("frames.xdr"), "index": path("frames.index") });
        let stand_in = Self { home, script };
        stand_in.archive(255, None);
        stand_in.with("early", false)
    }

    /// Path of a file in the stand-in's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Sets the responses of the query port: for each key in base64, a list of ledgers and the
    /// response of `getledgerentry` from each of them on. With a fault, the port misbehaves in that
    /// way instead.
    pub fn answer_queries(&mut self, entries: &Value, fault: Option<&str>) {
        self.write("entries.json", entries);
        let path = self.path("entries.json");
        self.change("query", json!({ "entries": path, "fault": fault }));
    }

    /// Sets `key` of the script.
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.change(key, value);
        self
    }

    /// Sets `key` of the script, from the next invocation on.
    pub fn change(&mut self, key: &str, value: impl Into<Value>) {
        self.script[key] = value.into();
        self.write("script.json", &self.script);
    }

    /// Replaces a file atomically, because a running invocation may read it.
    fn write(&self, name: &str, value: &Value) {
        let mut file = tempfile::NamedTempFile::new_in(self.home.path()).unwrap();
        file.write_all(value.to_string().as_bytes()).unwrap();
        file.persist(self.path(name)).unwrap();
    }

    /// Sets a single fault, which happens once, before `ledger`.
    pub fn fault(self, command: &str, ledger: u32, what: &str) -> Self {
        self.with("faults", json!([{ "command": command, "at": ledger, "what": what }]))
    }

    /// Sets the newest checkpoint of the archive and the passphrase that the archive states.
    pub fn archive(&self, newest: u32, passphrase: Option<&str>) {
        let state =
            json!({ "version": 1, "currentLedger": newest, "networkPassphrase": passphrase });
        let file = self.home.path().join("archive/.well-known/stellar-history.json");
        fs::write(file, state.to_string()).unwrap();
    }

    pub fn program(&self) -> PathBuf {
        self.home.path().join("stellar-core")
    }

    /// A configuration that names validators and the archive.
    pub fn own_config(&self) -> PathBuf {
        self.home.path().join("own.toml")
    }

    /// All invocations so far.
    pub fn calls(&self) -> Vec<Call> {
        let log = fs::read_to_string(self.home.path().join("calls.log")).unwrap_or_default();
        let call = |line: &str| {
            let (arguments, descriptors) = line.split_once('\t').unwrap();
            let descriptors = descriptors.split(',').map(|word| word.parse().unwrap()).collect();
            let words: Vec<_> = arguments.split(' ').collect();
            let arguments = match &words[..] {
                ["--conf", _, rest @ ..] => format!("--conf FILE {}", rest.join(" ")),
                words => words.join(" "),
            };
            Call { arguments, descriptors }
        };
        log.lines().map(call).collect()
    }

    /// Arguments after `--console` of the invocations so far that have it.
    pub fn commands(&self) -> Vec<String> {
        let calls = self.calls().into_iter().map(|call| call.arguments);
        let commands = calls.filter_map(|arguments| {
            arguments.strip_prefix("--conf FILE --console ").map(str::to_owned)
        });
        commands.collect()
    }
}

/// Ids of processes that were started with a configuration below `storage`, without zombies.
pub fn cores(storage: &Path) -> Vec<i32> {
    let conf = format!("\0--conf\0{}", storage.canonicalize().unwrap_or_default().display());
    let numbers = fs::read_dir("/proc").unwrap().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers
        .filter(|pid: &i32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&conf)
        })
        .collect()
}
