//! Interfaces of contracts in a running service: the thread that reads them, the one that asks another
//! server for what is not stored, and that server.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use stellar_xdr::{LedgerKey, Limits, ReadXdr, WriteXdr};

use super::{Node, ServiceError};
use crate::domain::DEEPEST_VALUE;
use crate::executables::{AskEntries, Interfaces};
use crate::membership::keep_answers;
use crate::priority::Priority;
use crate::programs::state::{Upstream, look_up_and_store};
use crate::store::Store;
use crate::supervision::Supervised;

/// Names of the threads, also under which they report failures to health.
const INTERFACES: &str = "interface_reader";
const ASKING: &str = "interface_lookup";
/// Timeout of a question to the other server.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Limits of a key that was stored or built here.
const LIMITS: Limits = Limits { depth: DEEPEST_VALUE, len: 1 << 20 };

/// The interfaces of contracts, with the threads that read them and ask for them.
pub(super) struct RunningInterfaces {
    pub interfaces: Arc<Interfaces>,
    threads: Vec<JoinHandle<()>>,
}

/// Asks the server that programs ask for entries.
fn asking(store: Arc<Store>, upstream: Arc<dyn Upstream + Send + Sync>) -> AskEntries {
    Box::new(move |keys| {
        let keys = keys.iter().map(|key| LedgerKey::from_xdr(key, LIMITS));
        let keys = keys.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
        look_up_and_store(&*upstream, &store, &keys, TIMEOUT).map_err(|error| error.to_string())?;
        keep_for_members(&store, &keys)
    })
}

/// Keeps what the answers say of what contracts run: unlike answers, that is kept for ever.
fn keep_for_members(store: &Store, keys: &[LedgerKey]) -> Result<(), String> {
    let mut answers = Vec::new();
    for key in keys {
        let key = key.to_xdr(LIMITS).map_err(|error| error.to_string())?;
        let known = store.known_entries(&key).map_err(|error| error.to_string())?;
        answers.extend(known.into_iter().filter_map(|it| Some((key.clone(), it.entry?))));
    }
    keep_answers(store, &answers).map_err(|error| error.to_string())
}

/// Starts the threads that read interfaces and ask for them.
pub(super) fn start(
    node: &Arc<Node>,
    upstream: Option<Arc<dyn Upstream + Send + Sync>>,
) -> Result<RunningInterfaces, ServiceError> {
    let store = node.store();
    let ask = upstream.map(|upstream| asking(Arc::clone(store), upstream));
    let interfaces = Interfaces::new(Arc::clone(store), ask);
    let mut running = RunningInterfaces { interfaces, threads: Vec::new() };
    running.spawn(INTERFACES, node, Interfaces::work)?;
    if running.interfaces.has_source() {
        running.spawn(ASKING, node, Interfaces::ask)?;
    }
    Ok(running)
}

impl RunningInterfaces {
    fn spawn(
        &mut self,
        name: &'static str,
        node: &Node,
        work: fn(&Interfaces),
    ) -> Result<(), ServiceError> {
        let supervised = Supervised::new(name, name, node.health());
        let interfaces = Arc::clone(&self.interfaces);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            Priority::Background.apply_to_current_thread();
            supervised.run(|| interfaces.is_stopped(), || work(&interfaces));
        });
        self.threads.push(thread.map_err(ServiceError::thread)?);
        Ok(())
    }

    /// Stops the threads after their current work.
    pub fn stop(&mut self) {
        self.interfaces.stop();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread that reads interfaces did not stop cleanly");
            }
        }
    }
}
