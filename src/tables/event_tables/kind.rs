//! What decides which table an event is in.

use super::Event;
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
