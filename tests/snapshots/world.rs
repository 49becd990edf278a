//! A data directory with ledgers, and a bucket for its snapshots.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use orrery_testkit::binary::{Ran, Service, orrery_in, run};
use orrery_testkit::lake_files::{Chain, LakeFiles};
use orrery_testkit::s3::{BUCKET, KEY_ID, Rights, S3Server, SECRET};
use serde_json::Value;
use tempfile::TempDir;

/// Address of the snapshots.
pub const PLACE: &str = "s3://ledgers/some/snapshots";
/// Prefix of their keys.
const PREFIX: &str = "some/snapshots";
/// A passphrase that is long enough.
pub const PASSPHRASE: &str = "correct horse battery";
/// File with it, in the working directory.
pub const PASSPHRASE_FILE: &str = "passphrase";

/// A working directory with the data directory `d`, and a bucket.
pub struct World {
    directory: TempDir,
    pub server: S3Server,
    pub chain: Chain,
}

impl World {
    /// Stores ledgers 2 to `last`.
    pub fn new(seed: u64, last: u32) -> Self {
        assert_eq!(PLACE, format!("s3://{BUCKET}/{PREFIX}"));
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(PASSPHRASE_FILE), format!("{PASSPHRASE}\n")).unwrap();
        let server = S3Server::start(Rights::Closed);
        let world = Self { directory, server, chain: Chain::made(seed, last.max(60)) };
        world.import("d", last);
        world
    }

    pub fn at(&self) -> &Path {
        self.directory.path()
    }

    pub fn import(&self, data_dir: &str, last: u32) {
        let lake = LakeFiles::with(&self.chain, 2..=last);
        let arguments = ["import", "--json", "--data-dir", data_dir, &lake.text()];
        run(self.at(), &arguments).json();
    }

    /// Environment variables with which commands reach the bucket.
    pub fn access(&self) -> Vec<(&'static str, String)> {
        vec![
            ("ORRERY_BACKUP_ENDPOINT", self.server.endpoint()),
            ("AWS_ACCESS_KEY_ID", KEY_ID.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
        ]
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = orrery_in(self.at());
        command.args(arguments).envs(self.access());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Ran {
        self.command(arguments).output().unwrap().into()
    }

    /// Makes a snapshot of `d`.
    pub fn backup(&self, more: &[&str]) -> Value {
        let arguments = [&["backup", "--data-dir", "d", "--to", PLACE], more].concat();
        self.run(&arguments).json()
    }

    pub fn restore(&self, data_dir: &str, more: &[&str]) -> Ran {
        self.run(&[&["restore", "--from", PLACE, "--data-dir", data_dir], more].concat())
    }

    /// Keys of all objects of the snapshots, with their content.
    pub fn objects(&self) -> Vec<(String, Vec<u8>)> {
        let root = self.server.directory(PREFIX);
        let mut found = Vec::new();
        let mut directories = vec![root.clone()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).into_iter().flatten() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => directories.push(path),
                    false => {
                        let key = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
                        found.push((key, fs::read(&path).unwrap()));
                    }
                }
            }
        }
        found.sort();
        found
    }

    /// Path of the file with an object.
    pub fn object(&self, key: &str) -> PathBuf {
        self.server.directory(PREFIX).join(key)
    }

    /// Puts an object in place of another.
    pub fn put(&self, key: &str, bytes: &[u8]) {
        self.server.put(&format!("{PREFIX}/{key}"), bytes);
    }

    /// Serves a data directory with the environment of the bucket.
    pub fn serve(&self, data_dir: &str, arguments: &[&str], settings: &[(&str, &str)]) -> Service {
        self.try_serve(data_dir, arguments, settings).unwrap_or_else(|log| panic!("{log}"))
    }

    /// As [`Self::serve`]; returns the log if the service ends at once.
    pub fn try_serve(
        &self,
        data_dir: &str,
        arguments: &[&str],
        settings: &[(&str, &str)],
    ) -> Result<Service, String> {
        let serve =
            ["serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--data-dir", data_dir];
        let mut command = self.command(&[&serve, arguments].concat());
        command.env("ORRERY_LIMITS_REQUESTS_PER_SECOND", "0").envs(settings.iter().copied());
        Service::spawn(command, &self.at().join(data_dir))
    }
}

/// What a data directory holds, without what differs between two of them.
pub fn content(at: &Path, data_dir: &str) -> Value {
    let report = run(at, &["status", "--json", "--data-dir", data_dir]).json();
    let of = |name: &str| report[name].clone();
    let consumers = report["consumers"].as_array().unwrap().iter();
    let consumers: Vec<_> =
        consumers.map(|it| serde_json::json!({ "name": it["name"], "lost": it["lost"] })).collect();
    serde_json::json!({
        "covered": of("covered"), "events": of("events"), "transactions": of("transactions"),
        "network": of("network_passphrase"), "consumers": consumers,
    })
}
