//! The rows of tables for events of the row log: as emits, and as they are sent to the tables.

use std::sync::Arc;

use super::EventProject;
use super::data_rows::DataRows;
use super::declared_by::DeclaredBy;
use super::interfaces::{EventInterfaces, OfProject};
use super::known::KnownInterface;
use super::logged::{LoggedEvent, LoggedEvents, in_this_form};
use super::members::LoggedMember;
use super::row_place::RowPlace;
use crate::ProgramError;
use crate::rows::LoggedRun;
use orrery_interfaces::Scalar;
use orrery_store::TransactionPosition;
use orrery_tables::event_tables::{FlatEvent, Packer};
use orrery_tables::{Frame, Row, change_id, event_id};

/// Bytes of rows that are packed at once, about. What an event takes as rows may be a hundred times what it
/// takes in the log: fields of structs that it leaves out are nulls.
const MOST_BYTES: usize = 32 << 20;

/// Returns the rows of tables for the events of a transaction, in stored form: for each the one in its
/// table, and the one behind the view `events`; and for each change of contract data one.
///
/// # Errors
/// When the store fails, or an event is damaged.
pub fn table_rows(
    of: &OfProject<'_>,
    project: &EventProject,
    interfaces: &EventInterfaces,
    stored: (TransactionPosition, &[u8]),
) -> Result<Vec<Row>, ProgramError> {
    let mut rows = Vec::new();
    each_row(of, project, interfaces, stored, &mut |_, row| {
        rows.push(row);
        Ok(())
    })?;
    Ok(rows)
}

/// Visits the rows of [`table_rows`] with their places in the chain.
///
/// # Errors
/// As [`table_rows`], and those of `visit`.
pub fn each_row(
    of: &OfProject<'_>,
    project: &EventProject,
    interfaces: &EventInterfaces,
    (position, stored): (TransactionPosition, &[u8]),
    visit: &mut dyn FnMut(RowPlace, Row) -> Result<(), ProgramError>,
) -> Result<(), ProgramError> {
    let (layout, ledger) = (project.layout(), project.ledger_of(position));
    let stored = in_this_form(stored)?;
    let events = LoggedEvents::read(&stored)?;
    let (transaction, closed_at) = (events.transaction, events.closed_at);
    // Rows do not depend on where in its ledger the transaction is.
    let at = TransactionPosition { ledger, application_order: 0 };
    for event in events.events() {
        let event = event?;
        let made = interfaces.with_declaration(of, &event, at, |event| layout.rows(event))?;
        let event_id = event_id(of.program, &transaction, event.index);
        let place = RowPlace::in_transaction(ledger, position.application_order, event.index);
        for emit in [made.row, made.event] {
            visit(place, Row { emit, transaction, event_id, ledger, closed_at })?;
        }
    }
    let mut data = DataRows::default();
    for (number, change) in (0..).zip(events.changes.rows()) {
        let change = change?;
        let event_id = change_id(of.program, ledger, &transaction, &change.key_hash);
        let row = data.row(interfaces, of, order_of(position), &change)?;
        let place = RowPlace::of_change(ledger, position, number, &change.key_hash);
        visit(place, Row { emit: row.emit(), transaction, event_id, ledger, closed_at })?;
    }
    for member in events.members.iter() {
        let LoggedMember { change, ledger, transaction, closed_at } = member?;
        let key = change.key();
        let event_id = change_id(of.program, ledger, &transaction, &key);
        let place = RowPlace::of_member(ledger, transaction, change.number, key);
        visit(place, Row { emit: change.emit(), transaction, event_id, ledger, closed_at })?;
    }
    Ok(())
}

/// Returns the rows of [`table_rows`] for transactions of the row log, as they are sent to the tables, and
/// the number of these transactions: fewer than there are when their rows take much memory, and at least
/// one.
///
/// # Errors
/// As [`table_rows`].
pub fn frames(
    of: &OfProject<'_>,
    project: &EventProject,
    interfaces: &EventInterfaces,
    runs: &[LoggedRun],
) -> Result<(Vec<Frame>, usize), ProgramError> {
    let mut packing = Packing {
        of,
        project,
        interfaces,
        packer: Packer::new(of.program, project.layout()),
        last: None,
        data: DataRows::default(),
    };
    let mut packed = 0;
    for run in runs {
        packing.add(run)?;
        packed += 1;
        if packing.packer.bytes() >= MOST_BYTES {
            break;
        }
    }
    Ok((packing.packer.finish()?, packed))
}

/// Returns the order of changes in their ledger: what was found precedes all transactions.
fn order_of(at: TransactionPosition) -> u32 {
    if at.ledger.0 == 0 { 0 } else { at.application_order }
}

/// Packs the events of transactions.
struct Packing<'a> {
    of: &'a OfProject<'a>,
    project: &'a EventProject,
    interfaces: &'a EventInterfaces,
    packer: Packer<'a>,
    /// The interface that declared the last event.
    last: Option<(DeclaredBy, Arc<KnownInterface>)>,
    data: DataRows,
}

impl Packing<'_> {
    fn add(&mut self, run: &LoggedRun) -> Result<(), ProgramError> {
        let stored = in_this_form(&run.stored)?;
        let events = LoggedEvents::read(&stored)?;
        let ledger = self.project.ledger_of(run.position);
        self.packer.begin(events.transaction, ledger, events.closed_at);
        // Rows do not depend on where in its ledger the transaction is.
        let at = TransactionPosition { ledger: run.position.ledger, application_order: 0 };
        let mut values = Vec::new();
        for event in events.events() {
            let event = event?;
            if !self.add_flat(&event, &mut values)? {
                let layout = self.project.layout();
                let made =
                    self.interfaces.with_declaration(self.of, &event, at, |it| layout.rows(it))?;
                self.packer.add(&made, event.index)?;
            }
        }
        let order = order_of(run.position);
        for change in events.changes.rows() {
            let change = change?;
            let id = change_id(self.of.program, ledger, &events.transaction, &change.key_hash);
            let row = self.data.row(self.interfaces, self.of, order, &change)?;
            self.packer.add_change(&row.emit(), &id)?;
        }
        for member in events.members.iter() {
            let LoggedMember { change, ledger, transaction, closed_at } = member?;
            self.packer.begin(transaction, ledger, closed_at);
            let id = change_id(self.of.program, ledger, &transaction, &change.key());
            self.packer.add_change(&change.emit(), &id)?;
        }
        Ok(())
    }

    /// Adds the rows of an event if its bytes alone tell them.
    fn add_flat<'e>(
        &mut self,
        event: &LoggedEvent<'e>,
        values: &mut Vec<Scalar<'e>>,
    ) -> Result<bool, ProgramError> {
        let Some(by) = event.declared_by else { return Ok(false) };
        if self.last.as_ref().is_none_or(|(last, _)| *last != by) {
            let known = self.interfaces.get(by, self.of)?;
            self.last = known.map(|known| (by, known));
        }
        let Some((_, known)) = &self.last else { return Ok(false) };
        let interface = known.interface();
        values.clear();
        let number =
            interface.flat_declaration(event.topics.iter(), event.data, |number, value| {
                if values.len() <= number {
                    values.resize(number + 1, Scalar::Absent);
                }
                values[number] = value;
            });
        let Some(number) = number else { return Ok(false) };
        let LoggedEvent { id, index, contract, .. } = *event;
        let flat = FlatEvent { id, index, contract, number, values };
        Ok(self.packer.add_flat((&known.declarations, interface), &flat)?)
    }
}
