//! The tables of a program and how they grow: a pure function of the deployed specification and the
//! runs admitted since, in order. Does not depend on where rows are kept, nor on SQL beyond names.
//!
//! Rules of growth: a new target becomes a new table; a new field becomes a new nullable column
//! after the existing ones; a missing field is null; a value that its column cannot hold widens the
//! column if that loses nothing (`types`), and fails the run otherwise. Columns and tables never
//! narrow or disappear.

use std::collections::BTreeSet;

use orrery_ledger::domain::{self, Emit};
use orrery_settings::Programs;
use serde::{Deserialize, Serialize};
use stellar_xdr::ScSpecEntry;

use super::names;
use super::spec::Spec;
use super::types::Field;
use super::values::{self, Misfit};

/// Limits of the tables of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaLimits {
    /// Maximum number of tables per program.
    pub tables: usize,
    /// Maximum number of columns per table, without those that every table has.
    pub columns: usize,
    /// Maximum nesting of lists, maps and structs in one column.
    pub depth: usize,
    /// Maximum number of struct fields that the columns of one emit may leave out.
    pub absent: usize,
}

impl From<&Programs> for SchemaLimits {
    fn from(settings: &Programs) -> Self {
        let (columns, depth) = (settings.columns.get() as usize, settings.depth.get() as usize);
        Self { tables: 100, columns, depth, absent: 10_000 }
    }
}

impl Default for SchemaLimits {
    fn default() -> Self {
        Self::from(&Programs::default())
    }
}

/// The tables of a program.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProgramSchema {
    /// In order of creation.
    tables: Vec<TableSchema>,
    /// Tables for structs of the specification that have not been emitted.
    structs: Vec<TableSchema>,
    /// What a project of events has besides; empty for programs.
    #[serde(default, skip_serializing_if = "OfEvents::is_empty")]
    of_events: OfEvents,
}

/// What the tables of a project of events need besides their columns.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct OfEvents {
    /// The table behind the view with one row per event, which is no table of the project.
    pub events: Option<TableSchema>,
    /// Targets of the tables that hold the versions of one event. The view with the name of the
    /// first shows the rows of all.
    pub versions: Vec<Vec<String>>,
    /// Number of the arrangement of the rows: with another one, all rows are filled in again.
    #[serde(default)]
    pub derivation: u64,
    /// Whether there are changes of what the contracts hold.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub storage: bool,
    /// Whether selectors select the contracts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub members: bool,
}

impl OfEvents {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A table of a program, without the columns that every table has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableSchema {
    /// The target in lower case: the last part of the table's name.
    pub target: String,
    /// The target as the program spells it.
    spelling: String,
    /// The program's columns, in order of creation.
    pub columns: Vec<Field>,
    /// Names of those columns whose types values have decided, and not the specification alone.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    inferred: BTreeSet<String>,
    /// Whether the last one is for views alone: no query sees it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    hides_last: bool,
}

/// Why a program cannot have such tables, or a run cannot be admitted: a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SchemaError(String);

impl ProgramSchema {
    /// Creates the tables that are known when a program is deployed: one for each struct of its
    /// specification whose name, converted to a target, it `may_emit`. Structs with the same target
    /// share one table, with the columns of all. The other structs are remembered in case they are
    /// emitted later.
    ///
    /// # Errors
    /// When such a table cannot hold the fields of its struct.
    pub fn from_spec(
        entries: &[ScSpecEntry],
        may_emit: impl Fn(&str) -> bool,
        limits: SchemaLimits,
    ) -> Result<Self, SchemaError> {
        let spec = Spec::new(entries);
        let mut schema = Self::default();
        let mut others = Vec::new();
        for definition in spec.structs() {
            let targets = names::snake_cases(&domain::text(definition.name.as_slice()));
            match targets.iter().find(|target| may_emit(target)) {
                Some(target) => {
                    let table = TableSchema::new(target, spec.fields(definition), limits)?;
                    match schema.tables.iter_mut().find(|other| other.spelling == *target) {
                        Some(other) => other.merge_columns(table.columns, limits)?,
                        None => schema.add(table, limits)?,
                    }
                }
                None => others.push((definition, targets)),
            }
        }
        for (definition, targets) in others {
            // Errors in such a struct are reported when it is emitted.
            let columns = spec.fields(definition);
            schema.structs.extend(targets.into_iter().map(|spelling| {
                let target = names::folded(&spelling);
                TableSchema { spelling, ..TableSchema::known(&target, columns.clone()) }
            }));
        }
        Ok(schema)
    }

    /// The tables, in order of creation.
    pub fn tables(&self) -> &[TableSchema] {
        &self.tables
    }

    /// Creates the tables of a project of events.
    pub(super) fn from_events(tables: Vec<TableSchema>, of_events: OfEvents) -> Self {
        Self { tables, structs: Vec::new(), of_events }
    }

    /// Returns the tables with this number of the arrangement of their rows: tables with another
    /// number are filled in again.
    #[must_use]
    pub fn derived(mut self, derivation: u64) -> Self {
        self.of_events.derivation = derivation;
        self
    }

    /// What a project of events has besides its tables.
    pub(super) fn of_events(&self) -> &OfEvents {
        &self.of_events
    }

    /// Targets of the tables that hold the versions of one event, for each that has several. The view
    /// with the name of the first shows the rows of all.
    pub fn versions(&self) -> &[Vec<String>] {
        &self.of_events.versions
    }

    /// Whether there are changes of what the contracts of a project hold.
    pub fn has_storage(&self) -> bool {
        self.of_events.storage
    }

    /// Whether selectors select the contracts of a project.
    pub fn has_members(&self) -> bool {
        self.of_events.members
    }

    /// The tables and those behind views, which are stored as tables are.
    pub fn stored_tables(&self) -> impl Iterator<Item = &TableSchema> {
        self.tables.iter().chain(&self.of_events.events)
    }

    /// Whether these tables can be converted into those of `new` in place; otherwise their rows
    /// have to be filled in again.
    pub fn grows_into(&self, new: &Self) -> bool {
        self.of_events.derivation == new.of_events.derivation
            && self.stored_tables().all(|old| {
                let new = new.stored_tables().find(|table| table.target == old.target);
                new.is_some_and(|new| match self.of_events.events {
                    // Where the columns stand is not where they are shown.
                    Some(_) => old.has_its_columns_in(new),
                    None => old.grows_into(new),
                })
            })
    }

    /// Returns the table for an emit's target.
    pub fn table(&self, target: &str) -> Option<&TableSchema> {
        self.stored_tables().find(|table| table.spelling == target)
    }

    /// Admits the emits of one run, and returns the grown tables; `None` when the tables hold the
    /// emits unchanged.
    ///
    /// # Errors
    /// When the tables cannot hold them. Then nothing of the run may be kept.
    pub fn admit(&self, emits: &[Emit], limits: SchemaLimits) -> Result<Option<Self>, SchemaError> {
        let mut grown: Option<Self> = None;
        for emit in emits {
            let schema = grown.as_ref().unwrap_or(self);
            let table = schema.table(&emit.target);
            if let Some(table) = table
                && table.holds(emit, limits)
            {
                table.check_absent(emit, limits)?;
                continue;
            }
            let grown = grown.get_or_insert_with(|| self.clone());
            grown.grow_for(emit, limits)?;
            if let Some(table) = grown.table(&emit.target) {
                table.check_absent(emit, limits)?;
            }
        }
        Ok(grown)
    }

    fn grow_for(&mut self, emit: &Emit, limits: SchemaLimits) -> Result<(), SchemaError> {
        let at = self.tables.iter().position(|table| table.spelling == emit.target);
        let at = match at {
            Some(at) => at,
            None => {
                let known = self.structs.iter().find(|table| table.spelling == emit.target);
                let columns = known.map(|table| table.columns.clone()).unwrap_or_default();
                self.add(TableSchema::new(&emit.target, columns, limits)?, limits)?;
                self.tables.len() - 1
            }
        };
        self.tables[at].grow_for(emit, limits)
    }

    fn add(&mut self, table: TableSchema, limits: SchemaLimits) -> Result<(), SchemaError> {
        match self.tables.iter().find(|other| other.target == table.target) {
            Some(other) => Err(SchemaError(format!(
                "the targets '{}' and '{}' are the same table: rename one",
                other.spelling, table.spelling
            ))),
            None if self.tables.len() >= limits.tables => {
                let (target, most) = (table.spelling, limits.tables);
                Err(SchemaError(format!(
                    "'{target}' would be table {} of the program, which may have {most}",
                    most + 1
                )))
            }
            None => {
                self.tables.push(table);
                Ok(())
            }
        }
    }
}

impl TableSchema {
    /// Returns a table whose name and columns are known to be possible.
    pub(super) fn known(target: &str, columns: Vec<Field>) -> Self {
        let (target, spelling) = (target.to_owned(), target.to_owned());
        Self { target, spelling, columns, inferred: BTreeSet::new(), hides_last: false }
    }

    /// Whether values have decided the type of a column: later ones may widen it.
    pub fn is_inferred(&self, column: &str) -> bool {
        self.inferred.contains(column)
    }

    /// Returns the same table, of which no query sees the last column.
    pub(super) fn hiding_the_last(self) -> Self {
        Self { hides_last: true, ..self }
    }

    /// The columns that queries see.
    pub fn shown_columns(&self) -> &[Field] {
        let hidden = usize::from(self.hides_last);
        &self.columns[..self.columns.len().saturating_sub(hidden)]
    }

    /// Returns the same table with other columns, all of which queries see.
    pub(super) fn with_columns(&self, columns: Vec<Field>) -> Self {
        Self { spelling: self.spelling.clone(), ..Self::known(&self.target, columns) }
    }

    fn new(spelling: &str, columns: Vec<Field>, limits: SchemaLimits) -> Result<Self, SchemaError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let fits = (1..=names::LONGEST_TARGET).contains(&spelling.len());
        if !fits || !spelling.chars().all(allowed) {
            let most = names::LONGEST_TARGET;
            return Err(SchemaError(format!(
                "'{spelling}' cannot be the name of a table: use letters, digits and _, at most \
                 {most} characters"
            )));
        }
        let target = names::folded(spelling);
        let mut table = Self { spelling: spelling.to_owned(), ..Self::known(&target, Vec::new()) };
        for column in columns {
            table.check_depth(&column.name, column.kind.depth(), limits)?;
            table.add(column, limits)?;
        }
        Ok(table)
    }

    fn grows_into(&self, new: &Self) -> bool {
        self.columns.len() <= new.columns.len()
            && self
                .columns
                .iter()
                .zip(&new.columns)
                .all(|(old, new)| old.name == new.name && old.kind.grows_into(&new.kind))
    }

    fn has_its_columns_in(&self, new: &Self) -> bool {
        self.columns.iter().all(|old| {
            let new = new.columns.iter().find(|column| column.name == old.name);
            new.is_some_and(|new| old.kind.grows_into(&new.kind))
        })
    }

    fn holds(&self, emit: &Emit, limits: SchemaLimits) -> bool {
        emit.fields.iter().all(|entry| {
            let column = self.columns.iter().find(|column| values::is_named(entry, &column.name));
            column.is_some_and(|column| column.kind.holds(&entry.val))
                && values::depth(&entry.val) <= limits.depth
        })
    }

    fn grow_for(&mut self, emit: &Emit, limits: SchemaLimits) -> Result<(), SchemaError> {
        for entry in emit.fields.iter() {
            let name = match &entry.key {
                stellar_xdr::ScVal::Symbol(symbol) => domain::text(symbol.0.as_slice()),
                other => return Err(self.field_name_error(values::plain(other))),
            };
            // Rejects values that are nested too deeply before they are examined further.
            self.check_depth(&name, values::depth(&entry.val), limits)?;
            match self.columns.iter().position(|column| column.name == name) {
                None => {
                    let kind = values::infer(&entry.val);
                    self.add(Field { kind, name: name.clone() }, limits)?;
                    self.inferred.insert(name);
                }
                Some(at) => {
                    let kind = self.columns[at].kind.widened(&entry.val);
                    let kind = kind.map_err(|misfit| self.misfit(&name, misfit))?;
                    if self.columns[at].kind != kind {
                        self.columns[at].kind = kind;
                        self.inferred.insert(name);
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds the columns of another struct with the same target. If no type holds both, the existing
    /// one stays, and the emits decide.
    fn merge_columns(
        &mut self,
        columns: Vec<Field>,
        limits: SchemaLimits,
    ) -> Result<(), SchemaError> {
        for column in columns {
            match self.columns.iter_mut().find(|own| own.name == column.name) {
                Some(own) => {
                    if let Some(both) = own.kind.join(&column.kind) {
                        own.kind = both;
                    }
                }
                None => self.add(column, limits)?,
            }
        }
        Ok(())
    }

    fn add(&mut self, column: Field, limits: SchemaLimits) -> Result<(), SchemaError> {
        let target = &self.spelling;
        let name = names::folded(&column.name);
        if !names::is_usable(&name) {
            return Err(self.field_name_error(format!("'{}'", column.name.escape_default())));
        }
        if names::INJECTED.iter().any(|(injected, _)| *injected == name) {
            return Err(SchemaError(format!(
                "'{target}' has a field '{}', which every table has already: rename it",
                column.name
            )));
        }
        if let Some(other) = self.columns.iter().find(|it| names::folded(&it.name) == name) {
            return Err(SchemaError(format!(
                "the fields '{}' and '{}' of '{target}' are the same column: rename one",
                other.name, column.name
            )));
        }
        if self.columns.len() == limits.columns {
            let (columns, most) = (limits.columns + 1, limits.columns);
            return Err(SchemaError(format!(
                "'{target}' has {columns} columns; a table may have {most}"
            )));
        }
        self.columns.push(column);
        Ok(())
    }

    /// Counts the struct fields that the columns of an emit leave out, up to about `most`.
    pub fn absent(&self, emit: &Emit, most: usize) -> usize {
        let mut absent = 0;
        for column in self.columns.iter().filter(|column| column.kind.depth() > 0) {
            let mut entries = emit.fields.iter();
            if let Some(entry) = entries.find(|entry| values::is_column(entry, &column.name)) {
                absent += values::absent(&column.kind, &entry.val, most.saturating_sub(absent));
            }
        }
        absent
    }

    fn check_absent(&self, emit: &Emit, limits: SchemaLimits) -> Result<(), SchemaError> {
        let most = limits.absent;
        if self.absent(emit, most + 1) <= most {
            return Ok(());
        }
        Err(SchemaError(format!(
            "the structs in '{}' leave out more than {most} fields, which take room: emit fewer of \
             them",
            self.spelling
        )))
    }

    fn check_depth(
        &self,
        column: &str,
        depth: usize,
        limits: SchemaLimits,
    ) -> Result<(), SchemaError> {
        if depth <= limits.depth {
            return Ok(());
        }
        let (target, most) = (&self.spelling, limits.depth);
        Err(SchemaError(format!(
            "column '{column}' of '{target}' is nested {depth} deep; a column may be {most} deep"
        )))
    }

    fn field_name_error(&self, got: String) -> SchemaError {
        let target = &self.spelling;
        SchemaError(format!(
            "'{target}' has a field that is no symbol or whose name is empty: {got}"
        ))
    }

    fn misfit(&self, name: &str, misfit: Misfit) -> SchemaError {
        let Misfit { path, expected, got } = misfit;
        let target = &self.spelling;
        SchemaError(format!(
            "column '{name}{path}' of '{target}' expected {expected} and got {got}"
        ))
    }
}

#[cfg(test)]
mod tests;
