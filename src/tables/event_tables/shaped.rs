//! An event with its shape: that of its declaration, or what is inferred from it.

use orrery_interfaces::{Inferred, infer};

use super::columns::{MOST_COLUMNS, joined, observed};
use super::declarations::{Declarations, Form};
use super::shape::{Shape, ShapeKey};
use super::{Declared, Event, Place};
use crate::types::{ColumnType, Field};

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
                infer(event.topics, event.data).map(Self::Inferred)
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
            Self::Declared(_, form) => form.shape(first),
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
