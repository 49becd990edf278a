//! The rows of tables for events of the row log.

use super::EventProject;
use super::interfaces::{EventInterfaces, OfProject};
use super::logged::{LoggedEvents, in_this_form};
use crate::ProgramError;
use orrery_ledger::domain::LedgerSeq;
use orrery_store::TransactionPosition;
use orrery_tables::{Row, event_id};

/// Returns the rows of tables for the events of a transaction, in stored form: for each the one in its
/// table, and the one behind the view `events`.
///
/// # Errors
/// When the store fails, or an event is damaged.
pub fn table_rows(
    of: &OfProject<'_>,
    project: &EventProject,
    interfaces: &EventInterfaces,
    (ledger, stored): (LedgerSeq, &[u8]),
) -> Result<Vec<Row>, ProgramError> {
    let layout = project.layout();
    let stored = in_this_form(stored)?;
    let events = LoggedEvents::read(&stored)?;
    let (transaction, closed_at) = (events.transaction, events.closed_at);
    // Rows do not depend on where in its ledger the transaction is.
    let at = TransactionPosition { ledger, application_order: 0 };
    let mut rows = Vec::new();
    for event in events.events() {
        let event = event?;
        let made = interfaces.with_declaration(of, &event, at, |event| layout.rows(event))?;
        let event_id = event_id(of.program, &transaction, event.index);
        let both = [made.row, made.event];
        rows.extend(both.map(|emit| Row { emit, transaction, event_id, ledger, closed_at }));
    }
    Ok(rows)
}
