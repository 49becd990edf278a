//! `orrery sink test`: what is missing on a sink's server.

use clap::Args;
use orrery::config::Settings;
use orrery::control::{SINK_TEST, SINKS};
use orrery::sinks::{self, SinkRequest, SinkTestReport};

use super::{running, sink, unknown};
use crate::cli::serve::runtime;
use crate::cli::{Failure, escape, output};

/// Say what is missing on the server, each with the SQL that grants it
///
/// Connects as the settings say, also before a service runs with them, and changes nothing. Exits with code 1 when
/// something is missing.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery sink test main --config /etc/orrery/testnet.toml
  orrery sink test main --data-dir d
  orrery sink test main --config orrery.toml --json | jq -r '.missing[]'")]
pub struct Test {
    /// Name of the sink
    name: String,
    #[command(flatten)]
    output: output::Json,
}

impl Test {
    pub fn run(self, settings: &Settings) -> Result<(), Failure> {
        let report = self.report(settings)?;
        if self.output.json || !output::is_terminal() {
            output::print_json(&report)?;
        } else {
            output::print(&shown(&report))?;
        }
        match report.missing.len() + report.refused.len() {
            0 => Ok(()),
            1 => Err(Failure::failed(format!("the sink {} lacks 1 thing", self.name))),
            lacks => Err(Failure::failed(format!("the sink {} lacks {lacks} things", self.name))),
        }
    }

    /// Asks the server as the settings say that this command has, so that they can be tried before the service is
    /// started with them; else as the running service has them.
    fn report(&self, settings: &Settings) -> Result<SinkTestReport, Failure> {
        let (name, known) = (&self.name, &settings.config.sinks.0);
        let mut client = running(settings)?;
        match (known.get(name), &mut client) {
            (Some(found), client) => {
                let mut projects: Vec<String> = Vec::new();
                if let Some(client) = client {
                    let all = client.ask(SINKS, &())?;
                    let all = all.into_iter().flat_map(|sink| sink.projects);
                    projects.extend(all.map(|project| project.project));
                }
                let tested = runtime()?.block_on(sinks::test(name, found, &projects));
                tested.map_err(Failure::failed)
            }
            (None, Some(client)) => {
                let sink = sink(client, name)?.name;
                Ok(client.ask(SINK_TEST, &SinkRequest { sink })?)
            }
            (None, None) => {
                Err(Failure::failed(unknown(name, known.keys().map(String::as_str).collect())))
            }
        }
    }
}

fn shown(report: &SinkTestReport) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        text.push_str(&format!("{name:<9} {}\n", escape::control_chars(value)));
    };
    line("server", &report.address);
    line("version", &format!("PostgreSQL {}", report.version));
    line("role", &report.user);
    line("database", &report.database);
    report.refused.iter().for_each(|it| line("refused", it));
    report.missing.iter().for_each(|it| line("missing", it));
    if report.missing.is_empty() && report.refused.is_empty() {
        line("missing", "nothing");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_shown_with_what_mends_it() {
        let mut report = SinkTestReport {
            address: "postgres://orrery@db.example:5432/chain".to_owned(),
            version: "15.6".to_owned(),
            user: "orrery".to_owned(),
            database: "chain".to_owned(),
            missing: vec!["there is no schema xlm: CREATE SCHEMA \"xlm\";".to_owned()],
            refused: vec!["the project pg_x cannot have the schema \"pg_x\"".to_owned()],
        };
        let expected = "\
server    postgres://orrery@db.example:5432/chain
version   PostgreSQL 15.6
role      orrery
database  chain
refused   the project pg_x cannot have the schema \"pg_x\"
missing   there is no schema xlm: CREATE SCHEMA \"xlm\";
";
        assert_eq!(shown(&report), expected);
        (report.missing, report.refused) = Default::default();
        assert!(shown(&report).ends_with("missing   nothing\n"));
    }
}
