//! What is stored of a project of events besides what every program has.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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
    /// Whether they have to be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub must_derive: bool,
    /// Events of contracts whose code at the time is not known: for each contract, as strkey, the
    /// first and the last transaction with such events.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unsure: Unsure,
}

/// For contracts, as strkeys, the ledgers and application orders of two transactions.
pub type Unsure = BTreeMap<String, [(u32, u32); 2]>;

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
    /// Returns the tables.
    pub fn layout(&self, limits: SchemaLimits) -> Layout {
        self.shapes.tables(limits)
    }

    /// Returns the tables in the form in which they are stored.
    pub fn schema(&self, limits: SchemaLimits) -> ProgramSchema {
        self.layout(limits).schema().clone().derived(self.derivation)
    }

    /// Adds transactions with events of contracts whose code is not known. Returns whether that changes
    /// anything.
    pub fn add_unsure(&mut self, more: &Unsure) -> bool {
        let mut changed = false;
        for (contract, [first, last]) in more {
            let known = self.unsure.get(contract).copied();
            let grown =
                known.map_or([*first, *last], |[from, to]| [from.min(*first), to.max(*last)]);
            if known != Some(grown) {
                self.unsure.insert(contract.clone(), grown);
                changed = true;
            }
        }
        changed
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
