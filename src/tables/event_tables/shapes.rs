//! A summary of all events so far, from which the tables follow. The same events give the same
//! summary in any order, in any parts, and however often each is added.

use std::collections::{BTreeMap, BTreeSet};

use orrery_interfaces::Origin;
use serde::{Deserialize, Serialize};

use super::declarations::Declarations;
use super::serial::pairs;
use super::shape::{Shape, ShapeKey, Shaped};
use super::{Declared, Event};
use crate::types::ColumnType;

/// Maximum number of shapes. Of more, those that come first in the chain are kept.
pub const MOST_SHAPES: usize = 10_000;
/// Maximum number of declared names, and of interfaces whose names are among them.
const MOST_NAMES: usize = 20_000;

/// A summary of events. Grows with [`Shapes::add`] and [`Shapes::join`], and never forgets.
///
/// Beyond [`MOST_SHAPES`] shapes, all columns without a declared type are JSON: a shape that was
/// left out somewhere and comes back with an earlier event has lost the types of its values.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Shapes {
    #[serde(with = "pairs")]
    shapes: BTreeMap<ShapeKey, Shape>,
    /// Names that consulted interfaces declare.
    names: BTreeSet<String>,
    /// Short forms of the ids of consulted interfaces.
    consulted: BTreeSet<String>,
    /// Whether there were more shapes than are kept.
    is_cut: bool,
}

impl Shapes {
    /// Adds an event. Returns whether the summary has changed, so that the tables may have.
    pub fn add(&mut self, event: &Event<'_>) -> bool {
        let consults = match event.declared {
            Declared::By(_, declarations) => self.consult(declarations),
            Declared::System | Declared::Nowhere => false,
        };
        let Some(shaped) = Shaped::new(event) else { return consults };
        let key = shaped.key(event.topics.len());
        if let Some(shape) = self.shapes.get_mut(&key) {
            return shaped.add_to(shape, event.place) | consults;
        }
        self.insert(key, shaped.shape(event.place)) | consults
    }

    /// Reserves the names that an interface declares for declared events. Call it for every
    /// interface in which the declaration of an event is looked for; interfaces that are known are
    /// passed over at once.
    pub fn consult(&mut self, declarations: &Declarations) -> bool {
        let id = hex::encode(&declarations.id().0[..16]);
        if self.consulted.contains(&id) {
            return false;
        }
        self.reserve(declarations.names().map(str::to_owned), [id])
    }

    /// Adds the events of another summary. Returns whether this one has changed.
    pub fn join(&mut self, other: &Self) -> bool {
        let mut changes = other.is_cut && !self.is_cut;
        if other.is_cut {
            self.cut();
        }
        for (key, theirs) in &other.shapes {
            let mut theirs = theirs.clone();
            if self.is_cut {
                blur(key, &mut theirs);
            }
            changes |= match self.shapes.get_mut(key) {
                Some(shape) => shape.join(&theirs, key),
                None => self.insert(key.clone(), theirs),
            };
        }
        changes | self.reserve(other.names.iter().cloned(), other.consulted.iter().cloned())
    }

    /// Number of shapes.
    pub fn len(&self) -> usize {
        self.shapes.len()
    }

    /// Whether there are no shapes.
    pub fn is_empty(&self) -> bool {
        self.shapes.is_empty()
    }

    /// Whether events of some shapes are in the table `undeclared`, because there are too many.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The names that consulted interfaces declare.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.names.iter()
    }

    /// The shapes in the order of the chain.
    pub(super) fn in_order(&self) -> Vec<(&ShapeKey, &Shape)> {
        let mut shapes: Vec<_> = self.shapes.iter().collect();
        shapes.sort_by_key(|(key, shape)| (shape.first, *key));
        shapes
    }

    fn insert(&mut self, key: ShapeKey, mut shape: Shape) -> bool {
        if self.is_cut {
            blur(&key, &mut shape);
        }
        self.shapes.insert(key.clone(), shape);
        if self.shapes.len() <= MOST_SHAPES {
            return true;
        }
        let was_cut = std::mem::replace(&mut self.is_cut, true);
        if !was_cut {
            self.cut();
        }
        let last = self.shapes.iter().max_by_key(|(key, shape)| (shape.first, *key));
        let Some(last) = last.map(|(key, _)| key.clone()) else { return true };
        self.shapes.remove(&last);
        !was_cut || last != key
    }

    fn cut(&mut self) {
        self.is_cut = true;
        self.shapes.iter_mut().for_each(|(key, shape)| blur(key, shape));
    }

    /// Adds names and interfaces. Of too many, the first in alphabetical order are kept, so that it
    /// does not matter when each came.
    fn reserve(
        &mut self,
        names: impl IntoIterator<Item = String>,
        consulted: impl IntoIterator<Item = String>,
    ) -> bool {
        let before = (self.names.clone(), self.consulted.clone());
        self.names.extend(names);
        self.consulted.extend(consulted);
        for set in [&mut self.names, &mut self.consulted] {
            while set.len() > MOST_NAMES {
                set.pop_last();
            }
        }
        before.0 != self.names || before.1 != self.consulted
    }
}

/// Makes the columns without a declared type JSON.
fn blur(key: &ShapeKey, shape: &mut Shape) {
    if matches!(key, ShapeKey::Inferred { .. }) {
        shape.columns.iter_mut().for_each(|column| column.kind = ColumnType::Json);
    }
}

impl ShapeKey {
    /// The text in the column `_declared`.
    pub(super) fn declared_by(&self) -> &'static str {
        match self {
            Self::Declared { origin: Origin::Chain, .. } => "chain",
            Self::Declared { origin: Origin::Supplied, .. } => "supplied",
            Self::Inferred { .. } => "inferred",
        }
    }
}
