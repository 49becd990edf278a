//! What is stored of a project of events besides what every program has.

use serde::{Deserialize, Serialize};

use super::Unsure;
use crate::domain::{LedgerRange, LedgerSeq, LedgerSet};
use crate::tables::event_tables::{Layout, Shapes};
use crate::tables::schema::{ProgramSchema, SchemaLimits};

/// A project of events, as a part of its manifest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EventProject {
    /// Whether an interface was supplied, whose SHA-256 is then in the manifest.
    pub has_supplied: bool,
    /// First ledger whose events are read; 0 for all.
    pub from: u32,
    /// Summary of all events, from which the tables follow.
    pub shapes: Shapes,
    /// Number of its contracts whose stored events are read by the last backfill that was begun.
    pub backfilled: usize,
    /// Number of times that the rows of the tables were derived anew.
    pub derivation: u64,
    /// UNIX time in milliseconds at which rows were derived anew, or rows that were there before
    /// got into other tables or columns; 0 before that.
    #[serde(default)]
    pub arranged_at: u64,
    /// Whether they have to be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub must_derive: bool,
    /// Transactions with events of contracts whose code at the time is not known.
    #[serde(default, skip_serializing_if = "Unsure::is_empty")]
    pub unsure: Unsure,
}

/// Numbers of the events of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EventCounts {
    /// Number of events.
    pub events: u64,
    /// Number of them in the table `undeclared`.
    pub undeclared: u64,
}

impl EventCounts {
    /// Adds the numbers of further events.
    pub fn add(&mut self, more: &Self) {
        self.events += more.events;
        self.undeclared += more.undeclared;
    }

    /// Whether there are no events.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

impl EventProject {
    /// Returns the tables. Their limits are not those of programs that an operator may choose: what
    /// the tables are follows from the events alone.
    pub fn layout(&self) -> Layout {
        tables(&self.shapes)
    }

    /// Returns the tables in the form in which they are stored.
    pub fn schema(&self) -> ProgramSchema {
        self.layout().schema().clone().derived(self.derivation)
    }

    /// Returns a number that is another one once rows which were there before are others, or are in
    /// other tables or columns; `None` while they are about to be derived anew.
    pub fn arrangement(&self) -> Option<u64> {
        // Not a count: after a backup was restored, the same count can stand for other rows.
        (!self.must_derive).then_some(self.arranged_at)
    }

    /// Returns those of these ledgers whose events are read.
    pub fn wanted(&self, mut ledgers: LedgerSet) -> LedgerSet {
        if let Some(before) = LedgerSeq(self.from).previous() {
            ledgers.remove_all(&LedgerRange { first: LedgerSeq(0), last: before }.into());
        }
        ledgers
    }

    /// Whether the events of a ledger are read.
    pub fn wants(&self, ledger: LedgerSeq) -> bool {
        self.from <= ledger.0
    }
}

/// Returns the tables that follow from a summary of all events.
pub(super) fn tables(shapes: &Shapes) -> Layout {
    shapes.tables(SchemaLimits::default())
}
