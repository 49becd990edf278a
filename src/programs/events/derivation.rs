//! A derivation of rows that is in progress (see `deriving`): what follows from the first entries of the
//! row log.

use std::sync::Arc;

use super::{EventCounts, Summary};
use crate::manifest::Manifest;
use orrery_tables::event_tables::Summarised;

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
    /// What is counted, once all entries have been derived that there were.
    pub counting: Option<Counting>,
}

/// The numbers of a derivation.
#[derive(Debug)]
pub(super) struct Counting {
    /// The tables in which events are, or are not.
    pub tables: Summarised,
    /// Number of the last entry of the row log that is counted.
    pub done: u64,
    pub counts: EventCounts,
    /// Bytes of the entries.
    pub bytes: u64,
}

impl Derivation {
    /// Begins a derivation.
    pub fn new(begun: Arc<Manifest>, merges: u64) -> Self {
        Self { begun, merges, summary: Summary::default(), done: 0, counting: None }
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
                    false => Counting { tables, done: 0, counts, bytes: 0 },
                }
            }
            None => Counting { tables: tables(), done: 0, counts, bytes: 0 },
        };
        self.counting.insert(counting)
    }
}
