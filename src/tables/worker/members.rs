//! The query of the view with the members of a project.

use orrery_interfaces::names::{MEMBER_CHANGES, TRANSACTION};

use crate::names::{CONTRACT_ID, LEDGER, SCHEMA, quoted};
use crate::wire::Definition;

/// Text of the transaction of what has none.
const NOWHERE: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Returns the stored table with the changes of members, and the query of the view; `None` of programs without
/// members.
pub fn of(definition: &Definition) -> Option<(String, String)> {
    if !definition.schema.has_members() {
        return None;
    }
    let stored = definition.stored(MEMBER_CHANGES);
    let table = format!("{SCHEMA}.{}", quoted(&stored));
    let since = transaction();
    // What joins leaves before it joins again.
    let until =
        format!("lead({LEDGER}) OVER (PARTITION BY {CONTRACT_ID}, selector ORDER BY _number)");
    let select = format!(
        "SELECT {CONTRACT_ID}, selector, CASE WHEN {since} IS NULL THEN NULL ELSE {LEDGER} END AS \
         since_ledger, {since} AS since_transaction, until_ledger, wasm_hash FROM (SELECT *, CASE WHEN \
         wasm_hash IS NULL THEN NULL ELSE {until} END AS until_ledger FROM {table}) \
         WHERE change = 'joined'"
    );
    Some((stored, select))
}

/// Returns the stored table with the changes of members, and a query for those with which contracts ceased to be
/// members: what leaves a code for another one that is selected, or is selected otherwise, stays one.
pub fn left(definition: &Definition) -> (String, String) {
    let stored = definition.stored(MEMBER_CHANGES);
    let table = format!("{SCHEMA}.{}", quoted(&stored));
    let transaction = quoted(TRANSACTION);
    let select = format!(
        "(SELECT l.{CONTRACT_ID}, l.{LEDGER} FROM {table} AS l WHERE l.change = 'left' AND NOT EXISTS (\
         SELECT 1 FROM {table} AS j WHERE j.{CONTRACT_ID} = l.{CONTRACT_ID} AND (j.wasm_hash IS NULL OR \
         (j.change = 'joined' AND j.{LEDGER} = l.{LEDGER} AND j.{transaction} = l.{transaction}))))"
    );
    (stored, select)
}

/// Returns the value of the column with the transaction, which is null where there is none.
pub fn transaction() -> String {
    format!("nullif({}, '{NOWHERE}')", quoted(TRANSACTION))
}
