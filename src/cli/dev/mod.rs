//! `orrery dev`: builds an indexing program at each save, and shows what it emits and what changed.

mod changes;
mod saved;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde_json::{Value, json};

use super::remote::Remote;
use super::serve::{runtime, stop_on_signal};
use super::{Failure, fit, output, program_name, read_file, trial};
use saved::Saved;

/// Build an indexing program at each save, and show its rows and what changed
///
/// Each time the program runs on the same stored transactions, so that what changes comes from the program. Nothing is
/// stored or deployed. Ctrl-C ends it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery dev trades
  orrery dev trades --contract CA… --last 50
  orrery dev . --build './build.sh' --code-path out/trades.wasm")]
pub struct Dev {
    /// Folder of the project, as `orrery new NAME` creates it
    #[arg(value_name = "NAME", default_value = ".")]
    folder: PathBuf,
    /// Contract IDs with commas between them; may be repeated. If not given, those of the project's Makefile, or else
    /// those of the deployed program of that project
    #[arg(long = "contract", alias = "contracts", value_name = "C…", value_delimiter = ',')]
    contracts: Vec<String>,
    /// Transactions to run it on, with commas between them
    #[arg(long, value_name = "HASH", value_delimiter = ',', conflicts_with = "last")]
    transactions: Vec<String>,
    /// Number of the contracts' newest transactions to run it on
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    last: u32,
    /// Command that builds the program, for `sh` in the folder
    #[arg(long, value_name = "COMMAND", default_value = "make build")]
    build: String,
    /// The module that the command creates, relative to the folder
    #[arg(long, value_name = "FILE", default_value = "program.wasm")]
    code_path: PathBuf,
}

impl Dev {
    pub fn run(self, remote: &Remote) -> Result<(), Failure> {
        if !self.folder.is_dir() {
            return Err(Failure::usage(format!(
                "there is no folder {}: `orrery new NAME` creates a project",
                self.folder.display()
            )));
        }
        // Asked first, so that a wrong address or token is told before minutes of building.
        let deployed = remote.get("retroshade/list")?.json()?;
        let mut trials = Trials {
            contracts: self.contracts(&deployed)?,
            transactions: self.transactions.clone(),
            last: self.last,
            before: None,
        };
        let runtime = runtime()?;
        let stop = runtime.block_on(async { stop_on_signal() })?;
        loop {
            let saved = Saved::below(&self.folder);
            match self.built().and_then(|code| trials.next(remote, &code)) {
                _ if *stop.borrow() => return Ok(()),
                Ok(text) => output::print(&text)?,
                Err(failure) => output::note(failure),
            }
            output::note(format_args!("waiting for a save in {}", self.folder.display()));
            if !saved.wait_for_change(&self.folder, &stop) {
                return Ok(());
            }
        }
    }

    /// Returns the contracts whose transactions the program is tried on.
    fn contracts(&self, deployed: &Value) -> Result<Vec<String>, Failure> {
        if !self.contracts.is_empty() {
            return Ok(self.contracts.clone());
        }
        let makefile = match fs::read_to_string(self.folder.join("Makefile")) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => {
                return Err(Failure::failed(format!(
                    "cannot read the project's Makefile: {error}"
                )));
            }
        };
        let listed = assigned(&makefile, "CONTRACTS").unwrap_or_default();
        let listed: Vec<String> =
            listed.split([',', ' ']).filter(|it| !it.is_empty()).map(str::to_owned).collect();
        if !listed.is_empty() {
            return Ok(listed);
        }
        let project =
            assigned(&makefile, "PROJECT").map(str::to_owned).or_else(|| name_of(&self.folder));
        let found = project.and_then(|project| contracts_of(deployed, &project));
        found.ok_or_else(|| {
            Failure::usage(
                "the contracts of this project are not known: give --contract C…, or write them behind \
                 CONTRACTS in its Makefile",
            )
        })
    }

    /// Builds the program, with the output of the build on standard error, and returns its module.
    fn built(&self) -> Result<Vec<u8>, Failure> {
        let status = Command::new("sh")
            .args(["-c", &format!("exec 1>&2\n{}", self.build)])
            .current_dir(&self.folder)
            .status()
            .map_err(|error| Failure::failed(format!("cannot run sh: {error}")))?;
        if !status.success() {
            return Err(Failure::failed(format!("`{}` failed ({status})", self.build)));
        }
        read_file(&self.folder.join(&self.code_path))
    }
}

/// Trials of successive versions of a program on the same transactions.
struct Trials {
    contracts: Vec<String>,
    /// The transactions; empty while none is known.
    transactions: Vec<String>,
    last: u32,
    /// Result of the version before.
    before: Option<Value>,
}

impl Trials {
    /// Tries a version. Returns its rows, or, after the first version, what changed.
    fn next(&mut self, remote: &Remote, code: &[u8]) -> Result<String, Failure> {
        let mut body = json!({ "code": STANDARD.encode(code), "contracts": self.contracts });
        if self.transactions.is_empty() {
            body["last"] = self.last.into();
        } else {
            body["transactions"] = json!(self.transactions);
        }
        let after = remote.post("retroshade/try", &body)?.json()?;
        for warning in fit::warnings(remote, code, &self.contracts) {
            output::note(warning);
        }
        let runs = after["transactions"].as_array().into_iter().flatten();
        self.transactions =
            runs.filter_map(|run| run["tx_hash"].as_str().map(str::to_owned)).collect();
        let text = match &self.before {
            Some(before) => changes::draw(before, &after),
            None => trial::draw(&after),
        };
        self.before = (!self.transactions.is_empty()).then_some(after);
        Ok(text)
    }
}

/// Returns the value that a Makefile gives a variable, unless make has to compute it.
fn assigned<'a>(makefile: &'a str, name: &str) -> Option<&'a str> {
    let value = makefile.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?.trim_start();
        ["?=", ":=", "="].iter().find_map(|sign| rest.strip_prefix(sign))
    })?;
    let value = value.split('#').next().unwrap_or_default().trim();
    (!value.is_empty() && !value.contains('$')).then_some(value)
}

fn name_of(folder: &Path) -> Option<String> {
    Some(folder.canonicalize().ok()?.file_name()?.to_str()?.to_owned())
}

/// Finds the contracts of a project in the answer of `retroshade/list`.
fn contracts_of(deployed: &Value, project: &str) -> Option<Vec<String>> {
    let contracts = program_name::find(deployed, project)?["contracts"].as_array()?;
    Some(contracts.iter().filter_map(|it| it.as_str().map(str::to_owned)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contracts_are_read_from_the_makefile() {
        let makefile =
            "BASE ?= $(or $(ORRERY_BASE),x)\nPROJECT ?= trades\nCONTRACTS ?= CA,CB # two\n";
        assert_eq!(assigned(makefile, "CONTRACTS"), Some("CA,CB"));
        assert_eq!(assigned(makefile, "PROJECT"), Some("trades"));
        assert_eq!(assigned(makefile, "BASE"), None, "computed by make");
        assert_eq!(assigned("CONTRACTS ?=\n", "CONTRACTS"), None);
        assert_eq!(assigned("CONTRACTS_OLD = CA\nCONTRACTS := CB", "CONTRACTS"), Some("CB"));
    }

    #[test]
    fn contracts_of_a_deployed_program_are_found_by_its_name_in_any_case() {
        let list = json!([{ "project_name": "Trades", "contracts": ["CA", "CB"] }]);
        assert_eq!(contracts_of(&list, "trades"), Some(vec!["CA".to_owned(), "CB".to_owned()]));
        assert_eq!(contracts_of(&list, "other"), None);
    }
}
