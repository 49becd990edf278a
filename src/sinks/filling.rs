//! Fills tables beside those that everybody sees, and puts them in their places: one project at a time, on a connection
//! of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use orrery_postgres::{
    Backoff, Batch, Connection, Cursor, Generation, OnBlocked, Position, Refill, SinkError,
    changed_tables, names, outgrown_tables, watch,
};
use orrery_programs::CopiedProgram;
use orrery_runtime::priority::Priority;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::address;
use super::equal::{Compared, own_digests};
use super::gather::{All, Failed, Gathered, Made, Wanted, generation_of};
use super::live::is_logged;
use super::report::SinkProjectState;
use super::sink::Sink;
use super::state::{RETRY, SOON};

/// Time between two looks at what waits.
const LOOK: Duration = Duration::from_secs(1);
/// What is said of rows that were derived anew while they were sent.
const DERIVED: &str = "derived again meanwhile";

/// Which rows are filled in.
struct Plan {
    generation: Generation,
    /// The tables, as they are at the end of the log.
    made: Made,
    /// Targets of the tables that are filled; the others stay.
    targets: BTreeSet<String>,
    /// Last entry of the log whose rows are filled in.
    end: Position,
    /// Up to which ledger everything is there then, and from which on it is known what contracts hold.
    ledger: u32,
    held_from: Option<u32>,
    /// Rows that are the same in the tables that everybody sees.
    compared: Option<Arc<Compared>>,
}

impl Plan {
    fn wanted(&self) -> Rows {
        let tables = self.made.layout.project.tables.iter();
        let tables = tables.map(|table| self.targets.contains(&table.target)).collect();
        Rows { tables, compared: self.compared.clone() }
    }
}

/// The rows that are sent.
struct Rows {
    tables: Vec<bool>,
    compared: Option<Arc<Compared>>,
}

impl Wanted for Rows {
    fn wants(&self, table: usize, ledger: orrery_ledger::domain::LedgerSeq) -> bool {
        let is_wanted = self.tables.get(table).copied().unwrap_or_default();
        is_wanted && self.compared.as_ref().is_none_or(|it| it.wants(table, ledger))
    }
}

/// Fills tables until the service stops.
pub(crate) struct Filler<'a> {
    sink: &'a Sink,
    runtime: Handle,
    /// What was compared for fills that have begun: it is not compared again after the connection was lost.
    compared: BTreeMap<String, (Generation, Arc<Compared>)>,
    /// When this process first saw the arrangement of a project's rows.
    seen: BTreeMap<String, (Generation, Instant)>,
}

impl<'a> Filler<'a> {
    pub fn new(sink: &'a Sink, runtime: Handle) -> Self {
        // What was compared before a panic is not known any more.
        sink.state.lock().projects.values_mut().for_each(|project| project.filled = None);
        Self { sink, runtime, compared: BTreeMap::new(), seen: BTreeMap::new() }
    }

    /// Fills tables of one project after the other until the service stops.
    pub fn run(&mut self) {
        let mut backoff = Backoff::default();
        while !self.sink.is_stopping() {
            self.sink.health.injected().panic_if(self.sink.component);
            let Some(program) = self.next() else {
                self.runtime.block_on(self.sink.wait(&self.sink.wake_filling, LOOK));
                continue;
            };
            let project = program.manifest.project_name.clone();
            match self.fill(&program) {
                Ok((cursor, is_replaced)) => {
                    backoff.reset();
                    self.filled(&project, cursor, is_replaced);
                }
                Err(error) => {
                    let pause = match &error {
                        SinkError::Lost(_) => backoff.pause(),
                        _ => SOON,
                    };
                    self.failed(&project, error, pause);
                }
            }
            self.sink.report_health();
        }
    }

    /// Waits for an answer of the server, unless the service stops: then the connection is dropped, and with it what was
    /// begun.
    fn block<T>(&self, answer: impl Future<Output = Result<T, SinkError>>) -> Result<T, SinkError> {
        self.runtime.block_on(async {
            tokio::select! {
                answer = answer => answer,
                () = self.sink.stopped() => Err(SinkError::Lost("the service stops".to_owned())),
            }
        })
    }

    /// Returns the next program whose tables are to be filled: one whose arrangement stands, and that nothing keeps from
    /// it.
    fn next(&mut self) -> Option<CopiedProgram> {
        let now = Instant::now();
        let mut programs = self.sink.programs();
        self.compared
            .retain(|project, _| programs.iter().any(|it| it.manifest.project_name == *project));
        self.seen
            .retain(|project, _| programs.iter().any(|it| it.manifest.project_name == *project));
        programs.retain(|program| {
            let mut state = self.sink.state.lock();
            let project = state.project(&program.manifest.project_name);
            project.is_filled() && project.is_due(now)
        });
        programs.into_iter().find(|program| self.stands(program, now))
    }

    /// Whether the rows of a program are arranged as they are for long enough.
    fn stands(&mut self, program: &CopiedProgram, now: Instant) -> bool {
        let Some(generation) = generation_of(&program.manifest) else { return false };
        let project = &program.manifest.project_name;
        let seen = self.seen.entry(project.clone()).or_insert((generation, now));
        if seen.0 != generation {
            *seen = (generation, now);
        }
        // Nobody reads rows before the first fill: it is begun again if they are arranged anew.
        let is_first = self.sink.state.lock().project(project).cursor.is_none();
        let settled = self.sink.settings.settle_seconds.duration();
        let stands = if is_first { LOOK } else { settled };
        let long = u64::try_from(stands.as_millis()).unwrap_or(u64::MAX);
        let age = (self.sink.clock)().checked_sub(generation.arrangement);
        // The clock of the machine may have been set back.
        age.is_some_and(|age| age >= long) || now.duration_since(seen.1) >= stands
    }

    /// Notes that tables are in their places.
    fn filled(&mut self, project: &str, cursor: Cursor, is_replaced: bool) {
        let sink = self.sink;
        tracing::info!(sink = sink.name, project, rows = cursor.rows, "its tables are filled");
        self.compared.remove(project);
        {
            let mut state = sink.state.lock();
            let known = state.project(project);
            (known.is_unread, known.cursor) = (true, Some(cursor));
            // Whoever ordered it meanwhile means all tables.
            known.is_to_replace &= !is_replaced;
            match known.is_to_replace {
                true => known.set(SinkProjectState::Behind, None),
                false => known.set(SinkProjectState::CatchingUp, None),
            }
        }
        sink.wake_live.notify_one();
    }

    /// Notes why tables are not in their places.
    fn failed(&mut self, project: &str, error: SinkError, pause: Duration) {
        let sink = self.sink;
        let retry = Instant::now() + pause;
        let mut state = sink.state.lock();
        let known = state.project(project);
        match error {
            SinkError::Blocked(blocked) => {
                let reason = SinkError::Blocked(blocked.clone()).to_string();
                if known.is_news(&reason) {
                    tracing::warn!(
                        sink = sink.name,
                        project,
                        "putting filled tables into their places {reason}"
                    );
                }
                known.stop(SinkProjectState::Blocked, reason);
                known.blocked_by = blocked;
                known.retry_at = Some(Instant::now() + RETRY);
            }
            SinkError::Refused(reason) | SinkError::OtherWriter(reason) => {
                drop(state);
                // The thread that adds live rows finds out whether they still have to be filled.
                sink.stop_project(project, SinkProjectState::Stopped, reason);
                sink.state.lock().project(project).is_unread = true;
            }
            SinkError::Lost(reason) | SinkError::Busy(reason) | SinkError::Moved(reason) => {
                tracing::debug!(sink = sink.name, project, "filling goes on later: {reason}");
                let blocked = std::mem::take(&mut known.blocked_by);
                known.set(SinkProjectState::Behind, Some(reason));
                (known.retry_at, known.blocked_by) = (Some(retry), blocked);
            }
        }
    }

    /// Fills the tables of a project that have to be, and puts them in their places. Also returns whether somebody had
    /// ordered it.
    fn fill(&mut self, program: &CopiedProgram) -> Result<(Cursor, bool), SinkError> {
        let sink = self.sink;
        let project = &program.manifest.project_name;
        let schema = names::schema(&sink.settings.schema, project).map_err(SinkError::Refused)?;
        let is_to_replace = {
            let mut state = sink.state.lock();
            let known = state.project(project);
            // What keeps filled tables from their places is looked at now and then: it stays what it is meanwhile.
            if known.state != SinkProjectState::Blocked {
                let reason = known.reason.take();
                known.set(SinkProjectState::Filling, reason);
            }
            known.is_to_replace
        };
        let url = address::server(&sink.name, &sink.settings).map_err(SinkError::Lost)?;
        let connection = self.block(url.connect())?;
        let plan = self.plan(&connection, program, schema, is_to_replace)?;
        let (project, targets) = (&plan.made.layout.project, plan.targets.clone());
        let generation = plan.generation;
        let begun = Refill::begin(&connection, &sink.writer, project, generation, targets);
        let (mut refill, mut cursor) = self.block(begun)?;
        if !self.goes_on(program, &plan, &cursor)? {
            cursor = self.block(refill.restart(&connection))?;
        }
        if cursor.position == Position::default() {
            cursor = self.copy_equal(&connection, &refill, &plan, cursor)?;
        }
        self.send(&connection, &refill, &plan, cursor)?;
        let on_blocked = if is_to_replace { OnBlocked::Drop } else { OnBlocked::Wait };
        let cursor = self.block(refill.swap(&connection, on_blocked))?;
        // What was said of the tables of before does not hold any more. The thread that adds live rows looks again.
        let tables = self.block(watch(&connection, &sink.writer, project)).unwrap_or_default();
        sink.state.lock().project(&project.name).tables = tables;
        Ok((cursor, is_to_replace))
    }

    /// Decides which tables are filled, and up to where.
    fn plan(
        &mut self,
        connection: &Connection,
        program: &CopiedProgram,
        schema: String,
        is_to_replace: bool,
    ) -> Result<Plan, SinkError> {
        let sink = self.sink;
        let generation = generation_of(&program.manifest);
        let generation = generation.ok_or_else(|| SinkError::Moved(DERIVED.to_owned()))?;
        let made = Made::new(&sink.source, &program.manifest, &schema);
        let made = made.map_err(|error| SinkError::Busy(error.to_string()))?;
        let project = &made.layout.project;
        let live = self.block(sink.writer.cursor(connection, &project.name))?;
        let of_this_log = |cursor: &Cursor| {
            let before = cursor.generation;
            let is_same = (before.program, before.deployed, &cursor.writer, &cursor.schema)
                == (generation.program, generation.deployed, &sink.writer.id, &schema);
            Ok::<_, SinkError>(is_same && is_logged(sink, program, cursor)?)
        };
        let live = match live.filter(|_| !is_to_replace) {
            Some(cursor) if of_this_log(&cursor)? => cursor,
            _ => return self.plan_all(program, generation, made),
        };
        let changed = changed_tables(connection, &sink.writer, project);
        let retyped = self.block(changed)?;
        let (end, ledger) = (live.position, live.ledger);
        let held_from = Some(live.held_from);
        if live.generation == generation {
            let targets = retyped;
            return Ok(Plan { generation, made, targets, end, ledger, held_from, compared: None });
        }
        let compared = self.compare(connection, &made, (generation, end), &retyped)?;
        let tables = &made.layout.project.tables;
        let targets = compared.changed.iter().map(|at| tables[*at].target.clone()).collect();
        let compared = Some(compared);
        Ok(Plan { generation, made, targets, end, ledger, held_from, compared })
    }

    /// Fills all tables, up to the end of the log as it is now.
    fn plan_all(
        &self,
        program: &CopiedProgram,
        generation: Generation,
        made: Made,
    ) -> Result<Plan, SinkError> {
        let programs = &self.sink.source.programs;
        let busy = |error: orrery_programs::ProgramError| SinkError::Busy(error.to_string());
        let id = program.manifest.id;
        let read = programs.runs_to_copy(id, program.last, u64::MAX).map_err(busy)?;
        let end = read.filter(|read| read.runs.is_empty()).and_then(|read| read.end);
        let position = match program.last {
            0 => Position::default(),
            number => {
                let found = programs.logged_transaction(id, number).map_err(busy)?;
                let found = found.ok_or_else(|| SinkError::Moved(DERIVED.to_owned()))?;
                let (ledger, transaction) = (found.ledger.0, found.application_order);
                Position { number, ledger, transaction }
            }
        };
        let targets = made.layout.project.tables.iter().map(|it| it.target.clone()).collect();
        let ledger = end.and_then(|end| end.ledger).map_or(0, |it| it.0);
        let held_from = end.and_then(|end| end.held_from).map(|it| it.0);
        let end = position;
        Ok(Plan { generation, made, targets, end, ledger, held_from, compared: None })
    }

    /// Compares the rows of the log with those that are there; not again, if that was done for the same ones.
    fn compare(
        &mut self,
        connection: &Connection,
        made: &Made,
        (generation, end): (Generation, Position),
        retyped: &BTreeSet<String>,
    ) -> Result<Arc<Compared>, SinkError> {
        let project = &made.layout.project.name;
        if let Some((of, compared)) = self.compared.get(project)
            && *of == generation
        {
            return Ok(Arc::clone(compared));
        }
        let sink = self.sink;
        let own = own_digests(&sink.source, made, end.number, &|| sink.is_stopping());
        let own = own.map_err(SinkError::from)?;
        let outgrown = outgrown_tables(connection, &sink.writer, &made.layout.project);
        let outgrown = self.block(outgrown)?;
        let compared = own.compare(connection, &sink.writer, made, retyped, &outgrown);
        let compared = Arc::new(self.block(compared)?);
        self.compared.insert(project.clone(), (generation, Arc::clone(&compared)));
        Ok(compared)
    }

    /// Whether a fill that was begun can go on from its cursor.
    fn goes_on(
        &self,
        program: &CopiedProgram,
        plan: &Plan,
        cursor: &Cursor,
    ) -> Result<bool, SinkError> {
        if cursor.position == Position::default() {
            return Ok(cursor.rows == 0);
        }
        let skips_copied = plan.compared.as_ref().is_some_and(|it| !it.copied.is_empty());
        let is_known = match (skips_copied, cursor.has_copied()) {
            (false, false) => true,
            // Which rows were copied, another process knows.
            (true, true) => {
                self.sink.state.lock().project(&program.manifest.project_name).filled.is_some()
            }
            // The rows behind the cursor would be sent twice, or not at all.
            (true, false) | (false, true) => false,
        };
        Ok(is_known
            && cursor.position.number <= plan.end.number
            && is_logged(self.sink, program, cursor)?)
    }

    /// Copies rows that are the same within the server.
    fn copy_equal(
        &self,
        connection: &Connection,
        refill: &Refill<'_>,
        plan: &Plan,
        mut cursor: Cursor,
    ) -> Result<Cursor, SinkError> {
        let Some(compared) = &plan.compared else { return Ok(cursor) };
        for equal in compared.copied.iter().filter(|it| plan.targets.contains(&it.target)) {
            let batch = Batch::new(plan.generation, cursor.position);
            let batch = Batch { equal: vec![equal.clone()], ..batch };
            cursor = self.block(refill.fill(connection, &batch))?;
            if self.sink.is_stopping() {
                return Err(SinkError::Lost("the service stops".to_owned()));
            }
        }
        Ok(cursor)
    }

    /// Sends rows up to the end. The next ones are gathered while some are sent.
    fn send(
        &self,
        connection: &Connection,
        refill: &Refill<'_>,
        plan: &Plan,
        cursor: Cursor,
    ) -> Result<(), SinkError> {
        let (to, from) = mpsc::channel(1);
        thread::scope(|scope| {
            // Goes before the thread is waited for, which then passes nothing on any more.
            let mut from = from;
            let begin = cursor.position;
            thread::Builder::new()
                .name("sink rows".to_owned())
                .spawn_scoped(scope, move || {
                    Priority::Background.apply_to_current_thread();
                    self.gather(plan, begin, &to);
                })
                .map_err(|error| SinkError::Lost(format!("a thread cannot start: {error}")))?;
            let mut position = cursor.position;
            while let Some(gathered) = self.runtime.block_on(from.recv()) {
                let gathered: Gathered = gathered.map_err(SinkError::from)?;
                position = self.send_one(connection, refill, plan, position, gathered)?;
            }
            // Entries without rows of these tables, and the end of an empty log.
            let last = Gathered::without_rows(position, plan.end);
            self.send_one(connection, refill, plan, position, last).map(drop)
        })
    }

    fn send_one(
        &self,
        connection: &Connection,
        refill: &Refill<'_>,
        plan: &Plan,
        position: Position,
        gathered: Gathered,
    ) -> Result<Position, SinkError> {
        let is_end = gathered.to == plan.end;
        let ledger = if is_end { plan.ledger } else { 0 };
        let batch = gathered.into_batch(plan.generation, position, ledger);
        let held_from = plan.held_from.filter(|_| is_end);
        let rows = batch.rows();
        let batch = Batch { held_from, ..batch };
        let cursor = self.block(refill.fill(connection, &batch))?;
        let sink = self.sink;
        sink.metrics.sink_wrote(&sink.name, rows);
        let project = &plan.made.layout.project.name;
        sink.state.lock().project(project).filled = Some(cursor.position.number);
        match sink.is_stopping() {
            true => Err(SinkError::Lost("the service stops".to_owned())),
            false => Ok(cursor.position),
        }
    }

    /// Gathers rows behind a position up to the end, and passes them on.
    fn gather(&self, plan: &Plan, from: Position, to: &mpsc::Sender<Result<Gathered, Failed>>) {
        let gathered =
            self.gather_all(plan, from, &mut |gathered| to.blocking_send(Ok(gathered)).is_ok());
        if let Err(error) = gathered {
            // Nobody waits any more once sending has failed.
            let _ = to.blocking_send(Err(error));
        }
    }

    fn gather_all(
        &self,
        plan: &Plan,
        from: Position,
        pass: &mut dyn FnMut(Gathered) -> bool,
    ) -> Result<(), Failed> {
        if plan.targets.is_empty() {
            return Ok(());
        }
        let sink = self.sink;
        let (id, layout) = (plan.made.manifest.id, &plan.made.layout);
        let (wanted, end) = (plan.wanted(), plan.end.number);
        let wanted: &dyn Wanted =
            match plan.compared.is_none() && wanted.tables.iter().all(|it| *it) {
                true => &All,
                false => &wanted,
            };
        let mut gathered = Gathered::new(from);
        while gathered.to.number < end {
            let after = gathered.to.number;
            let read = sink.source.programs.runs_to_copy(id, after, end)?;
            let read = read.filter(|read| plan.made.has_rows_of(&read.manifest));
            let read = read.ok_or_else(|| Failed::Over(DERIVED.to_owned()))?;
            if read.runs.is_empty() {
                break;
            }
            for run in &read.runs {
                if gathered.is_enough() {
                    let next = Gathered::new(gathered.to);
                    if !pass(std::mem::replace(&mut gathered, next)) {
                        return Ok(());
                    }
                }
                gathered.add(&sink.source, (&read.manifest, layout), run, wanted)?;
            }
        }
        if gathered.runs > 0 {
            pass(gathered);
        }
        Ok(())
    }
}
