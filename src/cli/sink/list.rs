//! `orrery sink list`: the sinks of a service, in one line each.

use clap::Args;
use orrery::config::Settings;
use orrery::control::SINKS;
use orrery::postgres::ServerUrl;
use orrery::sinks::{SinkProjectReport, SinkProjectState, SinkReport};
use serde::Serialize;

use super::{behind, no_service, running, state};
use crate::cli::{Failure, grid, output};

const COLUMNS: [&str; 6] = ["sink", "address", "connected", "projects", "behind", "reason"];

/// List the sinks, with how far each is behind, and why
///
/// Asks the running service, or reads the settings when none runs.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery sink list --data-dir d
  orrery sink list --data-dir d --json | jq '.[].lag_ledgers'")]
pub struct List {
    #[command(flatten)]
    output: output::Json,
}

/// A sink in a list.
#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    address: String,
    connected: bool,
    projects: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lag_ledgers: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lag_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// How far it is behind, for people.
    #[serde(skip)]
    behind: String,
}

impl List {
    pub fn run(self, settings: &Settings) -> Result<(), Failure> {
        let listed: Vec<Listed> = match running(settings)? {
            Some(mut client) => client.ask(SINKS, &())?.into_iter().map(Listed::of).collect(),
            None => of_settings(settings)?,
        };
        if self.output.json || !output::is_terminal() {
            return output::print_json(&listed);
        }
        output::print(&table(&listed))
    }
}

impl Listed {
    fn of(sink: SinkReport) -> Self {
        let reason = sink.reason.clone().or_else(|| trouble(&sink));
        let behind = behind(&sink);
        let SinkReport { name, address, connected, lag_ledgers, lag_seconds, projects, .. } = sink;
        let projects = projects.into_iter().map(|it| it.project).collect();
        Self { name, address, connected, projects, lag_ledgers, lag_seconds, reason, behind }
    }
}

/// Returns the first project whose rows do not come as they should, and why.
fn trouble(sink: &SinkReport) -> Option<String> {
    use SinkProjectState::{Behind, Blocked, Live, Refused, Stopped};
    let by_weight = [Stopped, Blocked, Refused, Live, Behind];
    let mut found = by_weight.into_iter().filter_map(|state| {
        // Of tables that get rows, somebody may have removed others.
        let is_trouble =
            |it: &&SinkProjectReport| it.state == state && (state != Live || it.reason.is_some());
        sink.projects.iter().find(is_trouble)
    });
    found.next().map(|project| format!("{} is {}", project.project, state(project)))
}

/// Returns the sinks that the settings name, while no service runs.
fn of_settings(settings: &Settings) -> Result<Vec<Listed>, Failure> {
    let sinks = settings.config.sinks.0.iter();
    let listed = sinks.map(|(name, sink)| {
        let url = ServerUrl::without_password(&sink.url)
            .map_err(|error| Failure::failed(format!("sinks.{name}.url: {error}")))?;
        Ok(Listed {
            name: name.clone(),
            address: url.to_string(),
            connected: false,
            projects: sink.projects.clone(),
            lag_ledgers: None,
            lag_seconds: None,
            reason: Some(no_service(settings)),
            behind: String::new(),
        })
    });
    listed.collect()
}

fn table(listed: &[Listed]) -> String {
    let row = |sink: &Listed| {
        let connected = if sink.connected { "yes" } else { "no" };
        vec![
            sink.name.clone(),
            sink.address.clone(),
            connected.to_owned(),
            sink.projects.join(","),
            sink.behind.clone(),
            sink.reason.clone().unwrap_or_default(),
        ]
    };
    let rows: Vec<Vec<String>> = listed.iter().map(row).collect();
    match rows.is_empty() {
        true => "there is no sink: name a server in the settings of the service, in [sinks.NAME]\n"
            .to_owned(),
        false => grid::grid(&COLUMNS, &rows),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    #[test]
    fn a_line_says_what_is_wrong_with_the_sink_or_with_a_project() {
        let sink = report(&[
            ("a", SinkProjectState::Live, None),
            ("b", SinkProjectState::Behind, Some("derived again")),
            ("c", SinkProjectState::Stopped, Some("xlm.t was dropped")),
        ]);
        let mut removed =
            report(&[("a", SinkProjectState::Live, Some("rows of a.t were removed"))]);
        removed
            .projects
            .insert(0, report(&[("b", SinkProjectState::Live, None)]).projects[0].clone());
        assert_eq!(trouble(&removed).as_deref(), Some("a is live: rows of a.t were removed"));
        assert_eq!(trouble(&report(&[("a", SinkProjectState::Live, None)])), None);
        let lost = SinkReport {
            connected: false,
            reason: Some("no connection".to_owned()),
            lag_ledgers: None,
            ..sink.clone()
        };
        let expected = "\
sink  address                                  connected  projects  behind           reason
main  postgres://orrery@db.example:5432/chain  yes        a,b,c     2 ledgers, 11 s  c is stopped: xlm.t was dropped
main  postgres://orrery@db.example:5432/chain  no         a,b,c                      no connection
";
        assert_eq!(table(&[Listed::of(sink), Listed::of(lost)]), expected);
        assert!(table(&[]).contains("[sinks.NAME]"));
    }
}
