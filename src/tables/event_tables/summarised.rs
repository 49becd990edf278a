//! A summary together with the tables that follow from it.

use std::sync::{Arc, OnceLock};

use sha2::{Digest, Sha256};

use super::layout::Layout;
use super::shapes::Shapes;
use crate::schema::SchemaLimits;

/// A summary of events, and the tables that follow from it, which are laid out once. A copy is shared
/// until it changes.
#[derive(Debug, Clone, Default)]
pub struct Summarised(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    shapes: Shapes,
    layout: OnceLock<Layout>,
    digest: OnceLock<String>,
}

impl From<Shapes> for Summarised {
    fn from(shapes: Shapes) -> Self {
        Self(Arc::new(Inner { shapes, ..Inner::default() }))
    }
}

impl PartialEq for Summarised {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || self.shapes() == other.shapes()
    }
}

impl Eq for Summarised {}

impl Summarised {
    /// The summary.
    pub fn shapes(&self) -> &Shapes {
        &self.0.shapes
    }

    /// The tables. Their limits are not those of programs that an operator may choose: what the tables
    /// are follows from the events alone.
    pub fn layout(&self) -> &Layout {
        self.0.layout.get_or_init(|| self.0.shapes.tables(SchemaLimits::default()))
    }

    /// SHA-256 of the tables, in hexadecimal digits.
    pub fn digest(&self) -> &str {
        self.0.digest.get_or_init(|| {
            let tables = serde_json::to_vec(self.layout().schema()).unwrap_or_default();
            hex::encode(Sha256::digest(tables))
        })
    }

    /// Whether [`Self::join`] may change this one.
    pub fn may_change_by(&self, more: &Shapes) -> bool {
        self.0.shapes.may_change_by(more)
    }

    /// Adds the events of a summary. Returns whether this one has changed.
    pub fn join(&mut self, more: &Shapes) -> bool {
        if !self.may_change_by(more) {
            return false;
        }
        let mut shapes = self.0.shapes.clone();
        let changes = shapes.join(more);
        if changes {
            *self = shapes.into();
        }
        changes
    }

    /// Whether both share one summary, so that neither has changed since one was copied.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
