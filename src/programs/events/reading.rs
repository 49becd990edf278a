//! Reads the events of a project's contracts in a ledger, each with its declaration, as the runs of a
//! program are made.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use stellar_xdr::{Limits, ReadXdr, ScVal};

use super::interfaces::{EventInterfaces, OfProject};
use super::known::KnownInterface;
use super::raw::{DeclaredBy, RawEvent};
use super::{EventCounts, EventProject, Summary};
use crate::ProgramError;
use crate::effects::{Effects, Run};
use crate::manifest::Manifest;
use crate::records::Execution;
use crate::rows::RunRows;
use crate::runner::Runner;
use orrery_executables::{InterfaceReader, Tried};
use orrery_interfaces::{Matched, is_asset_contract};
use orrery_ledger::decode::{EventType, Placement};
use orrery_ledger::domain::{ContractId, Hash32, LedgerRange, LedgerSeq, NetworkId, TxHash};
use orrery_store::{Bounds, EventQuery, EventRecord, TransactionPosition};
use orrery_tables::event_tables::{Declared, Event, Layout, Place};

/// The nesting that the contract host allows in a value (`DEFAULT_XDR_RW_DEPTH_LIMIT`), and more bytes
/// than the events of a transaction may have.
const LIMITS: Limits = Limits { depth: 500, len: 4 << 20 };

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

    /// Looks for the declaration of an event, adds the event to a summary, and records in the event
    /// which interface declares it. Returns whether that changes the event.
    pub fn examine(
        &self,
        event: &mut RawEvent,
        at: TransactionPosition,
        summary: &mut Summary,
    ) -> Result<bool, ProgramError> {
        let (topics, data) = values(event);
        let (candidates, is_sure) = match event.is_system {
            true => (Vec::new(), true),
            false => self.candidates(event, &topics, at)?,
        };
        let tried = candidates.iter().map(|(_, known)| &**known);
        let matched = self.interfaces.declaration(event.id, tried, (&topics, &data));
        let by = matched.as_ref().map(|matched| &candidates[matched.tried]);
        for (_, known) in &candidates {
            summary.shapes.consult(&known.declarations);
        }
        let declared = matched.as_ref().zip(by.map(|(_, known)| &**known));
        summary.shapes.add(&with_values(event, at, (&topics, &data), declared));
        if !is_sure {
            summary.unsure.add(&event.contract, at, |contract, from, to| {
                self.names.is_same_between(contract, from, to)
            })?;
        }
        if declared.is_none() && !event.is_system {
            summary.nameless.add(event.contract);
        }
        let by = by.map(|(by, _)| *by);
        let changes = (event.declared_by, event.is_sure) != (by, is_sure);
        (event.declared_by, event.is_sure) = (by, is_sure);
        Ok(changes)
    }

    /// Returns the interfaces in which the declaration of an event is looked for, and whether that is
    /// all that its contract had.
    fn candidates(
        &self,
        event: &RawEvent,
        topics: &[ScVal],
        at: TransactionPosition,
    ) -> Result<(Vec<Candidate>, bool), ProgramError> {
        let mut candidates = Vec::new();
        let known = |by| {
            let known = self.interfaces.get(by, &self.project)?;
            Ok::<_, ProgramError>(known.map(|known| (by, known)))
        };
        if let Some(supplied) = self.supplied {
            candidates.extend(known(DeclaredBy::Supplied(supplied))?);
        }
        if is_asset_contract(topics, &self.network, &event.contract) {
            candidates.extend(known(DeclaredBy::Asset)?);
            return Ok((candidates, true));
        }
        let (tried, is_sure) = self.names.tried_surely(&event.contract, at);
        for tried in tried {
            candidates.extend(match tried {
                Tried::Asset => known(DeclaredBy::Asset)?,
                Tried::Code(hash, interface) => {
                    Some((DeclaredBy::Code(hash), self.interfaces.of(&hash, &interface)))
                }
            });
        }
        Ok((candidates, is_sure))
    }
}

/// An interface in which a declaration is looked for.
type Candidate = (DeclaredBy, Arc<KnownInterface>);

impl EventInterfaces {
    /// Calls `visit` with an event of a project as the tables need it.
    pub(super) fn with_declaration<T>(
        &self,
        project: &OfProject<'_>,
        event: &RawEvent,
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

/// Returns an event with its values, and with its declaration in an interface, if it has one.
fn with_values<'e>(
    event: &RawEvent,
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
        place: Place::new(at.ledger, at.application_order, event.index),
        id: event.id,
        contract: event.contract,
        topics,
        data,
        declared,
    }
}

/// Returns the values of an event. Values that are nested deeper than the network allows are bytes.
pub(super) fn values(event: &RawEvent) -> (Vec<ScVal>, ScVal) {
    let value = |xdr: &Vec<u8>| {
        let raw = || ScVal::Bytes(stellar_xdr::ScBytes(xdr.clone().try_into().unwrap_or_default()));
        ScVal::from_xdr(xdr, LIMITS).unwrap_or_else(|_| raw())
    };
    (event.topics.iter().map(value).collect(), value(&event.data))
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
        let mut by_transaction: BTreeMap<u32, (TxHash, RunRows, Vec<RawEvent>)> = BTreeMap::new();
        let is_wanted = manifest.events.as_ref().is_some_and(|project| project.wants(ledger));
        if is_wanted {
            self.store.events(&query(ledger, manifest), |event| {
                let order = event.application_order;
                if from.is_some_and(|from| order < from.application_order) {
                    return;
                }
                if let Some(raw) = raw(event) {
                    let transaction = TxHash::from(*event.tx);
                    let rows =
                        || RunRows { transaction, closed_at: event.closed_at, emits: Vec::new() };
                    let entry = by_transaction.entry(order);
                    entry.or_insert_with(|| (transaction, rows(), Vec::new())).2.push(raw);
                }
            })?;
        }
        let mut is_first = true;
        for (order, (hash, mut rows, events)) in by_transaction {
            let position = TransactionPosition { ledger, application_order: order };
            // At least one transaction per turn, so that the project makes progress.
            if !is_first && (effects.is_part() || Instant::now() > deadline) {
                effects.rest = Some(position);
                break;
            }
            is_first = false;
            let begun = Instant::now();
            for mut event in events {
                declaring.examine(&mut event, position, &mut effects.summary)?;
                let emit = event.to_emit();
                rows.emits.push(emit.ok_or(ProgramError::Damaged("an event"))?);
            }
            let mut execution = Execution::of(ledger, &hash, effects.source, (self.clock)());
            execution.micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
            execution.rows = u32::try_from(rows.emits.len()).unwrap_or(u32::MAX);
            let encoded =
                rows.encode().map_err(|_| ProgramError::Damaged("the events of a transaction"))?;
            effects.add(Run { position, execution, fuel: 0, rows, encoded });
        }
        declaring.names.finish()?;
        effects.complete = self.has_all_events(ledger, &manifest.contracts)?;
        Ok(effects)
    }

    /// Whether all events of these contracts in a stored ledger are present.
    pub(crate) fn has_all_events(
        &self,
        ledger: LedgerSeq,
        contracts: &[ContractId],
    ) -> Result<bool, ProgramError> {
        Ok(!self.store.leaves_out(ledger, contracts)? && self.store.has_all_events(ledger)?)
    }

    /// Counts the events of a transaction, and those that are in no table of these.
    pub(crate) fn count_events(
        &self,
        project: &OfProject<'_>,
        layout: &Layout,
        position: TransactionPosition,
        rows: &RunRows,
    ) -> Result<EventCounts, ProgramError> {
        let mut counts = EventCounts::default();
        for emit in &rows.emits {
            let event = RawEvent::from_emit(emit).ok_or(ProgramError::Damaged("an event"))?;
            let is_undeclared = self
                .events
                .with_declaration(project, &event, position, |it| layout.is_undeclared(it))?;
            counts.add(&EventCounts { events: 1, undeclared: u64::from(is_undeclared) });
        }
        Ok(counts)
    }
}

fn query(ledger: LedgerSeq, manifest: &Manifest) -> EventQuery {
    EventQuery {
        contracts: manifest.contracts.clone(),
        ..EventQuery::of_ledgers(LedgerRange::only(ledger))
    }
}

/// Returns an event as it is stored for a project; `None` for one without a contract.
fn raw(event: &EventRecord<'_>) -> Option<RawEvent> {
    let index = match event.placement {
        Placement::Operation { event_index, .. } => event_index,
        Placement::BeforeAllTransactions => Place::OUTSIDE,
        Placement::AfterTransaction => Place::OUTSIDE + 1,
        Placement::AfterAllTransactions => Place::OUTSIDE + 2,
    };
    Some(RawEvent {
        id: event.id.0,
        index,
        contract: ContractId(*event.contract?),
        is_system: event.event_type == EventType::System,
        topics: event.topics.iter().map(|topic| topic.to_vec()).collect(),
        data: event.data.to_vec(),
        declared_by: None,
        is_sure: true,
    })
}
