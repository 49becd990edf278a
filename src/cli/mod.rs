//! The command line: one file per verb. Results go to standard output, everything else to standard
//! error.

mod backfill;
mod backup;
mod compile;
mod config;
mod demo;
mod doctor;
mod escape;
mod export;
mod failure;
mod generate;
mod grid;
mod import;
mod new;
mod open;
mod output;
mod programs;
mod progress;
mod rebuild;
mod remote;
mod restore;
mod serve;
mod sql_worker;
mod status;
mod token;
mod trial;
mod types;
mod verify;
mod version;
mod webhooks;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use orrery::config::{Layers, Origin, Settings};
use orrery::observe::logs::{self, LogLevel};
use toml::Value;

pub use failure::Failure;

/// The indexer of Stellar smart-contract events that you run yourself.
#[derive(Debug, Parser)]
#[command(name = "orrery", version, after_help = EXAMPLES, max_term_width = 100)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    remote: remote::Remote,
    #[command(subcommand)]
    verb: Verb,
}

const EXAMPLES: &str = "Examples:
  orrery demo                                          try it, without network access or files
  orrery serve --data-dir d --network testnet          follow a public network and serve its data
  orrery backfill --data-dir d --from 2 --to 9999      fetch older ledgers
  orrery import --data-dir d --network mainnet lake/   store ledgers from files
  orrery token issue --data-dir d --sub alice          issue a token for requests to the API
  orrery serve --data-dir d --no-source                serve stored ledgers, follow no source
  orrery backup --data-dir d /mnt/backups              back it up, also while the service runs
  orrery new votes                                     create a project for an indexing program

Exit codes: 0 done; 1 refused, failed or damaged; 2 wrong usage; 75 the data directory is in use.";

/// Flags that every verb takes.
#[derive(Debug, Args)]
struct Common {
    /// Configuration file (TOML); every key is explained in config.reference.toml
    #[arg(long, global = true, value_name = "FILE", env = "ORRERY_CONFIG", hide_env_values = true)]
    config: Option<PathBuf>,
    /// Data directory, which holds everything that is stored
    #[arg(long, global = true, value_name = "DIRECTORY")]
    data_dir: Option<PathBuf>,
    /// Least severe level of log lines that are written: error, warn, info, debug or trace
    #[arg(long, global = true, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Format of log lines: auto, human or json
    #[arg(long, global = true, value_name = "FORMAT")]
    log_format: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Serve(serve::Serve),
    Demo(demo::Demo),
    Import(import::Import),
    Backfill(backfill::Backfill),
    Export(export::Export),
    Backup(backup::Backup),
    Restore(restore::Restore),
    Token(token::Token),
    Rebuild(rebuild::Rebuild),
    Status(status::Status),
    Verify(verify::Verify),
    Doctor(doctor::Doctor),
    Config(config::Config),
    Version(version::Version),
    Webhooks(webhooks::Webhooks),
    #[command(flatten)]
    Program(programs::ProgramVerb),
    Types(types::Types),
    New(new::New),
    #[command(hide = true)]
    Generate(generate::Generate),
    #[command(hide = true)]
    SqlWorker(sql_worker::SqlWorker),
    #[command(hide = true)]
    Compile(compile::Compile),
}

/// Runs the verb of the parsed arguments.
pub fn run(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { common, remote, verb } = arguments;
    match verb {
        Verb::Serve(verb) => verb.run(&common),
        Verb::Demo(verb) => verb.run(&common),
        Verb::Import(verb) => verb.run(&common),
        Verb::Backfill(verb) => verb.run(&common, &remote),
        Verb::Export(verb) => verb.run(&common),
        Verb::Backup(verb) => verb.run(&common),
        Verb::Restore(verb) => verb.run(&common),
        Verb::Token(verb) => verb.run(&common),
        Verb::Rebuild(verb) => verb.run(&common),
        Verb::Status(verb) => verb.run(&common, &remote),
        Verb::Verify(verb) => verb.run(&common),
        Verb::Doctor(verb) => verb.run(&common),
        Verb::Config(verb) => verb.run(&common),
        Verb::Version(verb) => verb.run(),
        Verb::Webhooks(verb) => verb.run(&remote),
        Verb::Program(verb) => verb.run(&remote),
        Verb::Types(verb) => verb.run(&remote),
        Verb::New(verb) => verb.run(&remote),
        Verb::Generate(verb) => verb.run(),
        Verb::SqlWorker(verb) => verb.run(),
        Verb::Compile(verb) => verb.run(),
    }
}

/// A setting that a flag gives: key, flag, value.
type FlagValue = (&'static str, &'static str, Value);

impl Common {
    /// Loads the settings of a verb that writes no log. Warnings go to standard error.
    fn settings(&self, verb: Vec<Option<FlagValue>>) -> Result<Settings, Failure> {
        let settings = self.load(verb)?;
        for warning in &settings.warnings {
            eprintln!("orrery: {warning}");
        }
        Ok(settings)
    }

    /// Loads the settings. These flags and those of the verb take precedence over environment, file
    /// and defaults.
    fn load(&self, verb: Vec<Option<FlagValue>>) -> Result<Settings, Failure> {
        let mut flags: Vec<FlagValue> = verb.into_iter().flatten().collect();
        flags.extend(flag("data_dir", "--data-dir", path_text(&self.data_dir)?));
        flags.extend(flag("log.level", "--log-level", self.log_level.clone()));
        flags.extend(flag("log.format", "--log-format", self.log_format.clone()));
        let environment = std::env::vars_os().collect();
        Ok(Settings::load(Layers { file: self.config.clone(), environment, flags })?)
    }
}

/// Starts logging, and logs the warnings about the settings first. If `quiet`, information is
/// logged only when the settings say so.
fn begin_log(settings: &Settings, quiet: bool) -> Result<(), Failure> {
    let quiet = quiet && settings.origin("log.level") == Origin::Default;
    let level = if quiet { LogLevel::Warn } else { settings.config.log.level };
    logs::init(settings.config.log.format, level)?;
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
    Ok(())
}

/// Returns the setting of a flag; `None` when the flag was not given.
fn flag(key: &'static str, name: &'static str, value: Option<String>) -> Option<FlagValue> {
    value.map(|value| (key, name, Value::from(value)))
}

/// Parses the value of `--listen`. `localhost` is the IPv4 address that it usually stands for.
fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let address = match text.strip_prefix("localhost:") {
        Some(port) => format!("{}:{port}", Ipv4Addr::LOCALHOST).parse(),
        None => text.parse(),
    };
    address.map_err(|_| "give an IP address and a port, such as 127.0.0.1:8484".to_owned())
}

/// Reads a file that the user names.
fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path)
        .map_err(|error| Failure::failed(format!("cannot read {}: {error}", path.display())))
}

fn path_text(path: &Option<PathBuf>) -> Result<Option<String>, Failure> {
    let Some(path) = path else { return Ok(None) };
    match path.to_str() {
        Some(text) => Ok(Some(text.to_owned())),
        None => Err(Failure::usage(format!("the path {} is not valid UTF-8", path.display()))),
    }
}
