//! `orrery sink remove`: forgets a project that a sink does not have any more.

use clap::Args;
use orrery::config::Settings;
use orrery::control::SINK_REMOVE;
use orrery::sinks::SinkRemoval;

use super::{project, service, sink};
use crate::cli::confirm::confirm_deletion;
use crate::cli::{Failure, output};

/// Forget a project that was deleted, or taken out of the sink's list
///
/// Its tables stay, and are the database's alone from then on; with --drop they are dropped, unless something of others
/// depends on them. To stop writing a project, take it out of `projects` in the settings, and start the service again.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery sink remove main --project xlm --data-dir d
  orrery sink remove main --project xlm --drop --yes --data-dir d")]
pub struct Remove {
    /// Name of the sink
    name: String,
    /// Name of the project; may be repeated
    #[arg(long = "project", value_name = "NAME", required = true)]
    projects: Vec<String>,
    /// Drop its tables and views
    #[arg(long)]
    drop: bool,
    /// Drop without a question; needed where there is no terminal
    #[arg(long, requires = "drop")]
    yes: bool,
    #[command(flatten)]
    output: output::Json,
}

impl Remove {
    pub fn run(self, settings: &Settings) -> Result<(), Failure> {
        let mut client = service(settings)?;
        let known = sink(&mut client, &self.name)?;
        let mut removed = Vec::new();
        for name in &self.projects {
            let report = project(&known, name)?;
            if self.drop && !self.yes {
                let (schema, server) = (&report.schema, &known.address);
                confirm_deletion(&format!(
                    "the tables of {} in the schema {schema} of {server}",
                    report.project
                ))?;
            }
            removed.push(report.project.clone());
        }
        for project in &removed {
            let (sink, project) = (self.name.clone(), project.clone());
            client.ask(SINK_REMOVE, &SinkRemoval { sink, project, drop: self.drop })?;
        }
        if self.output.json || !output::is_terminal() {
            return output::print_json(&serde_json::json!({
                "sink": self.name, "removed": removed, "dropped": self.drop,
            }));
        }
        let what = if self.drop { "its tables are dropped" } else { "its tables are yours" };
        let lines = removed.iter().map(|project| format!("{project} is removed: {what}\n"));
        output::print(&lines.collect::<String>())
    }
}
