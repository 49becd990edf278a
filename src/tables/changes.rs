//! Changes to tables.

use orrery_ledger::domain::ProgramId;

use super::frame::Frame;
use super::row::Row;
use super::schema::ProgramSchema;

/// A change to an owner's tables.
#[derive(Debug, Clone)]
pub enum Change {
    /// A program was added, or its tables have grown.
    Program {
        /// The program.
        id: ProgramId,
        /// Its project, after which views are named; without views when it is empty.
        project: String,
        /// Whether the program belongs to the owner; otherwise it is another owner's public
        /// program.
        own: bool,
        /// Its tables. If the tables in the file cannot grow into these, the program starts again
        /// with the watermark 0, and its rows go into tables beside those that queries see, which
        /// stay as they are. The transaction with whose rows the new tables have all that the old
        /// ones had puts them in their place.
        schema: ProgramSchema,
    },
    /// A program that the file has takes another name, together with its views. Nothing changes when
    /// it has that name already, or when the file does not have the program.
    Rename {
        /// The program.
        program: ProgramId,
        /// Its project from now on.
        project: String,
    },
    /// Rows of a program.
    Rows {
        /// The program.
        program: ProgramId,
        /// Number of the row log entry before the first row: must equal the program's watermark.
        after: u64,
        /// Number of the last row log entry, the new watermark.
        up_to: u64,
        /// The rows, in the order of the row log.
        rows: NewRows,
    },
    /// The tables of a program have all rows of these ledgers, which are ranges without a gap.
    Progress {
        /// The program.
        program: ProgramId,
        /// The first and the last ledger of each range.
        ranges: Vec<(u32, u32)>,
    },
    /// A program was removed, and its tables with it.
    Drop {
        /// The program.
        program: ProgramId,
    },
}

/// Rows that are added to the tables of a program.
#[derive(Debug, Clone)]
pub enum NewRows {
    /// As they were emitted.
    Emits(Vec<Row>),
    /// As they are sent.
    Frames(Vec<Frame>),
}

impl From<Vec<Row>> for NewRows {
    fn from(rows: Vec<Row>) -> Self {
        Self::Emits(rows)
    }
}

impl NewRows {
    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            Self::Emits(rows) => rows.len(),
            Self::Frames(frames) => frames.iter().map(|frame| frame.columns.num_rows()).sum(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
