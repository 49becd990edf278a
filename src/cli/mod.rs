//! The command line: one file per verb. Results go to standard output, everything else to standard
//! error.

mod backfill;
mod backup;
mod checkpointed;
mod compile;
mod completions;
mod config;
mod confirm;
mod demo;
mod dev;
mod doctor;
mod escape;
mod events;
mod export;
mod failure;
mod fit;
mod generate;
mod grid;
mod import;
mod installed;
mod live_line;
mod mcp;
mod mistyped;
mod new;
mod open;
pub mod output;
mod program_list;
mod program_name;
mod programs;
mod promote;
mod prove;
mod query;
mod rebuild;
mod remote;
mod replacement;
mod restore;
mod selectors;
mod serve;
mod sink;
mod snapshots;
mod spec_file;
mod sql_tables;
mod sql_worker;
mod state_backfill;
mod status;
mod storage;
mod tables;
mod token;
mod topics;
mod trial;
mod types;
mod verify;
mod version;
mod watch;
mod webhooks;
mod wording;
mod xdr;

use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::{env, fs};

use clap::{Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use orrery::account::{self, Reach};
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
  orrery watch usdc --contract C…                      make SQL tables of a contract's events
  orrery query 'select * from usdc.transfer limit 3'   read them
  orrery backfill --data-dir d --from 2 --to 9999      fetch older ledgers
  orrery import --data-dir d --network mainnet lake/   store ledgers from files
  orrery token issue --data-dir d --sub alice          issue a token for requests to the API
  orrery serve --data-dir d --no-source                serve stored ledgers, follow no source
  orrery backup --data-dir d /mnt/backups              back it up, also while the service runs
  orrery new votes                                     create a project for an indexing program

Exit codes: 0 done; 1 refused, failed or damaged; 2 wrong usage; 75 the data directory is in use.";

/// Verbs in the order of the help, under their headings.
const GROUPS: [(&str, &[&str]); 5] = [
    (
        "Tables",
        &[
            "watch",
            "tables",
            "query",
            "types",
            "storage",
            "events",
            "subscribe",
            "unsubscribe",
            "mcp",
        ],
    ),
    (
        "Service",
        &["demo", "serve", "status", "doctor", "token", "config", "completions", "xdr", "version"],
    ),
    (
        "Data",
        &[
            "import", "backfill", "export", "sink", "backup", "restore", "promote", "verify",
            "prove", "rebuild",
        ],
    ),
    (
        "Programs",
        &[
            "new",
            "dev",
            "try",
            "deploy",
            "list",
            "executions",
            "stats",
            "pause",
            "resume",
            "append-contracts",
            "delete",
        ],
    ),
    ("Webhooks", &["webhooks"]),
];

/// Parses the arguments of this process; prints a message and exits when they are wrong, or when
/// help is wanted.
pub fn arguments() -> Arguments {
    let matches = command().try_get_matches();
    matches
        .and_then(|matches| Arguments::from_arg_matches(&matches))
        .unwrap_or_else(|error| mistyped::explain(error, &command()))
}

/// Returns the command line, whose help lists the verbs in groups.
fn command() -> Command {
    let command = Arguments::command();
    let names = GROUPS.iter().flat_map(|(_, verbs)| *verbs);
    let width = names.map(|name| name.len()).max().unwrap_or(0);
    let about = |name: &str| {
        let verb = command.find_subcommand(name)?;
        Some(format!("  {name:<width$}  {}\n", verb.get_about()?))
    };
    let group = |(heading, verbs): &(&str, &[&str])| {
        let verbs: String = verbs.iter().filter_map(|name| about(name)).collect();
        format!("{heading}:\n{verbs}\n")
    };
    let groups: String = GROUPS.iter().map(group).collect();
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{GLOBAL_OPTIONS}:\n{{options}}{{after-help}}"
    );
    command.help_template(template)
}

/// Heading of the options that every verb takes.
const GLOBAL_OPTIONS: &str = "Global options";

/// Flags that every verb takes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = GLOBAL_OPTIONS)]
struct Common {
    /// Configuration file (TOML); every key is explained in config.reference.toml
    #[arg(long, global = true, value_name = "FILE", env = "ORRERY_CONFIG", hide_env_values = true)]
    config: Option<PathBuf>,
    /// Data directory, which holds everything that is stored [env: ORRERY_DATA_DIR]
    #[arg(long, global = true, value_name = "DIRECTORY")]
    data_dir: Option<PathBuf>,
    /// Least severe level of log lines that are written: error, warn, info, debug or trace
    #[arg(long, global = true, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Format of log lines: auto, human or json
    #[arg(long, global = true, value_name = "FORMAT")]
    log_format: Option<String>,
}

/// The network of a data directory.
#[derive(Debug, Args)]
pub struct NetworkFlags {
    /// testnet, mainnet, futurenet or local; needed for a new data directory
    #[arg(long, global = true, value_name = "NAME")]
    network: Option<String>,
    /// Passphrase of a network without a name, instead of --network
    #[arg(long, global = true, value_name = "TEXT", conflicts_with = "network")]
    network_passphrase: Option<String>,
}

impl NetworkFlags {
    /// Returns the settings of the flags. Each replaces the other one, which a file or the
    /// environment may give.
    pub fn settings(&self) -> Vec<Option<FlagValue>> {
        const NAME: &str = "--network";
        const PASSPHRASE: &str = "--network-passphrase";
        let (name, passphrase) = (self.network.clone(), self.network_passphrase.clone());
        let instead = |given: &Option<String>| given.as_ref().map(|_| String::new());
        vec![
            flag("network", PASSPHRASE, instead(&passphrase)),
            flag("network_passphrase", NAME, instead(&name)),
            flag("network", NAME, name),
            flag("network_passphrase", PASSPHRASE, passphrase),
        ]
    }
}

#[derive(Debug, Subcommand)]
enum Verb {
    Serve(serve::Serve),
    Demo(demo::Demo),
    Import(import::Import),
    Backfill(backfill::Backfill),
    Export(export::Export),
    Sink(sink::Sink),
    Backup(backup::Backup),
    Restore(restore::Restore),
    Promote(promote::Promote),
    Token(token::Token),
    Rebuild(rebuild::Rebuild),
    Status(status::Status),
    Verify(verify::Verify),
    Prove(prove::Prove),
    Doctor(doctor::Doctor),
    Config(config::Config),
    Completions(completions::Completions),
    Xdr(xdr::Xdr),
    Version(version::Version),
    Webhooks(webhooks::Webhooks),
    #[command(flatten)]
    Program(programs::ProgramVerb),
    Types(types::Types),
    Storage(storage::Storage),
    Events(events::Events),
    Mcp(mcp::Mcp),
    New(new::New),
    Dev(dev::Dev),
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
    let data_dir =
        common.data_dir.clone().or_else(|| env::var_os("ORRERY_DATA_DIR").map(Into::into));
    let remote = remote.beside(data_dir, common.config.clone());
    match verb {
        Verb::Serve(verb) => verb.run(&common),
        Verb::Demo(verb) => verb.run(&common),
        Verb::Import(verb) => verb.run(&common),
        Verb::Backfill(verb) => verb.run(&common, &remote),
        Verb::Export(verb) => verb.run(&common),
        Verb::Sink(verb) => verb.run(&common),
        Verb::Backup(verb) => verb.run(&common),
        Verb::Restore(verb) => verb.run(&common),
        Verb::Promote(verb) => verb.run(&common),
        Verb::Token(verb) => verb.run(&common),
        Verb::Rebuild(verb) => verb.run(&common),
        Verb::Status(verb) => verb.run(&common, &remote),
        Verb::Verify(verb) => verb.run(&common),
        Verb::Prove(verb) => verb.run(&common, &remote),
        Verb::Doctor(verb) => verb.run(&common),
        Verb::Config(verb) => verb.run(&common),
        Verb::Completions(verb) => verb.run(),
        Verb::Xdr(verb) => verb.run(),
        Verb::Version(verb) => verb.run(),
        Verb::Webhooks(verb) => verb.run(&remote),
        Verb::Program(verb) => verb.run(&remote),
        Verb::Types(verb) => verb.run(&remote),
        Verb::Storage(verb) => verb.run(&remote),
        Verb::Events(verb) => verb.run(&remote),
        Verb::Mcp(verb) => verb.run(&remote),
        Verb::New(verb) => verb.run(&remote),
        Verb::Dev(verb) => verb.run(&remote),
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
        self.settings_reaching(Reach::ReadAnywhere, verb)
    }

    /// As [`Self::settings`], for a verb that also writes outside of the data directory.
    fn settings_to_copy(&self) -> Result<Settings, Failure> {
        self.settings_reaching(Reach::WriteAnywhere, Vec::new())
    }

    fn settings_reaching(
        &self,
        reach: Reach,
        verb: Vec<Option<FlagValue>>,
    ) -> Result<Settings, Failure> {
        let settings = self.read(verb)?;
        account::become_owner(&settings.config.data_dir, reach)?;
        for warning in &settings.warnings {
            output::note(warning);
        }
        Ok(settings)
    }

    /// Returns these flags, with the data directory of the only service of this machine if they and the
    /// settings name neither a directory nor a network, and there is no directory of the default name.
    fn or_of_service(&self, verb: Vec<Option<FlagValue>>) -> Result<Self, Failure> {
        let settings = self.read(verb)?;
        let is_named = ["data_dir", "network", "network_passphrase"]
            .iter()
            .any(|key| settings.origin(key) != Origin::Default);
        if is_named || self.config.is_some() || settings.config.data_dir.exists() {
            return Ok(self.clone());
        }
        let here = env::current_dir().unwrap_or_default();
        let found = installed::data_dir(&installed::machine(), &here)?;
        if let Some(found) = &found {
            output::note(format_args!("the data directory is {}", found.display()));
        }
        Ok(Self { data_dir: found, ..self.clone() })
    }

    /// Loads the settings, and makes a process of root work as the owner of the data directory.
    fn load(&self, verb: Vec<Option<FlagValue>>) -> Result<Settings, Failure> {
        let settings = self.read(verb)?;
        account::become_owner(&settings.config.data_dir, Reach::ReadAnywhere)?;
        Ok(settings)
    }

    /// Reads the settings. These flags and those of the verb take precedence over environment, file
    /// and defaults.
    fn read(&self, verb: Vec<Option<FlagValue>>) -> Result<Settings, Failure> {
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

/// Reads a file that the user names. As usual, `-` stands for standard input.
fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    if path.as_os_str() == "-" {
        let mut bytes = Vec::new();
        let read = io::stdin().read_to_end(&mut bytes);
        return read
            .map(|_| bytes)
            .map_err(|error| Failure::failed(format!("cannot read standard input: {error}")));
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_is_in_one_group_of_the_help() {
        let mut verbs: Vec<_> = Arguments::command()
            .get_subcommands()
            .filter(|verb| !verb.is_hide_set())
            .map(|verb| verb.get_name().to_owned())
            .collect();
        let grouped = GROUPS.iter().flat_map(|(_, verbs)| verbs.iter());
        let mut grouped: Vec<String> = grouped.map(|verb| (*verb).to_owned()).collect();
        verbs.sort();
        grouped.sort();
        assert_eq!(verbs, grouped);
        let help = command().render_help().to_string();
        let place =
            |text: &str| help.find(text).unwrap_or_else(|| panic!("{text} is not in {help}"));
        let headings = [
            "Tables:\n  watch ",
            "Service:\n",
            "Data:\n",
            "Programs:\n",
            "Webhooks:\n",
            "Global options:\n",
        ];
        assert!(headings.map(place).is_sorted(), "{help}");
        for name in ["serve", "backfill", "try"] {
            let mut command = command();
            let verb = command.find_subcommand_mut(name).unwrap();
            let help = verb.render_help().to_string();
            assert!(!help.contains("For tests"), "{help}");
        }
    }
}
