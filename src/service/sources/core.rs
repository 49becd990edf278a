//! The stellar-core that this process runs as a source.

use std::path::PathBuf;
use std::time::Duration;

use super::{Context, Opened, SourcesError};
use crate::service::network_node::RunningCore;
use crate::source::captive_core::{CoreSettings, CoreSource, Limits, Mode};

/// How long core has for the next ledger before a fetch returns that there is nothing yet: less
/// than the time after which a follower reports a source as silent.
const CORE_ANSWERS: Duration = Duration::from_secs(10);

/// Opens core. The one that follows the network can be asked for ledger entries.
pub(super) async fn open(context: &Context<'_>) -> Result<Opened, SourcesError> {
    let running = context.need.last.is_none().then(RunningCore::default);
    let source = CoreSource::open(settings(context, running.as_ref())?).await?;
    Ok(Opened { source: Box::new(source), running })
}

fn settings(
    context: &Context<'_>,
    running: Option<&RunningCore>,
) -> Result<CoreSettings, SourcesError> {
    let Context { config, store, need } = context;
    let (core, network) = (&config.core, store.network());
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
        query: running.map(|running| running.port().clone()),
        first: need.first,
        limits: Limits { answer: CORE_ANSWERS, ..Limits::default() },
    })
}

fn beside(path: PathBuf, suffix: &str) -> PathBuf {
    let mut name = path.into_os_string();
    name.push(suffix);
    name.into()
}
