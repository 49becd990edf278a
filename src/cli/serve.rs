//! `orrery serve`: the service.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use orrery::config::{Config, Settings, SourceKind};
use orrery::domain::{LedgerSeq, StartPoint};
use orrery::observe::logs;
use orrery::service::{self, Following, Ledgers, unix_now};
use orrery::source::core::{CoreSettings, CoreSource, Limits, Mode};
use orrery::source::follow::Candidate;
use orrery::source::lake::{Directory, Lake, LakeSettings, LakeSource};
use orrery::source::rpc::{RpcSettings, RpcSource};
use orrery::source::sandbox_network;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::{Common, Failure, flag, open};

/// Answer questions about stored ledgers, and follow the configured source
///
/// Stops at SIGINT or SIGTERM, after finishing what is at hand.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery serve --data-dir d --network testnet
  orrery serve --data-dir d --listen 0.0.0.0:8484 --no-source
  orrery serve --config /etc/orrery/orrery.toml")]
pub struct Serve {
    /// testnet, mainnet, futurenet, local or a passphrase; needed for a new data directory
    #[arg(long)]
    network: Option<String>,
    /// Address and port to listen on
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Serve what is stored and follow no source, whatever is configured
    #[arg(long)]
    no_source: bool,
}

impl Serve {
    pub fn run(self, common: &Common) -> Result<(), Failure> {
        let without_source = |key| self.no_source.then_some(key);
        let settings = common.settings(vec![
            flag("network", "--network", self.network.clone()),
            flag("http.listen", "--listen", self.listen.map(|address| address.to_string())),
            without_source(("source.kind", "--no-source", "none".into())),
            without_source(("source.path", "--no-source", "".into())),
            without_source(("source.s3_endpoint", "--no-source", "".into())),
            without_source(("source.s3_region", "--no-source", "".into())),
            without_source(("source.rpc_url", "--no-source", "".into())),
        ])?;
        let config = &settings.config;
        logs::init(config.log.format, config.log.level)?;
        let ledgers = Arc::new(open::alone(&settings, config.network().as_ref())?);
        runtime()?.block_on(async {
            let stop = stop_on_signal()?;
            let following = following(config, &ledgers).await?;
            serve(ledgers, &settings, following, stop).await
        })
    }
}

async fn serve(
    ledgers: Arc<Ledgers>,
    settings: &Settings,
    following: Option<Following>,
    stop: watch::Receiver<bool>,
) -> Result<(), Failure> {
    let config = &settings.config;
    let tokens =
        Arc::new(service::open_tokens(&config.data_dir, ledgers.store().network(), &config.auth)?);
    let listener = service::listen(config.http.listen).await?;
    let address = listener.local_addr().map_err(|error| Failure::failed(error.to_string()))?;
    ledgers.listening_on(address);
    tracing::info!(
        %address,
        network = %ledgers.store().network(),
        source = %config.source.kind,
        latest_ledger = ledgers.store().status().latest().map(|ledger| ledger.0),
        "listening"
    );
    service::run(ledgers, tokens, config, listener, following, stop).await?;
    tracing::info!("stopped");
    Ok(())
}

/// The configured source, ready to be followed.
async fn following(config: &Config, ledgers: &Ledgers) -> Result<Option<Following>, Failure> {
    let source = match config.source.kind {
        SourceKind::None => return Ok(None),
        SourceKind::Lake => Candidate::new("lake", Box::new(lake(config, ledgers).await?)),
        SourceKind::Rpc => {
            let source = RpcSource::new(&RpcSettings::new(&config.source.rpc_url))?;
            Candidate::new("rpc", Box::new(source))
        }
        SourceKind::Sandbox => {
            let store = ledgers.store();
            let (stored, seed) = (store.status().latest(), rand::random());
            let source = sandbox_network::open(
                store.directory(),
                store.network(),
                stored,
                seed,
                unix_now(),
            )?;
            Candidate::new("sandbox", Box::new(source))
        }
        SourceKind::Core => {
            let source = CoreSource::open(core_settings(config, ledgers)?).await?;
            Candidate::new("core", Box::new(source))
        }
    };
    let start = config.start_ledger().map_or(StartPoint::Oldest, StartPoint::At);
    Ok(Some(Following { sources: vec![source], start }))
}

/// A directory is there or is not, and is refused at once. A server may be down for a while: what is
/// wrong with it is reported by health, and it is asked again.
async fn lake(config: &Config, ledgers: &Ledgers) -> Result<LakeSource, Failure> {
    let (path, network) = (&config.source.path, ledgers.store().network());
    if path.contains("://") {
        let next = next_ledger(config, ledgers);
        return Ok(LakeSource::connect(&lake_settings(config), network, next)?);
    }
    let lake = Lake::open(Arc::new(Directory::new(path)), network).await?;
    Ok(LakeSource::new(lake, network))
}

/// The ledger that is wanted first, when that is known.
fn next_ledger(config: &Config, ledgers: &Ledgers) -> Option<LedgerSeq> {
    let next = ledgers.store().status().latest().and_then(|latest| latest.next());
    next.or(config.start_ledger())
}

fn lake_settings(config: &Config) -> LakeSettings {
    let given = |text: &String| (!text.is_empty()).then(|| text.clone());
    LakeSettings {
        endpoint: given(&config.source.s3_endpoint),
        region: given(&config.source.s3_region),
        ..LakeSettings::at(&config.source.path)
    }
}

fn core_settings(config: &Config, ledgers: &Ledgers) -> Result<CoreSettings, Failure> {
    let (store, core) = (ledgers.store(), &config.core);
    let own_config = (core.config != Path::new("")).then(|| core.config.clone());
    Ok(CoreSettings {
        binary: core.binary.clone(),
        storage: config.core_storage(),
        network: store.network().clone(),
        mode: Mode::of(store.network(), own_config.as_deref())?,
        own_config,
        http_port: core.http_port,
        first: next_ledger(config, ledgers),
        limits: Limits::default(),
    })
}

/// Threads for everything that waits; what computes has threads of its own.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("cannot start threads: {error}")))
}

/// Turns true at SIGINT or SIGTERM.
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
        // Nobody waits any more when the service has ended by itself.
        let _ = stop.send(true);
    });
    Ok(stopping)
}
