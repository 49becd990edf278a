//! Sends changes to a worker: packs rows into Arrow batches, which the worker appends, with several
//! frames in flight at a time, also while it commits the transaction before.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use arrow::ipc::writer::StreamWriter;
use arrow::record_batch::RecordBatch;
use orrery_ledger::domain::{Emit, ProgramId};
use stellar_xdr::ScVal;

use super::changes::{Change, NewRows};
use super::error::TablesError;
use super::frame::{ABSENT_FIELD_BYTES, Frame, MAX_BYTES, MAX_ROWS, ROW_OVERHEAD_BYTES};
use super::owners::{OwnerTables, State};
use super::row::Row;
use super::schema::TableSchema;
use super::wire::{Definition, Filling, Reply, Request};
use super::worker_process::{NoReply, PendingReply, Worker};
use super::{encode, names};

/// Maximum number of bytes of unacknowledged frames while the next frame is packed. The worker has
/// them in memory, besides what DuckDB uses.
const MAX_IN_FLIGHT_BYTES: usize = 8 << 20;

/// Applies transactions to an owner's tables in order, each of them completely or not at all. While
/// the worker commits one, the next is taken from the iterator, and its rows are packed and sent.
///
/// # Errors
/// Of the first transaction that fails. The ones before it are committed.
pub(super) fn apply(
    tables: &OwnerTables,
    transactions: impl IntoIterator<Item: IntoIterator<Item = Change>>,
) -> Result<(), TablesError> {
    let _changing = tables.changing.lock();
    let worker = tables.running_worker()?;
    let mut sender = {
        Sender {
            tables,
            worker: &worker,
            state: tables.state.lock().clone(),
            new_watermarks: BTreeMap::new(),
            has_defined: false,
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            committing: None,
        }
    };
    let sent = transactions.into_iter().try_for_each(|changes| sender.send_transaction(changes));
    if sent.is_err() {
        // The worker rolls the transaction back. If the worker is gone, the transaction is gone
        // too.
        let _ = worker.send_one_way(&Request::Abort);
    }
    sender.wait_committed().and(sent)
}

/// Sends transactions to a worker.
struct Sender<'a> {
    tables: &'a OwnerTables,
    worker: &'a Arc<Worker>,
    /// The tables as they will be after the current transaction.
    state: State,
    /// Watermarks that the current transaction moves, with their new values.
    new_watermarks: BTreeMap<ProgramId, u64>,
    /// Whether the current transaction defines a program: the worker may then alter tables before
    /// it acknowledges rows, which takes longer.
    has_defined: bool,
    /// Frames of rows that are not acknowledged yet, with their lengths in bytes.
    in_flight: VecDeque<(PendingReply<'a>, usize)>,
    /// Sum of these lengths.
    in_flight_bytes: usize,
    /// The transaction before the current one, until its commit is acknowledged. The next commit is
    /// sent only then, so that none can follow one that failed.
    committing: Option<Committing<'a>>,
}

/// A transaction whose commit was sent, and the state of the tables after it.
struct Committing<'a> {
    pending: PendingReply<'a>,
    state: State,
}

impl Sender<'_> {
    /// Sends a transaction. Its changes are taken one by one, while the worker applies those before.
    fn send_transaction(
        &mut self,
        changes: impl IntoIterator<Item = Change>,
    ) -> Result<(), TablesError> {
        self.has_defined = false;
        self.send_one_way(&Request::Begin)?;
        for change in changes {
            match change {
                Change::Program { id, project, own, schema } => {
                    self.program(Definition { program: id, project, own, schema })?;
                }
                Change::Rename { program, project } => self.rename(program, project)?,
                Change::Rows { program, after, up_to, rows } => {
                    self.apply_rows(program, after, up_to, &rows)?;
                }
                Change::Drop { program } => self.drop(program)?,
                Change::Progress { program, ranges } => {
                    self.send_one_way(&Request::Progress { program, ranges })?;
                }
            }
        }
        self.wait_appended(0)?;
        self.wait_committed()?;
        self.state.commit += 1;
        let commit = self.state.commit;
        let watermarks = std::mem::take(&mut self.new_watermarks);
        let pending = self.send_request(&Request::Commit { commit, watermarks }, &[])?;
        self.committing = Some(Committing { pending, state: self.state.clone() });
        Ok(())
    }

    /// Waits until the worker acknowledges the commit in progress, if there is one.
    fn wait_committed(&mut self) -> Result<(), TablesError> {
        let Some(Committing { pending, state }) = self.committing.take() else { return Ok(()) };
        match self.next(&pending, self.worker.timeouts().commit)? {
            Reply::Committed => {}
            reply => return Err(self.tables.failed(self.worker, reply)),
        }
        let tables = self.tables;
        // A query may have found the file damaged meanwhile: then the file was put aside and
        // replaced.
        let acknowledged = tables.slot.run_if_current(self.worker, || {
            let commit = state.commit;
            *tables.state.lock() = state;
            tables.directory.acknowledge(commit).map_err(|error| tables.directory_error(error))
        });
        let aside = || TablesError::Unavailable("The tables were replaced meanwhile".to_owned());
        acknowledged.ok_or_else(aside)?
    }

    /// Makes the tables of a program those of the definition. If the existing values cannot be
    /// converted in place, other tables are filled beside them, and all rows have to be sent again.
    fn program(&mut self, definition: Definition) -> Result<(), TablesError> {
        let id = definition.program;
        let Some(shown) = self.state.programs.get(&id) else { return self.define(definition) };
        let filling = self.state.fillings.get(&id);
        let rows_shown = filling.map(|it| it.complete_at);
        let rows_shown = rows_shown.or_else(|| self.state.watermarks.get(&id).copied());
        let rows_shown = rows_shown.unwrap_or(0);
        if shown.schema.grows_into(&definition.schema) {
            let is_same = *shown == definition;
            self.discard(id)?;
            return if is_same { Ok(()) } else { self.define(definition) };
        }
        if rows_shown == 0 {
            self.drop(id)?;
            return self.define(definition);
        }
        let Definition { project, own, schema, .. } = definition;
        if (&shown.project, shown.own) != (&project, own) {
            let names = Definition { project, own, ..shown.clone() };
            self.define(names)?;
        }
        self.fill(Filling { program: id, schema, complete_at: rows_shown })
    }

    fn define(&mut self, definition: Definition) -> Result<(), TablesError> {
        self.send_one_way(&Request::Define(definition.clone()))?;
        self.has_defined = true;
        self.state.watermarks.entry(definition.program).or_insert(0);
        Arc::make_mut(&mut self.state.programs).insert(definition.program, definition);
        Ok(())
    }

    /// Begins to fill tables of a program anew, or goes on if those that are being filled can become
    /// these.
    fn fill(&mut self, filling: Filling) -> Result<(), TablesError> {
        let id = filling.program;
        match self.state.fillings.get(&id) {
            Some(known) if known.schema == filling.schema => return Ok(()),
            Some(known) if known.schema.grows_into(&filling.schema) => {}
            _ => {
                self.discard(id)?;
                self.set_watermark(id, 0);
            }
        }
        self.send_one_way(&Request::Fill(filling.clone()))?;
        self.has_defined = true;
        Arc::make_mut(&mut self.state.fillings).insert(id, filling);
        Ok(())
    }

    /// Ends the filling of a program's tables, if they are being filled. Rows go on in those that
    /// queries see.
    fn discard(&mut self, program: ProgramId) -> Result<(), TablesError> {
        if !self.state.fillings.contains_key(&program) {
            return Ok(());
        }
        self.send_one_way(&Request::Discard { program })?;
        let filling = Arc::make_mut(&mut self.state.fillings).remove(&program);
        filling.into_iter().for_each(|it| self.set_watermark(program, it.complete_at));
        Ok(())
    }

    /// Shows the tables of a program that are being filled, if they have all rows that those have
    /// which queries see now.
    fn swap_if_complete(&mut self, program: ProgramId) -> Result<(), TablesError> {
        let reached = self.state.watermarks.get(&program).copied().unwrap_or(0);
        let filling = self.state.fillings.get(&program);
        if filling.is_none_or(|filling| reached < filling.complete_at) {
            return Ok(());
        }
        self.send_one_way(&Request::Swap { program })?;
        self.has_defined = true;
        let filling = Arc::make_mut(&mut self.state.fillings).remove(&program);
        let shown = Arc::make_mut(&mut self.state.programs).get_mut(&program);
        if let Some((filling, shown)) = filling.zip(shown) {
            shown.schema = filling.schema;
        }
        Ok(())
    }

    fn set_watermark(&mut self, program: ProgramId, number: u64) {
        self.state.watermarks.insert(program, number);
        self.new_watermarks.insert(program, number);
    }

    fn drop(&mut self, program: ProgramId) -> Result<(), TablesError> {
        self.send_one_way(&Request::Drop { program })?;
        self.state.watermarks.remove(&program);
        self.new_watermarks.remove(&program);
        Arc::make_mut(&mut self.state.fillings).remove(&program);
        Arc::make_mut(&mut self.state.programs).remove(&program);
        Ok(())
    }

    fn rename(&mut self, program: ProgramId, project: String) -> Result<(), TablesError> {
        let known = self.state.programs.get(&program).filter(|known| known.project != project);
        let Some(known) = known else { return Ok(()) };
        self.define(Definition { project, ..known.clone() })
    }

    fn apply_rows(
        &mut self,
        program: ProgramId,
        after: u64,
        up_to: u64,
        rows: &NewRows,
    ) -> Result<(), TablesError> {
        let unknown = || {
            TablesError::Other(format!(
                "program {program} is not known to the tables of this owner"
            ))
        };
        let watermark = self.state.watermarks.get(&program).copied().ok_or_else(unknown)?;
        if watermark != after || up_to < after {
            return Err(TablesError::Other(format!(
                "program {program} has rows up to {watermark}, and these come after {after}"
            )));
        }
        self.set_watermark(program, up_to);
        let programs = Arc::clone(&self.state.programs);
        let fillings = Arc::clone(&self.state.fillings);
        let filling = fillings.get(&program).map(|filling| &filling.schema);
        let shown = || programs.get(&program).map(|shown| &shown.schema);
        let schema = filling.or_else(shown).ok_or_else(unknown)?;
        let is_of_events = schema.of_events().events.is_some();
        let name = |target: &str| match fillings.contains_key(&program) {
            true => names::filling(program, target),
            false => names::stored(program, target, is_of_events),
        };
        let table_of = |target: &str| {
            schema.table(target).ok_or_else(|| TablesError::unknown_target(program, target))
        };
        match rows {
            NewRows::Emits(rows) => {
                let mut of_targets: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
                for row in rows {
                    of_targets.entry(&row.emit.target).or_default().push(row);
                }
                for (target, rows) in of_targets {
                    let table = table_of(target)?;
                    for rows in frames(table, &rows) {
                        let batch = encode::record_batch(table, rows)?;
                        self.append(name(&table.target), &batch)?;
                    }
                }
            }
            NewRows::Frames(frames) => {
                for Frame { target, columns } in frames {
                    let table = table_of(target)?;
                    if columns.num_columns() != names::INJECTED.len() + table.columns.len() {
                        return Err(TablesError::unknown_target(program, target));
                    }
                    self.append(name(&table.target), columns)?;
                }
            }
        }
        self.swap_if_complete(program)
    }

    /// Sends a frame.
    fn append(&mut self, table: String, columns: &RecordBatch) -> Result<(), TablesError> {
        let mut writer = StreamWriter::try_new(Vec::new(), &columns.schema())?;
        writer.write(columns)?;
        let body = writer.into_inner()?;
        let pending = self.send_request(&Request::Append { table }, &body)?;
        self.in_flight.push_back((pending, body.len()));
        self.in_flight_bytes += body.len();
        self.wait_appended(MAX_IN_FLIGHT_BYTES)
    }

    /// Waits until the unacknowledged frames have at most this many bytes. Whether DuckDB accepted
    /// the rows is reported by the commit.
    fn wait_appended(&mut self, bytes: usize) -> Result<(), TablesError> {
        while self.in_flight_bytes > bytes
            && let Some((pending, length)) = self.in_flight.pop_front()
        {
            // The worker appends the frame after this commit, which has a timeout of its own.
            self.wait_committed()?;
            let timeouts = self.worker.timeouts();
            let timeout = if self.has_defined { timeouts.commit } else { timeouts.append };
            match self.next(&pending, timeout)? {
                Reply::Appended => self.in_flight_bytes -= length,
                reply => return Err(self.tables.failed(self.worker, reply)),
            }
        }
        Ok(())
    }

    fn next(&self, pending: &PendingReply<'_>, timeout: Duration) -> Result<Reply, TablesError> {
        let answer = pending.next(timeout);
        answer.map(|(reply, _)| reply).map_err(|_| self.tables.lost(self.worker))
    }
}

impl Drop for Sender<'_> {
    /// After a panic of the iterator it is unknown whether the last transaction was committed. Kills
    /// the worker then: the next one reads from the file how far it got.
    fn drop(&mut self) {
        if self.committing.is_some() {
            self.worker.kill();
        }
    }
}

impl<'a> Sender<'a> {
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
            bytes += ROW_OVERHEAD_BYTES + weight(&row.emit);
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

/// Approximate bytes of what an emit holds.
pub(super) fn weight(emit: &Emit) -> usize {
    emit.fields.iter().map(|entry| value_weight(&entry.val)).sum()
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
