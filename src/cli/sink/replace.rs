//! `orrery sink replace`: fills the tables of a project again.

use std::thread;
use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;
use orrery::config::Settings;
use orrery::control::{Client, SINK_REPLACE};
use orrery::sinks::{SinkProjectReport, SinkProjectRequest, SinkProjectState};
use tokio::sync::watch;

use super::{project, service, sink, state};
use crate::cli::serve::{runtime, stop_on_signal};
use crate::cli::{Failure, output};

/// Interval between requests for the progress.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// Fill the tables of a project again, beside those that are there, and put them in their place
///
/// For tables that somebody has changed or dropped, and for those whose replacement is blocked: what others made on them
/// and cannot be kept, such as materialized views, is dropped then. `orrery sink status` lists it. Ends when the new tables
/// are in their place; Ctrl-C ends only the waiting.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery sink replace main --project xlm --data-dir d
  orrery sink replace main --project xlm --data-dir d --detach")]
pub struct Replace {
    /// Name of the sink
    name: String,
    /// Name of the project; may be repeated
    #[arg(long = "project", value_name = "NAME", required = true)]
    projects: Vec<String>,
    /// Leave the work to the service and return at once
    #[arg(long)]
    detach: bool,
    #[command(flatten)]
    output: output::Json,
}

impl Replace {
    pub fn run(self, settings: &Settings) -> Result<(), Failure> {
        let mut client = service(settings)?;
        let known = sink(&mut client, &self.name)?;
        let names = super::projects(&known, &self.projects)?;
        let mut reports = Vec::new();
        for project in &names {
            let request = SinkProjectRequest { sink: self.name.clone(), project: project.clone() };
            reports.push(client.ask(SINK_REPLACE, &request)?);
        }
        if !self.detach {
            reports = self.wait(&mut client, &names)?;
        }
        if self.output.json || !output::is_terminal() {
            return output::print_json(&reports);
        }
        let lines = reports.iter().map(|it| format!("{} is {}\n", it.project, state(it)));
        output::print(&lines.collect::<String>())
    }

    /// Waits until the tables of all these projects are in their place.
    fn wait(
        &self,
        client: &mut Client,
        names: &[String],
    ) -> Result<Vec<SinkProjectReport>, Failure> {
        let runtime = runtime()?;
        let stop = runtime.block_on(async { stop_on_signal() })?;
        let bar = output::progress_bar(Some(0), "{bar:30} {percent:>3} %  {msg}");
        let waited = names.iter().map(|name| self.wait_for(client, name, &bar, &stop)).collect();
        bar.finish_and_clear();
        waited
    }

    fn wait_for(
        &self,
        client: &mut Client,
        name: &str,
        bar: &ProgressBar,
        stop: &watch::Receiver<bool>,
    ) -> Result<SinkProjectReport, Failure> {
        loop {
            let sink = sink(client, &self.name)?;
            let report = project(&sink, name)?;
            match outcome(report) {
                Outcome::Over => return Ok(report.clone()),
                Outcome::Failed => {
                    return Err(Failure::failed(format!("{name} is {}", state(report))));
                }
                Outcome::UnderWay => {}
            }
            bar.set_length(report.of);
            bar.set_position(report.filled.unwrap_or(0));
            let waits = sink.reason.clone().unwrap_or_else(|| state(report));
            bar.set_message(format!("{name}: {waits}"));
            if *stop.borrow() {
                return Err(Failure::failed(format!(
                    "the service goes on with {name}: `orrery sink status {}` says how far it is",
                    self.name
                )));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// How a replacement is.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    UnderWay,
    Over,
    Failed,
}

fn outcome(project: &SinkProjectReport) -> Outcome {
    use SinkProjectState as State;
    match project.state {
        State::Behind | State::Filling | State::Blocked => Outcome::UnderWay,
        State::Live | State::CatchingUp | State::Paused => Outcome::Over,
        State::Stopped | State::Refused | State::Waiting | State::Deleted | State::Left => {
            Outcome::Failed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    #[test]
    fn a_replacement_is_over_when_the_tables_are_in_their_place() {
        for (state, expected) in [
            (SinkProjectState::Behind, Outcome::UnderWay),
            (SinkProjectState::Filling, Outcome::UnderWay),
            (SinkProjectState::Live, Outcome::Over),
            (SinkProjectState::Stopped, Outcome::Failed),
        ] {
            assert_eq!(outcome(&report(&[("xlm", state, None)]).projects[0]), expected);
        }
    }
}
