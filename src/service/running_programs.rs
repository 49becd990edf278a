//! Indexing programs in a running service: opens them with the operator's settings, notifies them
//! of new ledgers, and prunes their records.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::running_core::RunningCore;
use super::stop::stopped;
use super::{Node, ServiceError, UpstreamEntries, sources, unix_now_ms};
use crate::auth;
use crate::config::Config;
use crate::executables::Interfaces;
use crate::observe::health::Health;
use crate::programs::state::Upstream;
use crate::programs::{ProgramDeps, ProgramError, Programs};
use crate::steady::Milliseconds;
use crate::tables::{Tables, TablesSettings, Tunables};

/// Name under which SQL queries report to health.
const QUERIES: &str = "queries";
/// Directory of the tables in the data directory.
const TABLES: &str = "tables";
/// Interval between two prunes of the programs' records.
const PRUNE_RECORDS_EVERY: Duration = Duration::from_secs(600);

/// The executable of this process, even when an upgrade has replaced the file since: child
/// processes must be of the same version (proc_pid_exe(5)).
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Opens the programs of a data directory and begins to run them. Ledger entries are requested from
/// `upstream`.
pub(super) fn start(
    node: &Arc<Node>,
    config: &Config,
    interfaces: Arc<Interfaces>,
    upstream: Option<Arc<dyn Upstream + Send + Sync>>,
) -> Result<Arc<Programs>, ServiceError> {
    let store = Arc::clone(node.store());
    let own = PathBuf::from(OWN_PROGRAM);
    let tables = Tables::open(TablesSettings {
        directory: store.directory().join(TABLES),
        worker: own.clone(),
        queries: config.queries.clone(),
        tunables: Tunables::default(),
    });
    let tables = tables.map_err(ProgramError::from)?;
    let programs = Arc::new(Programs::start(ProgramDeps {
        store,
        tables: tables.clone(),
        interfaces,
        health: Arc::clone(node.health()),
        settings: config.programs.clone(),
        index: config.index.clone(),
        upstream,
        clock: Arc::new(unix_now_ms),
        compiler: own,
        code_key: auth::code_key(&super::secrets(node.store().directory()))?,
    })?);
    let (health, allowed) = (Arc::clone(node.health()), config.queries.allow_unconfined);
    thread::spawn(move || report_confinement(&tables, allowed, &health));
    let weak = Arc::downgrade(&programs);
    node.store().listen(move || {
        let programs = weak.upgrade();
        programs.inspect(|programs| programs.notify_ledgers_stored()).is_some()
    });
    Ok(programs)
}

/// Reports to health how SQL workers are confined, before the first query comes.
fn report_confinement(tables: &Tables, allow_unconfined: bool, health: &Health) {
    let detail = match tables.try_confinement() {
        Err(error) => {
            let detail =
                format!("no SQL worker could be started when the service started: {error}");
            return health.up_with(QUERIES, detail);
        }
        Ok(confinement) => match (confinement.missing(), allow_unconfined) {
            (None, _) => {
                "SQL workers cannot access files, networks and other processes (Landlock, \
                 seccomp)"
                    .to_owned()
            }
            (Some(lack), true) => format!(
                "queries are answered, as queries.allow_unconfined is true, although {lack}"
            ),
            (Some(lack), false) => format!(
                "queries are refused, because {lack}; queries.allow_unconfined = true allows them anyway"
            ),
        },
    };
    health.up_with(QUERIES, detail);
}

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

/// Removes old records of programs repeatedly until `stop` turns true. `now` returns the UNIX time in
/// milliseconds by which they are old.
pub(super) async fn prune_records(
    programs: Arc<Programs>,
    now: Milliseconds,
    stop: watch::Receiver<bool>,
) {
    loop {
        let (programs, now) = (Arc::clone(&programs), now());
        match spawn_blocking(move || programs.prune(now)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!("old records of programs could not be removed: {error}")
            }
            Err(error) => tracing::error!("old records of programs could not be removed: {error}"),
        }
        tokio::select! {
            () = tokio::time::sleep(PRUNE_RECORDS_EVERY) => {}
            () = stopped(stop.clone()) => return,
        }
    }
}
