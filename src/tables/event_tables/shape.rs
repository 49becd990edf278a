//! What tells the shapes of events apart, and what is kept of each.

use orrery_interfaces::Origin;
use orrery_ledger::domain::Hash32;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::columns::{MOST_COLUMNS, joined, observed};
use super::declarations::{Declarations, Form};
use super::inferred::{DataShape, Inferred};
use super::{Declared, Event, Place, inferred};
use crate::types::{ColumnType, Field};

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

/// An event together with its shape.
#[derive(Debug)]
pub(super) enum Shaped<'a> {
    /// The form of its declaration.
    Declared(&'a Declarations, &'a Form),
    /// What is inferred.
    Inferred(Inferred<'a>),
}

impl<'a> Shaped<'a> {
    /// Returns what is known of an event; `None` if it is one for the table `undeclared`.
    pub fn new(event: &Event<'a>) -> Option<Self> {
        match event.declared {
            Declared::By(matched, declarations) => {
                let form = declarations.form(matched.number)?;
                Some(Self::Declared(declarations, form))
            }
            Declared::System | Declared::Nowhere => {
                inferred::infer(event.topics, event.data).map(Self::Inferred)
            }
        }
    }

    pub fn key(&self, topics: usize) -> ShapeKey {
        match self {
            Self::Declared(declarations, form) => declarations.key(form),
            Self::Inferred(inferred) => ShapeKey::Inferred {
                name: inferred.name.clone(),
                topics: u32::try_from(topics).unwrap_or(u32::MAX),
                data: inferred.data.clone(),
            },
        }
    }

    /// Returns the shape of which this is the first event.
    pub fn shape(&self, first: Place) -> Shape {
        match self {
            Self::Declared(_, form) => {
                Shape { first, name: form.name.clone(), columns: form.columns().to_vec() }
            }
            Self::Inferred(Inferred { name, values, .. }) => {
                let field = |(name, value): &(String, &_)| Field {
                    name: name.clone(),
                    kind: observed(value),
                };
                let columns = values.iter().take(MOST_COLUMNS).map(field).collect();
                Shape { first, name: name.clone(), columns }
            }
        }
    }

    /// Adds the event to its shape. Returns whether that changes it.
    pub fn add_to(&self, shape: &mut Shape, place: Place) -> bool {
        let mut changes = shape.be_at(place);
        if let Self::Inferred(inferred) = self {
            for (column, (_, value)) in shape.columns.iter_mut().zip(&inferred.values) {
                if column.kind != ColumnType::Json {
                    let kind = joined(&column.kind, &observed(value));
                    changes |= kind != column.kind;
                    column.kind = kind;
                }
            }
        }
        changes
    }
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

    fn be_at(&mut self, place: Place) -> bool {
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
