//! The queries of views and functions with what the contracts of a project hold: of each key the newest
//! change up to a ledger, within the ledgers without a gap before it.

use orrery_interfaces::names::{PROGRESS, STORAGE, STORAGE_AT, STORAGE_CHANGES, TRANSACTION};
use orrery_ledger::domain::ProgramId;

use super::database::OWN_SCHEMA;
use super::members;
use crate::names::{CLOSED_AT, CONTRACT_ID, LEDGER, ROW_ID, SCHEMA, quoted};
use crate::wire::Definition;

/// The parameter of the function.
pub const PARAMETER: &str = "ledger";

/// A view of a project that records what its contracts hold, or a function that gives rows.
pub struct Held {
    /// Its name in the schema of the project.
    pub target: &'static str,
    /// Its parameter, if it is a function.
    pub parameter: Option<&'static str>,
    /// The query.
    pub select: String,
}

/// Returns the views and functions of a project that records what its contracts hold, and the stored tables
/// that they show; `None` of other programs.
pub fn of(definition: &Definition) -> Option<(Vec<String>, [Held; 3])> {
    if !definition.schema.has_storage() {
        return None;
    }
    let stored = definition.stored(STORAGE_CHANGES);
    let table = format!("{SCHEMA}.{}", quoted(&stored));
    let left = definition.schema.has_members().then(|| members::left(definition));
    let from = |at: &str| match &left {
        Some((_, left)) => recorded_on(&table, left, at),
        None => table.clone(),
    };
    let program = definition.program;
    let newest = ranges(program, "max(last_ledger)", "true");
    let of_newest = ranges(program, "max(first_ledger)", "true");
    let at = format!("CAST({PARAMETER} AS BIGINT)");
    let within = format!("{at} BETWEEN first_ledger AND last_ledger");
    let of_ledger = ranges(program, "max(first_ledger)", &within);
    let held = [
        Held {
            target: STORAGE,
            parameter: None,
            select: select(&from(&newest), &of_newest, &newest),
        },
        Held {
            target: STORAGE_AT,
            parameter: Some(PARAMETER),
            select: select(&from(&at), &of_ledger, &at),
        },
        Held { target: PROGRESS, parameter: None, select: format!("SELECT {newest} AS ledger") },
    ];
    Some((std::iter::once(stored).chain(left.map(|(members, _)| members)).collect(), held))
}

/// Returns the changes after which those of their contract were recorded up to a ledger: what a contract did after
/// it left is not known. `left` has the contracts that did, with the ledger.
fn recorded_on(table: &str, left: &str, at: &str) -> String {
    format!(
        "(SELECT s.* FROM {table} AS s LEFT JOIN (SELECT {CONTRACT_ID} AS who, max({LEDGER}) AS gone_at \
         FROM {left} WHERE {LEDGER} <= {at} GROUP BY {CONTRACT_ID}) AS l ON l.who = s.{CONTRACT_ID} \
         WHERE l.gone_at IS NULL OR s.{LEDGER} > l.gone_at)"
    )
}

/// Returns a query for a number of the ranges of ledgers that the tables of a project have.
fn ranges(program: ProgramId, number: &str, condition: &str) -> String {
    let from = format!("{OWN_SCHEMA}.progress WHERE program = {program} AND {condition}");
    format!("(SELECT {number} FROM {from})")
}

/// Returns the query for what holds at the end of a ledger, whose range begins at `first`.
fn select(table: &str, first: &str, at: &str) -> String {
    // Of equal ledgers, the order of transactions decides; it has 24 bits.
    let order = format!("{LEDGER} * 16777216 + _order");
    let of_change = ["key_args", "key", "value", "change", "live_until", LEDGER];
    let of_update = [TRANSACTION, LEDGER, CLOSED_AT, ROW_ID];
    let pack = |columns: &[&str]| {
        let fields = columns.iter().map(|it| format!("{0} := {0}", quoted(it)));
        format!("struct_pack({})", fields.collect::<Vec<_>>().join(", "))
    };
    let updated = |column: &str| format!("coalesce(u.{0}, n.{0}) AS {0}", quoted(column));
    let [transaction, ledger, closed_at, id] = of_update.map(updated);
    let (change, both) = (pack(&of_change), pack(&of_update));
    format!(
        "SELECT key_name, CAST(c.key_args AS JSON) AS key_args, CAST(c.key AS JSON) AS \"key\", \
         CAST(c.value AS JSON) AS \"value\", durability, c.live_until AS live_until, \
         CASE WHEN durability <> 'persistent' THEN c.live_until < {at} \
         WHEN c.change = 'evicted' THEN true ELSE c.live_until < {at} END AS archived, key_hash, \
         {CONTRACT_ID}, {transaction}, {ledger}, {closed_at}, {id} FROM (\
         SELECT key_hash, {CONTRACT_ID}, key_name, durability, \
         arg_max({change}, {order}) AS c, arg_max({both}, {order}) AS n, \
         arg_max({both}, {order}) FILTER (change NOT IN ('extended', 'evicted')) AS u \
         FROM {table} WHERE {LEDGER} >= {first} AND {LEDGER} <= {at} \
         GROUP BY key_hash, {CONTRACT_ID}, key_name, durability) \
         WHERE c.value IS NOT NULL AND c.change <> 'removed' AND (durability = 'persistent' OR \
         (c.change <> 'evicted' AND coalesce(c.live_until >= {at}, c.{LEDGER} = {at})))"
    )
}
