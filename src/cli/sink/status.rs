//! `orrery sink status`: how the rows of each project are in a sink.

use clap::Args;
use orrery::config::Settings;
use orrery::control::SINKS;
use orrery::sinks::{SinkProjectReport, SinkReport, SinkTableReport};

use super::{behind, project, service, sink, state};
use crate::cli::{Failure, escape, grid, output};

const COLUMNS: [&str; 6] = ["project", "schema", "ledger", "done", "rows", "state"];
const TABLES: [&str; 3] = ["table", "rows", "written as \\x00"];

/// Show how the rows of each project are in the database
///
/// `ledger` is the one up to which everything is there; `done` says how much of what the service has for the project was
/// written, and `rows` are those of a minute ago at most. Asks the running service.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery sink status --data-dir d
  orrery sink status main --data-dir d
  orrery sink status main --project xlm --data-dir d
  orrery sink status main --data-dir d --json | jq '.projects[] | {project, state, reason}'")]
pub struct Status {
    /// Name of the sink; all of them if it is not given
    name: Option<String>,
    /// Show this project alone, with its tables
    #[arg(long, value_name = "NAME", requires = "name")]
    project: Option<String>,
    #[command(flatten)]
    output: output::Json,
}

impl Status {
    pub fn run(self, settings: &Settings) -> Result<(), Failure> {
        let mut client = service(settings)?;
        let prints_json = self.output.json || !output::is_terminal();
        let Some(name) = &self.name else {
            let sinks = client.ask(SINKS, &())?;
            if prints_json {
                return output::print_json(&sinks);
            }
            let shown: Vec<String> = sinks.iter().map(shown).collect();
            return output::print(&shown.join("\n"));
        };
        let sink = sink(&mut client, name)?;
        let Some(wanted) = &self.project else {
            return if prints_json {
                output::print_json(&sink)
            } else {
                output::print(&shown(&sink))
            };
        };
        let project = project(&sink, wanted)?;
        match prints_json {
            true => output::print_json(project),
            false => output::print(&with_tables(project)),
        }
    }
}

/// Formats a sink with its projects.
fn shown(sink: &SinkReport) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            text.push_str(&format!("{name:<8} {}\n", escape::control_chars(value)));
        }
    };
    line("sink", &sink.name);
    line("server", &sink.address);
    let reason = sink.reason.as_deref();
    match (sink.connected, reason) {
        (true, None) => {}
        (true, Some(reason)) => line("reason", reason),
        (false, reason) => {
            line("reason", reason.unwrap_or("there is no connection to the server yet"));
        }
    }
    line("behind", &behind(sink));
    let rows: Vec<Vec<String>> = sink.projects.iter().map(row).collect();
    text.push_str(&match rows.is_empty() {
        true => "no projects\n".to_owned(),
        false => grid::grid(&COLUMNS, &rows),
    });
    sink.projects.iter().for_each(|project| text.push_str(&blocked(project)));
    text
}

/// Formats a project with its tables.
fn with_tables(project: &SinkProjectReport) -> String {
    let mut text = grid::grid(&COLUMNS, &[row(project)]);
    text.push_str(&blocked(project));
    let table = |table: &SinkTableReport| {
        let nuls = if table.nuls > 0 { output::count(table.nuls) } else { String::new() };
        vec![table.name.clone(), output::count(table.rows), nuls]
    };
    let tables: Vec<Vec<String>> = project.tables.iter().map(table).collect();
    text.push('\n');
    text + &grid::list(&TABLES, &tables)
}

fn row(project: &SinkProjectReport) -> Vec<String> {
    let rows: u64 = project.tables.iter().map(|table| table.rows).sum();
    vec![
        project.project.clone(),
        project.schema.clone(),
        project.ledger.map(|ledger| ledger.to_string()).unwrap_or_default(),
        done(project),
        output::count(rows),
        state(project),
    ]
}

/// Returns how much of the project's log is there, or is filled in beside, in percent.
fn done(project: &SinkProjectReport) -> String {
    let entries = project.filled.unwrap_or(project.entries);
    // All but the last is not all.
    let percent = (entries.min(project.of) * 100).checked_div(project.of).unwrap_or(100);
    format!("{percent} %")
}

/// Lists what others made and cannot be kept.
fn blocked(project: &SinkProjectReport) -> String {
    let name = &project.project;
    let lines = project.blocked_by.iter();
    let lines = lines.map(|it| format!("{name} is blocked by {}\n", escape::control_chars(it)));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use orrery::sinks::SinkProjectState;

    use super::super::tests::report;
    use super::*;

    #[test]
    fn projects_are_shown_with_what_they_wait_for() {
        let mut sink = report(&[
            ("xlm", SinkProjectState::Live, None),
            ("pools", SinkProjectState::Blocked, Some("others depend on its tables")),
            ("later", SinkProjectState::Waiting, None),
        ]);
        sink.projects[1].blocked_by =
            vec!["materialized view public.kept: drop the materialized view".to_owned()];
        sink.projects[1].filled = Some(6_200);
        (sink.projects[2].entries, sink.projects[2].of) = (0, 0);
        let table = |name: &str, nuls| SinkTableReport { name: name.to_owned(), rows: 1_500, nuls };
        sink.projects[0].tables = vec![table("transfer", 3), table("mint", 0)];
        let expected = "\
sink     main
server   postgres://orrery@db.example:5432/chain
behind   2 ledgers, 11 s
project  schema  ledger  done   rows   state
xlm      xlm     1041    99 %   3,000  live
pools    pools   1041    50 %   0      blocked: others depend on its tables
later    later           100 %  0      waiting
pools is blocked by materialized view public.kept: drop the materialized view
";
        assert_eq!(shown(&sink), expected);
        let expected = "\
project  schema  ledger  done  rows   state
xlm      xlm     1041    99 %  3,000  live

table     rows   written as \\x00
transfer  1,500  3
mint      1,500
";
        assert_eq!(with_tables(&sink.projects[0]), expected);
        sink.connected = false;
        assert!(shown(&sink).contains("reason   there is no connection to the server yet\n"));
        sink.reason = Some("no connection to h\u{1b}[2J".to_owned());
        assert!(shown(&sink).contains("reason   no connection to h\\u001b[2J\n"));
    }
}
