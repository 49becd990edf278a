//! Hands changes to a worker: rows packed in columns on this side, appended on the other, several frames on
//! their way at a time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use arrow::ipc::writer::StreamWriter;
use stellar_xdr::ScVal;

use super::owners::Slot;
use super::process::{Asked, NoReply, Worker};
use super::schema::TableSchema;
use super::wire::{Definition, Reply, Request};
use super::{Change, Row, TablesError, encode, names};
use crate::domain::ProgramId;

/// Rows of a frame: while one is appended the next is packed, on another processor.
const MOST_ROWS: usize = 2_048;
/// Bytes of a frame, about.
const MOST_BYTES: usize = 8 << 20;
/// Frames that are on their way while the next one is packed.
const ON_THEIR_WAY: usize = 3;
/// Bytes of a field that is left out of a struct, about.
const PER_ABSENT: usize = 16;
/// Bytes of a row beside its values, about.
const BESIDE_VALUES: usize = 256;

/// Makes changes, all of them or none.
pub(super) fn apply(slot: &Slot, changes: Vec<Change>) -> Result<(), TablesError> {
    let _changing = slot.changing.lock();
    let worker = slot.running()?;
    let (programs, watermarks, commit) = {
        let state = slot.state.lock();
        (state.programs.clone(), state.watermarks.clone(), state.commit + 1)
    };
    let mut attempt = Attempt {
        slot,
        worker: &worker,
        programs,
        watermarks,
        moved: BTreeMap::new(),
        has_defined: false,
        sent: VecDeque::new(),
    };
    let done = attempt.make(changes, commit);
    if let Err(error) = done {
        // Forgotten, unless the worker is gone, which forgets as well.
        let _ = worker.tell(&Request::Abort);
        return Err(error);
    }
    let Attempt { programs, watermarks, .. } = attempt;
    // A query may have found the file damaged in the meantime; then it is another file by now.
    let acknowledged = slot.seat.while_it_is(&worker, || {
        {
            let mut state = slot.state.lock();
            (state.programs, state.watermarks, state.commit) = (programs, watermarks, commit);
        }
        slot.directory.acknowledge(commit).map_err(|error| slot.unusable(error))
    });
    let aside = || TablesError::Unavailable("The tables were put aside meanwhile".to_owned());
    acknowledged.ok_or_else(aside)?
}

/// Changes that are being made.
struct Attempt<'a> {
    slot: &'a Slot,
    worker: &'a Arc<Worker>,
    /// As they will be.
    programs: Arc<BTreeMap<ProgramId, Definition>>,
    watermarks: BTreeMap<ProgramId, u64>,
    /// Those of the watermarks that are others than before.
    moved: BTreeMap<ProgramId, u64>,
    /// Whether tables may be altered, which the replies to rows wait for.
    has_defined: bool,
    /// Frames of rows that are on their way.
    sent: VecDeque<Asked<'a>>,
}

impl Attempt<'_> {
    fn make(&mut self, changes: Vec<Change>, commit: u64) -> Result<(), TablesError> {
        self.tell(&Request::Begin)?;
        for change in changes {
            match change {
                Change::Program { id, project, own, schema } => {
                    let definition = Definition { program: id, project, own, schema };
                    let known = self.programs.get(&id);
                    if known == Some(&definition) {
                        continue;
                    }
                    // Where values cannot become what they are to be, all rows come again.
                    if known.is_some_and(|it| !it.schema.grows_into(&definition.schema)) {
                        self.drop(id)?;
                    }
                    self.tell(&Request::Define(definition.clone()))?;
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
        while let Some(asked) = self.sent.pop_front() {
            self.taken_in(&asked)?;
        }
        let watermarks = std::mem::take(&mut self.moved);
        let timeouts = self.worker.timeouts();
        let asked = self.ask(&Request::Commit { commit, watermarks }, &[])?;
        match self.next(&asked, timeouts.commit)? {
            Reply::Committed => Ok(()),
            reply => Err(self.slot.failed(self.worker, reply)),
        }
    }

    fn drop(&mut self, program: ProgramId) -> Result<(), TablesError> {
        self.tell(&Request::Drop { program })?;
        self.watermarks.remove(&program);
        self.moved.remove(&program);
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
        self.moved.insert(program, up_to);
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
                let asked = self.ask(&Request::Append { table }, &body)?;
                self.sent.push_back(asked);
                if self.sent.len() > ON_THEIR_WAY
                    && let Some(asked) = self.sent.pop_front()
                {
                    self.taken_in(&asked)?;
                }
            }
        }
        Ok(())
    }

    /// Waits until a frame was taken in. Whether its rows fit is told at the end.
    fn taken_in(&self, asked: &Asked<'_>) -> Result<(), TablesError> {
        let timeouts = self.worker.timeouts();
        let within = if self.has_defined { timeouts.commit } else { timeouts.append };
        match self.next(asked, within)? {
            Reply::Appended => Ok(()),
            reply => Err(self.slot.failed(self.worker, reply)),
        }
    }

    fn next(&self, asked: &Asked<'_>, within: Duration) -> Result<Reply, TablesError> {
        let answer = asked.next(within);
        answer.map(|(reply, _)| reply).map_err(|_| self.slot.lost(self.worker))
    }
}

impl<'a> Attempt<'a> {
    fn ask(&self, request: &Request, body: &[u8]) -> Result<Asked<'a>, TablesError> {
        let worker: &'a Worker = self.worker;
        worker.ask(request, body, worker.timeouts().send).map_err(|_| self.slot.lost(self.worker))
    }

    fn tell(&self, request: &Request) -> Result<(), TablesError> {
        let told = self.worker.tell(request);
        told.map_err(|_: NoReply| self.slot.lost(self.worker))
    }
}

/// Rows in parts that are neither too many nor too long.
fn frames<'a, 'b>(table: &TableSchema, rows: &'b [&'a Row]) -> impl Iterator<Item = &'b [&'a Row]> {
    let mut rest = rows;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |row: &&&Row| {
            bytes += BESIDE_VALUES + weight(row);
            bytes += PER_ABSENT * table.absent(&row.emit, MOST_BYTES);
            bytes <= MOST_BYTES
        };
        let length = rest.iter().take(MOST_ROWS).take_while(fits).count();
        // A row that is longer than all of them goes alone.
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
