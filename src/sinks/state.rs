//! What is known of a sink and its projects, which its threads share with who asks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use orrery_postgres::{Cursor, WrittenTable};

use super::report::{SinkProjectReport, SinkProjectState, SinkReport, SinkTableReport};

/// Time before what was refused is tried again: somebody may have changed what was in the way.
pub(crate) const RETRY: Duration = Duration::from_secs(10);
/// Time before what failed for a reason that passes is tried again.
pub(crate) const SOON: Duration = Duration::from_secs(1);

/// Why a project's tables are filled again when they are complete.
pub(crate) const ORDERED: &str = "somebody ordered to fill its tables again";

/// A sink.
#[derive(Debug)]
pub(crate) struct State {
    /// Whether there is a connection.
    pub is_connected: bool,
    /// Why there is none.
    pub reason: Option<String>,
    /// Since when rows wait; `None` when none do.
    pub behind_since: Option<Instant>,
    /// Whether it was looked for orders that an earlier process was given; later ones are known.
    pub are_orders_known: bool,
    /// Projects by name.
    pub projects: BTreeMap<String, ProjectState>,
}

/// A project of a sink.
#[derive(Debug)]
pub(crate) struct ProjectState {
    /// Schema of its tables; empty if it can have none.
    pub schema: String,
    /// How its rows are.
    pub state: SinkProjectState,
    /// Why.
    pub reason: Option<String>,
    /// What the log has of it: the same is not written again until rows are added.
    pub told: Option<String>,
    /// The server's cursor, as it was known last.
    pub cursor: Option<Cursor>,
    /// Whether the cursor is to be read from the server before it counts.
    pub is_unread: bool,
    /// Number of the last entry of its log.
    pub last: u64,
    /// The last entry of which it was seen that its rows wait, and since when.
    awaits: Option<(u64, Instant)>,
    /// Entries whose rows are filled in beside.
    pub filled: Option<u64>,
    /// What keeps filled tables from their places.
    pub blocked_by: Vec<String>,
    /// Its tables.
    pub tables: Vec<WrittenTable>,
    /// Whether somebody has ordered to fill its tables again.
    pub is_to_replace: bool,
    /// Before this, nothing is tried.
    pub retry_at: Option<Instant>,
    /// Number of those who look at its tables and want them to stay as they are.
    pub holds: usize,
}

impl Default for State {
    fn default() -> Self {
        Self {
            is_connected: false,
            reason: None,
            behind_since: Some(Instant::now()),
            are_orders_known: false,
            projects: BTreeMap::new(),
        }
    }
}

impl Default for ProjectState {
    fn default() -> Self {
        Self {
            schema: String::new(),
            state: SinkProjectState::Waiting,
            reason: None,
            told: None,
            cursor: None,
            is_unread: true,
            last: 0,
            awaits: None,
            filled: None,
            blocked_by: Vec::new(),
            tables: Vec::new(),
            is_to_replace: false,
            retry_at: None,
            holds: 0,
        }
    }
}

impl ProjectState {
    /// Whether its tables are to be filled: nobody adds live rows meanwhile.
    pub fn is_filled(&self) -> bool {
        use SinkProjectState::{Behind, Blocked, Filling};
        matches!(self.state, Behind | Blocked | Filling)
    }

    /// Whether rows are added, or will be.
    pub fn is_wanted(&self) -> bool {
        use SinkProjectState::{CatchingUp, Live, Stopped};
        self.is_filled() || matches!(self.state, CatchingUp | Live | Stopped)
    }

    /// Whether something may be tried now.
    pub fn is_due(&self, now: Instant) -> bool {
        self.holds == 0 && self.retry_at.is_none_or(|at| at <= now)
    }

    /// Sets how its rows are, and why.
    pub fn set(&mut self, state: SinkProjectState, reason: Option<String>) {
        (self.state, self.reason, self.retry_at) = (state, reason, None);
        if !self.is_filled() {
            (self.filled, self.blocked_by) = (None, Vec::new());
        }
        if matches!(state, SinkProjectState::Live | SinkProjectState::CatchingUp) {
            self.told = None;
        }
    }

    /// Sets that nothing is added until somebody changes something, and when it is tried again.
    pub fn stop(&mut self, state: SinkProjectState, reason: String) {
        self.set(state, Some(reason));
        self.retry_at = Some(Instant::now() + RETRY);
    }

    /// Notes whether entries wait whose rows are not there.
    fn note_awaited(&mut self) {
        let there = self.cursor.as_ref().map_or(0, |it| it.position.number);
        if self.awaits.is_some_and(|(number, _)| number <= there) {
            self.awaits = None;
        }
        if self.last > there {
            self.awaits.get_or_insert_with(|| (self.last, Instant::now()));
        }
    }

    /// Whether this sentence is news, which is for the log.
    pub fn is_news(&mut self, reason: &str) -> bool {
        let is_news = self.told.as_deref() != Some(reason);
        self.told = Some(reason.to_owned());
        is_news
    }

    /// Returns a sentence about rows that somebody removed.
    pub fn loss(&self) -> Option<String> {
        self.tables.iter().find_map(|table| table.problem(&self.schema))
    }

    /// Returns what is said of the project.
    pub fn report(&self, project: &str) -> SinkProjectReport {
        let cursor = self.cursor.as_ref();
        let table = |table: &WrittenTable| SinkTableReport {
            name: table.name.clone(),
            rows: table.rows,
            nuls: table.nuls,
        };
        SinkProjectReport {
            project: project.to_owned(),
            schema: self.schema.clone(),
            state: self.state,
            reason: self.reason.clone().or_else(|| self.loss()),
            ledger: cursor.map(|it| it.ledger),
            entries: cursor.map_or(0, |it| it.position.number),
            of: self.last,
            generation: cursor.map(|it| it.generation.to_string()),
            filled: self.filled,
            blocked_by: self.blocked_by.clone(),
            tables: self.tables.iter().map(table).collect(),
        }
    }
}

impl State {
    /// Returns the state of a project, which is new if it was not known.
    pub fn project(&mut self, name: &str) -> &mut ProjectState {
        self.projects.entry(name.to_owned()).or_default()
    }

    /// Ledgers between the newest stored one and the oldest one up to which a project that gets rows has everything, at
    /// most all stored ones; `None` without such a project. `stored` has the oldest and the newest.
    pub fn lag_ledgers(&self, stored: Option<(u32, u32)>) -> Option<u32> {
        let (first, newest) = stored?;
        let none = first.saturating_sub(1);
        let wanted = self.projects.values().filter(|project| project.is_wanted());
        let up_to = wanted.map(|it| it.cursor.as_ref().map_or(none, |it| it.ledger.max(none)));
        Some(newest.saturating_sub(up_to.min()?))
    }

    /// Seconds since rows wait; 0 when none do.
    pub fn lag_seconds(&self) -> u64 {
        let wanted = self.projects.values().filter(|project| project.is_wanted());
        let awaited = wanted.filter_map(|project| Some(project.awaits?.1));
        let since = awaited.chain(self.behind_since).min();
        since.map_or(0, |since| since.elapsed().as_secs())
    }

    /// Why rows wait for somebody, in one sentence that everybody may read: it names no server and no project.
    pub fn trouble(&self) -> Option<String> {
        use SinkProjectState::{Blocked, Refused, Stopped};
        if self.reason.is_some() {
            return Some(
                "there is no connection to the database: `orrery sink status` says why".to_owned(),
            );
        }
        let is_trouble = |it: &&ProjectState| {
            matches!(it.state, Blocked | Refused | Stopped) || it.loss().is_some()
        };
        let projects = self.projects.values().filter(is_trouble).count();
        (projects > 0).then(|| {
            let projects =
                if projects == 1 { "1 project".to_owned() } else { format!("{projects} projects") };
            format!("rows of {projects} wait for somebody: `orrery sink status` says for what")
        })
    }

    /// Notes whether rows wait. `last` has the number of the last entry of each project's log.
    pub fn note_behind<'p>(&mut self, last: impl Iterator<Item = (&'p str, u64)>) {
        use SinkProjectState::Live;
        for (project, last) in last {
            if let Some(known) = self.projects.get_mut(project) {
                known.last = last;
                known.note_awaited();
            }
        }
        let is_behind = |it: &ProjectState| it.is_wanted() && it.state != Live;
        match !self.is_connected || self.projects.values().any(is_behind) {
            true => {
                self.behind_since.get_or_insert_with(Instant::now);
            }
            false => self.behind_since = None,
        }
    }

    /// Returns what is said of the sink.
    pub fn report(&self, name: &str, address: String, stored: Option<(u32, u32)>) -> SinkReport {
        SinkReport {
            name: name.to_owned(),
            address,
            connected: self.is_connected,
            reason: self.reason.clone(),
            lag_ledgers: self.lag_ledgers(stored),
            lag_seconds: Some(self.lag_seconds()),
            projects: self.projects.iter().map(|(name, it)| it.report(name)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_wait_are_noticed_until_they_are_there() {
        let mut state = State { is_connected: true, ..State::default() };
        state.project("p").state = SinkProjectState::Live;
        state.note_behind([("p", 0), ("other", 7)].into_iter());
        assert_eq!((state.behind_since, state.projects.len()), (None, 1));
        assert_eq!((state.project("p").awaits, state.lag_seconds()), (None, 0));
        state.note_behind([("p", 3)].into_iter());
        let since = Instant::now().checked_sub(Duration::from_secs(5)).unwrap();
        state.project("p").awaits = Some((3, since));
        // Whatever comes behind them.
        state.note_behind([("p", 9)].into_iter());
        assert_eq!((state.project("p").awaits, state.lag_seconds()), (Some((3, since)), 5));
        state.project("p").state = SinkProjectState::Deleted;
        assert_eq!(state.lag_seconds(), 0);
    }
}
