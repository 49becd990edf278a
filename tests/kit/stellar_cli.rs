//! The published command line client `stellar` (package `stellar-cli`). `ORRERY_TEST_STELLAR_CLI`
//! names the program; tests are skipped without it.

use std::ffi::OsString;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// The client, with settings of its own, and the network that it uses.
pub struct StellarCli {
    program: OsString,
    /// Where the client keeps its settings and keys.
    home: TempDir,
    url: String,
    passphrase: String,
}

impl StellarCli {
    /// Returns the program; `None`, with a message, when there is none.
    pub fn program() -> Option<OsString> {
        let program = std::env::var_os("ORRERY_TEST_STELLAR_CLI");
        if program.is_none() {
            println!("skipped: ORRERY_TEST_STELLAR_CLI names no program");
        }
        program
    }

    /// Returns a client of the network that the RPC server at `url` serves.
    pub fn new(program: OsString, url: String, passphrase: &str) -> Self {
        let passphrase = passphrase.to_owned();
        Self { program, home: tempfile::tempdir().unwrap(), url, passphrase }
    }

    /// Runs the client.
    pub fn run(&self, arguments: &[&str]) -> Output {
        let mut client = Command::new(&self.program);
        client.env("HOME", self.home.path()).env("XDG_CONFIG_HOME", self.home.path());
        client.env("STELLAR_NO_UPDATE_CHECK", "true").current_dir(self.home.path());
        client.env("STELLAR_RPC_URL", &self.url);
        client.env("STELLAR_NETWORK_PASSPHRASE", &self.passphrase);
        client.args(arguments).output().unwrap()
    }

    /// Returns what the client prints, without the last line break.
    pub fn text(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).unwrap().trim_end().to_owned()
    }

    /// Returns what the client prints in JSON.
    pub fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.text(&[arguments, &["--output", "json"]].concat())).unwrap()
    }
}
