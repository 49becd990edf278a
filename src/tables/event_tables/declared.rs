//! The events that consulted interfaces declare, whether one has occurred or not: each has a table.

use std::collections::BTreeMap;

use super::shape::{Shape, ShapeKey, weight};

/// Maximum number of bytes that they take. Of more, those with the smallest keys are kept, so that it
/// does not matter when each came; the others have tables once they occur.
const MOST_BYTES: usize = 256 << 10;

/// Declared events, each without a place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DeclaredShapes {
    shapes: BTreeMap<ShapeKey, Shape>,
    /// The first key from which on none is kept.
    beyond: Option<ShapeKey>,
    bytes: usize,
}

impl DeclaredShapes {
    /// Adds declared events. Returns whether that changes anything.
    pub fn add(&mut self, shapes: impl IntoIterator<Item = (ShapeKey, Shape)>) -> bool {
        let mut changes = false;
        for (key, shape) in shapes {
            if self.is_new(&key) {
                self.bytes += weight(&key, &shape);
                self.shapes.insert(key, shape);
                self.drop_last_while_too_large();
                changes = true;
            }
        }
        changes
    }

    /// Adds those of another summary. Returns whether that changes anything.
    pub fn join(&mut self, other: &Self) -> bool {
        let bounds = other.beyond.clone().is_some_and(|beyond| self.keep_before(beyond));
        let new = other.shapes.iter().filter(|(key, _)| !self.shapes.contains_key(key));
        let new: Vec<_> = new.map(|(key, shape)| (key.clone(), shape.clone())).collect();
        self.add(new) | bounds
    }

    /// Whether [`Self::join`] may change this.
    pub fn may_change_by(&self, other: &Self) -> bool {
        other.beyond.as_ref().is_some_and(|beyond| !self.is_beyond(beyond))
            || other.shapes.keys().any(|key| self.is_new(key))
    }

    /// Returns them in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&ShapeKey, &Shape)> {
        self.shapes.iter()
    }

    /// Returns the shape with this key.
    pub fn get(&self, key: &ShapeKey) -> Option<&Shape> {
        self.shapes.get(key)
    }

    /// Returns the first key from which on none is kept.
    pub fn beyond(&self) -> Option<&ShapeKey> {
        self.beyond.as_ref()
    }

    /// Leaves out those from a key on, now and later. Returns whether that changes anything.
    pub fn keep_before(&mut self, beyond: ShapeKey) -> bool {
        if self.is_beyond(&beyond) {
            return false;
        }
        for (key, shape) in self.shapes.split_off(&beyond) {
            self.bytes -= weight(&key, &shape);
        }
        self.beyond = Some(beyond);
        true
    }

    /// What they take, in bytes: an estimate.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn drop_last_while_too_large(&mut self) {
        while self.bytes > MOST_BYTES {
            let Some((last, _)) = self.shapes.last_key_value() else { return };
            let last = last.clone();
            self.keep_before(last);
        }
    }

    fn is_new(&self, key: &ShapeKey) -> bool {
        !self.is_beyond(key) && !self.shapes.contains_key(key)
    }

    fn is_beyond(&self, key: &ShapeKey) -> bool {
        self.beyond.as_ref().is_some_and(|beyond| key >= beyond)
    }
}
