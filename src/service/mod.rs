//! A running service: puts store, pipeline, source, HTTP interface and control socket together, and
//! stops them together. Knows which parts there are, and leaves what they do to them.

mod ledgers;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, spawn_blocking};

pub use ledgers::Ledgers;

use crate::api::{self, ApiError, ApiSettings, Deps, RateLimit};
use crate::auth::{AuthError, PublicKey, Tokens};
use crate::config::{Auth, Config, PublicKeyFile};
use crate::control::{ControlError, Listener};
use crate::domain::Network;
use crate::observe::metrics::MetricsError;
use crate::source::RawLedger;
use crate::source::follow::{Follower, LedgerSource, Patience, Reports};
use crate::store::{Durability, StoreError};

/// Name under which ingestion reports to health.
const INGESTION: &str = "ingestion";
/// Directory of keys and tokens in the data directory.
const SECRETS: &str = "secrets";
/// Ledgers between source and pipeline.
const LEDGERS_AHEAD: usize = 8;
/// Between two looks for what retention no longer keeps.
const PRUNE_EVERY: Duration = Duration::from_secs(10);
/// Between two measurements of the store's size, in prunings.
const MEASURE_EVERY: u32 = 6;

/// Why a service could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The data directory.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Keys and tokens.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// A public key's file.
    #[error("cannot read the public key {}: {source}", path.display())]
    PublicKey {
        /// PEM file.
        path: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The control socket.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The HTTP interface.
    #[error("the HTTP interface failed: {0}")]
    Api(#[from] ApiError),
    /// The metrics.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The address for the HTTP interface.
    #[error("cannot listen on {address}: {reason}")]
    Listen {
        /// Where it should have listened.
        address: SocketAddr,
        /// Why not, and what to do.
        reason: String,
    },
}

/// Opens the address of the HTTP interface.
///
/// # Errors
/// [`ServiceError::Listen`]
pub async fn listen(address: SocketAddr) -> Result<TcpListener, ServiceError> {
    TcpListener::bind(address).await.map_err(|error| {
        let reason = match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                "another process uses it: stop that, or choose another with --listen".to_owned()
            }
            _ => error.to_string(),
        };
        ServiceError::Listen { address, reason }
    })
}

/// Opens the keys and tokens of a data directory.
///
/// # Errors
/// When a file cannot be read or is not what it should be.
pub fn open_tokens(
    data_dir: &Path,
    network: &Network,
    auth: &Auth,
) -> Result<Tokens, ServiceError> {
    let keys = auth.public_keys.iter().map(read_key).collect::<Result<Vec<_>, _>>()?;
    Ok(Tokens::open_with_keys(&data_dir.join(SECRETS), network, &keys)?)
}

fn read_key(file: &PublicKeyFile) -> Result<PublicKey, ServiceError> {
    let pem = std::fs::read_to_string(&file.path)
        .map_err(|source| ServiceError::PublicKey { path: file.path.clone(), source })?;
    Ok(PublicKey { kid: file.kid.clone(), algorithm: file.algorithm, pem })
}

/// Serves what is stored, and stores what `source` yields, until `stop` turns true. Then requests,
/// imports and ledgers at hand are finished.
///
/// # Errors
/// When a part cannot start. A source that fails is reported by health and ends nothing.
pub async fn run(
    ledgers: Arc<Ledgers>,
    tokens: Arc<Tokens>,
    config: &Config,
    listener: TcpListener,
    source: Option<Box<dyn LedgerSource>>,
    stop: watch::Receiver<bool>,
) -> Result<(), ServiceError> {
    let control = Listener::bind(ledgers.store().directory())?;
    let mut tasks = JoinSet::new();
    tasks.spawn(control.serve(Arc::clone(&ledgers) as _, stop.clone()));
    tasks.spawn(prune_regularly(Arc::clone(&ledgers), stop.clone()));
    if let Some(source) = source {
        tasks.spawn(ingest(Arc::clone(&ledgers), source, config.clone(), stop.clone()));
    }
    let deps = dependencies(&ledgers, tokens, config);
    let served = api::serve(deps, listener, stopped(stop)).await;
    if served.is_ok() {
        while tasks.join_next().await.is_some() {}
    }
    Ok(served?)
}

fn dependencies(ledgers: &Ledgers, tokens: Arc<Tokens>, config: &Config) -> Deps {
    let (rendered, counted) = (Arc::clone(ledgers.metrics()), Arc::clone(ledgers.metrics()));
    let (limits, store) = (&config.limits, Arc::clone(ledgers.store()));
    Deps {
        store: Arc::clone(ledgers.store()),
        tokens,
        health: Arc::clone(ledgers.health()),
        network: ledgers.store().network().clone(),
        settings: ApiSettings {
            rate_limit: RateLimit::from_setting(limits.requests_per_second, limits.burst),
            cors_origins: config.http.cors_origins.iter().cloned().map(String::from).collect(),
            trusted_proxies: config.http.trusted_proxies.clone(),
            connections: usize::try_from(config.http.connections.get()).unwrap_or(usize::MAX),
            ..ApiSettings::default()
        },
        clock: Arc::new(unix_now),
        metrics: Some(Arc::new(move || {
            rendered.cache_bytes_are(store.cache_bytes());
            rendered.render().unwrap_or_else(|error| format!("# {error}\n"))
        })),
        on_request: Some(Arc::new(move |request| {
            let duration = Duration::from_secs_f64(request.seconds.max(0.0));
            counted.http_answered(request.route, request.status, duration);
        })),
    }
}

/// Follows a source into the store. Stops for good at a ledger that cannot be stored.
async fn ingest(
    ledgers: Arc<Ledgers>,
    source: Box<dyn LedgerSource>,
    config: Config,
    stop: watch::Receiver<bool>,
) {
    let latest = ledgers.store().status().latest();
    let next = latest.and_then(|latest| latest.next()).or(config.start_ledger());
    let reports =
        Reports { health: Arc::clone(ledgers.health()), metrics: Arc::clone(ledgers.metrics()) };
    let network = ledgers.store().network().clone();
    let chance = StdRng::from_os_rng();
    let follower = Follower::new(source, network, reports, Patience::default(), chance);
    let (out, received) = mpsc::channel(LEDGERS_AHEAD);
    ledgers.health().up(INGESTION);
    let storing = spawn_blocking({
        let ledgers = Arc::clone(&ledgers);
        move || ledgers.store_all(Received(received), Durability::Synced, |_| {})
    });
    // Dropping the follower, at the end or at the stop, ends the ledgers, and then the storing.
    tokio::select! {
        followed = follower.run(next, out) => match followed {
            Ok(end) => tracing::info!(?end, "the source ended"),
            Err(error) => tracing::error!("the source is given up: {error}"),
        },
        () = stopped(stop) => {}
    }
    let failure = match storing.await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    tracing::error!("ingestion stopped: {failure}");
    ledgers.health().down(INGESTION, failure);
}

/// Ledgers from a channel, for a thread that may block.
struct Received(mpsc::Receiver<RawLedger>);

impl Iterator for Received {
    type Item = Result<RawLedger, std::convert::Infallible>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.blocking_recv().map(Ok)
    }
}

async fn prune_regularly(ledgers: Arc<Ledgers>, stop: watch::Receiver<bool>) {
    for round in 0u32.. {
        let work = Arc::clone(&ledgers);
        let done = spawn_blocking(move || {
            work.prune()?;
            if round % MEASURE_EVERY == 0 { work.measure() } else { Ok(()) }
        });
        match done.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!("what is too old could not be removed: {error}"),
            Err(error) => tracing::error!("what is too old could not be removed: {error}"),
        }
        tokio::select! {
            () = tokio::time::sleep(PRUNE_EVERY) => {}
            () = stopped(stop.clone()) => return,
        }
    }
}

/// Returns when `stop` turns true, or can never do so any more.
async fn stopped(mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// UNIX seconds now.
pub fn unix_now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}
