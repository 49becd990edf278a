//! Tracks what keeps programs from being run, and reports it: to owners in the status of their
//! programs, to the operator in the log, and publicly in the health endpoint, which gives only
//! counts of programs.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::ProgramError;
use super::error::Cause;
use super::records::RunSource;
use super::registry::Registry;
use orrery_ledger::domain::ProgramId;
use orrery_runtime::observe::health::Health;

/// Health component of programs on new ledgers.
pub(super) const LIVE: &str = "programs";
/// Health component of backfills.
pub(super) const BACKFILLS: &str = "program backfill";

/// Programs that cannot be run for now, separately for new and for stored ledgers.
pub(super) struct Trouble {
    health: Arc<Health>,
    registry: Arc<Registry>,
    waiting: Mutex<BTreeMap<(RunSource, ProgramId), WaitReason>>,
}

struct WaitReason {
    cause: Cause,
    /// What the program waits for, as its owner reads it.
    what: String,
}

impl Trouble {
    /// Starts with no waiting programs.
    pub(super) fn new(health: Arc<Health>, registry: &Arc<Registry>) -> Self {
        Self { health, registry: Arc::clone(registry), waiting: Mutex::default() }
    }

    /// Records that a program has to wait because of `error`.
    pub(super) fn set_waiting(&self, source: RunSource, program: ProgramId, error: &ProgramError) {
        tracing::error!(%program, ?source, "a program has to wait: {error}");
        let reason = WaitReason { cause: error.cause(), what: error.wait_reason() };
        self.waiting.lock().insert((source, program), reason);
        self.report();
    }

    /// Records that a program no longer has to wait or is deleted.
    pub(super) fn clear_waiting(&self, source: RunSource, program: ProgramId) {
        let was = self.waiting.lock().remove(&(source, program));
        if was.is_some() {
            self.report();
        }
    }

    /// Returns what a program waits for, as its owner reads it.
    pub(super) fn reason(&self, program: ProgramId) -> Option<String> {
        let waiting = self.waiting.lock();
        let of = |source| waiting.get(&(source, program));
        let reason = of(RunSource::Live).or_else(|| of(RunSource::Backfill));
        reason.map(|reason| format!("it waits, and is tried again: {}", reason.what))
    }

    /// Updates the health components. Must not be called while a program's cell is locked.
    pub(super) fn report(&self) {
        let all = self.registry.all();
        let waiting = self.waiting.lock();
        let (mut stopped, mut runs) = (0, 0);
        for entry in &all {
            let snapshot = entry.snapshot();
            stopped += usize::from(snapshot.manifest.stopped_because.is_some());
            runs += snapshot.waiting;
        }
        let count = all.len();
        let mut details = Vec::new();
        if stopped > 0 {
            details.push(format!("{stopped} of {count} programs are stopped"));
        }
        if runs > 0 {
            details.push(format!("{runs} runs wait for ledgers that are not stored"));
        }
        self.report_one(LIVE, &causes(&waiting, RunSource::Live), count, details);
        self.report_one(BACKFILLS, &causes(&waiting, RunSource::Backfill), count, Vec::new());
    }

    /// Reports a component as down when the store fails or the server that is asked for entries is
    /// out of reach. Problems of single programs are only a detail of a component that is up.
    fn report_one(
        &self,
        component: &'static str,
        causes: &[Cause],
        count: usize,
        mut details: Vec<String>,
    ) {
        let by = |cause: Cause| causes.iter().filter(|it| **it == cause).count();
        let (store, upstream) = (by(Cause::Store), by(Cause::Upstream));
        if store > 0 {
            let what = format!("the store fails for {store} of {count} programs: the log says why");
            return self.health.down(component, what);
        }
        if upstream > 0 {
            let what = format!(
                "the server that is asked for ledger entries is out of reach, and {upstream} of {count} \
                 programs wait for it: the log says why"
            );
            return self.health.down(component, what);
        }
        if !causes.is_empty() {
            details.insert(0, format!("{} of {count} programs wait", causes.len()));
        }
        match (details.is_empty(), component) {
            (false, _) => {
                let details = format!("{}: see the status of each", details.join(", "));
                self.health.up_with(component, details);
            }
            (true, LIVE) if count > 0 => self.health.up(component),
            (true, _) => self.health.forget(component),
        }
    }
}

/// Returns the causes for which programs wait on ledgers of one kind.
fn causes(waiting: &BTreeMap<(RunSource, ProgramId), WaitReason>, source: RunSource) -> Vec<Cause> {
    let of_source = waiting.iter().filter(|((of, _), _)| *of == source);
    of_source.map(|(_, reason)| reason.cause).collect()
}
