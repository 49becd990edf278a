//! A derivation of rows that is in progress (see `deriving`): what follows from the first entries of the
//! row log.

use std::sync::Arc;

use super::{EventCounts, Kinds, Summary};
use crate::manifest::Manifest;
use orrery_tables::event_tables::{Kind, Summarised};

/// A derivation that is in progress.
#[derive(Debug)]
pub(super) struct Derivation {
    /// The project as it was when this began.
    pub begun: Arc<Manifest>,
    /// Number of writes that had changed earlier entries of the row log when this began.
    pub merges: u64,
    pub summary: Summary,
    /// Number of the last entry of the row log that is derived.
    pub done: u64,
    /// Bytes of these entries.
    pub bytes: u64,
    /// Their events by kind, as long as the summary has all kinds: that bounds their number.
    kinds: Kinds,
    /// What is counted otherwise, once all entries have been derived that there were.
    counting: Option<Counting>,
}

/// What follows from all entries of the row log.
pub(super) struct Derived {
    pub tables: Summarised,
    pub counts: EventCounts,
    pub summary: Summary,
}

/// The numbers of a derivation.
#[derive(Debug, Clone)]
pub(super) struct Counting {
    /// The tables in which events are, or are not.
    pub tables: Summarised,
    /// Number of the last entry of the row log that is counted.
    pub done: u64,
    pub counts: EventCounts,
}

impl Derivation {
    /// Begins a derivation.
    pub fn new(begun: Arc<Manifest>, merges: u64) -> Self {
        let (summary, kinds) = (Summary::default(), Kinds::default());
        Self { begun, merges, summary, done: 0, bytes: 0, kinds, counting: None }
    }

    /// Counts an event that was added to the summary.
    pub fn add_kind(&mut self, kind: Kind) {
        if self.summary.shapes.is_cut() {
            self.kinds = Kinds::default();
        } else {
            self.kinds.add(kind);
        }
    }

    /// Whether nothing is left to be counted in the entries that are derived.
    pub fn is_counted(&mut self) -> bool {
        let done = self.done;
        !self.summary.shapes.is_cut() || self.counting().done == done
    }

    /// Ends a derivation in which nothing is left to be done.
    pub fn end(mut self) -> Derived {
        if self.summary.shapes.is_cut() {
            let Counting { tables, counts, .. } = self.counting().clone();
            return Derived { tables, counts, summary: self.summary };
        }
        let tables = Summarised::from(self.summary.shapes.clone());
        let counts = self.kinds.counts(tables.layout());
        Derived { tables, counts, summary: self.summary }
    }

    /// Returns the numbers so far. What was counted with other tables is counted again, unless these
    /// grow out of them.
    pub fn counting(&mut self) -> &mut Counting {
        let shapes = &self.summary.shapes;
        let tables = || Summarised::from(shapes.clone());
        let counts = EventCounts::default();
        let counting = match self.counting.take() {
            Some(counting) if counting.tables.shapes() == shapes => counting,
            Some(counting) => {
                let tables = tables();
                match counting.tables.layout().grows_into(tables.layout()) {
                    true => Counting { tables, ..counting },
                    false => Counting { tables, done: 0, counts },
                }
            }
            None => Counting { tables: tables(), done: 0, counts },
        };
        self.counting.insert(counting)
    }
}
