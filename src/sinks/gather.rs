//! Rows of a project's next runs, as one transaction of the database has them.

use std::collections::BTreeMap;
use std::sync::Arc;

use orrery_ledger::domain::{LedgerSeq, ProgramId};
use orrery_postgres::{Batch, EqualRows, Generation, Position, RowKey, SinkError, TableRows};
use orrery_programs::manifest::Manifest;
use orrery_programs::{EndOfLog, LoggedRun, ProgramError, Programs, RowPlace, Within};
use orrery_store::{Store, TransactionPosition};
use orrery_tables::Row;

use super::layout::Layout;

/// Rows after which a transaction has enough.
const ENOUGH_ROWS: u64 = orrery_postgres::MOST_ROWS;
/// Bytes after which a transaction has enough.
const ENOUGH_BYTES: usize = 6 << 20;
/// Bytes after which rows are sent, even within a ledger: then more of the same transaction follow.
const MOST_BYTES: usize = 8 << 20;

/// Stands for what is after all transactions of a ledger.
const AFTER: u32 = u32::MAX;
/// Stands for a transaction of which the store does not know the order any more.
const UNKNOWN: u32 = u32::MAX - 1;

/// Why rows could not be gathered.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The store fails, or something stored is damaged: it may be tried again.
    Read(ProgramError),
    /// A row does not fit into its table.
    Misfit(String),
    /// The rows are derived anew meanwhile, or nobody waits for them any more: it is begun again.
    Over(String),
}

impl From<ProgramError> for Failed {
    fn from(error: ProgramError) -> Self {
        Self::Read(error)
    }
}

/// What is done about it.
impl From<Failed> for SinkError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Read(error) => Self::Busy(error.to_string()),
            Failed::Misfit(sentence) => Self::Refused(sentence),
            Failed::Over(sentence) => Self::Moved(sentence),
        }
    }
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Read(error) => error.fmt(f),
            Self::Misfit(sentence) | Self::Over(sentence) => f.write_str(sentence),
        }
    }
}

/// Where rows are read.
#[derive(Clone)]
pub(crate) struct Source {
    /// The programs.
    pub programs: Arc<Programs>,
    /// The store that they are in.
    pub store: Arc<Store>,
}

/// Which of a project's rows are wanted.
pub(crate) trait Wanted {
    /// Whether a row of the table at this position of the layout is, in this ledger.
    fn wants(&self, table: usize, ledger: LedgerSeq) -> bool;
}

/// All of them.
pub(crate) struct All;

impl Wanted for All {
    fn wants(&self, _: usize, _: LedgerSeq) -> bool {
        true
    }
}

/// Rows of consecutive runs.
pub(crate) struct Gathered {
    /// The rows, by the position of their table in the layout.
    tables: BTreeMap<usize, TableRows>,
    /// Where the log is behind them.
    pub to: Position,
    /// Number of runs.
    pub runs: u64,
    rows: u64,
    bytes: usize,
}

impl Gathered {
    /// Begins behind a position.
    pub fn new(from: Position) -> Self {
        Self { tables: BTreeMap::new(), to: from, runs: 0, rows: 0, bytes: 0 }
    }

    /// Begins behind a position, and has no rows up to another one.
    pub fn without_rows(from: Position, to: Position) -> Self {
        Self { to, ..Self::new(from) }
    }

    /// Whether a transaction has enough, so that the next run is for another one.
    pub fn is_enough(&self) -> bool {
        self.runs > 0 && (self.rows >= ENOUGH_ROWS || self.bytes >= ENOUGH_BYTES)
    }

    /// Whether there are as many rows as may be in memory at once.
    fn is_full(&self) -> bool {
        self.runs > 0 && self.bytes >= MOST_BYTES
    }

    /// Whether a run is of the ledger of the last one.
    fn has_ledger_of(&self, run: &LoggedRun) -> bool {
        run.position.ledger.0 == self.to.ledger
    }

    /// Adds the rows of a run that are wanted. The manifest is the one that was read with the run: an earlier one with the
    /// same tables may not know yet which of them has its rows.
    pub fn add(
        &mut self,
        source: &Source,
        (manifest, layout): (&Manifest, &Layout),
        run: &LoggedRun,
        wanted: &dyn Wanted,
    ) -> Result<(), Failed> {
        let mut misfit = None;
        let visited = source.programs.rows_of(manifest, run, &mut |place, row| {
            let Some(table) = layout.table_of(manifest, &row.emit.target) else {
                misfit = Some(without_table(place, &row));
                return Ok(());
            };
            if !wanted.wants(table, place.ledger) || misfit.is_some() {
                return Ok(());
            }
            let rows = self
                .tables
                .entry(table)
                .or_insert_with(|| TableRows::new(&layout.project.tables[table]));
            misfit = push(&source.store, layout, (table, rows), place, &row)?.err();
            Ok(())
        });
        visited?;
        if let Some(sentence) = misfit {
            return Err(Failed::Misfit(sentence));
        }
        self.to = position_of(run);
        self.runs += 1;
        self.rows = self.tables.values().map(|rows| rows.digest().rows).sum();
        self.bytes = self.tables.values().map(TableRows::bytes).sum();
        Ok(())
    }

    /// Returns the rows as the server takes them, of a generation, behind a position. `ledger` is the one up to which
    /// everything is there then.
    pub fn into_batch(self, generation: Generation, from: Position, ledger: u32) -> Batch {
        let (tables, equal) = (self.tables.into_values().collect(), Vec::<EqualRows>::new());
        Batch { generation, from, to: self.to, ledger, held_from: None, tables, equal }
    }
}

/// Returns where the log is behind a run.
pub(crate) fn position_of(run: &LoggedRun) -> Position {
    let TransactionPosition { ledger, application_order } = run.position;
    Position { number: run.number, ledger: ledger.0, transaction: application_order }
}

/// Says that there is no table for a row.
pub(crate) fn without_table(place: RowPlace, row: &Row) -> String {
    format!(
        "a row of ledger {} is for {}, which is no table of the project",
        place.ledger, row.emit.target
    )
}

/// Adds a row; the inner error is a sentence, when it does not fit.
pub(crate) fn push(
    store: &Store,
    layout: &Layout,
    (table, rows): (usize, &mut TableRows),
    place: RowPlace,
    row: &Row,
) -> Result<Result<(), String>, ProgramError> {
    let key = key_of(store, place)?;
    let tie = place.tie.map(|tie| *tie.as_bytes());
    let values = match layout.values(table, row) {
        Ok(values) => values,
        Err(column) => {
            let target = &layout.project.tables[table].target;
            return Ok(Err(format!(
                "the column {column} of {target} cannot hold a value of ledger {}",
                place.ledger
            )));
        }
    };
    let pushed = rows.push_tied(key, tie.as_ref().map_or(&[][..], |tie| &tie[..]), &values);
    Ok(pushed.map_err(|misfit| misfit.to_string()))
}

/// Returns the numbers of a row's key.
fn key_of(store: &Store, place: RowPlace) -> Result<RowKey, ProgramError> {
    let transaction = match place.within {
        Within::Before => 0,
        Within::Transaction(order) => order,
        Within::After => AFTER,
        Within::Hash(hash) => {
            let found = store.transaction_position(&hash)?;
            found.map_or(UNKNOWN, |position| position.application_order)
        }
    };
    Ok(RowKey { ledger: place.ledger.0, transaction, number: place.number })
}

/// A manifest, and the tables that follow from it.
#[derive(Clone)]
pub(crate) struct Made {
    pub manifest: Arc<Manifest>,
    pub layout: Arc<Layout>,
}

impl Made {
    /// The tables of a manifest, in this schema.
    ///
    /// # Errors
    /// When the store fails.
    pub fn new(
        source: &Source,
        manifest: &Arc<Manifest>,
        schema: &str,
    ) -> Result<Self, ProgramError> {
        let declared = source.programs.declared_tables(manifest)?;
        let layout = Arc::new(Layout::new(manifest, schema.to_owned(), &declared));
        Ok(Self { manifest: Arc::clone(manifest), layout })
    }

    /// The tables of a manifest: the known ones, if they are.
    ///
    /// # Errors
    /// When the store fails.
    fn known_or_new(
        source: &Source,
        known: Option<&Self>,
        manifest: &Arc<Manifest>,
        schema: &str,
    ) -> Result<Self, ProgramError> {
        match known.filter(|known| known.is_of(manifest)) {
            Some(known) => Ok(known.clone()),
            None => Self::new(source, manifest, schema),
        }
    }

    /// Whether rows by another manifest are in these tables.
    pub fn is_of(&self, manifest: &Arc<Manifest>) -> bool {
        is_same(&self.manifest, manifest)
    }

    /// Whether rows that were in these tables still are what they were, by a later manifest: there may be further tables
    /// and columns.
    pub fn has_rows_of(&self, later: &Manifest) -> bool {
        arrangement(&self.manifest) == arrangement(later)
    }
}

/// Live rows of a project, as many as a transaction takes.
pub(crate) struct LiveRows {
    /// The rows.
    pub gathered: Gathered,
    /// The tables that they are for.
    pub made: Made,
    /// Whether the last ledger has more rows, which are too many to be in memory with these: [`rest_of_ledger`].
    pub is_part: bool,
    /// What is known behind them, if they are all that there are.
    pub end: Option<EndOfLog>,
}

impl LiveRows {
    fn new(gathered: Gathered, made: &Made, is_part: bool) -> Self {
        Self { gathered, made: made.clone(), is_part, end: None }
    }
}

/// Returns the rows of whole ledgers after a position; `None` while they are derived anew. `known` has the tables that
/// are there, if they are known.
pub(crate) fn live_rows(
    source: &Source,
    (id, schema): (ProgramId, &str),
    known: Option<&Made>,
    from: Position,
) -> Result<Option<LiveRows>, Failed> {
    let mut gathered = Gathered::new(from);
    let mut made: Option<Made> = None;
    loop {
        let read = source.programs.runs_to_copy(id, gathered.to.number, u64::MAX)?;
        let Some(read) = read else { return Ok(None) };
        let made = match made.take() {
            None => made.insert(Made::known_or_new(source, known, &read.manifest, schema)?),
            Some(before) if before.is_of(&read.manifest) => made.insert(before),
            // The rest of the ledger needs tables of now: so all of it has them.
            Some(_) if read.runs.first().is_some_and(|run| gathered.has_ledger_of(run)) => {
                gathered = Gathered::new(from);
                continue;
            }
            // Rows of other tables, or of another arrangement, are for the next transaction.
            Some(before) => return Ok(Some(LiveRows::new(gathered, &before, false))),
        };
        for run in &read.runs {
            let is_within = gathered.has_ledger_of(run);
            let is_part = is_within && gathered.is_full();
            let is_over = Some(run.position.ledger) == read.unfinished
                || (!is_within && gathered.is_enough());
            if is_part || is_over {
                return Ok(Some(LiveRows::new(gathered, made, is_part)));
            }
            gathered.add(source, (&read.manifest, &made.layout), run, &All)?;
        }
        if !read.more {
            return Ok(Some(LiveRows { end: read.end, ..LiveRows::new(gathered, made, false) }));
        }
    }
}

/// Returns the next rows of the ledger of a position, as many as may be in memory at once; `None` when it has no more.
pub(crate) fn rest_of_ledger(
    source: &Source,
    made: &Made,
    from: Position,
) -> Result<Option<Gathered>, Failed> {
    let mut gathered = Gathered::new(from);
    loop {
        let id = made.manifest.id;
        let read = source.programs.runs_to_copy(id, gathered.to.number, u64::MAX)?;
        let read = read.filter(|read| made.is_of(&read.manifest));
        let read =
            read.ok_or_else(|| Failed::Over("its tables have grown meanwhile".to_owned()))?;
        for run in &read.runs {
            if !gathered.has_ledger_of(run) || gathered.is_full() {
                return Ok((gathered.runs > 0).then_some(gathered));
            }
            gathered.add(source, (&read.manifest, &made.layout), run, &All)?;
        }
        if !read.more {
            return Ok((gathered.runs > 0).then_some(gathered));
        }
    }
}

/// Whether rows by both manifests are in the same tables.
fn is_same(a: &Arc<Manifest>, b: &Arc<Manifest>) -> bool {
    Arc::ptr_eq(a, b) || (a.schema == b.schema && arrangement(a) == arrangement(b))
}

fn arrangement(manifest: &Manifest) -> Option<u64> {
    manifest.events.as_ref().map(|project| project.arranged_at)
}

/// Returns what the rows of a program follow from; `None` while they are about to be derived anew.
pub(crate) fn generation_of(manifest: &Manifest) -> Option<Generation> {
    let arrangement = manifest.events.as_ref().map_or(Some(0), |project| project.arrangement())?;
    Some(Generation { program: manifest.id.0, deployed: manifest.deployed_at, arrangement })
}
