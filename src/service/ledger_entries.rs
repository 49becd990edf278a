//! An RPC server as one who knows the present state of the ledger, for programs that look into the past.

use parking_lot::Mutex;
use stellar_xdr::LedgerKey;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::stopped;
use crate::programs::state::{Upstream, UpstreamAnswer, UpstreamEntry, UpstreamError};
use crate::source::rpc::{HeldEntry, RpcEntries, RpcError, RpcSettings};

/// Asks an RPC server, one question at a time, and waits for the answer.
pub struct AskedEntries {
    server: Mutex<RpcEntries>,
    runtime: Handle,
    stop: watch::Receiver<bool>,
}

impl AskedEntries {
    /// Will ask the server of `settings` on a runtime, until `stop` turns true. Asks it nothing yet.
    ///
    /// # Errors
    /// When address or headers are malformed, or no HTTP client can be set up.
    pub fn new(
        settings: &RpcSettings,
        runtime: Handle,
        stop: watch::Receiver<bool>,
    ) -> Result<Self, RpcError> {
        Ok(Self { server: Mutex::new(RpcEntries::new(settings)?), runtime, stop })
    }
}

impl Upstream for AskedEntries {
    /// Blocks: to be called from a thread that the runtime does not need.
    fn look_up(&self, keys: &[LedgerKey]) -> Result<UpstreamAnswer, UpstreamError> {
        let mut server = self.server.lock();
        let held = self.runtime.block_on(async {
            tokio::select! {
                held = server.look_up(keys) => held.map_err(|error| UpstreamError(error.to_string())),
                () = stopped(self.stop.clone()) => Err(UpstreamError("the service stops".to_owned())),
            }
        })?;
        let entry =
            |held: HeldEntry| UpstreamEntry { entry: held.entry, live_until: held.live_until };
        let entries = held.entries.into_iter().map(|held| held.map(entry)).collect();
        Ok(UpstreamAnswer { as_of: held.as_of, entries })
    }
}
