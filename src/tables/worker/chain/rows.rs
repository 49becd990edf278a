//! The rows of a table of the chain that a query needs, from the files and the rows in memory that it finds: files
//! and groups of rows that have none of them are not read, and where only the number of rows is asked for, none is.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int8Array};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use super::condition::{Constant, Span};
use super::held::{ChainQuery, HeldRows};
use super::plan::First;
use super::reading::{Reading, Wanted, span_of_ledgers};
use super::scans::Share;
use crate::chain::{ChainColumn, MAX_BATCH_ROWS};
use crate::names::LEDGER_OF_CHAIN;
use crate::wire::FileOfTable;

/// What the user is told of a file that is not what it should be.
const DAMAGED: &str = "A data file of the tables of the chain is damaged: tell the operator";
/// What the user is told when something else is wrong.
const BROKEN: &str =
    "The tables of the chain cannot be read, because of an error of the service: tell the operator";

/// The rows of a table.
pub struct Rows {
    query: Arc<ChainQuery>,
    wanted: Wanted,
    /// Columns of the function that are asked for: 0 is the one without values, others are those of the table.
    projected: Vec<usize>,
    schema: SchemaRef,
    sources: VecDeque<Source>,
    current: Option<Current>,
    first: Option<Ledgers>,
    /// Released after the last row.
    share: Option<Share>,
}

enum Source {
    File(FileOfTable),
    Held(Arc<HeldRows>),
}

enum Current {
    Reading(Reading),
    /// Rows without values, of which so many are left.
    Count(u64),
}

/// The ledgers of the first rows so far.
struct Ledgers {
    first: First,
    /// Place of the ledger among the columns that are read.
    column: usize,
    /// The ledgers, so that the last one is at the top: negated if the newest come first.
    seen: BinaryHeap<i64>,
}

impl Source {
    fn ledgers(&self) -> (u32, u32) {
        match self {
            Self::File(file) => file.ledgers,
            Self::Held(rows) => rows.ledgers,
        }
    }
}

impl Rows {
    /// Returns the rows of a table with these columns.
    ///
    /// # Errors
    /// The sentence for the user when too much is read at a time.
    pub fn begin(
        query: &Arc<ChainQuery>,
        table: &str,
        columns: &Arc<Vec<ChainColumn>>,
        projected: &[usize],
    ) -> Result<Self, String> {
        let needs = query.needs(table);
        let read: Vec<usize> =
            projected.iter().filter_map(|column| column.checked_sub(1)).collect();
        let condition = needs.condition.clone().map(Arc::new);
        let wanted = Wanted { columns: Arc::clone(columns), read, condition };
        let content = query.table(table);
        let files = content.iter().flat_map(|content| &*content.files).cloned().map(Source::File);
        let held = content.iter().flat_map(|content| &content.rows).cloned().map(Source::Held);
        let mut sources: Vec<Source> = files.chain(held).collect();
        sources.sort_by_key(Source::ledgers);
        if needs.first.is_some_and(|first| first.newest) {
            sources.sort_by_key(|source| Reverse(source.ledgers().1));
        }
        let is_ledger =
            |at: &usize| columns.get(*at).is_some_and(|column| column.name == LEDGER_OF_CHAIN);
        let first = needs.first.zip(wanted.read.iter().position(is_ledger));
        let first = first.map(|(first, column)| Ledgers { first, column, seen: BinaryHeap::new() });
        let share = match wanted.width() {
            0 => None,
            width => Some(query.scans.begin(width)?),
        };
        Ok(Self {
            query: Arc::clone(query),
            schema: schema(columns, projected),
            wanted,
            projected: projected.to_vec(),
            sources: sources.into(),
            current: None,
            first,
            share,
        })
    }

    /// Returns the next rows; `None` after the last.
    ///
    /// # Errors
    /// The sentence for the user when rows cannot be read.
    pub fn next(&mut self) -> Result<Option<RecordBatch>, String> {
        loop {
            if self.query.is_stopped() {
                return Err("The query was stopped".to_owned());
            }
            if self.current.is_none() {
                let Some(source) = self.sources.pop_front() else {
                    self.share = None;
                    return Ok(None);
                };
                self.current = self.open(source)?;
                continue;
            }
            match self.values()? {
                None => self.current = None,
                Some((_, 0)) => {}
                Some((values, rows)) => {
                    if let Some(ledgers) = &mut self.first {
                        ledgers.see(&values);
                    }
                    return self.batch(values, rows).map(Some).map_err(|error| {
                        self.query.files.reports.tell("columns", &error.to_string());
                        self.query.unreadable(BROKEN.to_owned())
                    });
                }
            }
        }
    }

    /// Returns the next rows of the place that is read, of which there may be none; `None` after its last.
    fn values(&mut self) -> Result<Option<(Vec<ArrayRef>, usize)>, String> {
        let reading = match &mut self.current {
            None | Some(Current::Count(0)) => return Ok(None),
            Some(Current::Count(left)) => {
                let rows = (*left).min(MAX_BATCH_ROWS as u64);
                *left -= rows;
                return Ok(Some((Vec::new(), rows as usize)));
            }
            Some(Current::Reading(reading)) => reading,
        };
        let (first, wanted) = (&self.first, &self.wanted);
        let is_needed =
            |span: &dyn Fn(usize) -> Option<Span>| is_needed(first, &wanted.columns, span);
        // The reader of a damaged file may panic.
        let found = catch_unwind(AssertUnwindSafe(|| reading.next(wanted, &is_needed)));
        let cause = match found {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "its reader panics".to_owned(),
        };
        self.query.files.reports.tell(reading.place(), &cause);
        let sentence = if reading.is_of_file() { DAMAGED } else { BROKEN };
        self.current = None;
        Err(self.query.unreadable(sentence.to_owned()))
    }

    /// Begins to read what is at a place, if rows there are needed.
    fn open(&self, source: Source) -> Result<Option<Current>, String> {
        let columns = &self.wanted.columns;
        let span = span_of_ledgers(columns, source.ledgers());
        let condition = self.wanted.condition.as_ref();
        if !condition.is_none_or(|condition| condition.may_hold(&span))
            || !is_needed(&self.first, columns, &span)
        {
            return Ok(None);
        }
        if self.wanted.read.is_empty() && condition.is_none() {
            return Ok(Some(Current::Count(match source {
                Source::File(file) => file.rows,
                Source::Held(rows) => rows.rows(),
            })));
        }
        let newest_first = self.first.as_ref().is_some_and(|ledgers| ledgers.first.newest);
        Ok(Some(Current::Reading(match source {
            Source::Held(rows) => Reading::Held(rows, 0),
            Source::File(file) => {
                let opened = self.query.files.open(&file);
                let opened = opened.map_err(|sentence| self.query.unreadable(sentence))?;
                Reading::of_file(opened, newest_first)
            }
        })))
    }

    /// Returns rows with the columns that are asked for.
    fn batch(&self, values: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, ArrowError> {
        let mut values = values.into_iter();
        let columns = self.projected.iter().map(|column| match column {
            0 => Some(Arc::new(Int8Array::from(vec![0; rows])) as ArrayRef),
            _ => values.next(),
        });
        let columns: Vec<ArrayRef> = columns.flatten().collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
    }
}

impl Ledgers {
    /// Notes the ledgers of rows.
    fn see(&mut self, values: &[ArrayRef]) {
        let Some(ledgers) = values.get(self.column) else { return };
        for ledger in ledgers.as_primitive::<Int64Type>().iter().flatten() {
            self.seen.push(if self.first.newest { -ledger } else { ledger });
            if self.seen.len() > self.first.rows {
                self.seen.pop();
            }
        }
    }

    /// Whether rows of which this is known may be among the first ones.
    fn may_take(&self, columns: &[ChainColumn], span: &dyn Fn(usize) -> Option<Span>) -> bool {
        if self.seen.len() < self.first.rows {
            return true;
        }
        let ledger = columns.iter().position(|column| column.name == LEDGER_OF_CHAIN);
        let Some(Span { least, greatest }) = ledger.and_then(span) else { return true };
        let Some(last) = self.seen.peek() else { return false };
        match (self.first.newest, least, greatest) {
            (true, _, Constant::Integer(greatest)) => -greatest <= *last,
            (false, Constant::Integer(least), _) => least <= *last,
            _ => true,
        }
    }
}

/// Whether rows are needed of which this is known.
fn is_needed(
    first: &Option<Ledgers>,
    columns: &[ChainColumn],
    span: &dyn Fn(usize) -> Option<Span>,
) -> bool {
    first.as_ref().is_none_or(|ledgers| ledgers.may_take(columns, span))
}

/// Returns the schema of the columns of the function that are asked for.
fn schema(columns: &[ChainColumn], projected: &[usize]) -> SchemaRef {
    let field = |column: &usize| match column.checked_sub(1).and_then(|at| columns.get(at)) {
        Some(ChainColumn { name, kind }) => Field::new(name, kind.arrow(), true),
        None => Field::new("none", DataType::Int8, false),
    };
    Arc::new(Schema::new(projected.iter().map(field).collect::<Vec<_>>()))
}
