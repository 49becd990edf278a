//! Waits until a deployed version of a program has replaced the one before it.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::remote::{Body, Remote};
use super::serve::{runtime, stop_on_signal};
use super::{Failure, output, program_name};

/// Interval between requests for the progress.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// What `orrery deploy` and `orrery watch` say of the version that is to replace another, and of its readers.
#[derive(Debug, Args)]
pub struct Version {
    /// Let every owner read its tables
    #[arg(long)]
    public: bool,
    /// Replace the deployed version of the project as soon as this one has processed the same ledgers
    #[arg(long)]
    pub replace: bool,
    /// Replace it although rows that it has are lost, because data of their ledgers is not stored any more
    #[arg(long, requires = "replace")]
    allow_loss: bool,
}

impl Version {
    /// Adds this to the body of a request.
    pub fn write_into(&self, body: &mut Value) {
        // Without --public, a version that replaces another is as public as that one.
        if self.public || !self.replace {
            body["public"] = self.public.into();
        }
        if self.replace {
            body["replace"] = true.into();
            if self.allow_loss {
                body["allow_loss"] = true.into();
            }
        }
    }
}

/// Returns the id of the owner's program with this project name, if there is one.
pub fn id_of(remote: &Remote, project: &str) -> Result<Option<u64>, Failure> {
    let list = remote.get("retroshade/list")?.json()?;
    Ok(program_name::find(&list, project).and_then(|it| it["id"].as_u64()))
}

/// Shows the progress of a program that is to replace another until it has. Returns the program, with
/// the id of the one that it has replaced. After Ctrl-C the service goes on.
pub fn follow(
    remote: &Remote,
    project: &str,
    replaced: Option<u64>,
    deployed: &Body,
) -> Result<Body, Failure> {
    let id = deployed.json()?["id"].as_u64().unwrap_or_default();
    let old = replaced.map_or_else(|| "the program".to_owned(), |old| format!("program {old}"));
    output::note(format_args!("program {id} replaces {old} of '{project}' when it has caught up"));
    let runtime = runtime()?;
    let stop = runtime.block_on(async { stop_on_signal() })?;
    let bar = output::progress_bar(Some(0), "{bar:30} {pos}/{len} ledgers {msg}");
    loop {
        let list = remote.get("retroshade/list")?.json()?;
        let found = list.as_array().into_iter().flatten().find(|it| it["id"] == id);
        let Some(program) = found else {
            bar.finish_and_clear();
            return Err(failure(remote, project, replaced, id));
        };
        if program["replaces"].is_null() {
            bar.finish_and_clear();
            let mut program = program.clone();
            program["replaced"] = json!(replaced);
            return Ok(Body(program.to_string().into_bytes()));
        }
        // The program may be gone or named by now, which the next request shows.
        if let Ok(backfill) = remote.get(&format!("retroshade/{id}/backfill")) {
            let backfill = backfill.json()?;
            bar.set_length(backfill["ledgers"].as_u64().unwrap_or(0));
            bar.set_position(backfill["ledgers_done"].as_u64().unwrap_or(0));
            let is_paused = program["running"] == false;
            bar.set_message(if is_paused { "paused" } else { "" });
        }
        if *stop.borrow() {
            bar.finish_and_clear();
            return Err(Failure::failed(format!(
                "the service goes on, and replaces '{project}' when program {id} has caught up: \
                 `orrery delete {id}` cancels that"
            )));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Returns why a program that is gone did not replace the other one.
fn failure(remote: &Remote, project: &str, replaced: Option<u64>, id: u64) -> Failure {
    let status = replaced.map(|old| remote.get(&format!("retroshade/{old}/status")));
    let status = status.and_then(Result::ok).and_then(|status| status.json().ok());
    let because = status.as_ref().and_then(|status| status["replacement_failed"].as_str());
    Failure::failed(match because {
        Some(because) => format!("'{project}' is as before: {because}"),
        None => format!("program {id} was deleted before it replaced '{project}'"),
    })
}
