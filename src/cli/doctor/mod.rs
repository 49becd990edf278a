//! `orrery doctor`: checks what a service needs of its machine and its source, and reports how to
//! fix problems.

mod machine;
mod network;
mod public;

use clap::Args;
use orrery::config::{Origin, Settings};
use orrery::control::{STATUS, StatusReport};
use orrery::net::reqwest::Url;
use orrery::service::Node;
use orrery::store::holds_database;
use serde::Serialize;

use super::open::{self, Opened};
use super::{Common, Failure, escape, output};

/// Check the machine, the data directory and the source for problems
///
/// Prints one line for each check: `ok`, `look` for what may become a problem, or `broken`, with what to do about
/// it. Asks the running service, or checks the data directory and its source when none runs. Changes nothing.
/// Exits with code 1 when something is broken.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery doctor --data-dir d
  orrery doctor --config /etc/orrery/orrery.toml
  orrery doctor --data-dir d --json
  orrery doctor --data-dir d --public-url https://orrery.example.org")]
pub struct Doctor {
    /// Address at which others reach the service, such as that of a proxy: whether it keeps the
    /// metrics from them
    #[arg(long, value_name = "URL", value_parser = public::root_of)]
    public_url: Option<Url>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Ok,
    Look,
    Broken,
}

/// Finding of a check, printed as one line.
#[derive(Debug, Serialize)]
struct Finding {
    what: &'static str,
    state: State,
    /// What was found and, for a problem, how to fix it.
    sentence: String,
}

impl Finding {
    fn new(what: &'static str, state: State, sentence: impl Into<String>) -> Self {
        Self { what, state, sentence: sentence.into() }
    }
}

/// How the data directory can be inspected.
enum StoreAccess {
    Running(Box<StatusReport>),
    Opened(Box<Node>),
    /// Nothing is stored yet, or the directory cannot be opened; holds the finding that reports
    /// this.
    Unavailable(Finding),
}

impl Doctor {
    pub fn run(self, common: &Common) -> Result<(), Failure> {
        let settings = common.or_of_service(Vec::new())?.settings(Vec::new())?;
        let config = &settings.config;
        let process = machine::service_process(&config.data_dir);
        let mut findings = vec![machine::disk(config)];
        findings.extend(machine::limits(process, config));
        let place = open::check_place(&config.data_dir);
        if place.is_ok() {
            findings.extend(machine::secrets(&config.data_dir));
        }
        findings.push(machine::confinement());
        findings.extend(config.rpc.caution().map(|it| Finding::new("rpc", State::Look, it)));
        let unit = process.and_then(machine::unit_name);
        findings
            .extend(process.zip(unit.as_deref()).and_then(|(it, name)| machine::unit(it, name)));
        match place.map_or_else(unusable, |()| access_store(&settings)) {
            StoreAccess::Running(report) => {
                findings.extend(network::of_service(&report, unit.as_deref()));
            }
            StoreAccess::Opened(node) => findings.extend(network::of_source(config, &node)?),
            StoreAccess::Unavailable(finding) => findings.push(finding),
        }
        if let Some(root) = &self.public_url {
            findings.push(public::metrics(root)?);
        }
        if self.json {
            output::print_json(&findings)?;
        } else {
            output::print(&findings.iter().map(line).collect::<String>())?;
        }
        match findings.iter().filter(|finding| finding.state == State::Broken).count() {
            0 => Ok(()),
            1 => Err(Failure::failed("1 thing is broken")),
            broken => Err(Failure::failed(format!("{broken} things are broken"))),
        }
    }
}

fn access_store(settings: &Settings) -> StoreAccess {
    let directory = &settings.config.data_dir;
    // Whoever may not see it is told so below.
    if matches!(holds_database(directory), Ok(false)) {
        let path = directory.display();
        let (state, text) = if directory.exists() {
            (State::Ok, format!("{path} holds nothing yet: its source was not checked"))
        } else {
            // Who names one believes that it is there.
            let state = match settings.origin("data_dir") {
                Origin::Default => State::Look,
                _ => State::Broken,
            };
            let mend =
                "name an existing one with --data-dir, or start the service, which creates it";
            (state, format!("there is no data directory {path}: {mend}"))
        };
        return StoreAccess::Unavailable(Finding::new("store", state, text));
    }
    match open::look(settings) {
        Ok(Opened::Local(node)) => StoreAccess::Opened(node),
        Ok(Opened::Running(mut client)) => match client.ask(STATUS, &()) {
            Ok(report) => StoreAccess::Running(Box::new(report)),
            Err(error) => unusable(error.into()),
        },
        Err(error) => unusable(error),
    }
}

fn unusable(error: Failure) -> StoreAccess {
    StoreAccess::Unavailable(Finding::new("store", State::Broken, error.to_string()))
}

fn line(finding: &Finding) -> String {
    let state = match finding.state {
        State::Ok => "ok",
        State::Look => "look",
        State::Broken => "broken",
    };
    format!("{state:<7} {:<12} {}\n", finding.what, escape::control_chars(&finding.sentence))
}
