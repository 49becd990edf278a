//! Opens the configured sources: those that are followed, those that fill gaps, and those of older
//! ledgers. Each kind of source is a file here, which `open` and, if the kind is asked for ledger
//! entries, `entries_server` name.

mod core;
mod lake;
mod reach;
mod rpc;
mod sandbox;
mod stored;

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

use futures_util::FutureExt;

use super::following::next_live_ledger;
use super::network_node::RunningCore;
use super::{BackfillSources, Following, Node, OpenSources, ServiceError};
use crate::config::Config;
use crate::domain::{LedgerRange, LedgerSeq, LedgerSource, LiveState, Network, StartPoint};
use crate::settings::{SourceAddress, SourceKind, SourceSpec};
use crate::source::follow::Candidate;
use crate::store::Store;

pub use reach::check_reach;
pub(super) use rpc::rpc_settings;

/// Why a source cannot be used.
pub type SourcesError = Box<dyn Error + Send + Sync>;

/// The ledgers for which a source is opened.
#[derive(Debug, Clone, Copy)]
struct Need {
    /// First ledger, when it is known.
    first: Option<LedgerSeq>,
    /// Last ledger, when there is an end.
    last: Option<LedgerSeq>,
}

/// What a source is opened with.
struct Context<'a> {
    config: &'a Config,
    store: &'a Store,
    need: Need,
}

/// A source that is open.
struct Opened {
    source: Box<dyn LedgerSource>,
    /// The stellar-core behind it, if there is one that runs while the source is followed.
    running: Option<RunningCore>,
}

impl From<Box<dyn LedgerSource>> for Opened {
    fn from(source: Box<dyn LedgerSource>) -> Self {
        Self { source, running: None }
    }
}

async fn open(spec: &SourceSpec, context: &Context<'_>) -> Result<Opened, SourcesError> {
    Ok(match spec {
        SourceSpec::Sandbox => sandbox::open(context)?.into(),
        SourceSpec::Lake { address, is_public } => {
            let Context { config, store, need } = context;
            let (source, network) = (&config.source, store.network());
            lake::open(address, *is_public, source, network, need.first).await?.into()
        }
        SourceSpec::Rpc { url, headers } => rpc::open(url.reveal(), headers)?.into(),
        SourceSpec::Core => core::open(context).await?,
    })
}

/// Opens the server that is asked for ledger entries that the store cannot determine; `None` when
/// none is configured. `running` is the stellar-core that this process follows. Sends no request
/// yet.
///
/// # Errors
/// When settings are invalid, or the HTTP client cannot be set up.
pub(super) fn entries_server(
    config: &Config,
    network: &Network,
    running: &RunningCore,
) -> Result<Option<Box<dyn LiveState>>, SourcesError> {
    Ok(match config.programs.entries_source(&config.source, network)? {
        Some(SourceSpec::Rpc { url, headers }) => Some(rpc::entries(url.reveal(), &headers)?),
        Some(SourceSpec::Core) => Some(Box::new(running.entries()?)),
        _ => None,
    })
}

/// Returns the node as it is before these sources are followed: a sandbox network among them
/// begins, and its validator is trusted, unless others are.
///
/// # Errors
/// As [`Node::with_sandbox`].
pub fn prepared(config: &Config, node: Node) -> Result<Node, ServiceError> {
    match config.source.kind {
        SourceKind::Sandbox => node.with_sandbox(&sandbox::opening()),
        _ => Ok(node),
    }
}

/// Opens the sources to follow according to the settings; `None` when no source is configured.
///
/// # Errors
/// When settings are invalid, or something on this machine does not match them. A remote source
/// that is unreachable now is not an error, because it may recover.
pub async fn following(config: &Config, node: &Node) -> Result<Option<Following>, SourcesError> {
    let plan = config.source.plan(node.store().network())?;
    let Some(live) = plan.live else { return Ok(None) };
    let next = next_live_ledger(node.store(), plan.start)?;
    let next = next.or(match plan.start {
        StartPoint::At(ledger) => Some(ledger),
        StartPoint::Genesis => Some(LedgerSeq::FIRST),
        StartPoint::Tip | StartPoint::Oldest => None,
    });
    let context = Context { config, store: node.store(), need: Need { first: next, last: None } };
    let Opened { source, running } = open(&live, &context).await?;
    let mut sources = vec![(live.kind().word(), source)];
    for spec in plan.gaps {
        sources.push((spec.kind().word(), open(&spec, &context).await?.source));
    }
    Ok(Some(Following { running, ..Following::new(labelled(sources), plan.start) }))
}

/// Returns a function that opens the sources of a backfill order.
pub fn opener(config: &Config, node: &Arc<Node>) -> OpenSources {
    let (config, node) = (config.clone(), Arc::clone(node));
    Arc::new(move |names, range| {
        let (config, node) = (config.clone(), Arc::clone(&node));
        async move { open_older(&config, &node, &names, range).await }.boxed()
    })
}

async fn open_older(
    config: &Config,
    node: &Node,
    names: &[String],
    range: LedgerRange,
) -> Result<BackfillSources, String> {
    let named: Result<Vec<_>, _> = names.iter().cloned().map(SourceAddress::try_from).collect();
    let specs = config.source.backfill_sources(node.store().network(), &named?);
    let specs = specs.map_err(|error| error.to_string())?;
    let in_one_piece = specs.iter().all(|spec| spec.kind().replays());
    let need = Need { first: Some(range.first), last: Some(range.last) };
    let context = Context { config, store: node.store(), need };
    let mut sources = Vec::new();
    for spec in specs {
        let opened = open(&spec, &context).await.map_err(|error| error.to_string())?;
        sources.push((spec.kind().word(), opened.source));
    }
    Ok(BackfillSources { sources: labelled(sources), in_one_piece })
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
