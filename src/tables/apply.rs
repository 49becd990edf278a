//! Sends changes to a worker: packs rows into Arrow batches, which the worker appends, with several
//! frames in flight at a time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use arrow::ipc::writer::StreamWriter;
use stellar_xdr::ScVal;

use super::owners::OwnerTables;
use super::process::{NoReply, PendingReply, Worker};
use super::schema::TableSchema;
use super::wire::{Definition, Reply, Request};
use super::{Change, Row, TablesError, encode, names};
use crate::domain::ProgramId;

/// Maximum number of rows per frame. The worker appends one frame while the next is packed on
/// another processor.
const MAX_ROWS: usize = 2_048;
/// Approximate maximum length of a frame in bytes.
const MAX_BYTES: usize = 8 << 20;
/// Maximum number of unacknowledged frames while the next one is packed.
const MAX_IN_FLIGHT_FRAMES: usize = 3;
/// Approximate bytes that a field left out of a struct takes in a frame.
const ABSENT_FIELD_BYTES: usize = 16;
/// Approximate bytes of a row besides its values.
const ROW_OVERHEAD_BYTES: usize = 256;

/// Applies changes to an owner's tables, all of them or none.
pub(super) fn apply(tables: &OwnerTables, changes: Vec<Change>) -> Result<(), TablesError> {
    let _changing = tables.changing.lock();
    let worker = tables.running_worker()?;
    let (programs, watermarks, commit) = {
        let state = tables.state.lock();
        (state.programs.clone(), state.watermarks.clone(), state.commit + 1)
    };
    let mut attempt = Attempt {
        tables,
        worker: &worker,
        programs,
        watermarks,
        new_watermarks: BTreeMap::new(),
        has_defined: false,
        in_flight: VecDeque::new(),
    };
    let done = attempt.make(changes, commit);
    if let Err(error) = done {
        // The worker rolls the change back. If the worker is gone, the uncommitted change is gone
        // too.
        let _ = worker.send_one_way(&Request::Abort);
        return Err(error);
    }
    let Attempt { programs, watermarks, .. } = attempt;
    // A query may have found the file damaged meanwhile: then the file was put aside and replaced.
    let acknowledged = tables.slot.run_if_current(&worker, || {
        {
            let mut state = tables.state.lock();
            (state.programs, state.watermarks, state.commit) = (programs, watermarks, commit);
        }
        tables.directory.acknowledge(commit).map_err(|error| tables.directory_error(error))
    });
    let aside = || TablesError::Unavailable("The tables were replaced meanwhile".to_owned());
    acknowledged.ok_or_else(aside)?
}

/// A change in progress.
struct Attempt<'a> {
    tables: &'a OwnerTables,
    worker: &'a Arc<Worker>,
    /// Programs and watermarks as they will be after the commit.
    programs: Arc<BTreeMap<ProgramId, Definition>>,
    watermarks: BTreeMap<ProgramId, u64>,
    /// Watermarks that this change moves, with their new values.
    new_watermarks: BTreeMap<ProgramId, u64>,
    /// Whether the change defines a program: the worker may then alter tables before it
    /// acknowledges rows, which takes longer.
    has_defined: bool,
    /// Frames of rows that are not acknowledged yet.
    in_flight: VecDeque<PendingReply<'a>>,
}

impl Attempt<'_> {
    fn make(&mut self, changes: Vec<Change>, commit: u64) -> Result<(), TablesError> {
        self.send_one_way(&Request::Begin)?;
        for change in changes {
            match change {
                Change::Program { id, project, own, schema } => {
                    let definition = Definition { program: id, project, own, schema };
                    let known = self.programs.get(&id);
                    if known == Some(&definition) {
                        continue;
                    }
                    // If the existing values cannot be converted in place, the program is dropped
                    // and all its rows have to be sent again.
                    if known.is_some_and(|it| !it.schema.grows_into(&definition.schema)) {
                        self.drop(id)?;
                    }
                    self.send_one_way(&Request::Define(definition.clone()))?;
                    self.has_defined = true;
                    self.watermarks.entry(id).or_insert(0);
                    Arc::make_mut(&mut self.programs).insert(id, definition);
                }
                Change::Rows { program, after, up_to, rows } => {
                    self.rows(program, after, up_to, &rows)?;
                }
                Change::Drop { program } => self.drop(program)?,
            }
        }
        while let Some(pending) = self.in_flight.pop_front() {
            self.wait_appended(&pending)?;
        }
        let watermarks = std::mem::take(&mut self.new_watermarks);
        let timeouts = self.worker.timeouts();
        let pending = self.send_request(&Request::Commit { commit, watermarks }, &[])?;
        match self.next(&pending, timeouts.commit)? {
            Reply::Committed => Ok(()),
            reply => Err(self.tables.failed(self.worker, reply)),
        }
    }

    fn drop(&mut self, program: ProgramId) -> Result<(), TablesError> {
        self.send_one_way(&Request::Drop { program })?;
        self.watermarks.remove(&program);
        self.new_watermarks.remove(&program);
        Arc::make_mut(&mut self.programs).remove(&program);
        Ok(())
    }

    fn rows(
        &mut self,
        program: ProgramId,
        after: u64,
        up_to: u64,
        rows: &[Row],
    ) -> Result<(), TablesError> {
        let unknown = || TablesError::UnknownProgram(program);
        let watermark = self.watermarks.get_mut(&program).ok_or_else(unknown)?;
        if *watermark != after || up_to < after {
            let watermark = *watermark;
            return Err(TablesError::OutOfStep { program, watermark, after });
        }
        *watermark = up_to;
        self.new_watermarks.insert(program, up_to);
        let programs = Arc::clone(&self.programs);
        let schema = &programs.get(&program).ok_or_else(unknown)?.schema;
        let mut of_targets: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
        for row in rows {
            of_targets.entry(&row.emit.target).or_default().push(row);
        }
        for (target, rows) in of_targets {
            let table = schema
                .table(target)
                .ok_or_else(|| TablesError::UnknownTarget { program, target: target.to_owned() })?;
            for rows in frames(table, &rows) {
                let batch = encode::record_batch(table, rows)?;
                let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema())?;
                writer.write(&batch)?;
                let body = writer.into_inner()?;
                let table = names::table(program, &table.target);
                let pending = self.send_request(&Request::Append { table }, &body)?;
                self.in_flight.push_back(pending);
                if self.in_flight.len() > MAX_IN_FLIGHT_FRAMES
                    && let Some(pending) = self.in_flight.pop_front()
                {
                    self.wait_appended(&pending)?;
                }
            }
        }
        Ok(())
    }

    /// Waits until the worker acknowledges a frame. Whether DuckDB accepted the rows is reported by
    /// the commit.
    fn wait_appended(&self, pending: &PendingReply<'_>) -> Result<(), TablesError> {
        let timeouts = self.worker.timeouts();
        let timeout = if self.has_defined { timeouts.commit } else { timeouts.append };
        match self.next(pending, timeout)? {
            Reply::Appended => Ok(()),
            reply => Err(self.tables.failed(self.worker, reply)),
        }
    }

    fn next(&self, pending: &PendingReply<'_>, timeout: Duration) -> Result<Reply, TablesError> {
        let answer = pending.next(timeout);
        answer.map(|(reply, _)| reply).map_err(|_| self.tables.lost(self.worker))
    }
}

impl<'a> Attempt<'a> {
    fn send_request(
        &self,
        request: &Request,
        body: &[u8],
    ) -> Result<PendingReply<'a>, TablesError> {
        let worker: &'a Worker = self.worker;
        worker
            .send_request(request, body, worker.timeouts().send)
            .map_err(|_| self.tables.lost(self.worker))
    }

    fn send_one_way(&self, request: &Request) -> Result<(), TablesError> {
        let sent = self.worker.send_one_way(request);
        sent.map_err(|_: NoReply| self.tables.lost(self.worker))
    }
}

/// Splits rows into frames of at most [`MAX_ROWS`] rows and about [`MAX_BYTES`] bytes.
fn frames<'a, 'b>(table: &TableSchema, rows: &'b [&'a Row]) -> impl Iterator<Item = &'b [&'a Row]> {
    let mut rest = rows;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |row: &&&Row| {
            bytes += ROW_OVERHEAD_BYTES + weight(row);
            bytes += ABSENT_FIELD_BYTES * table.absent(&row.emit, MAX_BYTES);
            bytes <= MAX_BYTES
        };
        let length = rest.iter().take(MAX_ROWS).take_while(fits).count();
        // A row longer than `MAX_BYTES` gets a frame of its own.
        let (part, after) = rest.split_at(length.max(1).min(rest.len()));
        rest = after;
        (!part.is_empty()).then_some(part)
    })
}

fn weight(row: &Row) -> usize {
    row.emit.fields.iter().map(|entry| value_weight(&entry.val)).sum()
}

fn value_weight(value: &ScVal) -> usize {
    match value {
        ScVal::Bytes(bytes) => bytes.len(),
        ScVal::String(text) => text.len(),
        ScVal::Vec(Some(values)) => values.iter().map(value_weight).sum::<usize>() + 16,
        ScVal::Map(Some(map)) => {
            let entry = |entry: &stellar_xdr::ScMapEntry| {
                value_weight(&entry.key) + value_weight(&entry.val)
            };
            map.iter().map(entry).sum::<usize>() + 16
        }
        _ => 32,
    }
}
