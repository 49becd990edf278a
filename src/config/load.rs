//! Merges configuration file, environment and flags over the defaults, and records where each value
//! came from.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use super::{Config, ConfigError, check_together, did_you_mean, sinks};
use crate::domain::without_seeds;
use crate::settings::section::{Describe, Description};

/// Prefix of environment variables that are settings.
const ENVIRONMENT_PREFIX: &str = "ORRERY_";
/// Variable with the path of the configuration file, which the command line reads.
const FILE_VARIABLE: &str = "ORRERY_CONFIG";
/// Variables with the service's address, the token and the webhook secret, which the command line
/// reads.
const CLIENT_VARIABLES: [&str; 3] = ["ORRERY_BASE", "ORRERY_JWT", "ORRERY_WEBHOOK_SECRET"];
/// Prefix of variables that only the project's tests use.
const TEST_PREFIX: &str = "ORRERY_TEST_";

/// Similarity, from 0 to 1, from which on something else was probably meant.
const SIMILAR: f64 = 0.6;
/// Names of other programs' settings for the part of an address, which is one setting here.
const LISTEN_NAMES: [&str; 5] = ["address", "bind", "host", "hostname", "port"];
/// The setting that they stand for, and the sections in which they may be.
const LISTEN: &str = "http.listen";
const LISTEN_SECTIONS: [&str; 3] = ["api", "http", "server"];

/// Text shown in place of a value that is or may contain a secret.
const HIDDEN: &str = "(hidden)";
/// The same for one that holds a secret seed, which belongs into no setting.
const SEED: &str = "a secret seed, which nobody else may see";

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The value was not set.
    Default,
    /// Path of a configuration file, and line number from 1.
    File(PathBuf, usize),
    /// Name of an environment variable.
    Environment(String),
    /// Name of a command-line flag.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path, line) => write!(f, "{}, line {line}", path.display()),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// Layers over the defaults. Later fields take precedence.
#[derive(Debug, Default)]
pub struct Layers {
    /// Path of the configuration file, if one was given.
    pub file: Option<PathBuf>,
    /// Environment variables; those without the prefix of settings are ignored.
    pub environment: Vec<(OsString, OsString)>,
    /// Key, name of the flag, value.
    pub flags: Vec<(&'static str, &'static str, Value)>,
}

/// The effective settings, each with its origin.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The merged settings.
    pub config: Config,
    /// One sentence for each environment variable that looks like a setting and is ignored.
    pub warnings: Vec<String>,
    values: BTreeMap<String, Effective>,
}

/// The value of a setting, and what is known of it.
#[derive(Debug, Clone)]
struct Effective {
    value: Value,
    origin: Origin,
    description: Description,
}

impl Settings {
    /// Reads and merges all layers. Unknown keys and invalid values are errors. Unknown environment
    /// variables are only warnings, because orchestrators add some to every service (Kubernetes
    /// sets `ORRERY_PORT` and `ORRERY_SERVICE_HOST` for a service called `orrery`).
    pub fn load(layers: Layers) -> Result<Self, ConfigError> {
        let mut merged = Merge::new();
        if let Some(path) = &layers.file {
            let text = std::fs::read_to_string(path).map_err(|error| {
                let path = path.display();
                ConfigError::Other(format!("cannot read the configuration file {path}: {error}"))
            })?;
            merged.add_file(path, &text)?;
        }
        let warnings = merged.add_environment(layers.environment)?;
        for (key, name, value) in layers.flags {
            merged.set(key, value, Origin::Flag(name))?;
        }
        let config = merged.config()?;
        check_together(&config)?;
        Ok(Self { config, warnings, values: merged.values })
    }

    /// Returns the origin of the value of `key` (`section.key`).
    pub fn origin(&self, key: &str) -> Origin {
        self.values.get(key).map_or(Origin::Default, |setting| setting.origin.clone())
    }
}

impl fmt::Display for Settings {
    /// Formats all effective values as a configuration file, each with its origin in a comment.
    /// Secret values are hidden.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (plain, in_sections): (Vec<_>, Vec<_>) =
            self.values.iter().partition(|(key, _)| !key.contains('.'));
        let mut current = "";
        for (key, Effective { value, origin, description }) in plain.into_iter().chain(in_sections)
        {
            let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
            if section != current {
                writeln!(f, "\n[{section}]")?;
                current = section;
            }
            let hidden = Value::from(HIDDEN);
            let is_hidden = is_hidden(*description, value) || holds_seed(&value.to_string());
            let value = if is_hidden { &hidden } else { value };
            writeln!(f, "{:<44} # {origin}", format!("{name} = {value}"))?;
        }
        Ok(())
    }
}

struct Merge {
    values: BTreeMap<String, Effective>,
}

impl Merge {
    fn new() -> Self {
        // Every key has a description, because both are made of the same definitions.
        let defaults = default_values().into_iter().filter_map(|(key, value)| {
            let description = Config::describe(Some(&key))?;
            Some((key, Effective { value, origin: Origin::Default, description }))
        });
        Self { values: defaults.collect() }
    }

    /// Sets one value after validating it alone, so that an error names this key and this origin.
    fn set(&mut self, key: &str, value: Value, origin: Origin) -> Result<(), ConfigError> {
        self.add_sink_of(key, &origin)?;
        let Some(description) = self.values.get(key).map(|setting| setting.description) else {
            let suggestion = did_you_mean(self.nearest(key).as_deref());
            return Err(ConfigError::of(
                &origin,
                format_args!("there is no setting {key}{suggestion}"),
            ));
        };
        let mut alone =
            sinks::defaults_beside(key).map_or_else(default_values, |it| values_of(&it));
        alone.insert(key.to_owned(), value.clone());
        let Ok(alone) = assemble(alone) else {
            return Err(wrong_value(key, description, value.to_string(), origin));
        };
        // Some types take a text without what is around it.
        if let Some(reason) = values_of(&alone).get(key).and_then(unintended) {
            let what = format_args!("{key} {reason}: write the value without that");
            return Err(ConfigError::of(&origin, what));
        }
        self.values.insert(key.to_owned(), Effective { value, origin, description });
        Ok(())
    }

    /// Adds the section of the sink to which a key belongs, with defaults, if there is none yet.
    fn add_sink_of(&mut self, key: &str, origin: &Origin) -> Result<(), ConfigError> {
        if self.values.contains_key(key) {
            return Ok(());
        }
        let Some(defaults) = sinks::defaults_beside(key) else {
            let wrong = sinks::wrong_name(key);
            return wrong.map_or(Ok(()), |sentence| Err(ConfigError::of(origin, sentence)));
        };
        for (key, value) in values_of(&defaults) {
            if let Some(description) = Config::describe(Some(&key)) {
                let origin = Origin::Default;
                self.values.entry(key).or_insert(Effective { value, origin, description });
            }
        }
        Ok(())
    }

    fn add_file(&mut self, path: &Path, text: &str) -> Result<(), ConfigError> {
        let syntax = |error: toml::de::Error| {
            let line = error.span().map_or(1, |span| line_of(text, span.start));
            let reason = error
                .span()
                .and_then(|span| unquoted(text.lines().nth(line_of(text, span.start) - 1)?))
                .unwrap_or_else(|| error.message().to_owned());
            ConfigError::of(&Origin::File(path.to_owned(), line), reason)
        };
        let table: Table = text.parse().map_err(syntax)?;
        let spans = DeTable::parse(text).map_err(syntax)?;
        let mut lines = BTreeMap::new();
        collect_lines(spans.get_ref(), "", text, &mut lines);
        let mut flat = BTreeMap::new();
        flatten("", table, &mut flat);
        for (key, value) in flat {
            let line = lines.get(&key).copied().unwrap_or(1);
            self.set(&key, value, Origin::File(path.to_owned(), line))?;
        }
        Ok(())
    }

    /// Adds settings from the environment. Returns a warning for each variable that looks like a
    /// setting but is none.
    fn add_environment(
        &mut self,
        all: Vec<(OsString, OsString)>,
    ) -> Result<Vec<String>, ConfigError> {
        let mut unknown = Vec::new();
        // A sink is one that has an address, in a file or here.
        let names = all.iter().filter_map(|(name, _)| name.to_str());
        for key in names.filter_map(sinks::address_of_variable).collect::<Vec<_>>() {
            self.add_sink_of(&key, &Origin::Environment(variable_of_key(&key)))?;
        }
        for (name, value) in all {
            let Some(name) = name.to_str().filter(|name| is_setting(name)) else { continue };
            let origin = Origin::Environment(name.to_owned());
            let Some((key, setting)) = self.of_variable(name) else {
                let nearest = self.nearest(&name[ENVIRONMENT_PREFIX.len()..].to_lowercase());
                let suggestion = nearest.map(|key| variable_of_key(&key));
                unknown.push(format!(
                    "the environment variable {name} is not a setting and is ignored{}",
                    did_you_mean(suggestion.as_deref())
                ));
                continue;
            };
            let text = value.to_string_lossy();
            let Some(value) = parse_as(&setting.value, &text) else {
                return Err(wrong_value(key, setting.description, format!("\"{text}\""), origin));
            };
            self.set(&key.clone(), value, origin)?;
        }
        Ok(unknown)
    }

    fn of_variable(&self, name: &str) -> Option<(&String, &Effective)> {
        self.values.iter().find(|(key, _)| variable_of_key(key) == name)
    }

    /// Returns the key most similar to `wanted`: the same name in another section, or a similar
    /// spelling.
    fn nearest(&self, wanted: &str) -> Option<String> {
        // Variables of the environment have an underscore after the section.
        let (section, name) = wanted.split_once(['.', '_']).unwrap_or(("", wanted));
        let is_of_server = section.is_empty() || LISTEN_SECTIONS.contains(&section);
        if is_of_server && LISTEN_NAMES.contains(&name) {
            return Some(LISTEN.to_owned());
        }
        let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
        if let Some(same) = self.values.keys().find(|key| last(key) == last(wanted)) {
            return Some(same.clone());
        }
        let likeness = |key: &String| {
            let whole = strsim::normalized_damerau_levenshtein(
                &key.replace('.', "_"),
                &wanted.replace('.', "_"),
            );
            let part = strsim::normalized_damerau_levenshtein(&last(key), &last(wanted));
            whole.max(part)
        };
        let best = self.values.keys().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
        (likeness(best) >= SIMILAR).then(|| best.clone())
    }

    fn config(&self) -> Result<Config, ConfigError> {
        let values = self.values.iter().map(|(key, setting)| (key.clone(), setting.value.clone()));
        assemble(values.collect()).map_err(|error| ConfigError::Other(error.to_string()))
    }
}

/// Parses a text as a value of the same type as `like`. List items are separated by commas; a table
/// is written as in a file.
fn parse_as(like: &Value, text: &str) -> Option<Value> {
    match like {
        Value::Integer(_) => text.trim().parse().ok().map(Value::Integer),
        Value::Boolean(_) => text.trim().parse().ok().map(Value::Boolean),
        Value::Array(_) => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            Some(Value::Array(items.map(Value::from).collect()))
        }
        Value::Table(_) => format!("x = {text}").parse::<Table>().ok()?.remove("x"),
        _ => Some(Value::from(text)),
    }
}

/// Returns why a text is probably not what was meant, if it or one of a list is not: a file of
/// variables that is no shell script keeps quotation marks and line ends of another system as parts
/// of the values, and a path with them leads elsewhere.
fn unintended(value: &Value) -> Option<&'static str> {
    match value {
        Value::String(text) => unintended_text(text),
        Value::Array(list) => list.iter().find_map(unintended),
        _ => None,
    }
}

fn unintended_text(text: &str) -> Option<&'static str> {
    let is_quoted = |mark: char| text.len() > 1 && text.starts_with(mark) && text.ends_with(mark);
    if text.contains(char::is_control) {
        return Some("holds a line end or another control character");
    }
    if is_quoted('"') || is_quoted('\'') {
        return Some("is in quotation marks that are part of it");
    }
    let has_blank = text.starts_with(char::is_whitespace) || text.ends_with(char::is_whitespace);
    has_blank.then_some("begins or ends with a blank")
}

/// Whether a configured value is hidden. Addresses of RPC servers and addresses that name a user
/// are hidden under any key, because they may contain a secret.
fn is_hidden(description: Description, value: &Value) -> bool {
    let is_secret = description.is_secret;
    let names_server = |value: &Value| {
        value.as_str().is_some_and(|it| it.starts_with("rpc:") || has_user_info(it))
    };
    match value {
        Value::String(text) => names_server(value) || (is_secret && !text.is_empty()),
        Value::Array(list) => list.iter().any(names_server) || (is_secret && !list.is_empty()),
        _ => is_secret,
    }
}

/// Whether a text that was given for a setting holds the secret seed of an account.
fn holds_seed(text: &str) -> bool {
    matches!(without_seeds(text), Cow::Owned(_))
}

/// Whether an address contains user information, possibly with a password (RFC 3986, section
/// 3.2.1).
fn has_user_info(address: &str) -> bool {
    let authority = address.split_once("://").and_then(|(_, rest)| rest.split('/').next());
    authority.is_some_and(|authority| authority.contains('@'))
}

fn wrong_value(key: &str, description: Description, value: String, origin: Origin) -> ConfigError {
    let Description { expected, words, is_secret } = description;
    let given = value.trim_matches('"').to_lowercase();
    let likeness = |word: &&str| match given.len() >= 3 && word.len() >= 3 {
        true if given.starts_with(word) || word.starts_with(&given) => 1.0,
        _ => strsim::normalized_damerau_levenshtein(word, &given),
    };
    let suggestion = words.iter().copied().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    let suggestion = suggestion.filter(|word| likeness(word) >= SIMILAR);
    let hidden = is_secret || value.contains("rpc:") || has_user_info(&value);
    let value = match (holds_seed(&value), hidden) {
        (true, _) => SEED.to_owned(),
        (false, true) => HIDDEN.to_owned(),
        (false, false) => value,
    };
    let suggestion = did_you_mean(suggestion.map(|word| format!("\"{word}\"")).as_deref());
    let what = format_args!("{key} cannot be {value}{suggestion}: give {expected}");
    ConfigError::of(&origin, what)
}

fn is_setting(name: &str) -> bool {
    name.starts_with(ENVIRONMENT_PREFIX)
        && !name.starts_with(TEST_PREFIX)
        && name != FILE_VARIABLE
        && !CLIENT_VARIABLES.contains(&name)
}

fn variable_of_key(key: &str) -> String {
    format!("{ENVIRONMENT_PREFIX}{}", key.replace('.', "_").to_uppercase())
}

/// Returns the defaults under their full keys, `section.key`.
pub(super) fn default_values() -> BTreeMap<String, Value> {
    values_of(&Config::default())
}

fn values_of(config: &Config) -> BTreeMap<String, Value> {
    let mut flat = BTreeMap::new();
    // A table of plain values always serialises; a unit test checks that it contains every key.
    if let Ok(table) = Table::try_from(config) {
        flatten("", table, &mut flat);
    }
    flat
}

/// Whether a key is that of one setting, which may be a table, rather than of a section.
fn is_whole(key: &str) -> bool {
    Config::describe(Some(key)).is_some()
}

fn flatten(prefix: &str, table: Table, into: &mut BTreeMap<String, Value>) {
    for (key, value) in table {
        let key = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
        match value {
            Value::Table(inner) if !is_whole(&key) => flatten(&key, inner, into),
            value => {
                into.insert(key, value);
            }
        }
    }
}

fn assemble(values: BTreeMap<String, Value>) -> Result<Config, toml::de::Error> {
    let mut table = Table::new();
    for (key, value) in values {
        put(&mut table, &key, value);
    }
    // Sinks are sections within one, which there may be none of.
    table.entry("sinks").or_insert_with(|| Table::new().into());
    table.try_into()
}

/// Puts a value into the sections that its key names.
fn put(table: &mut Table, key: &str, value: Value) {
    let Some((section, key)) = key.split_once('.') else {
        table.insert(key.to_owned(), value);
        return;
    };
    let section = table.entry(section).or_insert_with(|| Table::new().into());
    if let Value::Table(section) = section {
        put(section, key, value);
    }
}

fn collect_lines(
    table: &DeTable<'_>,
    prefix: &str,
    text: &str,
    into: &mut BTreeMap<String, usize>,
) {
    for (key, value) in table {
        let name = key.get_ref();
        let full = if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") };
        match value.get_ref() {
            DeValue::Table(inner) if !is_whole(&full) => collect_lines(inner, &full, text, into),
            _ => {
                into.insert(full, line_of(text, key.span().start));
            }
        }
    }
}

/// Returns what is wrong with a line whose value would be valid between quotation marks, and is not
/// without them; `None` for other lines. Does not show the value, which may be a secret.
fn unquoted(line: &str) -> Option<String> {
    let (key, value) = line.split_once('=')?;
    let (key, value) = (key.trim(), value.split('#').next()?.trim());
    let is_bare = !value.is_empty() && !value.starts_with(['"', '\'', '[', '{']);
    let is_wrong = format!("x = {value}").parse::<Table>().is_err();
    (is_bare && is_wrong).then(|| format!("put the value in quotation marks: {key} = \"…\""))
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}
