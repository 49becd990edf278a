//! The rows of tables for the entries of a project's row log.

use super::EventProject;
use super::interfaces::{EventInterfaces, OfProject};
use super::raw::RawEvent;
use crate::ProgramError;
use orrery_store::TransactionPosition;
use orrery_tables::{Row, event_id};

/// Returns the rows of tables for events of the row log: for each the one in its table, and the one
/// behind the view `events`.
///
/// # Errors
/// When the store fails, or an event is damaged.
pub fn table_rows(
    of: &OfProject<'_>,
    project: &EventProject,
    interfaces: &EventInterfaces,
    events: Vec<Row>,
) -> Result<Vec<Row>, ProgramError> {
    let layout = project.layout();
    let mut rows = Vec::with_capacity(2 * events.len());
    for row in events {
        let event = RawEvent::from_emit(&row.emit).ok_or(ProgramError::Damaged("an event"))?;
        // Rows do not depend on where in its ledger the transaction is.
        let at = TransactionPosition { ledger: row.ledger, application_order: 0 };
        let made = interfaces.with_declaration(of, &event, at, |event| layout.rows(event))?;
        let event_id = event_id(of.program, &row.transaction, event.index);
        let both = [made.row, made.event];
        rows.extend(both.map(|emit| Row { emit, event_id, ..row.clone() }));
    }
    Ok(rows)
}
