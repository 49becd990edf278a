//! Verb that turns the events of contracts into SQL tables.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use orrery::interfaces::names::UNDECLARED;
use orrery::interfaces::{bundled_names, bundled_text};
use serde_json::{Value, json};

use super::remote::{Body, Remote, draws_tables};
use super::replacement::{self, Version};
use super::selectors::Selectors;
use super::sql_tables::{target, with_names_in_sql};
use super::{Failure, output, read_file, spec_file};

/// Interval between requests for the progress.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Time after which rows that are not in the tables are no longer waited for: the owner's tables may be
/// unusable at present.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub struct Watch {
    /// Name of the project, which no other owner of the service uses: the schema of its tables
    #[arg(value_name = "NAME")]
    project: String,
    /// Contract IDs with commas between them; may be repeated. With --replace, the project keeps what selects
    /// its contracts if nothing does here
    #[arg(long = "contract", alias = "contracts", value_name = "C…", value_delimiter = ',')]
    contracts: Vec<String>,
    #[command(flatten)]
    selectors: Selectors,
    /// Interface that declares the events: a module (.wasm), JSON as `stellar contract info interface
    /// --output json` or `--output xdr-base64-array` prints it, or the name of a bundled one; - for
    /// standard input
    #[arg(long, value_name = "FILE|NAME")]
    spec: Option<PathBuf>,
    /// First ledger whose events become rows; all that are stored if not given
    #[arg(long, value_name = "LEDGER")]
    from: Option<u32>,
    /// Also record the changes of what the contracts hold: the table storage_changes, and the view storage
    /// with what holds now
    #[arg(long)]
    storage: bool,
    #[command(flatten)]
    version: Version,
    /// Do not wait until the stored events are in the tables
    #[arg(long)]
    no_wait: bool,
    /// Print JSON, also on a terminal
    #[arg(long)]
    json: bool,
}

impl Watch {
    pub fn run(self, remote: &Remote) -> Result<(), Failure> {
        let mut body = json!({ "project_name": self.project });
        if self.contracts.is_empty() && self.selectors.is_empty() && !self.version.replace {
            return Err(Failure::usage(
                "nothing says which contracts: give --contract, or --factory with --event and --param, --wasm, \
                 --created-by or --all",
            ));
        }
        if !self.contracts.is_empty() {
            body["contracts"] = json!(self.contracts);
        }
        self.selectors.write_into(&mut body)?;
        if let Some(spec) = &self.spec {
            body["spec"] = interface(spec)?;
        }
        if let Some(from) = self.from {
            body["from"] = from.into();
        }
        if self.storage {
            body["storage"] = true.into();
        }
        self.version.write_into(&mut body);
        let replaces = self.version.replace;
        let replaced = if replaces { replacement::id_of(remote, &self.project)? } else { None };
        let in_own_words = |failure: Failure| failure.beginning("--project", "NAME");
        let watched = remote.post("retroshade/watch", &body).map_err(in_own_words)?;
        let answer = match (self.no_wait, replaces) {
            (true, _) => watched,
            (false, true) => replacement::follow(remote, &self.project, replaced, &watched)?,
            (false, false) => follow(remote, &watched)?,
        };
        if draws_tables(self.json) { with_names_in_sql(&answer)? } else { answer }
            .show(self.json, &[])
    }
}

/// Returns the member `spec` for a file, or for the name of a bundled interface.
fn interface(spec: &Path) -> Result<Value, Failure> {
    let name = spec.to_str().unwrap_or_default();
    let is_there = spec.exists() || name == "-";
    if !is_there && let Some(text) = bundled_text(name) {
        return serde_json::from_str(text).map_err(|error| Failure::failed(error.to_string()));
    }
    if !is_there && spec.extension().is_none() && spec.components().count() == 1 {
        let names: Vec<&str> = bundled_names().collect();
        return Err(Failure::usage(format!(
            "there is no file {name}, and no bundled interface of that name: those are {}",
            names.join(", ")
        )));
    }
    spec_file::member(&read_file(spec)?, name)
}

/// Waits until the events that are stored are in the tables, and returns the project as it is then.
fn follow(remote: &Remote, watched: &Body) -> Result<Body, Failure> {
    let id = watched.json()?["id"].as_u64().unwrap_or_default();
    let bar = output::progress_bar(Some(0), "{bar:30} {pos}/{len} ledgers {msg}");
    // Without a stored ledger there is no backfill.
    while let Ok(backfill) = remote.get(&format!("retroshade/{id}/backfill")) {
        let backfill = backfill.json()?;
        bar.set_length(backfill["ledgers"].as_u64().unwrap_or(0));
        bar.set_position(backfill["ledgers_done"].as_u64().unwrap_or(0));
        bar.set_message(format!("{} rows", backfill["rows_written"]));
        if backfill["state"] != "running" {
            break;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    bar.finish_and_clear();
    let status = filled(remote, id)?;
    let list = remote.get("retroshade/list")?.json()?;
    let found = list.as_array().into_iter().flatten().find(|it| it["id"] == id);
    let project = found.cloned().unwrap_or(watched.json()?);
    for warning in warnings(&status, &project) {
        output::note(warning);
    }
    Ok(Body(project.to_string().into_bytes()))
}

/// Waits until SQL sees the rows of a project, and returns its status.
fn filled(remote: &Remote, id: u64) -> Result<Value, Failure> {
    let begun = Instant::now();
    loop {
        let status = remote.get(&format!("retroshade/{id}/status"))?.json()?;
        if status["rows_in_tables"] != false {
            return Ok(status);
        }
        if begun.elapsed() > LONGEST_WAIT {
            let because = status["last_error_message"].as_str();
            output::note(format_args!(
                "not all rows are in the tables yet: {}",
                because.unwrap_or("the service goes on")
            ));
            return Ok(status);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Returns what a person has to know about a new project: contracts without names, and that there is
/// nothing.
fn warnings(status: &Value, project: &Value) -> Vec<String> {
    let without = status["without_interface"].as_array().into_iter().flatten();
    let mut warnings: Vec<String> = without
        .filter_map(|it| {
            let (contract, reason) = (it["contract"].as_str()?, it["reason"].as_str()?);
            Some(format!(
                "events of {contract} have no names: {reason}; `orrery watch NAME --replace --spec FILE|NAME` \
                 supplies an interface"
            ))
        })
        .collect();
    if status["events"] == 0 {
        warnings.push(if has_declared_tables(project) {
            "no event of these contracts is stored yet: the tables are empty until there is one".to_owned()
        } else {
            "no stored event is of these contracts yet: are they contracts of the network that the service \
             follows?"
                .to_owned()
        });
    }
    warnings
}

/// Whether the project has a table of a declared event: then the code of one of its contracts is known,
/// which therefore is on the network.
fn has_declared_tables(project: &Value) -> bool {
    let tables = project["tables"].as_array().into_iter().flatten().filter_map(Value::as_str);
    tables.map(target).any(|table| table != UNDECLARED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_new_project_lacks_is_told() {
        let status = json!({ "events": 0, "without_interface": [
            { "contract": "CA", "reason": "its code is not known yet" },
        ] });
        let unknown = json!({ "tables": ["program_1_undeclared"] });
        let told = warnings(&status, &unknown);
        assert!(told[0].contains("CA") && told[0].contains("--spec"), "{told:?}");
        assert!(told[1].contains("are they contracts of the network"), "{told:?}");
        assert!(warnings(&json!({ "events": 3 }), &unknown).is_empty());
        let declared = json!({ "tables": ["program_1_pinged", "program_1_undeclared"] });
        let told = warnings(&json!({ "events": 0 }), &declared);
        assert!(told[0].contains("empty until there is one"), "{told:?}");
    }
}
