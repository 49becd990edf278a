//! How many events there are of each kind, from which the numbers of a project follow.

use std::collections::BTreeMap;

use super::EventCounts;
use orrery_tables::event_tables::{Kind, Layout};

/// Numbers of events by their kind.
#[derive(Debug, Clone, Default)]
pub struct Kinds(BTreeMap<Kind, u64>);

impl Kinds {
    /// Counts an event.
    pub fn add(&mut self, kind: Kind) {
        *self.0.entry(kind).or_default() += 1;
    }

    /// Counts the events of others.
    pub fn add_all(&mut self, others: &Self) {
        for (kind, events) in &others.0 {
            *self.0.entry(kind.clone()).or_default() += events;
        }
    }

    /// Returns the numbers of a project with these tables.
    pub fn counts(&self, layout: &Layout) -> EventCounts {
        let undeclared = self.0.iter().filter(|(kind, _)| layout.is_undeclared(kind));
        EventCounts {
            events: self.0.values().sum(),
            undeclared: undeclared.map(|(_, events)| events).sum(),
        }
    }
}
