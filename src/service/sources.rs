//! Opens the configured sources: those that are followed, those that fill gaps, and those of older
//! ledgers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use super::stored_ledgers::StoredLedgers;
use super::{BackfillSources, EntriesServer, Following, Ledgers, OpenSources, unix_now_ms};
use crate::config::{
    Config, ConfigError, Header, LakeCredentials, LakeSpec, SourceAddress, SourceSpec,
};
use crate::domain::{LedgerRange, LedgerSeq, LedgerSource, Network, StartPoint};
use crate::net::buckets::{AccessKey, BucketSettings, S3Credentials};
use crate::net::http::{HttpError, Timeouts};
use crate::sandbox::source::{self, SandboxNetworkError};
use crate::source::core::{CoreEntries, CoreError, CoreSettings, CoreSource, Limits, Mode};
use crate::source::follow::Candidate;
use crate::source::lake::{GivenLayout, Lake, LakeError, LakeSettings, LakeSource};
use crate::source::rpc::{RpcEntries, RpcError, RpcSettings, RpcSource};
use crate::store::StoreError;

/// How long core has for the next ledger before a fetch returns that there is nothing yet: less
/// than the time after which a follower reports a source as silent.
const CORE_ANSWERS: Duration = Duration::from_secs(10);

/// Why a source cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SourcesError {
    /// The settings are invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A lake cannot be opened.
    #[error(transparent)]
    Lake(#[from] LakeError),
    /// Another data directory cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An RPC server cannot be used.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// Stellar-core cannot be used.
    #[error(transparent)]
    Core(#[from] CoreError),
    /// The HTTP client cannot be set up.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The sandbox cannot be opened.
    #[error(transparent)]
    Sandbox(#[from] SandboxNetworkError),
}

/// Opens the sources to follow according to the settings; `None` when no source is configured.
///
/// # Errors
/// When settings are invalid, or something on this machine does not match them. A remote source
/// that is unreachable now is not an error, because it may recover.
pub async fn following(
    config: &Config,
    ledgers: &Ledgers,
) -> Result<Option<Following>, SourcesError> {
    let plan = config.source_plan(ledgers.store().network())?;
    let Some(live) = plan.live else { return Ok(None) };
    let next = ledgers.store().status().latest().and_then(|latest| latest.next());
    let next = next.or(match plan.start {
        StartPoint::At(ledger) => Some(ledger),
        StartPoint::Genesis => Some(LedgerSeq::FIRST),
        StartPoint::Tip | StartPoint::Oldest => None,
    });
    let mut sources = Vec::new();
    for spec in std::iter::once(live).chain(plan.gaps) {
        let need = Need { first: next, last: None };
        sources.push((spec.kind().word(), open(&spec, config, ledgers, need).await?));
    }
    Ok(Some(Following { sources: labelled(sources), start: plan.start }))
}

/// Returns a function that opens the sources of a backfill order.
pub fn opener(config: &Config, ledgers: &Arc<Ledgers>) -> OpenSources {
    let (config, ledgers) = (config.clone(), Arc::clone(ledgers));
    Arc::new(move |names, range| {
        let (config, ledgers) = (config.clone(), Arc::clone(&ledgers));
        async move { open_older(&config, &ledgers, &names, range).await }.boxed()
    })
}

/// Opens the server that is asked for ledger entries that the store cannot determine; `None` when
/// none is configured. Sends no request yet.
///
/// # Errors
/// When settings are invalid, or the HTTP client cannot be set up.
pub fn entries_server(
    config: &Config,
    ledgers: &Ledgers,
) -> Result<Option<EntriesServer>, SourcesError> {
    Ok(match config.entries_source(ledgers.store().network())? {
        Some(SourceSpec::Rpc { url, headers }) => {
            let server = RpcEntries::new(&rpc_settings(url.reveal(), &headers))?;
            Some(EntriesServer::Rpc(Box::new(server)))
        }
        Some(SourceSpec::Core) => {
            let port = ledgers.query_port().clone();
            let core = CoreEntries::new(port, Timeouts::default())?;
            Some(EntriesServer::Core(core))
        }
        _ => None,
    })
}

pub(super) fn rpc_settings(url: &str, headers: &[Header]) -> RpcSettings {
    let headers = headers.iter();
    let headers = headers.map(|header| (header.name.clone(), header.value.reveal().into()));
    RpcSettings { headers: headers.collect(), ..RpcSettings::new(url) }
}

async fn open_older(
    config: &Config,
    ledgers: &Ledgers,
    names: &[String],
    range: LedgerRange,
) -> Result<BackfillSources, String> {
    let named: Result<Vec<_>, _> = names.iter().cloned().map(SourceAddress::try_from).collect();
    let specs = config.backfill_sources(ledgers.store().network(), &named?);
    let specs = specs.map_err(|error| error.to_string())?;
    // Core replays from its first ledger every time, so all of it should be one piece.
    let in_one_piece = specs.iter().all(|spec| *spec == SourceSpec::Core);
    let need = Need { first: Some(range.first), last: Some(range.last) };
    let mut sources = Vec::new();
    for spec in specs {
        let source = open(&spec, config, ledgers, need).await;
        sources.push((spec.kind().word(), source.map_err(|error| error.to_string())?));
    }
    Ok(BackfillSources { sources: labelled(sources), in_one_piece })
}

/// The ledgers for which a source is opened.
#[derive(Debug, Clone, Copy)]
struct Need {
    /// First ledger, when it is known.
    first: Option<LedgerSeq>,
    /// Last ledger, when there is an end.
    last: Option<LedgerSeq>,
}

async fn open(
    spec: &SourceSpec,
    config: &Config,
    ledgers: &Ledgers,
    need: Need,
) -> Result<Box<dyn LedgerSource>, SourcesError> {
    let store = ledgers.store();
    let network = store.network();
    Ok(match spec {
        SourceSpec::Sandbox => {
            let stored = store.status().latest();
            let directory = store.directory();
            let opening = source::Opening {
                seed: rand::random(),
                close_time: source::CLOSE_TIME,
                clock: Arc::new(unix_now_ms),
            };
            Box::new(source::open(directory, network, stored, opening)?.source)
        }
        SourceSpec::Lake(lake) if StoredLedgers::exists_in(Path::new(&lake.address)) => {
            Box::new(StoredLedgers::open(Path::new(&lake.address), network)?)
        }
        SourceSpec::Lake(lake) => open_lake(lake, network, need.first).await?,
        SourceSpec::Rpc { url, headers } => {
            Box::new(RpcSource::new(&rpc_settings(url.reveal(), headers))?)
        }
        SourceSpec::Core => {
            Box::new(CoreSource::open(core_settings(config, ledgers, need)?).await?)
        }
    })
}

/// Opens a lake. A directory is checked now, because a wrong one does not recover; a remote lake is
/// not.
async fn open_lake(
    lake: &LakeSpec,
    network: &Network,
    near: Option<LedgerSeq>,
) -> Result<Box<dyn LedgerSource>, LakeError> {
    let bucket = BucketSettings {
        endpoint: lake.endpoint.clone(),
        region: lake.region.clone(),
        credentials: match &lake.credentials {
            LakeCredentials::Environment => S3Credentials::Environment,
            LakeCredentials::Anonymous => S3Credentials::Anonymous,
            LakeCredentials::Key { id, secret } => S3Credentials::Key(AccessKey {
                id: id.clone(),
                secret: secret.reveal().to_owned(),
                session_token: None,
            }),
        },
        ..BucketSettings::at(&lake.address)
    };
    let layout = GivenLayout {
        ledgers_per_batch: lake.ledgers_per_batch,
        batches_per_partition: lake.batches_per_partition,
        extension: None,
    };
    let settings = LakeSettings { bucket, layout };
    if lake.is_directory() {
        Lake::open_as(settings.files()?, network, &settings.layout, near).await?;
    }
    Ok(Box::new(LakeSource::connect(&settings, network, near)?))
}

fn core_settings(
    config: &Config,
    ledgers: &Ledgers,
    need: Need,
) -> Result<CoreSettings, SourcesError> {
    let (core, network) = (&config.core, ledgers.store().network());
    let own_config = (!core.config.as_os_str().is_empty()).then(|| core.config.clone());
    let usual = Mode::of(network, own_config.as_deref())?;
    // A replay runs beside the core that follows the network, so it has a storage of its own.
    let (mode, storage) = match need.last {
        Some(to) => (Mode::Bounded { to }, beside(config.core_storage(), "-replay")),
        None => (usual, config.core_storage()),
    };
    Ok(CoreSettings {
        binary: core.binary.clone(),
        storage,
        network: network.clone(),
        mode,
        own_config,
        http_port: if need.last.is_some() { 0 } else { core.http_port },
        query: need.last.is_none().then(|| ledgers.query_port().clone()),
        first: need.first,
        limits: Limits { answer: CORE_ANSWERS, ..Limits::default() },
    })
}

fn beside(path: PathBuf, suffix: &str) -> PathBuf {
    let mut name = path.into_os_string();
    name.push(suffix);
    name.into()
}

/// Gives each source a unique label: its kind, followed by a number from the second of a kind on.
fn labelled(sources: Vec<(&'static str, Box<dyn LedgerSource>)>) -> Vec<Candidate> {
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    let label = |kind: &'static str, seen: &mut BTreeMap<&str, u32>| {
        let count = seen.entry(kind).or_default();
        *count += 1;
        if *count == 1 { kind.to_owned() } else { format!("{kind}-{count}") }
    };
    sources.into_iter().map(|(kind, s)| Candidate::new(label(kind, &mut seen), s)).collect()
}
