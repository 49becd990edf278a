//! The validators that are trusted: those of a file with the settings `[trust]`, or those that a
//! service with the same settings would trust.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use orrery::config::Config;
use orrery::domain::Network;
use orrery::service;
use orrery::validators::{Organisation, Validators, two_thirds};
use serde::Deserialize;

use crate::cli::{Failure, read_file};

#[derive(Deserialize)]
struct File {
    trust: Trust,
}

/// The settings that say who is trusted. A configuration file has others beside them.
#[derive(Deserialize)]
struct Trust {
    validators: BTreeMap<String, Vec<String>>,
    /// Two thirds of the organisations if it is 0.
    #[serde(default)]
    threshold: usize,
}

/// Returns the validators in a file, else those of the settings or of the network, else that of the
/// sandbox network in the data directory.
pub fn validators(
    file: Option<&Path>,
    config: &Config,
    network: &Network,
) -> Result<Arc<Validators>, Failure> {
    if let Some(file) = file {
        return of_file(file).map(Arc::new);
    }
    let failed = |error: &dyn std::fmt::Display| Failure::failed(error.to_string());
    let trusted = service::validators_of(config, network, &config.data_dir);
    trusted.map_err(|error| failed(&error))?.ok_or_else(|| {
        Failure::usage(format!(
            "no validators of {network} are known: name those that you trust with --validators, or \
             give the directory of a demo with --data-dir"
        ))
    })
}

fn of_file(file: &Path) -> Result<Validators, Failure> {
    let wrong = |what: &dyn std::fmt::Display| {
        Failure::failed(format!(
            "{} does not name validators ({what}): give [trust] with validators = {{ \"NAME\" = \
             [\"G…\"] }} and threshold",
            file.display()
        ))
    };
    let bytes = read_file(file)?;
    let text = std::str::from_utf8(&bytes).map_err(|error| wrong(&error))?;
    let File { trust } = toml::from_str(text).map_err(|error| wrong(&error.message()))?;
    let mut organisations = Vec::new();
    for (name, keys) in trust.validators {
        let keys = keys.iter().map(|key| key.trim().parse()).collect::<Result<Vec<_>, _>>();
        let validators = keys.map_err(|error| wrong(&error))?;
        organisations.push(Organisation { name, validators });
    }
    let threshold = match trust.threshold {
        0 => two_thirds(organisations.len()),
        some => some,
    };
    Validators::new(organisations, threshold).map_err(|error| wrong(&error))
}
