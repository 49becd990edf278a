//! Interfaces of contracts in a running service: the thread that reads them, and the server that is
//! asked for what is not stored.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use stellar_xdr::{LedgerKey, Limits, ReadXdr};

use super::{Node, ServiceError};
use crate::executables::{EntrySource, Interfaces};
use crate::priority::Priority;
use crate::programs::state::{Upstream, look_up_and_store};
use crate::store::Store;
use crate::supervision::Supervised;

/// Name of the thread, also under which it reports failures to health.
const INTERFACES: &str = "interface_reader";
/// Timeout of a question to the other server.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Limits of a key that was stored or built here.
const LIMITS: Limits = Limits { depth: 500, len: 1 << 20 };

/// The interfaces of contracts, with the thread that reads them.
pub(super) struct RunningInterfaces {
    pub interfaces: Arc<Interfaces>,
    thread: Option<JoinHandle<()>>,
}

/// The server that programs ask for entries.
struct Asked {
    store: Arc<Store>,
    upstream: Arc<dyn Upstream + Send + Sync>,
}

impl EntrySource for Asked {
    fn ask(&self, keys: &[Vec<u8>]) -> Result<(), String> {
        let keys = keys.iter().map(|key| LedgerKey::from_xdr(key, LIMITS));
        let keys = keys.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
        look_up_and_store(&*self.upstream, &self.store, &keys, TIMEOUT)
            .map_err(|error| error.to_string())
    }
}

/// Starts the thread that reads interfaces.
///
/// # Errors
/// [`ServiceError::Thread`]
pub(super) fn start(
    node: &Arc<Node>,
    upstream: Option<Arc<dyn Upstream + Send + Sync>>,
) -> Result<RunningInterfaces, ServiceError> {
    let store = node.store();
    let source = upstream.map(|upstream| {
        Box::new(Asked { store: Arc::clone(store), upstream }) as Box<dyn EntrySource>
    });
    let interfaces = Interfaces::new(Arc::clone(store), source);
    let supervised = Supervised::new(INTERFACES, INTERFACES, node.health());
    let thread = {
        let interfaces = Arc::clone(&interfaces);
        thread::Builder::new().name(INTERFACES.to_owned()).spawn(move || {
            Priority::Background.apply_to_current_thread();
            supervised.run(|| interfaces.is_stopped(), || interfaces.work());
        })
    };
    let thread = Some(thread.map_err(ServiceError::Thread)?);
    Ok(RunningInterfaces { interfaces, thread })
}

impl RunningInterfaces {
    /// Stops the thread after its current work.
    pub fn stop(&mut self) {
        self.interfaces.stop();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that reads interfaces did not stop cleanly");
        }
    }
}
