//! Reads the events of a project's contracts in a ledger, each with its declaration, as the runs of a
//! program are made.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Instant;

use super::data_log::ChangesWriter;
use super::data_reading::ReadChanges;
use super::examining::Declaring;
use super::interfaces::OfProject;
use super::logged::{EventsWriter, LoggedEvent, LoggedEvents, Topics, in_this_form};
use super::members::Updates;
use super::{EventProject, Kinds};
use crate::ProgramError;
use crate::effects::{Effects, Only, Run};
use crate::manifest::Manifest;
use crate::records::Execution;
use crate::rows::RunRows;
use crate::runner::Runner;
use orrery_ledger::decode::{EventType, Placement};
use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq, ProgramId, TxHash};
use orrery_store::{Bounds, EventQuery, EventRecord, TransactionPosition};
use orrery_tables::event_tables::{Kind, Place};

/// Number of contracts with events in a ledger up to which these are looked up by contract.
const MOST_LOOKED_UP: usize = 16;

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
        if !project.selectors.is_empty() {
            return Ok(!self.emitters(ledger, manifest.id, project)?.is_empty());
        }
        let query = query(ledger, &manifest.contracts);
        let found = self.store.events_within(&query, Bounds::NONE, |_| ControlFlow::Break(()))?;
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
        effects.known = self.events.interfaces.generation();
        let declaring = Declaring::new(&self.events, manifest, *self.store.network().id())?;
        let mut is_first = true;
        let only = effects.only;
        for (order, (read, data)) in self.read_by_transaction(ledger, manifest, (from, only))? {
            let position = TransactionPosition { ledger, application_order: order };
            // At least one transaction per turn, so that the project makes progress.
            if !is_first && (effects.is_part() || Instant::now() > deadline) {
                effects.rest = Some(position);
                break;
            }
            is_first = false;
            let run =
                self.examine_all(&declaring, manifest, position, (&read, data), &mut effects)?;
            if let Some(run) = run {
                effects.add(run);
            }
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
        (from, only): (Option<TransactionPosition>, Option<Only>),
    ) -> Result<BTreeMap<u32, (Vec<u8>, ChangesWriter)>, ProgramError> {
        let events = self.events_by_transaction(ledger, manifest, (from, only))?;
        let none = ChangesWriter::default;
        let events = events.into_iter().map(|(order, it)| (order, (it.finish(), none())));
        let mut all: BTreeMap<_, _> = events.collect();
        let project = manifest.events.as_ref().filter(|it| it.has_storage && it.wants(ledger));
        if project.is_some() && only.is_none_or(|only| only.has_data) {
            let of = (from, only.map(|only| only.contract));
            for (order, read) in self.data_by_transaction(ledger, manifest, of)? {
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
        (from, only): (Option<TransactionPosition>, Option<Only>),
    ) -> Result<BTreeMap<u32, EventsWriter>, ProgramError> {
        let mut by_transaction = BTreeMap::new();
        let project = manifest.events.as_ref().filter(|project| project.wants(ledger));
        let Some(project) = project else { return Ok(by_transaction) };
        let contracts = match only {
            Some(only) => vec![only.contract],
            None if project.selectors.is_empty() => manifest.contracts.clone(),
            None => self.emitters(ledger, manifest.id, project)?,
        };
        if contracts.is_empty() {
            return Ok(by_transaction);
        }
        // Where there are many, the whole ledger is read instead.
        let is_wanted = |contract: &ContractId| contracts.binary_search(contract).is_ok();
        let are_many = contracts.len() > MOST_LOOKED_UP && !project.selectors.is_empty();
        let looked_up: &[ContractId] = if are_many { &[] } else { &contracts };
        let query = query(ledger, looked_up);
        let mut written = Ok(());
        self.store.events(&query, |event| {
            let order = event.application_order;
            let Some(contract) = event.contract else { return };
            if are_many && !is_wanted(&ContractId(*contract)) {
                return;
            }
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

    /// Returns the contracts with events in a ledger that may belong to a project with selectors, by id.
    fn emitters(
        &self,
        ledger: LedgerSeq,
        program: ProgramId,
        project: &EventProject,
    ) -> Result<Vec<ContractId>, ProgramError> {
        let members = self.events.members();
        Ok(match project.selectors.all.is_empty() {
            true => members.emitters(&self.store, ledger, program)?,
            false => members.all_emitters(&self.store, ledger)?,
        })
    }

    /// Looks for the interfaces of changes that were just read. Returns those that belong to the project, and the
    /// number of their rows. `updates` are those of the transaction.
    pub(super) fn examine_new(
        &self,
        declaring: &Declaring<'_>,
        project: &EventProject,
        (at, updates): (TransactionPosition, &Updates),
        data: &ChangesWriter,
        effects: &mut Effects,
    ) -> Result<(ChangesWriter, u32), ProgramError> {
        let (mut examined, mut count) = (ChangesWriter::default(), 0);
        let held_at = project.position_of(at);
        for change in data.changes().iter() {
            let of = (held_at, updates);
            let found = declaring.examine_change(change?, of, &mut effects.summary)?;
            let Some(change) = found else { continue };
            if change.is_open() {
                effects.summary.open.add(at);
            }
            count += u32::from(!change.is_apart);
            examined.push(&change)?;
        }
        Ok((examined, count))
    }

    /// Examines the events of a transaction. Returns them as a run with one row for each, and for each
    /// change of data; `None` where none belongs to the project.
    fn examine_all(
        &self,
        declaring: &Declaring<'_>,
        manifest: &Manifest,
        position: TransactionPosition,
        (read, data): (&[u8], ChangesWriter),
        effects: &mut Effects,
    ) -> Result<Option<Run>, ProgramError> {
        let begun = Instant::now();
        let read = LoggedEvents::read(read)?;
        let updates = Updates::of(&read)?;
        let (changes, mut count) = match &manifest.events {
            Some(project) => {
                let at = (position, &updates);
                self.examine_new(declaring, project, at, &data, effects)?
            }
            None => Default::default(),
        };
        let mut examined = EventsWriter::with_changes(&read.transaction, read.closed_at, &changes)?;
        let mut kinds = Kinds::default();
        let mut is_empty = changes.is_empty();
        for event in read.all_events() {
            let at = (position, &updates);
            let found = declaring.examine_selected(&event?, at, &mut effects.summary)?;
            let Some((event, kind)) = found else { continue };
            examined.push(&event)?;
            is_empty = false;
            if let Some(kind) = kind {
                kinds.add(kind);
                count += 1;
            }
        }
        if is_empty {
            return Ok(None);
        }
        let mut execution =
            Execution::of(position.ledger, &read.transaction, effects.source, (self.clock)());
        execution.micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        execution.rows = count;
        let rows = RunRows::none(read.transaction, read.closed_at);
        let encoded = examined.finish();
        Ok(Some(Run { position, execution, fuel: 0, rows, kinds, encoded }))
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

fn query(ledger: LedgerSeq, contracts: &[ContractId]) -> EventQuery {
    EventQuery {
        contracts: contracts.to_vec(),
        ..EventQuery::of_ledgers(LedgerRange::only(ledger))
    }
}

/// Returns an event as it is stored for a project, without its topics.
pub(super) fn logged<'a>(event: &EventRecord<'a>, contract: ContractId) -> LoggedEvent<'a> {
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
        is_apart: false,
        topics: Topics::NONE,
        data: event.data,
    }
}
