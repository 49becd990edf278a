//! Indexing programs in a running service: opens them with the operator's settings, and notifies them
//! of new ledgers.

use std::sync::Arc;
use std::thread;

use super::{Node, ServiceError};
use crate::auth;
use crate::config::Config;
use crate::executables::Interfaces;
use crate::export::LiveChain;
use crate::observe::health::Health;
use crate::programs::state::Upstream;
use crate::programs::{ProgramDeps, ProgramError, Programs};
use crate::steady::unix_now_ms;
use crate::tables::{Tables, TablesSettings, Tunables};

/// Name under which SQL queries report to health.
const QUERIES: &str = "queries";
/// Directory of the tables in the data directory.
const TABLES: &str = "tables";

/// Opens the programs of a data directory and begins to run them. Queries read the tables of the `chain`, and ledger
/// entries are requested from `upstream`.
pub(super) fn start(
    node: &Arc<Node>,
    config: &Config,
    interfaces: Arc<Interfaces>,
    chain: Option<Arc<LiveChain>>,
    upstream: Option<Arc<dyn Upstream + Send + Sync>>,
) -> Result<Arc<Programs>, ServiceError> {
    let store = Arc::clone(node.store());
    let own = node.program().to_owned();
    let tables = Tables::open(TablesSettings {
        directory: store.directory().join(TABLES),
        worker: own.clone(),
        queries: config.queries.clone(),
        chain: chain.map(|chain| chain as _),
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
