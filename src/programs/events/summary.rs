//! What is kept of the events of some transactions besides the events themselves.

use super::{Nameless, Unsure};
use orrery_tables::event_tables::Shapes;

/// What the events of some transactions add to the summary of a project.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Shapes of the events.
    pub shapes: Shapes,
    /// Transactions with events of contracts whose code is not known.
    pub unsure: Unsure,
    /// Contracts with events that no interface declares.
    pub nameless: Nameless,
}
