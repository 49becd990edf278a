//! The two tables that every project of events has, whatever its events are.

use orrery_interfaces::names::{
    CLOSED_AT, CONTRACT_ID, EVENT_ID, EVENT_INDEX, EVENTS, LEDGER, UNDECLARED,
};

use crate::schema::TableSchema;
use crate::types::{ColumnType, Field};

pub(super) const TOPICS: &str = "topics";
pub(super) const DATA: &str = "data";
pub(super) const REASON: &str = "reason";
pub(super) const NAME: &str = "name";
pub(super) const PARAMS: &str = "params";

/// Columns of the view with one row per event: the name in its table, and the name in the view.
pub const EVENTS_VIEW: [(&str, &str); 6] = [
    (EVENT_ID, EVENT_ID),
    (LEDGER, "ledger"),
    (CLOSED_AT, "ledger_closed_at"),
    (CONTRACT_ID, CONTRACT_ID),
    (NAME, NAME),
    (PARAMS, PARAMS),
];

/// The table behind the view with one row per event.
pub(super) fn events() -> TableSchema {
    let columns =
        [(EVENT_ID, ColumnType::UInt64), (NAME, ColumnType::Text), (PARAMS, ColumnType::JsonText)];
    schema(EVENTS, columns)
}

/// The table of the events that no other holds.
pub(super) fn undeclared() -> TableSchema {
    let columns = [
        (EVENT_ID, ColumnType::UInt64),
        (EVENT_INDEX, ColumnType::UInt32),
        (TOPICS, ColumnType::JsonText),
        (DATA, ColumnType::JsonText),
        (REASON, ColumnType::Text),
    ];
    schema(UNDECLARED, columns)
}

fn schema<const N: usize>(target: &str, columns: [(&str, ColumnType); N]) -> TableSchema {
    let field = |(name, kind): (&str, _)| Field { name: name.to_owned(), kind };
    TableSchema::known(target, columns.into_iter().map(field).collect())
}
