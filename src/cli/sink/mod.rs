//! The verbs for sinks: `orrery sink …`. Only the running service writes to a sink's server, so it answers all of them;
//! what is missing on a server can also be looked at from the settings alone.

mod check;
mod list;
mod remove;
mod replace;
mod status;
mod test;

use std::collections::BTreeSet;

use clap::{Args, Subcommand};
use orrery::config::Settings;
use orrery::control::{Client, SINKS};
use orrery::sinks::{SinkProjectReport, SinkProjectState, SinkReport};

use super::{Common, Failure};

/// Copy rows into your own PostgreSQL: see how far it is, check it, replace what is there
///
/// The settings of the service name the sinks, each in a section of its own: `[sinks.NAME]`.
#[derive(Debug, Args)]
pub struct Sink {
    #[command(subcommand)]
    verb: SinkVerb,
}

#[derive(Debug, Subcommand)]
enum SinkVerb {
    List(list::List),
    Status(status::Status),
    Test(test::Test),
    Check(check::Check),
    Replace(replace::Replace),
    Remove(remove::Remove),
}

impl Sink {
    pub fn run(self, common: &Common) -> Result<(), Failure> {
        let settings = common.or_of_service(Vec::new())?.settings(Vec::new())?;
        match self.verb {
            SinkVerb::List(verb) => verb.run(&settings),
            SinkVerb::Status(verb) => verb.run(&settings),
            SinkVerb::Test(verb) => verb.run(&settings),
            SinkVerb::Check(verb) => verb.run(&settings),
            SinkVerb::Replace(verb) => verb.run(&settings),
            SinkVerb::Remove(verb) => verb.run(&settings),
        }
    }
}

/// Connects to the service of the data directory, if one runs.
fn running(settings: &Settings) -> Result<Option<Client>, Failure> {
    let directory = &settings.config.data_dir;
    // What only looks at a server needs no data directory.
    if !directory.exists() {
        return Ok(None);
    }
    Ok(Client::connect(directory)?)
}

/// Connects to the service of the data directory.
fn service(settings: &Settings) -> Result<Client, Failure> {
    running(settings)?.ok_or_else(|| Failure::failed(no_service(settings)))
}

/// Says that no service runs, and what to do.
fn no_service(settings: &Settings) -> String {
    let directory = settings.config.data_dir.display();
    format!(
        "no service runs on the data directory {directory}, and only it writes to sinks: start it, or name another \
         with --data-dir"
    )
}

/// Returns the sink of a name.
fn sink(client: &mut Client, name: &str) -> Result<SinkReport, Failure> {
    let mut sinks = client.ask(SINKS, &())?;
    let at = sinks.iter().position(|it| it.name == name);
    match at {
        Some(at) => Ok(sinks.swap_remove(at)),
        None => {
            Err(Failure::failed(unknown(name, sinks.iter().map(|it| it.name.as_str()).collect())))
        }
    }
}

/// Says that there is no sink of a name, and which there are.
fn unknown(name: &str, known: BTreeSet<&str>) -> String {
    match known.is_empty() {
        true => format!(
            "there is no sink {name}, and no other: name its server in the settings of the service, in [sinks.{name}]"
        ),
        false => {
            let known: Vec<&str> = known.into_iter().collect();
            format!("there is no sink {name}: there are {}", known.join(", "))
        }
    }
}

/// Returns the project of a name, which a sink has or had.
fn project<'a>(sink: &'a SinkReport, name: &str) -> Result<&'a SinkProjectReport, Failure> {
    // Names of projects are equal whatever their case.
    let found = sink.projects.iter().find(|it| it.project.eq_ignore_ascii_case(name));
    found.ok_or_else(|| {
        let known: Vec<&str> = sink.projects.iter().map(|it| it.project.as_str()).collect();
        let known = match known.is_empty() {
            true => "it has none yet".to_owned(),
            false => format!("it has {}", known.join(", ")),
        };
        Failure::failed(format!("the sink {} has no project {name}: {known}", sink.name))
    })
}

/// Returns the projects of these names, or all that the sink keeps in the database.
fn projects(sink: &SinkReport, names: &[String]) -> Result<Vec<String>, Failure> {
    if names.is_empty() {
        let kept = sink.projects.iter().filter(|it| is_kept(it));
        return Ok(kept.map(|it| it.project.clone()).collect());
    }
    names.iter().map(|name| Ok(project(sink, name)?.project.clone())).collect()
}

/// Whether there are tables of a project, which have what its log has.
fn is_kept(project: &SinkProjectReport) -> bool {
    use SinkProjectState::{Deleted, Left, Refused, Waiting};
    let is_not = matches!(project.state, Deleted | Left | Refused | Waiting);
    !is_not && project.ledger.is_some()
}

/// Returns how a project is and why, in one phrase.
fn state(project: &SinkProjectReport) -> String {
    let name = project.state.name().replace('_', " ");
    match &project.reason {
        Some(reason) => format!("{name}: {reason}"),
        None => name,
    }
}

/// Returns how far a sink is behind, in one phrase.
fn behind(sink: &SinkReport) -> String {
    match (sink.lag_ledgers, sink.lag_seconds) {
        (None, _) => String::new(),
        (Some(0), None | Some(0)) => "nothing".to_owned(),
        (Some(ledgers), seconds) => {
            let ledgers = match ledgers {
                1 => "1 ledger".to_owned(),
                ledgers => format!("{} ledgers", super::output::count(ledgers.into())),
            };
            let seconds = seconds.map(super::output::duration);
            seconds.map_or(ledgers.clone(), |seconds| format!("{ledgers}, {seconds}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sink with a project in each of these states.
    pub fn report(states: &[(&str, SinkProjectState, Option<&str>)]) -> SinkReport {
        let project = |(name, state, reason): &(&str, SinkProjectState, Option<&str>)| {
            let is_there = !matches!(state, SinkProjectState::Waiting | SinkProjectState::Refused);
            SinkProjectReport {
                project: (*name).to_owned(),
                schema: (*name).to_owned(),
                state: *state,
                reason: reason.map(str::to_owned),
                ledger: is_there.then_some(1_041),
                entries: 12_345,
                of: 12_400,
                generation: is_there.then(|| "7-3-1".to_owned()),
                filled: None,
                blocked_by: Vec::new(),
                tables: Vec::new(),
            }
        };
        SinkReport {
            name: "main".to_owned(),
            address: "postgres://orrery@db.example:5432/chain".to_owned(),
            connected: true,
            reason: None,
            lag_ledgers: Some(2),
            lag_seconds: Some(11),
            projects: states.iter().map(project).collect(),
        }
    }

    #[test]
    fn names_that_are_unknown_are_answered_with_those_there_are() {
        let none = unknown("main", BTreeSet::new());
        assert!(none.contains("in [sinks.main]"), "{none}");
        let others = unknown("mian", ["second", "main"].into());
        assert_eq!(others, "there is no sink mian: there are main, second");
        let sink = report(&[("xlm", SinkProjectState::Live, None)]);
        assert_eq!(project(&sink, "XLM").unwrap().project, "xlm");
        let refused = project(&sink, "usdc").unwrap_err().to_string();
        assert_eq!(refused, "the sink main has no project usdc: it has xlm");
        let refused = project(&report(&[]), "usdc").unwrap_err().to_string();
        assert!(refused.ends_with("it has none yet"), "{refused}");
    }

    #[test]
    fn without_names_all_projects_are_meant_that_are_kept() {
        let sink = report(&[
            ("a", SinkProjectState::Live, None),
            ("b", SinkProjectState::Waiting, None),
            ("c", SinkProjectState::Deleted, None),
        ]);
        assert_eq!(projects(&sink, &[]).unwrap(), ["a"]);
        assert_eq!(projects(&sink, &["B".to_owned()]).unwrap(), ["b"]);
        assert!(projects(&sink, &["d".to_owned()]).is_err());
    }

    #[test]
    fn how_far_a_sink_is_behind() {
        let behind = |ledgers, seconds| {
            behind(&SinkReport { lag_ledgers: ledgers, lag_seconds: seconds, ..report(&[]) })
        };
        assert_eq!(behind(Some(2), Some(11)), "2 ledgers, 11 s");
        assert_eq!(behind(Some(1), None), "1 ledger");
        assert_eq!(behind(Some(17_280), Some(86_400)), "17,280 ledgers, 24 h");
        assert_eq!(behind(Some(0), Some(0)), "nothing");
        assert_eq!(behind(None, None), "");
    }
}
