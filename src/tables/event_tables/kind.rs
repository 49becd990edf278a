//! What decides which table an event is in.

use super::Event;
use super::layout::{Layout, Placement};
use super::shape::ShapeKey;
use super::shaped::Shaped;

/// What decides which table an event is in: all events of a kind are in the same one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(pub(super) Option<ShapeKey>);

impl Kind {
    /// The kind of an event.
    pub fn of(event: &Event<'_>) -> Self {
        Self(Shaped::new(event).map(|shaped| shaped.key(event.topics.len())))
    }
}

impl Layout {
    /// Whether events of a kind are in the table `undeclared`.
    pub fn is_undeclared(&self, kind: &Kind) -> bool {
        let placement = kind.0.as_ref().map(|key| self.placement(key));
        !matches!(placement, Some(Placement::In(_)))
    }
}
