//! The configuration file of a captive stellar-core, composed of what Orrery needs, the built-in
//! configuration of the network, and the operator's own file. Key names are core's.

use std::path::Path;

use orrery_ledger::domain::Network;
use orrery_ledger::validators::{KnownNetwork, known};
use toml::{Table, Value};

use super::error::CoreError;
use super::settings::{Mode, OnlineStart};

/// The first protocol whose programs accept the keys for unified events (CAP-67) and for caches.
const UNIFIED_EVENTS_PROTOCOL: u32 = 23;
/// Port of core's HTTP interface in a standalone network, where the protocol is set.
const STANDALONE_HTTP_PORT: u16 = 11_626;
/// Differs from core's default port, which a node on the same machine may use.
const PEER_PORT: i64 = 11_725;

/// Key of the port at which core answers requests for ledger entries.
const QUERY_PORT: &str = "HTTP_QUERY_PORT";

/// Keys that determine the quorum. If the operator's file has one of them, it replaces the built-in
/// quorum completely.
const QUORUM_KEYS: [&str; 3] = ["HOME_DOMAINS", "QUORUM_SET", "VALIDATORS"];

impl Mode {
    /// Returns what core does on `network` when nothing is to be replayed: it is standalone if the
    /// operator's file says so, and on the network `local` unless that file names validators.
    ///
    /// # Errors
    /// When that file cannot be read or does not fit the network.
    pub fn of(network: &Network, own_config: Option<&Path>) -> Result<Self, CoreError> {
        let own = own_config.map(|path| read_own(path, network)).transpose()?;
        let alone = is_standalone(&own.unwrap_or_default(), network);
        Ok(if alone { Self::Standalone } else { Self::Online })
    }
}

/// Inputs of a configuration.
pub(super) struct Purpose<'a> {
    pub network: &'a Network,
    pub mode: &'a Mode,
    /// The operator's file.
    pub own: &'a Table,
    /// Port of core's HTTP interface; 0 takes the port of the operator's file or of the mode.
    pub http_port: u16,
    /// Newest protocol that the executable supports.
    pub protocol: u32,
    pub start: OnlineStart,
}

/// Reads the operator's file and rejects one that cannot work.
pub(super) fn read_own(file: &Path, network: &Network) -> Result<Table, CoreError> {
    let path = file.display();
    let wrong = |reason: String| {
        CoreError::Fatal(format!("the stellar-core configuration {path}: {reason}"))
    };
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let own: Table = text
        .parse()
        .map_err(|error: toml::de::Error| wrong(format!("it is not TOML: {}", error.message())))?;
    match own.get("NETWORK_PASSPHRASE").map(|value| value.as_str()) {
        Some(Some(passphrase)) if passphrase != network.passphrase() => {
            let what = format_args!("the stellar-core configuration {path}");
            return Err(CoreError::wrong_network(what, passphrase, network));
        }
        Some(None) => return Err(wrong("NETWORK_PASSPHRASE is not a text".to_owned())),
        _ => {}
    }
    if is_true(&own, "NODE_IS_VALIDATOR") && !is_true(&own, "RUN_STANDALONE") {
        return Err(wrong(
            "a validator streams its ledgers only in a standalone network: remove \
             NODE_IS_VALIDATOR, or add RUN_STANDALONE"
                .to_owned(),
        ));
    }
    Ok(own)
}

/// Returns whether an operator's file, empty when there is none, describes a network of one node.
pub(super) fn is_standalone(own: &Table, network: &Network) -> bool {
    is_true(own, "RUN_STANDALONE") || network.name() == "local" && !has_quorum(own)
}

fn is_true(table: &Table, key: &str) -> bool {
    table.get(key).and_then(Value::as_bool) == Some(true)
}

fn has_quorum(own: &Table) -> bool {
    QUORUM_KEYS.iter().any(|key| own.contains_key(*key))
}

/// Composes the whole configuration.
///
/// # Errors
/// [`CoreError::Fatal`] when the network is not built in and the operator's file does not
/// say enough.
pub(super) fn compose(purpose: &Purpose<'_>) -> Result<Table, CoreError> {
    let Purpose { network, mode, own, .. } = *purpose;
    let mut table = metadata_flags(purpose.protocol);
    match (mode, known(network)) {
        (Mode::Standalone, _) => table.extend(standalone(network)),
        (_, Some(known)) if !has_quorum(own) => table.extend(quorum(known)),
        (Mode::Online, _) if has_quorum(own) => {}
        (Mode::Bounded { .. }, _) if !archives(own).is_empty() => {}
        _ => {
            return Err(CoreError::Fatal(format!(
                "the validators and archives of {network} are not built into orrery: name them in a \
                 configuration file of stellar-core and give its path as core.config"
            )));
        }
    }
    if *mode == Mode::Online {
        table.insert("PEER_PORT".to_owned(), PEER_PORT.into());
        table.insert("HTTP_PORT".to_owned(), 0.into());
    }
    overlay(&mut table, own);
    if !is_true(&table, "EMIT_CLASSIC_EVENTS") {
        // Core rejects this key without the other one.
        table.remove("BACKFILL_STELLAR_ASSET_EVENTS");
    }
    let port = if purpose.http_port == 0 { http_port(&table) } else { purpose.http_port };
    if port != 0 {
        set_http_port(&mut table, port);
    }
    set(&mut table, "NETWORK_PASSPHRASE", network.passphrase());
    // The working directory, which contains only core's own files.
    set(&mut table, "DATABASE", "sqlite3://stellar.db");
    set(&mut table, "BUCKET_DIR_PATH", "buckets");
    set(&mut table, "LOG_FILE_PATH", "");
    // Given on the command line; core rejects a second one in the configuration.
    table.remove("METADATA_OUTPUT_STREAM");
    match mode {
        Mode::Bounded { .. } => make_replay(&mut table),
        Mode::Online if purpose.start == OnlineStart::Genesis => {
            set(&mut table, "CATCHUP_COMPLETE", true);
        }
        _ => {}
    }
    Ok(table)
}

/// Returns the port of core's HTTP interface in a configuration; 0 when it is off.
pub(super) fn http_port(table: &Table) -> u16 {
    let port = table.get("HTTP_PORT").and_then(Value::as_integer);
    port.and_then(|port| u16::try_from(port).ok()).unwrap_or(0)
}

/// Turns the HTTP interface on, with diagnostics for rejected transactions. By default core listens
/// on localhost only.
pub(super) fn set_http_port(table: &mut Table, port: u16) {
    set(table, "HTTP_PORT", i64::from(port));
    table.entry("ENABLE_DIAGNOSTICS_FOR_TX_SUBMISSION").or_insert(true.into());
}

/// Returns the port at which core answers requests for ledger entries: 0 when it is off, `None`
/// when the configuration does not contain it (core's default is off).
pub(super) fn query_port(table: &Table) -> Option<u16> {
    let port = table.get(QUERY_PORT)?.as_integer();
    Some(port.and_then(|port| u16::try_from(port).ok()).unwrap_or(0))
}

/// Turns the query port on.
pub(super) fn set_query_port(table: &mut Table, port: u16) {
    set(table, QUERY_PORT, i64::from(port));
}

/// Returns the commands that fetch a file of a history archive: `{0}` stands for the name of the
/// file in the archive, `{1}` for the path to write it to.
pub(super) fn archives(table: &Table) -> Vec<String> {
    let of_validators = table.get("VALIDATORS").and_then(Value::as_array).into_iter().flatten();
    let named = table.get("HISTORY").and_then(Value::as_table).into_iter().flatten();
    let commands = of_validators
        .map(|validator| validator.get("HISTORY"))
        .chain(named.map(|(_, archive)| archive.get("get")));
    commands.flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns the keys that make core emit all metadata that is indexed, the same as in public lakes.
fn metadata_flags(protocol: u32) -> Table {
    let mut flags = vec!["EMIT_SOROBAN_TRANSACTION_META_EXT_V1", "EMIT_LEDGER_CLOSE_META_EXT_V1"];
    let mut table = Table::new();
    // Older programs reject unknown keys.
    if protocol >= UNIFIED_EVENTS_PROTOCOL {
        flags.extend([
            "EMIT_CLASSIC_EVENTS",
            "BACKFILL_STELLAR_ASSET_EVENTS",
            "BACKFILL_RESTORE_META",
        ]);
        // Saves 2 to 3 GB of memory for a cache that only validators need.
        set(&mut table, "BUCKETLIST_DB_MEMORY_FOR_CACHING", 0);
    }
    table.extend(flags.into_iter().map(|flag| (flag.to_owned(), true.into())));
    table
}

fn quorum(known: &KnownNetwork) -> Table {
    let (mut domains, mut validators) = (Vec::new(), Vec::new());
    for organisation in known.organisations {
        let domain = [("HOME_DOMAIN", organisation.domain), ("QUALITY", organisation.quality)];
        domains.push(text_table(&domain));
        validators.extend(organisation.validators.iter().map(|validator| {
            let archive = format!("curl -sf {}/{{0}} -o {{1}}", validator.archive);
            text_table(&[
                ("NAME", validator.name),
                ("HOME_DOMAIN", organisation.domain),
                ("PUBLIC_KEY", validator.key),
                ("ADDRESS", validator.address),
                ("HISTORY", &archive),
            ])
        }));
    }
    let mut table = Table::new();
    set(&mut table, "FAILURE_SAFETY", known.failure_safety);
    set(&mut table, "UNSAFE_QUORUM", known.unsafe_quorum);
    set(&mut table, "HOME_DOMAINS", domains);
    set(&mut table, "VALIDATORS", validators);
    table
}

/// Returns the configuration of a network whose only node is its own quorum.
fn standalone(network: &Network) -> Table {
    let mut quorum_set = Table::new();
    set(&mut quorum_set, "THRESHOLD_PERCENT", 100);
    set(&mut quorum_set, "VALIDATORS", vec![Value::from("$self")]);
    let mut table = Table::new();
    set(&mut table, "RUN_STANDALONE", true);
    set(&mut table, "NODE_IS_VALIDATOR", true);
    set(&mut table, "UNSAFE_QUORUM", true);
    set(&mut table, "FAILURE_SAFETY", 0);
    set(&mut table, "HTTP_PORT", i64::from(STANDALONE_HTTP_PORT));
    set(&mut table, "NODE_SEED", node_seed(network));
    set(&mut table, "QUORUM_SET", quorum_set);
    table
}

/// Returns the seed of the only node of a standalone network. It is not secret: a client that
/// reaches the node can do everything, and the key of the root account follows from the passphrase
/// as well.
fn node_seed(network: &Network) -> String {
    let seed = Network::from_passphrase(format!("{} node", network.passphrase()));
    stellar_strkey::ed25519::PrivateKey(seed.id().0).as_unredacted().to_string().as_str().to_owned()
}

/// Configures a replay from the archive alone, without peers and consensus.
fn make_replay(table: &mut Table) {
    for key in ["NODE_IS_VALIDATOR", "NODE_SEED", "PUBLIC_HTTP_PORT", QUERY_PORT] {
        table.remove(key);
    }
    set(table, "RUN_STANDALONE", true);
    set(table, "UNSAFE_QUORUM", true);
    set(table, "FAILURE_SAFETY", 0);
    set(table, "HTTP_PORT", 0);
    if !table.contains_key("VALIDATORS") {
        // Core requires a quorum set, although a replay has no consensus.
        let unused = known(&Network::from_name_or_passphrase("testnet"));
        let key = unused.and_then(|known| known.organisations.first()?.validators.first());
        let mut quorum_set = Table::new();
        set(&mut quorum_set, "THRESHOLD_PERCENT", 100);
        set(&mut quorum_set, "VALIDATORS", key.map_or(vec![], |v| vec![Value::from(v.key)]));
        table.entry("QUORUM_SET").or_insert(quorum_set.into());
    }
}

/// Applies the operator's file to the configuration. Archives are added; other keys are replaced.
fn overlay(table: &mut Table, own: &Table) {
    if has_quorum(own) {
        QUORUM_KEYS.iter().for_each(|key| drop(table.remove(*key)));
    }
    for (key, value) in own {
        match (table.get_mut(key), value) {
            (Some(Value::Table(here)), Value::Table(theirs)) if key == "HISTORY" => {
                here.extend(theirs.clone());
            }
            _ => drop(table.insert(key.clone(), value.clone())),
        }
    }
}

fn set(table: &mut Table, key: &str, value: impl Into<Value>) {
    table.insert(key.to_owned(), value.into());
}

fn text_table(fields: &[(&str, &str)]) -> Value {
    let fields = fields.iter().map(|(key, value)| ((*key).to_owned(), Value::from(*value)));
    Value::Table(fields.collect())
}

#[cfg(test)]
mod tests;
