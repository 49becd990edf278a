//! An RPC server, or the stellar-core that this process runs, as the upstream that holds the
//! present state of the ledger, for programs that reconstruct past states.
//!
//! Users' programs choose which entries are requested. When a request fails, the server is probed
//! for an entry that every network has. If it answers the probe, the request is retried once and
//! otherwise refused, and its caller continues without an answer. If it does not, the server counts
//! as unreachable: requests fail at once until it answers a probe.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stellar_xdr::{ConfigSettingId, LedgerKey, LedgerKeyConfigSetting};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::network_node::RunningCore;
use super::tasks::stopped;
use super::{Node, ServiceError, sources};
use crate::config::Config;
use crate::domain::{LiveEntries, LiveState};
use crate::programs::engine::UpstreamError;
use crate::programs::state::Upstream;

/// Timeout of a probe. A stellar-core that lags behind what it has streamed takes two seconds of it
/// to catch up.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time after which an unreachable server is probed again.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum timeout of any request.
const MAX_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the server that is asked for ledger entries that the store cannot determine, which may be
/// the `running` stellar-core. It is asked on `runtime`, until `stop` turns true.
pub(super) fn upstream(
    node: &Node,
    config: &Config,
    running: &RunningCore,
    runtime: Handle,
    stop: watch::Receiver<bool>,
) -> Result<Option<Arc<dyn Upstream + Send + Sync>>, ServiceError> {
    let network = node.store().network();
    let server = sources::entries_server(config, network, running).map_err(|error| {
        ServiceError::Other(format!("ledger entries cannot be requested: {error}"))
    })?;
    let Some(server) = server else { return Ok(None) };
    Ok(Some(Arc::new(UpstreamEntries::new(server, runtime, stop))))
}

/// Blocking lookups of ledger entries from a server.
pub struct UpstreamEntries {
    server: Box<dyn LiveState>,
    /// Set while the server is unreachable.
    unreachable: Mutex<Option<Unreachable>>,
    runtime: Handle,
    stop: watch::Receiver<bool>,
}

struct Unreachable {
    why: String,
    until: Instant,
    /// Whether a thread is probing the server now.
    is_probing: bool,
}

impl UpstreamEntries {
    /// Creates lookups from `server` on `runtime`, until `stop` turns true. Sends no request yet.
    pub fn new(server: Box<dyn LiveState>, runtime: Handle, stop: watch::Receiver<bool>) -> Self {
        Self { server, unreachable: Mutex::default(), runtime, stop }
    }

    fn request(&self, keys: &[LedgerKey], within: Duration) -> Result<LiveEntries, String> {
        let within = within.min(MAX_TIMEOUT);
        self.runtime.block_on(async {
            tokio::select! {
                held = tokio::time::timeout(within, self.server.look_up(keys)) => held
                    .unwrap_or_else(|_| Err(format!("no response within {} s", within.as_secs_f32()))),
                () = stopped(self.stop.clone()) => Err("the service stops".to_owned()),
            }
        })
    }

    /// Returns whether the server answers a request for an entry that every network has.
    fn probe(&self) -> bool {
        let config_setting_id = ConfigSettingId::StateArchival;
        let key = LedgerKey::ConfigSetting(LedgerKeyConfigSetting { config_setting_id });
        self.request(&[key], PROBE_TIMEOUT).is_ok()
    }

    /// Records that the server is unreachable.
    fn mark_unreachable(&self, why: String) -> UpstreamError {
        let until = Instant::now() + PROBE_INTERVAL;
        *self.unreachable.lock() = Some(Unreachable { why: why.clone(), until, is_probing: false });
        UpstreamError::Unreachable(why)
    }

    /// Returns an error if the server is unreachable. Once [`PROBE_INTERVAL`] has passed, one
    /// caller probes it again.
    fn check_reachable(&self) -> Result<(), UpstreamError> {
        let why = match &mut *self.unreachable.lock() {
            None => return Ok(()),
            Some(unreachable) if unreachable.is_probing || Instant::now() < unreachable.until => {
                return Err(UpstreamError::Unreachable(unreachable.why.clone()));
            }
            Some(unreachable) => {
                unreachable.is_probing = true;
                unreachable.why.clone()
            }
        };
        if !self.probe() {
            return Err(self.mark_unreachable(why));
        }
        *self.unreachable.lock() = None;
        Ok(())
    }
}

impl Upstream for UpstreamEntries {
    /// Blocks the calling thread, which must not be a worker thread of the runtime.
    fn look_up(&self, keys: &[LedgerKey], within: Duration) -> Result<LiveEntries, UpstreamError> {
        self.check_reachable()?;
        let begun = Instant::now();
        self.request(keys, within).or_else(|why| {
            if self.probe() {
                // The request may have failed only once.
                self.request(keys, within.saturating_sub(begun.elapsed()))
                    .map_err(UpstreamError::Refused)
            } else {
                Err(self.mark_unreachable(why))
            }
        })
    }
}
