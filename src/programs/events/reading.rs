//! Reads the events of a project's contracts in a ledger, each with its declaration, as the runs of a
//! program are made.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use stellar_xdr::{Limits, ReadXdr, ScVal};

use super::data_log::{ChangesWriter, LoggedChange};
use super::data_reading::ReadChanges;
use super::interfaces::{EventInterfaces, OfProject};
use super::known::KnownInterface;
use super::logged::{DeclaredBy, EventsWriter, LoggedEvent, LoggedEvents, Topics, in_this_form};
use super::{EventProject, Kinds, Summary};
use crate::ProgramError;
use crate::effects::{Effects, Run};
use crate::manifest::Manifest;
use crate::records::Execution;
use crate::rows::RunRows;
use crate::runner::Runner;
use orrery_executables::{InterfaceReader, Tried};
use orrery_interfaces::Matched;
use orrery_ledger::decode::{EventType, Placement};
use orrery_ledger::domain::{ContractId, Hash32, LedgerRange, LedgerSeq, NetworkId, TxHash};
use orrery_store::{Bounds, EventQuery, EventRecord, TransactionPosition};
use orrery_tables::event_tables::{Declared, Event, Kind, Place};

/// The nesting that the contract host allows in a value (`DEFAULT_XDR_RW_DEPTH_LIMIT`), and more bytes
/// than the events of a transaction may have.
const LIMITS: Limits = Limits { depth: 500, len: 4 << 20 };
/// Maximum number of interfaces by which a change of contract data is written.
const MOST_INTERFACES: usize = 8;

/// Finds the declarations of events.
pub(super) struct Declaring<'a> {
    pub interfaces: &'a EventInterfaces,
    pub names: InterfaceReader<'a>,
    pub network: NetworkId,
    project: OfProject<'a>,
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
        Ok(Self { interfaces, names, network, project: OfProject::of(manifest), supplied })
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
        if declared.is_none() && !event.is_system {
            summary.nameless.add(event.contract);
        }
        Ok(Examined { declared_by: by.map(|(by, _)| *by), is_sure, kind })
    }

    /// Returns the interfaces by which a change of a contract's data is written, and whether these are all
    /// that it had.
    pub fn of_data(
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
    fn candidates(
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
type Candidate = (DeclaredBy, Arc<KnownInterface>);

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

/// Returns the values of an event. Values that are nested deeper than the network allows are bytes.
pub(super) fn values(event: &LoggedEvent<'_>) -> (Vec<ScVal>, ScVal) {
    let value = |xdr: &[u8]| {
        let raw =
            || ScVal::Bytes(stellar_xdr::ScBytes(xdr.to_vec().try_into().unwrap_or_default()));
        ScVal::from_xdr(xdr, LIMITS).unwrap_or_else(|_| raw())
    };
    (event.topics.iter().map(value).collect(), value(event.data))
}

impl Runner {
    /// Whether a ledger has events of a project's contracts that are read.
    pub(crate) fn has_events(
        &self,
        ledger: LedgerSeq,
        manifest: &Manifest,
        project: &EventProject,
    ) -> Result<bool, ProgramError> {
        if !project.wants(ledger) {
            return Ok(false);
        }
        if project.has_storage && self.has_data(ledger, manifest)? {
            return Ok(true);
        }
        let found = self
            .store
            .events_within(&query(ledger, manifest), Bounds::NONE, |_| ControlFlow::Break(()))?;
        Ok(found.broken_off.is_some())
    }

    /// Reads the events of a project's contracts in a ledger, or in the rest of it. Writes nothing.
    pub(crate) fn read_events(
        &self,
        manifest: &Manifest,
        mut effects: Effects,
        deadline: Instant,
    ) -> Result<Effects, ProgramError> {
        let from = effects.rest.take();
        let ledger = effects.ledger;
        if let Some(place) = self.store.place_of(ledger) {
            self.events.interfaces.wait_until_indexed(place);
        }
        let declaring = Declaring::new(&self.events, manifest, *self.store.network().id())?;
        let mut is_first = true;
        for (order, (read, data)) in self.read_by_transaction(ledger, manifest, from)? {
            let position = TransactionPosition { ledger, application_order: order };
            // At least one transaction per turn, so that the project makes progress.
            if !is_first && (effects.is_part() || Instant::now() > deadline) {
                effects.rest = Some(position);
                break;
            }
            is_first = false;
            let run =
                self.examine_all(&declaring, manifest, position, (&read, data), &mut effects)?;
            effects.add(run);
        }
        declaring.names.finish()?;
        effects.complete = self.is_complete(ledger, manifest)?;
        Ok(effects)
    }

    /// Returns the events of a project's contracts in a ledger, from a transaction on, in stored form, and
    /// the changes of what they hold, if the project has these, by the application order of the
    /// transactions.
    fn read_by_transaction(
        &self,
        ledger: LedgerSeq,
        manifest: &Manifest,
        from: Option<TransactionPosition>,
    ) -> Result<BTreeMap<u32, (Vec<u8>, ChangesWriter)>, ProgramError> {
        let events = self.events_by_transaction(ledger, manifest, from)?;
        let none = ChangesWriter::default;
        let events = events.into_iter().map(|(order, it)| (order, (it.finish(), none())));
        let mut all: BTreeMap<_, _> = events.collect();
        let project = manifest.events.as_ref().filter(|it| it.has_storage && it.wants(ledger));
        if project.is_some() {
            for (order, read) in self.data_by_transaction(ledger, manifest, from)? {
                let ReadChanges { transaction, closed_at, changes } = read;
                let events = || (EventsWriter::new(&transaction, closed_at).finish(), none());
                all.entry(order).or_insert_with(events).1 = changes;
            }
        }
        Ok(all)
    }

    /// Returns the events of a project's contracts in a ledger, from a transaction on, in stored form,
    /// by the application order of their transactions.
    fn events_by_transaction(
        &self,
        ledger: LedgerSeq,
        manifest: &Manifest,
        from: Option<TransactionPosition>,
    ) -> Result<BTreeMap<u32, EventsWriter>, ProgramError> {
        let mut by_transaction = BTreeMap::new();
        if !manifest.events.as_ref().is_some_and(|project| project.wants(ledger)) {
            return Ok(by_transaction);
        }
        let mut written = Ok(());
        self.store.events(&query(ledger, manifest), |event| {
            let order = event.application_order;
            let Some(contract) = event.contract else { return };
            if written.is_err() || from.is_some_and(|from| order < from.application_order) {
                return;
            }
            let read = by_transaction
                .entry(order)
                .or_insert_with(|| EventsWriter::new(&TxHash::from(*event.tx), event.closed_at));
            let topics = event.topics.iter().copied();
            written = read.push_with_topics(&logged(event, ContractId(*contract)), topics);
        })?;
        written?;
        Ok(by_transaction)
    }

    /// Looks for the interfaces of changes that were just read. Returns them, and their number.
    pub(super) fn examine_new(
        &self,
        declaring: &Declaring<'_>,
        project: &EventProject,
        at: TransactionPosition,
        data: &ChangesWriter,
        effects: &mut Effects,
    ) -> Result<(ChangesWriter, u32), ProgramError> {
        let (mut examined, mut count) = (ChangesWriter::default(), 0);
        let held_at = project.position_of(at);
        for change in data.changes().iter() {
            let change = change?;
            let (interfaces, is_sure) =
                declaring.of_data(&change.contract, held_at, &mut effects.summary)?;
            if change.is_open() {
                effects.summary.open.add(at);
            }
            examined.push(&LoggedChange { interfaces, is_sure, ..change })?;
            count += 1;
        }
        Ok((examined, count))
    }

    /// Examines the events of a transaction. Returns them as a run with one row for each, and for each
    /// change of data.
    fn examine_all(
        &self,
        declaring: &Declaring<'_>,
        manifest: &Manifest,
        position: TransactionPosition,
        (read, data): (&[u8], ChangesWriter),
        effects: &mut Effects,
    ) -> Result<Run, ProgramError> {
        let begun = Instant::now();
        let read = LoggedEvents::read(read)?;
        let (changes, mut count) = match &manifest.events {
            Some(project) => self.examine_new(declaring, project, position, &data, effects)?,
            None => Default::default(),
        };
        let mut examined = EventsWriter::with_changes(&read.transaction, read.closed_at, &changes)?;
        let mut kinds = Kinds::default();
        for event in read.events() {
            let event = event?;
            let found = declaring.examine(&event, position, &mut effects.summary)?;
            let Examined { declared_by, is_sure, kind } = found;
            examined.push(&LoggedEvent { declared_by, is_sure, ..event })?;
            kinds.add(kind);
            count += 1;
        }
        let mut execution =
            Execution::of(position.ledger, &read.transaction, effects.source, (self.clock)());
        execution.micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        execution.rows = count;
        let rows = RunRows::none(read.transaction, read.closed_at);
        Ok(Run { position, execution, fuel: 0, rows, kinds, encoded: examined.finish() })
    }

    /// Whether all events of these contracts in a stored ledger are present.
    pub(crate) fn has_all_events(
        &self,
        ledger: LedgerSeq,
        contracts: &[ContractId],
    ) -> Result<bool, ProgramError> {
        Ok(!self.store.leaves_out(ledger, contracts)? && self.store.has_all_events(ledger)?)
    }

    /// Counts the events of a transaction, in stored form, by their kind.
    pub(crate) fn count_events(
        &self,
        project: &OfProject<'_>,
        position: TransactionPosition,
        stored: &[u8],
        kinds: &mut Kinds,
    ) -> Result<(), ProgramError> {
        let stored = in_this_form(stored)?;
        for event in LoggedEvents::read(&stored)?.events() {
            kinds.add(self.events.with_declaration(project, &event?, position, Kind::of)?);
        }
        Ok(())
    }
}

fn query(ledger: LedgerSeq, manifest: &Manifest) -> EventQuery {
    EventQuery {
        contracts: manifest.contracts.clone(),
        ..EventQuery::of_ledgers(LedgerRange::only(ledger))
    }
}

/// Returns an event as it is stored for a project, without its topics.
fn logged<'a>(event: &EventRecord<'a>, contract: ContractId) -> LoggedEvent<'a> {
    let index = match event.placement {
        Placement::Operation { event_index, .. } => event_index,
        Placement::BeforeAllTransactions => Place::OUTSIDE,
        Placement::AfterTransaction => Place::OUTSIDE + 1,
        Placement::AfterAllTransactions => Place::OUTSIDE + 2,
    };
    LoggedEvent {
        id: event.id.0,
        index,
        contract,
        is_system: event.event_type == EventType::System,
        declared_by: None,
        is_sure: true,
        topics: Topics::NONE,
        data: event.data,
    }
}
