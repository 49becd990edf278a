//! Adds live rows: one transaction after another for each project, whole ledgers each, on one connection.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use orrery_ledger::domain::ProgramId;
use orrery_postgres::{
    Backoff, Batch, Connection, Cursor, Notify, Places, Position, SinkError, apply_all,
    changed_tables, cursors, ensure, names,
};
use orrery_programs::{CopiedProgram, EndOfLog};

use super::address;
use super::gather::{self, LiveRows, Made, generation_of};
use super::report::SinkProjectState;
use super::sink::Sink;
use super::state::{ORDERED, ProjectState, SOON};

/// Time between two looks when nobody says that there are rows.
const LOOK: Duration = Duration::from_secs(1);
/// How many times longer than writing it takes the position of a project without new rows is left as it is.
const REST: u32 = 10;

/// Why a round ended.
enum Ended {
    /// The connection is lost.
    Lost(String),
    /// The project is told something, and others go on.
    Told,
}

/// Adds live rows until the service stops.
pub(crate) async fn run(sink: &Sink) {
    let mut backoff = Backoff::default();
    while !sink.is_stopping() {
        sink.health.injected().panic_if(sink.component);
        let lost = tokio::select! {
            lost = serve(sink, &mut backoff) => lost,
            () = sink.stopped() => return,
            never = report_now_and_then(sink) => match never {},
        };
        sink.disconnected(lost);
        let pause = backoff.pause();
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = sink.stopped() => {}
        }
    }
}

/// Reports how the sink is while it waits for answers that may not come.
async fn report_now_and_then(sink: &Sink) -> Infallible {
    loop {
        tokio::time::sleep(LOOK).await;
        sink.report_health();
    }
}

/// Adds rows until the connection is lost; returns why.
async fn serve(sink: &Sink, backoff: &mut Backoff) -> String {
    let url = match address::server(&sink.name, &sink.settings) {
        Ok(url) => url,
        Err(reason) => return reason,
    };
    let connection = match url.connect().await {
        Ok(connection) => connection,
        Err(error) => return error.to_string(),
    };
    let (made, touched, rests_until) = (BTreeMap::new(), None, BTreeMap::new());
    let mut session = Session { sink, connection, made, touched, rests_until };
    if let Err(error) = session.begin().await {
        return error.to_string();
    }
    loop {
        match session.round().await {
            Ok(is_busy) => {
                backoff.reset();
                sink.report_health();
                if !is_busy {
                    sink.wait(&sink.wake_live, LOOK).await;
                }
            }
            Err(reason) => return reason,
        }
    }
}

/// A connection, and what is known because of it.
pub(crate) struct Session<'a> {
    pub sink: &'a Sink,
    pub connection: Connection,
    /// Tables that are there, by program.
    pub made: BTreeMap<ProgramId, (Made, Places)>,
    pub touched: Option<Instant>,
    /// Until when the positions of projects without new rows stay.
    rests_until: BTreeMap<ProgramId, Instant>,
}

impl Session<'_> {
    /// Reads the cursors that the server has: they count, and not what is remembered.
    async fn begin(&mut self) -> Result<(), SinkError> {
        let sink = self.sink;
        let found = cursors(&self.connection, &sink.writer.network, &sink.writer.sink).await?;
        let mut state = sink.state.lock();
        (state.is_connected, state.reason) = (true, None);
        let are_orders_known = std::mem::replace(&mut state.are_orders_known, true);
        for project in state.projects.values_mut() {
            (project.is_unread, project.cursor, project.retry_at) = (true, None, None);
        }
        for cursor in found {
            let name = cursor.project.clone();
            let project = state.project(&name);
            let is_own = cursor.writer == sink.writer.id;
            project.is_to_replace |= !are_orders_known && is_own && cursor.is_to_replace();
            project.cursor = Some(cursor);
        }
        Ok(())
    }

    /// Gives every project its turn. Returns whether there may be more to do.
    async fn round(&mut self) -> Result<bool, String> {
        let programs = self.sink.programs();
        self.tell_absent(&programs).await?;
        self.made.retain(|id, _| programs.iter().any(|it| it.manifest.id == *id));
        self.touch(&programs).await?;
        let mut is_busy = false;
        for program in &programs {
            let project = &program.manifest.project_name;
            let is_due = {
                let mut state = self.sink.state.lock();
                let known = state.project(project);
                known.last = program.last;
                let is_due = !known.is_filled() && known.is_due(Instant::now());
                is_due && !(self.rests(program.manifest.id) && has_all(known, program))
            };
            if !is_due {
                continue;
            }
            let sink = self.sink;
            let _writing = sink.writing.lock().await;
            match self.step(program).await {
                Ok(more) => is_busy |= more,
                Err(Ended::Told) => {}
                Err(Ended::Lost(reason)) => return Err(reason),
            }
        }
        Ok(is_busy)
    }

    /// Whether the position of a program without new rows stays as it is for a while.
    fn rests(&self, id: ProgramId) -> bool {
        self.rests_until.get(&id).is_some_and(|until| *until > Instant::now())
    }

    /// Adds the next rows of a project. Returns whether there may be more.
    async fn step(&mut self, program: &CopiedProgram) -> Result<bool, Ended> {
        let project = &program.manifest.project_name;
        match self.add(program).await {
            Ok(more) => Ok(more),
            Err(SinkError::Lost(reason)) => Err(Ended::Lost(reason)),
            Err(error) => {
                self.made.remove(&program.manifest.id);
                self.told(project, error);
                match self.connection.is_lost() {
                    true => Err(Ended::Lost("the connection was lost".to_owned())),
                    false => Err(Ended::Told),
                }
            }
        }
    }

    /// Notes why no rows of a project could be added.
    fn told(&self, project: &str, error: SinkError) {
        match error {
            SinkError::Moved(_) => {
                let mut state = self.sink.state.lock();
                let known = state.project(project);
                (known.is_unread, known.cursor) = (true, None);
            }
            SinkError::Busy(reason) => {
                let mut state = self.sink.state.lock();
                let known = state.project(project);
                known.reason = Some(reason);
                known.retry_at = Some(Instant::now() + SOON);
            }
            error => {
                let blocked = match &error {
                    SinkError::Blocked(blocked) => blocked.clone(),
                    _ => Vec::new(),
                };
                self.sink.stop_project(project, SinkProjectState::Stopped, error.to_string());
                self.sink.state.lock().project(project).blocked_by = blocked;
            }
        }
    }

    async fn add(&mut self, program: &CopiedProgram) -> Result<bool, SinkError> {
        let sink = self.sink;
        let (id, project) = (program.manifest.id, &program.manifest.project_name);
        let schema = match names::schema(&sink.settings.schema, project) {
            Ok(schema) => schema,
            Err(sentence) => {
                sink.stop_project(project, SinkProjectState::Refused, sentence);
                return Ok(false);
            }
        };
        let Some(cursor) = self.cursor(program, &schema).await? else { return Ok(false) };
        let known = self.made.get(&id).map(|(made, _)| made);
        let read = gather::live_rows(&sink.source, (id, &schema), known, cursor.position);
        let rows = match read {
            Ok(Some(rows)) => rows,
            Ok(None) => {
                sink.set(project, SinkProjectState::Behind, Some(DERIVED.to_owned()));
                sink.wake_filling.notify_one();
                return Ok(false);
            }
            Err(error) => {
                sink.stop_project(project, SinkProjectState::Stopped, error.to_string());
                return Ok(false);
            }
        };
        if generation_of(&rows.made.manifest) != Some(cursor.generation) {
            // The list of programs is older than these rows.
            return Ok(true);
        }
        if !self.make(program, &rows.made).await? {
            return Ok(false);
        }
        self.write(program, cursor, rows).await
    }

    /// Returns the cursor of a project if live rows go on from it; else has its tables filled.
    async fn cursor(
        &mut self,
        program: &CopiedProgram,
        schema: &str,
    ) -> Result<Option<Cursor>, SinkError> {
        let sink = self.sink;
        let project = &program.manifest.project_name;
        let (is_unread, known, is_to_replace) = {
            let mut state = sink.state.lock();
            let known = state.project(project);
            schema.clone_into(&mut known.schema);
            (known.is_unread, known.cursor.clone(), known.is_to_replace)
        };
        let cursor = match is_unread {
            true => sink.writer.cursor(&self.connection, project).await?,
            false => known,
        };
        // An order that is only in the database: the answer to whoever gave it was lost, or it came during a swap.
        let is_ordered = is_unread
            && cursor.as_ref().is_some_and(|it| it.writer == sink.writer.id && it.is_to_replace());
        let is_to_replace = is_to_replace || is_ordered;
        let reason = match &cursor {
            None => Some("its tables are filled for the first time".to_owned()),
            Some(_) if is_to_replace => Some(ORDERED.to_owned()),
            Some(cursor) => {
                // Where the log is, is looked up once for each connection.
                let is_checked = !is_unread;
                self.reason_to_fill(program, schema, cursor, is_checked)?
            }
        };
        let mut state = sink.state.lock();
        let known = state.project(project);
        (known.is_unread, known.cursor) = (false, cursor.clone());
        known.is_to_replace |= is_ordered;
        if reason.is_some() {
            known.set(SinkProjectState::Behind, reason);
            sink.wake_filling.notify_one();
            return Ok(None);
        }
        Ok(cursor)
    }

    /// Returns why the rows behind a cursor are not those of a program's log.
    fn reason_to_fill(
        &self,
        program: &CopiedProgram,
        schema: &str,
        cursor: &Cursor,
        is_in_log: bool,
    ) -> Result<Option<String>, SinkError> {
        let sink = self.sink;
        let Some(generation) = generation_of(&program.manifest) else {
            return Ok(Some(DERIVED.to_owned()));
        };
        let reason = if cursor.writer != sink.writer.id {
            format!("its rows are those of another service, {}", cursor.writer_name)
        } else if cursor.generation.program != generation.program
            || cursor.generation.deployed != generation.deployed
        {
            "its rows are those of a program that was replaced".to_owned()
        } else if cursor.generation != generation {
            DERIVED.to_owned()
        } else if cursor.schema != schema {
            format!("its tables are in the schema {}", cursor.schema)
        } else if !is_in_log && !is_logged(sink, program, cursor)? {
            "its rows are not those of the stored log, as after a backup was restored".to_owned()
        } else {
            return Ok(None);
        };
        Ok(Some(reason))
    }

    /// Makes the tables that rows need. Returns whether they are there: otherwise some are filled again.
    async fn make(&mut self, program: &CopiedProgram, made: &Made) -> Result<bool, SinkError> {
        let sink = self.sink;
        let id = program.manifest.id;
        if self.made.get(&id).is_some_and(|(known, _)| known.is_of(&made.manifest)) {
            return Ok(true);
        }
        let project = &made.layout.project;
        if !changed_tables(&self.connection, &sink.writer, project).await?.is_empty() {
            let reason = "columns of its tables have other types now".to_owned();
            sink.set(&project.name, SinkProjectState::Behind, Some(reason));
            sink.wake_filling.notify_one();
            return Ok(false);
        }
        let places = ensure(&self.connection, &sink.writer, project).await?;
        self.made.insert(id, (made.clone(), places));
        self.watch(project).await.map_err(SinkError::Lost)?;
        Ok(true)
    }

    async fn write(
        &mut self,
        program: &CopiedProgram,
        cursor: Cursor,
        rows: LiveRows,
    ) -> Result<bool, SinkError> {
        let sink = self.sink;
        let (id, project) = (program.manifest.id, &program.manifest.project_name);
        let LiveRows { gathered, is_part, end, .. } = rows;
        let has_rows = gathered.runs > 0;
        let batch = self.batch(id, &cursor, gathered, end);
        if !has_rows {
            self.rests_until.insert(id, Instant::now() + LOOK / 2);
        }
        let Some(batch) = batch else {
            self.written(program, cursor, end.is_some()).await?;
            return Ok(false);
        };
        let Some((made, places)) = self.made.get(&id) else { return Ok(true) };
        let notify = if sink.settings.notify { Notify::Listeners } else { Notify::Nobody };
        let names = (&**project, &*made.layout.project.schema);
        let begun = Instant::now();
        let mut sent = vec![counts(&batch)];
        let mut more = |from: Position| {
            // The rows of a ledger that has too many for the memory follow part by part, in the same transaction.
            let next =
                if is_part { gather::rest_of_ledger(&sink.source, made, from)? } else { None };
            let next = next.map(|it| it.into_batch(batch.generation, from, batch.ledger));
            if from == batch.to {
                sent.truncate(1);
            }
            sent.extend(next.as_ref().map(counts));
            Ok(next)
        };
        let (connection, writer) = (&self.connection, &sink.writer);
        let now = apply_all(connection, writer, places, names, &batch, &mut more, notify).await?;
        if !has_rows {
            let rest = (begun.elapsed() * REST).max(LOOK / 2);
            self.rests_until.insert(id, Instant::now() + rest);
        }
        for tables in &sent {
            count(sink, project, tables);
        }
        self.written(program, now, end.is_some()).await?;
        Ok(has_rows)
    }

    /// Returns what is written; `None` when nothing is.
    fn batch(
        &self,
        id: ProgramId,
        cursor: &Cursor,
        gathered: gather::Gathered,
        end: Option<EndOfLog>,
    ) -> Option<Batch> {
        let ledger = end.and_then(|end| end.ledger).map_or(cursor.ledger, |it| it.0);
        let held_from = end.and_then(|end| end.held_from).map(|it| it.0);
        let is_news = ledger > cursor.ledger || held_from.is_some_and(|it| it != cursor.held_from);
        if gathered.runs == 0 && (!is_news || self.rests(id)) {
            return None;
        }
        let ledger = ledger.max(cursor.ledger);
        let batch = gathered.into_batch(cursor.generation, cursor.position, ledger);
        Some(Batch { held_from, ..batch })
    }

    /// Notes where the rows of a project are now.
    async fn written(
        &self,
        program: &CopiedProgram,
        mut cursor: Cursor,
        is_end: bool,
    ) -> Result<(), SinkError> {
        let project = &program.manifest.project_name;
        let is_paused = is_end && !program.manifest.running;
        let state = match (is_end, is_paused) {
            (_, true) => SinkProjectState::Paused,
            (true, false) => SinkProjectState::Live,
            (false, false) => SinkProjectState::CatchingUp,
        };
        if !cursor.is_to_replace()
            && cursor.state != state.name()
            && (is_paused || cursor.state != SinkProjectState::Live.name())
        {
            let name = if is_paused { state.name() } else { SinkProjectState::Live.name() };
            self.sink.writer.set_state(&self.connection, project, name).await?;
            name.clone_into(&mut cursor.state);
        }
        let mut known = self.sink.state.lock();
        let known = known.project(project);
        known.is_to_replace |= cursor.is_to_replace();
        known.cursor = Some(cursor);
        // Somebody may have ordered to fill its tables again meanwhile.
        if !known.is_to_replace {
            known.set(state, None);
        } else if !known.is_filled() {
            known.set(SinkProjectState::Behind, Some(ORDERED.to_owned()));
            self.sink.wake_filling.notify_one();
        }
        Ok(())
    }
}

/// Whether a project has all rows of its program, as the list of programs says.
fn has_all(known: &ProjectState, program: &CopiedProgram) -> bool {
    let has_all = |cursor: &Cursor| {
        cursor.position.number == program.last
            && generation_of(&program.manifest) == Some(cursor.generation)
    };
    let is_quiet = known.state == SinkProjectState::Live && !known.is_to_replace;
    is_quiet && !known.is_unread && known.cursor.as_ref().is_some_and(has_all)
}

/// Why a project's tables are filled again after its rows were derived anew.
const DERIVED: &str = "derived again";

/// The numbers of rows of a table, and of characters U+0000 in them.
type Count = (String, u64, u64);

fn counts(batch: &Batch) -> Vec<Count> {
    let tables = batch.tables.iter();
    tables.map(|it| (it.target().to_owned(), it.digest().rows, it.nuls())).collect()
}

/// Adds what was written to the counts of a project's tables.
fn count(sink: &Sink, project: &str, tables: &[Count]) {
    sink.metrics.sink_wrote(&sink.name, tables.iter().map(|(_, rows, _)| rows).sum());
    let mut state = sink.state.lock();
    let known = state.project(project);
    for (target, rows, nuls) in tables {
        if let Some(table) = known.tables.iter_mut().find(|it| it.target == *target) {
            table.rows += rows;
            table.nuls += nuls;
        }
    }
}

/// Whether a cursor is at a place of the program's log.
pub(crate) fn is_logged(
    sink: &Sink,
    program: &CopiedProgram,
    cursor: &Cursor,
) -> Result<bool, SinkError> {
    let position = cursor.position;
    if position.number == 0 {
        return Ok(true);
    }
    if position.number > program.last {
        return Ok(false);
    }
    let found = sink.source.programs.logged_transaction(program.manifest.id, position.number);
    let found = found.map_err(|error| SinkError::Busy(error.to_string()))?;
    Ok(found.is_some_and(|it| {
        (it.ledger.0, it.application_order) == (position.ledger, position.transaction)
    }))
}
