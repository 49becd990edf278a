//! `orrery doctor`: looks at what a service needs of its machine and its source, and says what to do.

mod machine;
mod network;

use clap::Args;
use orrery::config::Settings;
use orrery::control::StatusReport;
use orrery::service::Ledgers;
use serde::Serialize;

use super::open::{self, Opened};
use super::{Common, Failure, output};

/// Look for what keeps a service from working, now or soon
///
/// One line for each thing: `ok`, `look` for what may become a problem, or `broken`, with what to do about it.
/// Asks the running service, or the data directory and its source when none runs. Changes nothing. Ends with
/// exit code 1 when something is broken.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery doctor --data-dir d
  orrery doctor --config /etc/orrery/orrery.toml
  orrery doctor --data-dir d --json")]
pub struct Doctor {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Ok,
    Look,
    Broken,
}

/// One line.
#[derive(Debug, Serialize)]
struct Finding {
    what: &'static str,
    state: State,
    /// How it is and, unless it is well, what to do.
    sentence: String,
}

impl Finding {
    fn new(what: &'static str, state: State, sentence: impl Into<String>) -> Self {
        Self { what, state, sentence: sentence.into() }
    }
}

/// The data directory, as far as it can be asked.
enum Asked {
    Running(Box<StatusReport>),
    Here(Box<Ledgers>),
    /// Nothing is stored yet, or it cannot be opened.
    Not(Finding),
}

impl Doctor {
    pub fn run(self, common: &Common) -> Result<(), Failure> {
        let settings = common.settings(Vec::new())?;
        let config = &settings.config;
        let process = machine::service_process(&config.data_dir);
        let mut findings = vec![machine::disk(config)];
        findings.extend(machine::limits(process, config));
        findings.extend(machine::secrets(&config.data_dir));
        findings.push(machine::confinement());
        findings.extend(process.and_then(machine::unit));
        match ask(&settings) {
            Asked::Running(report) => findings.extend(network::of_service(&report)),
            Asked::Here(ledgers) => findings.extend(network::of_source(config, &ledgers)?),
            Asked::Not(finding) => findings.push(finding),
        }
        match self.json {
            true => output::print_json(&findings)?,
            false => output::print(&findings.iter().map(line).collect::<String>())?,
        }
        match findings.iter().filter(|finding| finding.state == State::Broken).count() {
            0 => Ok(()),
            1 => Err(Failure::failed("1 thing is broken")),
            broken => Err(Failure::failed(format!("{broken} things are broken"))),
        }
    }
}

fn ask(settings: &Settings) -> Asked {
    let directory = &settings.config.data_dir;
    if !directory.join("raw").exists() {
        let text = format!("{} holds nothing yet: its source was not asked", directory.display());
        return Asked::Not(Finding::new("store", State::Ok, text));
    }
    let broken =
        |error: Failure| Asked::Not(Finding::new("store", State::Broken, error.to_string()));
    match open::existing(settings) {
        Ok(Opened::Here(ledgers)) => Asked::Here(ledgers),
        Ok(Opened::Running(mut client)) => match client.status() {
            Ok(report) => Asked::Running(Box::new(report)),
            Err(error) => broken(error.into()),
        },
        Err(error) => broken(error),
    }
}

fn line(finding: &Finding) -> String {
    let state = match finding.state {
        State::Ok => "ok",
        State::Look => "look",
        State::Broken => "broken",
    };
    format!("{state:<7} {:<12} {}\n", finding.what, output::harmless(&finding.sentence))
}
