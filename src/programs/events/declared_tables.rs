//! What contracts declare of the events in a project's tables, for people: names, types as text, documentation.

use std::collections::BTreeMap;

use orrery_interfaces::{Origin, names, spelled};
use orrery_ledger::domain::{Hash32, text};

use super::declared_by::DeclaredBy;
use super::interfaces::{EventInterfaces, OfProject};
use crate::ProgramError;
use crate::manifest::Manifest;

/// What is declared of the events in a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredTable {
    /// Name of the event, as it is declared.
    pub event: String,
    /// Its documentation; empty without.
    pub doc: String,
    /// Its parameters, by the names of their columns.
    pub columns: BTreeMap<String, DeclaredColumn>,
}

/// What is declared of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredColumn {
    /// Its type, such as `Map<Symbol,i128>`.
    pub kind: String,
    /// Its documentation; empty without.
    pub doc: String,
}

impl EventInterfaces {
    /// Returns what is declared of the events in the tables of a project, by target: of several declarations the first
    /// one. Nothing of tables whose interface is not stored any more.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) fn declared_tables(
        &self,
        manifest: &Manifest,
    ) -> Result<BTreeMap<String, DeclaredTable>, ProgramError> {
        let mut declared = BTreeMap::new();
        let Some(project) = &manifest.events else { return Ok(declared) };
        let of = OfProject::of(manifest);
        for table in manifest.schema.tables() {
            let Some((interface, origin, number)) = project.layout().declaration_of(&table.target)
            else {
                continue;
            };
            let by = match origin {
                Origin::Supplied => DeclaredBy::Supplied(interface),
                Origin::Chain if interface == Hash32::default() => DeclaredBy::Asset,
                Origin::Chain => DeclaredBy::Code(interface),
            };
            let Some(known) = self.get(by, &of)? else { continue };
            let Some(event) = known.interface().event(number as usize) else { continue };
            let columns = names::parameters(event.params.iter().map(|it| it.name.as_slice()));
            let columns = columns.into_iter().zip(event.params.iter()).map(|(name, parameter)| {
                let (kind, doc) = (spelled(&parameter.type_), text(parameter.doc.as_slice()));
                (name, DeclaredColumn { kind, doc })
            });
            let (event, doc) = (text(event.name.as_slice()), text(event.doc.as_slice()));
            let table =
                (table.target.clone(), DeclaredTable { event, doc, columns: columns.collect() });
            declared.extend([table]);
        }
        Ok(declared)
    }
}
