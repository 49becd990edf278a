//! The tables that follow from a summary of events: which there are, their columns, and which table
//! the events of each shape are in.

use std::collections::{BTreeMap, HashMap};

use orrery_interfaces::Origin;
use orrery_interfaces::names::{DECLARED, EVENT, EVENT_ID, EVENT_INDEX, REST};
use orrery_ledger::domain::Hash32;

use super::columns::{Columns, MOST_COLUMNS};
use super::kind::Kind;
use super::naming::Names;
use super::shape::{Shape, ShapeKey};
use super::shapes::{Besides, Shapes};
use super::{Place, fixed_tables, member_changes, storage_changes};
use crate::schema::{OfEvents, ProgramSchema, SchemaLimits, TableSchema};
use crate::types::{ColumnType, Field};

/// The tables of a project of events.
#[derive(Debug, Clone)]
pub struct Layout {
    schema: ProgramSchema,
    pub(super) limits: SchemaLimits,
    tables: Vec<Table>,
    /// Position of the table of each shape; `None` where there are too many tables.
    placed: HashMap<ShapeKey, Option<usize>>,
    pub(super) besides: Besides,
}

/// A table of events with a name.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub target: String,
    /// Whether it is inferred from events without a declaration.
    is_inferred: bool,
    /// Columns for the values of events.
    pub columns: Columns,
    /// Place of the first event, if there is one.
    first: Place,
    /// The first of its declarations: the interface and the number in it.
    declared: Option<(Hash32, Origin, u32)>,
}

/// Where the events of a shape are.
pub(super) enum Placement<'a> {
    /// In a table.
    In(&'a Table),
    /// In none, because there are too many tables.
    TooManyTables,
    /// In none, because there are too many shapes, or the event was not added to the summary.
    Unknown,
}

impl Shapes {
    /// Returns the tables for the events so far.
    ///
    /// Declared events come first, so that the tables of others cannot keep them from having one, and
    /// those that have not occurred come last. The forms of a declared event share a table when their
    /// common columns join.
    pub fn tables(&self, limits: SchemaLimits) -> Layout {
        let shapes = self.in_order();
        let is_declared =
            |(key, _): &&(&ShapeKey, &Shape)| matches!(key, ShapeKey::Declared { .. });
        let mut declared: std::collections::BTreeSet<String> = self.names().cloned().collect();
        declared.extend(shapes.iter().filter(is_declared).map(|(_, shape)| shape.name.clone()));
        let mut drawing = Drawing::new(Names::new(declared), limits, self.besides);
        for (key, shape) in shapes.iter().filter(is_declared) {
            drawing.place_declared(key, shape);
        }
        for (key, shape) in shapes.iter().filter(|shape| !is_declared(shape)) {
            drawing.place_inferred(key, shape);
        }
        for (key, shape) in self.not_occurred() {
            drawing.place_form(key, shape);
        }
        drawing.finish()
    }
}

impl Layout {
    /// The tables in the form in which they are stored and sent to SQL workers.
    pub fn schema(&self) -> &ProgramSchema {
        &self.schema
    }

    /// Whether the table of this target is inferred from events without a declaration.
    pub fn is_inferred(&self, target: &str) -> bool {
        self.tables.iter().any(|table| table.is_inferred && table.target == target)
    }

    /// Returns the first declaration of the events in the table of this target: the interface, where it comes from, and
    /// the number of the declaration in it; `None` of a table that is inferred.
    pub fn declaration_of(&self, target: &str) -> Option<(Hash32, Origin, u32)> {
        self.tables.iter().find(|table| table.target == target)?.declared
    }

    /// Whether events of some shapes have no table, because there are too many tables.
    pub fn leaves_out(&self) -> bool {
        self.placed.values().any(Option::is_none)
    }

    /// Whether rows of these tables stay what they are in the tables of `new`, which follow from the
    /// same events and more: the tables grow in place, and the events of each shape stay where they
    /// are. Otherwise all rows have to be filled in again.
    pub fn grows_into(&self, new: &Self) -> bool {
        let target =
            |layout: &Self, at: Option<usize>| at.map(|at| layout.tables[at].target.clone());
        self.schema.grows_into(&new.schema)
            && self.placed.iter().all(|(key, at)| {
                let now = new.placed.get(key).copied().flatten();
                target(self, *at) == target(new, now)
            })
    }

    /// Whether events of a kind are in the table `undeclared`.
    pub fn is_undeclared(&self, kind: &Kind) -> bool {
        let placement = kind.0.as_ref().map(|key| self.placement(key));
        !matches!(placement, Some(Placement::In(_)))
    }

    pub(super) fn placement(&self, key: &ShapeKey) -> Placement<'_> {
        match self.placed.get(key) {
            Some(Some(at)) => Placement::In(&self.tables[*at]),
            Some(None) => Placement::TooManyTables,
            None => Placement::Unknown,
        }
    }
}

/// A layout in the making.
struct Drawing {
    names: Names,
    limits: SchemaLimits,
    tables: Vec<Table>,
    /// Positions of the tables of each declared event, in order of their creation.
    versions: BTreeMap<String, Vec<usize>>,
    placed: HashMap<ShapeKey, Option<usize>>,
    besides: Besides,
}

impl Drawing {
    fn new(names: Names, limits: SchemaLimits, besides: Besides) -> Self {
        let (versions, placed) = (BTreeMap::new(), HashMap::new());
        Self { names, limits, tables: Vec::new(), versions, placed, besides }
    }

    fn place_declared(&mut self, key: &ShapeKey, shape: &Shape) {
        let at = self.place_form(key, shape);
        self.placed.insert(key.clone(), at);
    }

    /// Returns the position of the table for a form of a declared event, unless there are too many.
    fn place_form(&mut self, key: &ShapeKey, shape: &Shape) -> Option<usize> {
        let versions = self.versions.entry(shape.name.clone()).or_default();
        let joins = |at: &usize| self.tables[*at].columns.join(&shape.columns);
        if let Some(at) = versions.iter().copied().find(joins) {
            self.tables[at].columns.merge(&shape.columns, self.limits.columns.min(MOST_COLUMNS));
            return Some(at);
        }
        if !self.has_room() {
            return None;
        }
        if let Some(versions) = self.versions.get_mut(&shape.name) {
            versions.push(self.tables.len());
        }
        let target = self.names.take_declared(&self.besides.name_of(&shape.name));
        Some(self.add(key, shape, target))
    }

    fn place_inferred(&mut self, key: &ShapeKey, shape: &Shape) {
        let at = self.has_room().then(|| {
            let target = self.names.take_inferred(&self.besides.name_of(&shape.name));
            self.add(key, shape, target)
        });
        self.placed.insert(key.clone(), at);
    }

    fn has_room(&self) -> bool {
        self.tables.len() < self.limits.tables
    }

    fn add(&mut self, key: &ShapeKey, shape: &Shape, target: String) -> usize {
        let columns = Columns::new(&shape.columns, self.limits.columns.min(MOST_COLUMNS));
        let declared = match key {
            ShapeKey::Declared { interface, origin, number } => {
                Some((*interface, *origin, *number))
            }
            ShapeKey::Inferred { .. } => None,
        };
        let (is_inferred, first) = (declared.is_none(), shape.first);
        self.tables.push(Table { target, is_inferred, columns, first, declared });
        self.tables.len() - 1
    }

    fn finish(self) -> Layout {
        let target = |at: &usize| self.tables[*at].target.clone();
        let several = self.versions.values().filter(|versions| versions.len() > 1);
        let versions = several.map(|versions| versions.iter().map(target).collect()).collect();
        let (storage, members) = (self.besides.has_storage(), self.besides.has_members());
        let events = Some(fixed_tables::events());
        let of_events = OfEvents { events, versions, derivation: 0, storage, members };
        let mut in_order: Vec<&Table> = self.tables.iter().collect();
        in_order.sort_by_key(|table| (table.first, &table.target));
        let tables = in_order.into_iter().map(Table::schema).chain([fixed_tables::undeclared()]);
        let tables = tables.chain(storage.then(storage_changes::table));
        let tables = tables.chain(members.then(member_changes::table));
        let schema = ProgramSchema::from_events(tables.collect(), of_events);
        let Self { limits, tables, placed, besides, .. } = self;
        Layout { schema, limits, tables, placed, besides }
    }
}

impl Table {
    fn schema(&self) -> TableSchema {
        let before = [
            (EVENT_ID, ColumnType::UInt64),
            (EVENT_INDEX, ColumnType::UInt32),
            (DECLARED, ColumnType::Text),
        ];
        let field = |(name, kind): (&str, _)| Field { name: name.to_owned(), kind };
        let event = self.is_inferred.then_some((EVENT, ColumnType::Text));
        let columns = before.into_iter().chain(event).map(field);
        let columns = columns.chain(self.columns.fields().iter().cloned());
        let columns = columns.chain([field((REST, ColumnType::JsonText))]);
        TableSchema::known(&self.target, columns.collect())
    }
}
