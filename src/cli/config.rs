//! `orrery config`: checks and shows the settings.

use clap::{Args, Subcommand};
use orrery::service;

use super::{Common, Failure, output};

/// Check or show the settings
///
/// A setting is looked up in the configuration file, then in the environment, then in the flags; the
/// last one found wins.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery config check --config /etc/orrery/orrery.toml
  ORRERY_LOG_LEVEL=debug orrery config print")]
pub struct Config {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Check all settings, and print nothing when they are valid
    #[command(after_help = "Example:\n  orrery config check --config orrery.toml && echo fine")]
    Check,
    /// Show every effective setting and where it came from, as a configuration file
    #[command(after_help = "Example:\n  orrery config print --config orrery.toml")]
    Print,
}

impl Config {
    pub fn run(self, common: &Common) -> Result<(), Failure> {
        let settings = common.settings(Vec::new())?;
        match self.verb {
            Verb::Check => {
                let config = &settings.config;
                service::check_files(config)?;
                if let Some(network) = config.network() {
                    let plan = config.source.plan(&network);
                    plan.map_err(|error| Failure::failed(error.to_string()))?;
                }
                if let Some(caution) = config.rpc.caution() {
                    output::note(caution);
                }
                Ok(())
            }
            Verb::Print => output::print(&settings.to_string()),
        }
    }
}
