//! What tells the shapes of events apart, and what is kept of each.

use orrery_interfaces::{DataShape, Origin};
use orrery_ledger::domain::Hash32;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Place;
use super::columns::{bytes_of, joined};
use crate::types::Field;

/// What a shape takes besides its names and columns, and a column besides its name, in bytes.
const OF_SHAPE: usize = 128;
const OF_COLUMN: usize = 64;

/// Tells shapes apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ShapeKey {
    /// A form of a declared event.
    Declared {
        /// Id of the interface that declares it.
        interface: Hash32,
        /// Where the interface comes from.
        origin: Origin,
        /// Number of the form's first declaration.
        number: u32,
    },
    /// Events without a declaration.
    Inferred {
        /// Name of the events.
        name: String,
        /// Number of topics.
        topics: u32,
        /// Shape of the data.
        data: DataShape,
    },
}

/// A shape of events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Shape {
    /// Place of the first event; [`Place::NONE`] while there is none.
    pub first: Place,
    /// Name of the events.
    pub name: String,
    /// The columns for their values.
    pub columns: Vec<Field>,
}

impl Shape {
    /// Adds what another summary knows of the same shape. Returns whether that changes it.
    pub fn join(&mut self, other: &Self, key: &ShapeKey) -> bool {
        let mut changes = self.be_at(other.first);
        if matches!(key, ShapeKey::Inferred { .. }) {
            for (column, other) in self.columns.iter_mut().zip(&other.columns) {
                let kind = joined(&column.kind, &other.kind);
                changes |= kind != column.kind;
                column.kind = kind;
            }
        }
        changes
    }

    pub(super) fn be_at(&mut self, place: Place) -> bool {
        let is_earlier = place < self.first;
        self.first = self.first.min(place);
        is_earlier
    }
}

impl ShapeKey {
    /// A short form of the key.
    pub fn fingerprint(&self) -> [u8; 32] {
        let key = serde_json::to_vec(self).unwrap_or_default();
        Sha256::digest(key).into()
    }
}

/// Returns what a shape takes, in bytes. The same at all times: not what its columns have become.
pub(super) fn weight(key: &ShapeKey, shape: &Shape) -> usize {
    let columns = shape.columns.iter().map(|column| match key {
        ShapeKey::Declared { .. } => bytes_of(column),
        ShapeKey::Inferred { .. } => OF_COLUMN + column.name.len(),
    });
    OF_SHAPE + 2 * shape.name.len() + columns.sum::<usize>()
}
