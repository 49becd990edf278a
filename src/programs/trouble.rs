//! What keeps programs from being run, and how it is told: to owners in the status of their programs, to
//! the operator in the log, and to everybody in health, which says of single programs only how many.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::ProgramError;
use super::error::Cause;
use super::records::RunSource;
use super::registry::Registry;
use crate::domain::ProgramId;
use crate::observe::health::Health;

/// Name of programs on new ledgers in health.
const LIVE: &str = "programs";
/// Name of backfills in health.
const BACKFILLS: &str = "program backfill";

/// Programs that wait, on new ledgers and on stored ones.
pub(super) struct Trouble {
    health: Arc<Health>,
    registry: Arc<Registry>,
    waits: Mutex<BTreeMap<(RunSource, ProgramId), Waits>>,
}

struct Waits {
    cause: Cause,
    /// What it waits for, for its owner.
    what: String,
}

impl Trouble {
    /// None yet.
    pub(super) fn new(health: Arc<Health>, registry: &Arc<Registry>) -> Self {
        Self { health, registry: Arc::clone(registry), waits: Mutex::default() }
    }

    /// A program has to wait.
    pub(super) fn has(&self, source: RunSource, program: ProgramId, error: &ProgramError) {
        tracing::error!(%program, ?source, "a program has to wait: {error}");
        let waits = Waits { cause: error.cause(), what: error.waits_for() };
        self.waits.lock().insert((source, program), waits);
        self.report();
    }

    /// A program does not have to wait any more, or is gone.
    pub(super) fn is_over(&self, source: RunSource, program: ProgramId) {
        let was = self.waits.lock().remove(&(source, program));
        if was.is_some() {
            self.report();
        }
    }

    /// What a program waits for, for its owner.
    pub(super) fn of(&self, program: ProgramId) -> Option<String> {
        let waits = self.waits.lock();
        let of = |source| waits.get(&(source, program));
        let waits = of(RunSource::Live).or_else(|| of(RunSource::Backfill));
        waits.map(|waits| format!("it waits, and is tried again: {}", waits.what))
    }

    /// Says in health how programs are. To be called by nobody who holds a program's cell.
    pub(super) fn report(&self) {
        let all = self.registry.all();
        let waits = self.waits.lock();
        let (mut stopped, mut runs) = (0, 0);
        for entry in &all {
            let shown = entry.shown();
            stopped += usize::from(shown.manifest.stopped_because.is_some());
            runs += shown.waiting;
        }
        let count = all.len();
        let mut details = Vec::new();
        if stopped > 0 {
            details.push(format!("{stopped} of {count} programs are stopped"));
        }
        if runs > 0 {
            details.push(format!("{runs} runs wait for ledgers that are not stored"));
        }
        self.report_one(LIVE, &of(&waits, RunSource::Live), count, details);
        self.report_one(BACKFILLS, &of(&waits, RunSource::Backfill), count, Vec::new());
    }

    /// A component is down for everybody when the store fails, or when the server that is asked for entries
    /// answers nobody. What is wrong with some programs is a detail.
    fn report_one(
        &self,
        component: &'static str,
        waits: &[Cause],
        count: usize,
        mut details: Vec<String>,
    ) {
        let by = |cause: Cause| waits.iter().filter(|it| **it == cause).count();
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
        if !waits.is_empty() {
            details.insert(0, format!("{} of {count} programs wait", waits.len()));
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

/// Causes of those that wait on ledgers of one kind.
fn of(waits: &BTreeMap<(RunSource, ProgramId), Waits>, source: RunSource) -> Vec<Cause> {
    let those = waits.iter().filter(|((of, _), _)| *of == source);
    those.map(|(_, waits)| waits.cause).collect()
}
