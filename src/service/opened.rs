//! A service whose programs and webhooks run: how they are opened, kept moving and stopped.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::interfaces::RunningInterfaces;
use super::pruning::RETENTION;
use super::running_core::RunningCore;
use super::tasks::Tasks;
use super::webhooks::RunningWebhooks;
use super::{
    Node, RunningSandbox, ServiceError, interfaces, lag_history, pruning, running_programs,
    webhooks,
};
use crate::config::Config;
use crate::programs::Programs;

/// Names of tasks that report to health only failures.
const LAG_HISTORY: &str = "lag_history";
const PROGRAM_RECORDS: &str = "program_records";
const WEBHOOK_RECORDS: &str = "webhook_records";

/// A service whose programs and webhooks are running, before it takes requests and follows sources.
pub struct Service {
    pub(super) node: Arc<Node>,
    /// Indexing programs, which run on ledgers as they are stored.
    pub programs: Arc<Programs>,
    pub(super) interfaces: RunningInterfaces,
    pub(super) webhooks: RunningWebhooks,
    pub(super) sandbox: Option<Arc<RunningSandbox>>,
    /// The stellar-core that is followed, if one is.
    pub(super) running: Option<RunningCore>,
}

impl Service {
    /// Adds a sandbox network, which this process runs.
    #[must_use]
    pub fn with_sandbox(self, sandbox: RunningSandbox) -> Self {
        Self { sandbox: Some(Arc::new(sandbox)), ..self }
    }

    /// Opens the programs and webhooks of a data directory and starts them; `running` is the
    /// stellar-core that will be followed, if one will be. Lookups of ledger entries at the upstream
    /// server end when `stop` turns true.
    pub async fn open(
        node: Arc<Node>,
        config: &Config,
        running: Option<RunningCore>,
        stop: watch::Receiver<bool>,
    ) -> Result<Self, ServiceError> {
        let (programs, interfaces) = {
            let core = running.clone().unwrap_or_default();
            let (node, config) = (Arc::clone(&node), config.clone());
            let runtime = tokio::runtime::Handle::current();
            let start = move || {
                let upstream = running_programs::upstream(&node, &config, &core, runtime, stop)?;
                let interfaces = interfaces::start(&node, upstream.clone())?;
                let names = Arc::clone(&interfaces.interfaces);
                let programs = running_programs::start(&node, &config, names, upstream)?;
                Ok::<_, ServiceError>((programs, interfaces))
            };
            spawn_blocking(start).await.map_err(ServiceError::start)??
        };
        node.webhooks().name_events_by(Arc::clone(&interfaces.interfaces));
        let webhooks = {
            let (node, config) = (Arc::clone(&node), config.clone());
            let start = move || webhooks::start(&node, &config);
            spawn_blocking(start).await.map_err(ServiceError::start)??
        };
        Ok(Self { node, programs, interfaces, webhooks, sandbox: None, running })
    }

    /// Starts the tasks that keep data of a bounded size and record the lag.
    pub(super) fn spawn_upkeep(&self, tasks: &mut Tasks) {
        let (node, own) = (Arc::clone(&self.node), tasks.stop());
        tasks.spawn(RETENTION, move || pruning::prune_regularly(Arc::clone(&node), own.clone()));
        let (node, own) = (Arc::clone(&self.node), tasks.stop());
        tasks.spawn(LAG_HISTORY, move || lag_history::record(Arc::clone(&node), own.clone()));
        let (programs, own) = (Arc::clone(&self.programs), tasks.stop());
        // The time by which webhooks keep deliveries is stored, and not one reading of a clock.
        let webhooks = Arc::clone(self.node.webhooks());
        tasks.spawn(PROGRAM_RECORDS, move || {
            let webhooks = Arc::clone(&webhooks);
            let now = Arc::new(move || webhooks.now().kept);
            running_programs::prune_records(Arc::clone(&programs), now, own.clone())
        });
        let (management, own) = (Arc::clone(&self.webhooks.management), tasks.stop());
        tasks.spawn(WEBHOOK_RECORDS, move || {
            webhooks::sweep_regularly(Arc::clone(&management), own.clone())
        });
    }

    /// Stops the threads of webhooks and programs after their current work.
    pub(super) async fn stop(self) {
        let Self { programs, mut interfaces, webhooks, .. } = self;
        if spawn_blocking(move || interfaces.stop()).await.is_err() {
            tracing::error!("the reader of interfaces did not stop cleanly");
        }
        // Deliveries whose outcome is not recorded by then are repeated after the next start.
        let mut delivering = webhooks.delivering;
        if spawn_blocking(move || delivering.stop()).await.is_err() {
            tracing::error!("webhooks did not stop cleanly");
        }
        // All ledgers in flight are stored by now; programs run on those they have not seen after
        // the next start.
        if spawn_blocking(move || programs.stop()).await.is_err() {
            tracing::error!("the programs did not stop cleanly");
        }
    }
}
