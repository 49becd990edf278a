//! One sink: what its threads need, and what they tell health and metrics.

use std::sync::Arc;
use std::time::Duration;

use orrery_postgres::Writer;
use orrery_programs::CopiedProgram;
use orrery_runtime::observe::health::{Behind, Health};
use orrery_runtime::observe::metrics::Metrics;
use orrery_settings as settings;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::gather::Source;
use super::report::{SinkProjectState, SinkReport};
use super::state::State;

/// One sink.
pub(crate) struct Sink {
    /// Its name.
    pub name: String,
    /// Name of its component in health.
    pub component: &'static str,
    /// Its settings.
    pub settings: settings::Sink,
    /// Who writes.
    pub writer: Writer,
    /// Where rows are read.
    pub source: Source,
    /// What is known of it.
    pub state: Mutex<State>,
    /// Locked by whoever changes tables that everybody sees.
    pub writing: tokio::sync::Mutex<()>,
    /// Wakes the thread that adds live rows.
    pub wake_live: Notify,
    /// Wakes the thread that fills tables.
    pub wake_filling: Notify,
    /// Turns true when the service stops.
    pub stop: watch::Receiver<bool>,
    /// Returns the UNIX time in milliseconds, as programs note when rows are arranged anew.
    pub clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// Where its state is reported.
    pub health: Arc<Health>,
    /// Where its progress is counted.
    pub metrics: Arc<Metrics>,
}

impl Sink {
    /// Whether the service stops.
    pub fn is_stopping(&self) -> bool {
        *self.stop.borrow() || self.stop.has_changed().is_err()
    }

    /// Returns when the service stops.
    pub async fn stopped(&self) {
        let mut stop = self.stop.clone();
        let _ = stop.wait_for(|stop| *stop).await;
    }

    /// Waits for a call of `wake`, for at most this time, or until the service stops.
    pub async fn wait(&self, wake: &Notify, time: Duration) {
        tokio::select! {
            _ = timeout(time, wake.notified()) => {}
            () = self.stopped() => {}
        }
    }

    /// Returns the programs whose rows go to this sink.
    pub fn programs(&self) -> Vec<CopiedProgram> {
        let mut programs = self.source.programs.copied();
        programs.retain(|program| self.settings.has(&program.manifest.project_name));
        programs
    }

    /// Returns the program of a project of this sink.
    pub fn program(&self, project: &str) -> Option<CopiedProgram> {
        self.programs().into_iter().find(|it| it.manifest.project_name == project)
    }

    /// Notes why there is no connection.
    pub fn disconnected(&self, reason: String) {
        {
            let mut state = self.state.lock();
            if state.reason.as_ref() != Some(&reason) {
                tracing::warn!(sink = self.name, "rows wait: {reason}");
            }
            (state.is_connected, state.reason) = (false, Some(reason));
        }
        self.metrics.sink_failed(&self.name);
        self.report_health();
    }

    /// Sets how the rows of a project are.
    pub fn set(&self, project: &str, state: SinkProjectState, reason: Option<String>) {
        self.state.lock().project(project).set(state, reason);
    }

    /// Sets that nothing is added to a project until somebody changes something.
    pub fn stop_project(&self, project: &str, state: SinkProjectState, reason: String) {
        let mut known = self.state.lock();
        let known = known.project(project);
        if known.is_news(&reason) {
            tracing::warn!(sink = self.name, project, "no rows are added: {reason}");
            self.metrics.sink_failed(&self.name);
        }
        known.stop(state, reason);
    }

    /// The oldest and the newest stored ledger.
    fn stored(&self) -> Option<(u32, u32)> {
        let status = self.source.store.status();
        let first = status.ranges.first().map(|range| range.first.0)?;
        Some((first, status.latest()?.0))
    }

    /// Reports the state to health and metrics. The component is up whatever the database does: nothing that the
    /// service answers depends on it.
    pub fn report_health(&self) {
        let (stored, programs) = (self.stored(), self.programs());
        let behind = {
            let mut state = self.state.lock();
            state.note_behind(lasts(&programs));
            let lag_ledgers = state.lag_ledgers(stored);
            let lag_seconds = state.lag_seconds();
            let ledgers = lag_ledgers.unwrap_or_default();
            self.metrics.set_sink(&self.name, state.is_connected, ledgers, lag_seconds);
            // The counter is there before the first row.
            self.metrics.sink_wrote(&self.name, 0);
            Behind { lag_ledgers, lag_seconds: Some(lag_seconds), reason: state.trouble() }
        };
        self.health.up_behind(self.component, behind);
    }

    /// Returns what is said of the sink.
    pub fn report(&self) -> SinkReport {
        let address = super::address::shown(&self.settings);
        let (stored, programs) = (self.stored(), self.programs());
        let mut state = self.state.lock();
        state.note_behind(lasts(&programs));
        state.report(&self.name, address, stored)
    }
}

/// The last entries of the logs of programs, by project.
fn lasts(programs: &[CopiedProgram]) -> impl Iterator<Item = (&str, u64)> {
    programs.iter().map(|program| (&*program.manifest.project_name, program.last))
}
