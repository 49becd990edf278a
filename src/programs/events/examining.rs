//! Finds the declarations of events, and the interfaces by which changes of contract data are written.

use std::sync::Arc;

use stellar_xdr::ScVal;

use super::Summary;
use super::data_log::LoggedChange;
use super::declared_by::DeclaredBy;
use super::interfaces::{EventInterfaces, OfProject};
use super::known::KnownInterface;
use super::logged::LoggedEvent;
use super::members::{Selected, Selection, Updates};
use super::values::values;
use crate::ProgramError;
use crate::manifest::Manifest;
use orrery_executables::{InterfaceReader, Tried};
use orrery_interfaces::{Matched, NamedEvent};
use orrery_ledger::domain::{ContractId, Hash32, NetworkId};
use orrery_store::TransactionPosition;
use orrery_tables::event_tables::{Declared, Event, Kind, Place};

/// Maximum number of interfaces by which a change of contract data is written.
const MOST_INTERFACES: usize = 8;

/// Finds the declarations of events.
pub(super) struct Declaring<'a> {
    pub interfaces: &'a EventInterfaces,
    pub names: InterfaceReader<'a>,
    pub network: NetworkId,
    project: OfProject<'a>,
    /// Which events belong to the project.
    pub selection: Selection<'a>,
    /// The interface that the user supplied.
    supplied: Option<Hash32>,
}

impl<'a> Declaring<'a> {
    pub fn new(
        interfaces: &'a EventInterfaces,
        manifest: &'a Manifest,
        network: NetworkId,
    ) -> Result<Self, ProgramError> {
        let names = interfaces.interfaces.loading_reader()?;
        let project = manifest.events.as_ref();
        let supplied = project.filter(|it| it.has_supplied).map(|_| manifest.module);
        let store = interfaces.interfaces.store();
        let selection = Selection::new(store, interfaces.members(), manifest)?;
        let project = OfProject::of(manifest);
        Ok(Self { interfaces, names, network, project, selection, supplied })
    }

    /// Looks for the declaration of an event, adds the event to a summary, and returns what is known of
    /// it now.
    pub fn examine(
        &self,
        event: &LoggedEvent<'_>,
        at: TransactionPosition,
        summary: &mut Summary,
    ) -> Result<Examined, ProgramError> {
        let (candidates, is_sure) = match event.is_system {
            true => (Vec::new(), true),
            false => self.candidates(event, at)?,
        };
        for (_, known) in &candidates {
            summary.shapes.consult(&known.declarations);
        }
        if !is_sure {
            summary.unsure.add(&event.contract, at, |contract, from, to| {
                self.names.is_same_between(contract, from, to)
            })?;
        }
        // Most events are told by their bytes.
        if let Some((by, known)) = candidates.first()
            && let interface = known.interface()
            && let Some(number) =
                interface.flat_declaration(event.topics.iter(), event.data, |_, _| ())
        {
            let place = place_of(event, at);
            let (kind, _) = summary.shapes.add_declared(&known.declarations, number, place);
            return Ok(Examined { declared_by: Some(*by), is_sure, kind });
        }
        let (topics, data) = values(event);
        let tried = candidates.iter().map(|(_, known)| &**known);
        let matched = self.interfaces.declaration(event.id, tried, (&topics, &data));
        let by = matched.as_ref().map(|matched| &candidates[matched.tried]);
        let declared = matched.as_ref().zip(by.map(|(_, known)| &**known));
        let (kind, _) = summary.shapes.add(&with_values(event, at, (&topics, &data), declared));
        if declared.is_none() && !event.is_system && self.selection.is_named(&event.contract) {
            summary.nameless.add(event.contract);
        }
        Ok(Examined { declared_by: by.map(|(by, _)| *by), is_sure, kind })
    }

    /// As [`Self::examine`]; `None` for an event that does not belong to the project. One of which that is not
    /// known is noted, and is no row.
    pub fn examine_selected<'e>(
        &self,
        event: &LoggedEvent<'e>,
        (at, updates): (TransactionPosition, &Updates),
        summary: &mut Summary,
    ) -> Result<Option<(LoggedEvent<'e>, Option<Kind>)>, ProgramError> {
        let mut selected = self.selection.of(&event.contract, at, updates)?;
        let has_names = !self.selection.names().is_empty();
        if selected != Selected::Yes && has_names && self.is_named(event, at, summary)? {
            selected = Selected::Yes;
        }
        Ok(match selected {
            Selected::Yes => {
                let Examined { declared_by, is_sure, kind } = self.examine(event, at, summary)?;
                let is_apart = false;
                Some((LoggedEvent { declared_by, is_sure, is_apart, ..*event }, Some(kind)))
            }
            Selected::No => None,
            Selected::NotKnown => {
                summary.apart.add(&event.contract, at, |contract, from, to| {
                    self.names.is_same_between(contract, from, to)
                })?;
                let (declared_by, is_sure, is_apart) = (None, true, true);
                Some((LoggedEvent { declared_by, is_sure, is_apart, ..*event }, None))
            }
        })
    }

    /// Whether an event has one of the names by which the project selects events. Where it may turn out to have
    /// one, that is noted.
    fn is_named(
        &self,
        event: &LoggedEvent<'_>,
        at: TransactionPosition,
        summary: &mut Summary,
    ) -> Result<bool, ProgramError> {
        let (candidates, is_sure) = match event.is_system {
            true => (Vec::new(), true),
            false => self.candidates(event, at)?,
        };
        let known: Vec<&KnownInterface> = candidates.iter().map(|(_, known)| &**known).collect();
        let is_named = self.selection.may_be_named(event, &known) && {
            let (topics, data) = values(event);
            let tried = known.iter().copied();
            let matched = self.interfaces.declaration(event.id, tried, (&topics, &data));
            let named = NamedEvent::of(matched, &topics, &data);
            named.is_some_and(|named| self.selection.selects(&named))
        };
        if !is_sure && !is_named {
            let spans = summary.unnamed.entry(event.contract).or_default();
            spans.add(&event.contract, at, |contract, from, to| {
                self.names.is_same_between(contract, from, to)
            })?;
        }
        Ok(is_named)
    }

    /// Looks for the interfaces by which a change of contract data is written. `None` for one that does not belong
    /// to the project. One of which that is not known is noted, and is no row.
    pub fn examine_change<'c>(
        &self,
        change: LoggedChange<'c>,
        (at, updates): (TransactionPosition, &Updates),
        summary: &mut Summary,
    ) -> Result<Option<LoggedChange<'c>>, ProgramError> {
        Ok(match self.selection.of(&change.contract, at, updates)? {
            Selected::Yes => {
                let (interfaces, is_sure) = self.of_data(&change.contract, at, summary)?;
                Some(LoggedChange { interfaces, is_sure, is_apart: false, ..change })
            }
            Selected::No => None,
            Selected::NotKnown => {
                summary.apart.add(&change.contract, at, |contract, from, to| {
                    self.names.is_same_between(contract, from, to)
                })?;
                let (interfaces, is_sure, is_apart) = (Vec::new(), true, true);
                Some(LoggedChange { interfaces, is_sure, is_apart, ..change })
            }
        })
    }

    /// Returns the interfaces by which a change of a contract's data is written, and whether these are all
    /// that it had.
    fn of_data(
        &self,
        contract: &ContractId,
        at: TransactionPosition,
        summary: &mut Summary,
    ) -> Result<(Vec<DeclaredBy>, bool), ProgramError> {
        let (tried, is_sure) = self.names.tried_surely(contract, at);
        if !is_sure {
            summary.unsure.add(contract, at, |contract, from, to| {
                self.names.is_same_between(contract, from, to)
            })?;
        }
        let had = tried.iter().map(|tried| match tried {
            Tried::Asset => DeclaredBy::Asset,
            Tried::Code(hash, _) => DeclaredBy::Code(*hash),
        });
        let supplied = self.supplied.map(DeclaredBy::Supplied);
        Ok((supplied.into_iter().chain(had).take(MOST_INTERFACES).collect(), is_sure))
    }

    /// Returns the interfaces in which the declaration of an event is looked for, and whether that is
    /// all that its contract had.
    pub fn candidates(
        &self,
        event: &LoggedEvent<'_>,
        at: TransactionPosition,
    ) -> Result<(Vec<Candidate>, bool), ProgramError> {
        let mut candidates = Vec::with_capacity(2);
        let known = |by| {
            let known = self.interfaces.get(by, &self.project)?;
            Ok::<_, ProgramError>(known.map(|known| (by, known)))
        };
        if let Some(supplied) = self.supplied {
            candidates.extend(known(DeclaredBy::Supplied(supplied))?);
        }
        let last = event.topics.iter().last();
        if last.is_some_and(|it| self.names.is_of_asset(&self.network, &event.contract, it)) {
            candidates.extend(known(DeclaredBy::Asset)?);
            return Ok((candidates, true));
        }
        let (tried, is_sure) = self.names.tried_surely(&event.contract, at);
        for tried in tried.iter() {
            candidates.extend(match tried {
                Tried::Asset => known(DeclaredBy::Asset)?,
                Tried::Code(hash, interface) => {
                    Some((DeclaredBy::Code(*hash), self.interfaces.of(hash, interface)))
                }
            });
        }
        Ok((candidates, is_sure))
    }
}

/// What is known of an event.
pub(super) struct Examined {
    /// The interface that declares it.
    pub declared_by: Option<DeclaredBy>,
    /// Whether all interfaces that its contract had are known.
    pub is_sure: bool,
    pub kind: Kind,
}

/// An interface in which a declaration is looked for.
pub(super) type Candidate = (DeclaredBy, Arc<KnownInterface>);

impl EventInterfaces {
    /// Calls `visit` with an event of a project as the tables need it.
    pub(super) fn with_declaration<T>(
        &self,
        project: &OfProject<'_>,
        event: &LoggedEvent<'_>,
        at: TransactionPosition,
        visit: impl FnOnce(&Event<'_>) -> T,
    ) -> Result<T, ProgramError> {
        let (topics, data) = values(event);
        let known = event.declared_by.map(|by| self.get(by, project)).transpose()?.flatten();
        let known = known.as_deref();
        let matched = self.declaration(event.id, known, (&topics, &data));
        Ok(visit(&with_values(event, at, (&topics, &data), matched.as_ref().zip(known))))
    }
}

fn place_of(event: &LoggedEvent<'_>, at: TransactionPosition) -> Place {
    Place::new(at.ledger, at.application_order, event.index)
}

/// Returns an event with its values, and with its declaration in an interface, if it has one.
fn with_values<'e>(
    event: &LoggedEvent<'_>,
    at: TransactionPosition,
    (topics, data): (&'e [ScVal], &'e ScVal),
    declared: Option<(&'e Matched<'e>, &'e KnownInterface)>,
) -> Event<'e> {
    let declared = match declared {
        Some((matched, known)) => Declared::By(matched, &known.declarations),
        None if event.is_system => Declared::System,
        None => Declared::Nowhere,
    };
    Event {
        place: place_of(event, at),
        id: event.id,
        contract: event.contract,
        topics,
        data,
        declared,
    }
}
