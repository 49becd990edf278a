//! `orrery serve`: runs the service.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use orrery::config::{Config, Settings};
use orrery::domain::Network;
use orrery::service::{self, Following, Node, sources};
use orrery::settings::{SourceAddress, SourceKind};
use orrery::store::{RAW_DIRECTORY, StoreError};
use rustix::io::Errno;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use toml::Value;

use super::live_line::LiveLine;
use super::open::NewDirectory;
use super::snapshots::{self, ReadFlags};
use super::{Common, Failure, FlagValue, NetworkFlags, begin_log, flag, listen_address, open};

/// Interval between two reports of a restoration.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Run the service: follow the configured source, and serve stored ledgers over HTTP
///
/// Stops at SIGINT or SIGTERM, after finishing the work in progress.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery serve --data-dir d --network testnet
  orrery serve --data-dir d --network mainnet --source s3://bucket/prefix --start 62000000
  orrery serve --data-dir d --listen 0.0.0.0:8484 --no-source
  orrery serve --data-dir d --from-snapshot s3://bucket/prefix --source rpc:https://writer.example.org/rpc
  orrery serve --config /etc/orrery/orrery.toml")]
pub struct Serve {
    #[command(flatten)]
    network: NetworkFlags,
    /// Address and port to listen on
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    listen: Option<SocketAddr>,
    /// Source to follow instead of the configured ones: auto, lake, rpc, core, sandbox, none, or an
    /// address: a directory, s3:, gs: or az://BUCKET/PREFIX, lake:URL or rpc:URL
    #[arg(long, conflicts_with = "no_source")]
    source: Option<String>,
    /// First ledger of an empty data directory: tip, genesis, oldest, or a ledger
    #[arg(long)]
    start: Option<String>,
    /// Restore the newest snapshot into an empty data directory first, from the place to which `orrery backup --to`
    /// has written it. A data directory that is there is used as it is, and the place is not looked at
    #[arg(long, value_name = "PLACE")]
    from_snapshot: Option<String>,
    #[command(flatten)]
    read: ReadFlags,
    /// Serve what is stored and follow no source, whatever is configured
    #[arg(long)]
    no_source: bool,
    /// For tests: compare the expiration of accounts' signers with this time, in UNIX seconds
    #[arg(long, value_name = "UNIX", hide = true)]
    fixed_clock: Option<u64>,
    /// For tests: compare it with this ledger, as if it were the network's newest
    #[arg(long, value_name = "SEQ", hide = true)]
    fixed_network_ledger: Option<u32>,
}

impl Serve {
    pub fn run(self, common: &Common) -> Result<(), Failure> {
        let source_flags = self.source_flags()?;
        let mut flags = vec![
            flag("http.listen", "--listen", self.listen.map(|address| address.to_string())),
            flag("source.start", "--start", self.start),
            number("indexers.fixed_clock", "--fixed-clock", self.fixed_clock),
            number(
                "indexers.fixed_network_ledger",
                "--fixed-network-ledger",
                self.fixed_network_ledger.map(u64::from),
            ),
        ];
        flags.extend(self.network.settings());
        flags.extend(source_flags.into_iter().map(Some));
        let settings = common.load(flags)?;
        let config = &settings.config;
        begin_log(&settings, false)?;
        service::check_files(config)?;
        if let Some(from) = &self.from_snapshot {
            restore_if_empty(from, &self.read, config)?;
        }
        // Dropped after the store, which has to be closed before its directory is removed.
        let mut new = NewDirectory::at(&config.data_dir);
        if new.was_missing() {
            // Otherwise a directory appears, and other commands use it, until this start fails.
            service::check_free(config.http.listen)?;
        }
        let node = open::open_for_service(&settings, config.network().as_ref())?;
        new.created(&node);
        let node = Arc::new(sources::prepared(config, node)?);
        runtime()?.block_on(async {
            let stop = stop_on_signal()?;
            let following = sources::following(config, &node).await?;
            serve(node, &settings, following, stop, &mut new).await
        })
    }
}

impl Serve {
    /// Returns the settings for `--source` or `--no-source`, which replace all configured sources
    /// with one; empty when neither is given.
    fn source_flags(&self) -> Result<Vec<FlagValue>, Failure> {
        let (name, text) = match (&self.source, self.no_source) {
            (Some(text), _) => ("--source", text.as_str()),
            (None, true) => ("--no-source", "none"),
            (None, false) => return Ok(Vec::new()),
        };
        let source = source_address(text)?;
        let mut flags: Vec<FlagValue> = vec![
            ("source.kind", name, source.kind().word().into()),
            ("source.gaps", name, Value::Array(Vec::new())),
        ];
        for (key, address, lists) in source.replaced_addresses() {
            flags.push((key, name, address.into()));
            flags.extend(lists.iter().map(|key| (*key, name, Value::Array(Vec::new()))));
        }
        Ok(flags)
    }
}

/// Restores the newest snapshot at an address into the data directory, unless that holds a store already.
fn restore_if_empty(from: &str, read: &ReadFlags, config: &Config) -> Result<(), Failure> {
    if config.data_dir.join(RAW_DIRECTORY).exists() {
        return Ok(());
    }
    // Before a long restoration, after which the start would fail.
    service::check_free(config.http.listen)?;
    tracing::info!("looking for a snapshot, because the data directory holds no ledgers");
    let snapshots = read.open(from, config)?;
    let snapshot = snapshots.find(None)?;
    let manifest = &snapshot.description.manifest;
    if let Some(range) = manifest.ranges.last() {
        let network = Network::from_passphrase(manifest.network_passphrase.clone());
        let reach = sources::check_reach(config, &network, range.summed.ledgers.last);
        runtime()?.block_on(reach)?;
    }
    tracing::info!(
        from = %snapshots.place(), snapshot = %snapshot.name, bytes = manifest.bytes(),
        "restoring a snapshot"
    );
    let (mut done, total, mut reported) = (0, manifest.bytes(), Instant::now());
    let mut progress = |bytes| {
        done += bytes;
        if reported.elapsed() > REPORT_EVERY {
            reported = Instant::now();
            tracing::info!(done, total, "restoring a snapshot");
            service::report_restoration(done, total);
        }
        Ok(())
    };
    snapshots::restore(&snapshots, &snapshot, config, &mut progress)?;
    // What comes before the service is ready has its time from here on.
    service::report_restoration(total, total);
    for words in read.words(&snapshots, &snapshot) {
        tracing::warn!("{words}");
    }
    Ok(())
}

/// Reads the value of a `--source`.
pub fn source_address(text: &str) -> Result<SourceAddress, Failure> {
    SourceAddress::try_from(text.to_owned()).map_err(|reason| {
        let text = SourceAddress::redacted(text);
        Failure::usage(format!("--source cannot be {text}: {reason}"))
    })
}

/// Returns the setting of a flag with a number. TOML integers are 64-bit signed, so a larger number
/// becomes `i64::MAX`.
fn number(key: &'static str, name: &'static str, value: Option<u64>) -> Option<FlagValue> {
    value.map(|value| (key, name, Value::Integer(i64::try_from(value).unwrap_or(i64::MAX))))
}

async fn serve(
    node: Arc<Node>,
    settings: &Settings,
    following: Option<Following>,
    stop: watch::Receiver<bool>,
    new: &mut NewDirectory,
) -> Result<(), Failure> {
    let config = &settings.config;
    let tokens = service::open_tokens(&config.data_dir, node.store().network(), &config.auth)
        .map_err(|error| open::explained(error, &config.data_dir))?;
    let tokens = Arc::new(tokens);
    let sockets = service::listen(config.http.listen, &config.data_dir).await?;
    new.keep();
    let address = sockets.address;
    node.listening_on(address);
    tracing::info!(
        %address,
        url = %format_args!("http://{address}/"),
        network = %node.store().network(),
        source = %config.source.kind,
        sources = following.as_ref().map(|following| following.names().join(", ")),
        latest_ledger = node.store().status().latest().map(|ledger| ledger.0),
        "listening"
    );
    if following.is_none() && config.source.kind == SourceKind::Auto {
        tracing::info!(
            "nothing is followed, because {} has no public source: name one with --source, or store \
             ledgers with `orrery import`",
            node.store().network()
        );
    }
    let open_sources = sources::opener(config, &node);
    let _shown = LiveLine::begin(&node, config);
    service::run(node, tokens, config, sockets, following, open_sources, stop).await?;
    tracing::info!("stopped");
    Ok(())
}

/// Number of descriptors that the runtime and its first connections need. The runtime panics, and does
/// not fail, when it has none for signals.
const RUNTIME_DESCRIPTORS: usize = 16;

/// Creates the tokio runtime, for everything that waits; computation has threads of its own.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let descriptors: io::Result<Vec<File>> =
        (0..RUNTIME_DESCRIPTORS).map(|_| File::open("/dev/null")).collect();
    if descriptors.is_err_and(|error| error.raw_os_error() == Some(Errno::MFILE.raw_os_error())) {
        return Err(StoreError::too_few_descriptors().into());
    }
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("cannot start threads: {error}")))
}

/// Returns a receiver that changes to true at SIGINT or SIGTERM.
pub fn stop_on_signal() -> Result<watch::Receiver<bool>, Failure> {
    let listen = |kind| {
        signal(kind).map_err(|error| Failure::failed(format!("cannot handle signals: {error}")))
    };
    let (mut interrupt, mut terminate) =
        (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    let (stop, stopping) = watch::channel(false);
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        tracing::info!("stopping");
        // Sending fails when the service has already ended by itself.
        let _ = stop.send(true);
    });
    Ok(stopping)
}
