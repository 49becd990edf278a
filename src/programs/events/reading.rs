//! Reads the events of a project's contracts in a ledger, each with its declaration, as the runs of a
//! program are made.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Instant;

use super::data_log::{ChangesWriter, LoggedChange};
use super::data_reading::ReadChanges;
use super::examining::{Declaring, Examined};
use super::interfaces::OfProject;
use super::logged::{EventsWriter, LoggedEvent, LoggedEvents, Topics, in_this_form};
use super::{EventProject, Kinds};
use crate::ProgramError;
use crate::effects::{Effects, Run};
use crate::manifest::Manifest;
use crate::records::Execution;
use crate::rows::RunRows;
use crate::runner::Runner;
use orrery_ledger::decode::{EventType, Placement};
use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq, TxHash};
use orrery_store::{Bounds, EventQuery, EventRecord, TransactionPosition};
use orrery_tables::event_tables::{Kind, Place};

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
