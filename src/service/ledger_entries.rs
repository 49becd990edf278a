//! An RPC server, or the stellar-core that this process runs, as one who knows the present state of the
//! ledger, for programs that look into the past.

use parking_lot::Mutex;
use stellar_xdr::LedgerKey;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::stopped;
use crate::programs::state::{Upstream, UpstreamAnswer, UpstreamEntry, UpstreamError};
use crate::source::core::CoreEntries;
use crate::source::entries::{HeldEntries, HeldEntry};
use crate::source::rpc::RpcEntries;

/// Who is asked.
pub enum EntriesServer {
    /// An RPC server.
    Rpc(Box<RpcEntries>),
    /// The stellar-core that this process runs.
    Core(CoreEntries),
}

impl EntriesServer {
    async fn look_up(&mut self, keys: &[LedgerKey]) -> Result<HeldEntries, UpstreamError> {
        match self {
            Self::Rpc(server) => {
                server.look_up(keys).await.map_err(|error| UpstreamError(error.to_string()))
            }
            Self::Core(core) => {
                core.look_up(keys).await.map_err(|error| UpstreamError(error.to_string()))
            }
        }
    }
}

/// Asks one question at a time, and waits for the answer.
pub struct AskedEntries {
    server: Mutex<EntriesServer>,
    runtime: Handle,
    stop: watch::Receiver<bool>,
}

impl AskedEntries {
    /// Will ask `server` on a runtime, until `stop` turns true. Asks it nothing yet.
    pub fn new(server: EntriesServer, runtime: Handle, stop: watch::Receiver<bool>) -> Self {
        Self { server: Mutex::new(server), runtime, stop }
    }
}

impl Upstream for AskedEntries {
    /// Blocks: to be called from a thread that the runtime does not need.
    fn look_up(&self, keys: &[LedgerKey]) -> Result<UpstreamAnswer, UpstreamError> {
        let mut server = self.server.lock();
        let held = self.runtime.block_on(async {
            tokio::select! {
                held = server.look_up(keys) => held,
                () = stopped(self.stop.clone()) => Err(UpstreamError("the service stops".to_owned())),
            }
        })?;
        let entry =
            |held: HeldEntry| UpstreamEntry { entry: held.entry, live_until: held.live_until };
        let entries = held.entries.into_iter().map(|held| held.map(entry)).collect();
        Ok(UpstreamAnswer { as_of: held.as_of, entries })
    }
}
