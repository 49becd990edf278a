//! The tables of the chain in the worker: views over a function with rows, which reads the files that the service
//! names and the rows that it sends. DuckDB itself reads no file, and knows the name of none: its own functions for
//! files are not linked or locked, and this one takes no path.
//!
//! A query sees the parts that it names ([`held`]), as a thread that answers it has entered ([`scan::enter`]). Which
//! rows it needs is read from DuckDB's plan ([`plan`]): what that misses is read in vain, and DuckDB filters again.

mod condition;
mod files;
mod held;
mod plan;
mod reading;
mod reports;
mod rows;
mod scan;
mod scans;
mod times;

pub use self::held::{ChainQuery, Held};
pub use self::scan::{enter, register};
use crate::chain::ChainTable;
use crate::names::quoted;

/// Name of the function. No query may call it, because the gate does not list it.
const FUNCTION: &str = "orrery_chain";
/// Beginning of the names of the empty tables with which queries are planned.
const PLANNED: &str = "orrery_plan_";

/// Returns the query for all rows of a table. It calls a macro, which a connection has by [`definitions`] or
/// [`planning`].
pub fn select(table: &ChainTable) -> String {
    format!("SELECT {} FROM {}", table.selected(), rows_of(table))
}

/// Returns the statements after which a connection reads the tables.
pub fn definitions(tables: &[ChainTable]) -> String {
    let definition = |table: &ChainTable| {
        let columns = typed(table, str::to_owned).replace('\'', "''");
        let name = table.name.replace('\'', "''");
        let rows = format!("SELECT {} FROM {FUNCTION}('{name}', '{columns}')", table.selected());
        format!("CREATE TEMP MACRO {} AS TABLE {rows};", rows_of(table))
    };
    tables.iter().map(definition).collect()
}

/// Returns the statements after which a connection finds no row in the tables, but plans queries of them: DuckDB
/// shows no plan of one that reads a function of ours.
pub fn planning(tables: &[ChainTable]) -> String {
    let definition = |table: &ChainTable| {
        let (plan, columns) = (format!("{PLANNED}{}", table.name), typed(table, quoted));
        let rows = format!("SELECT {} FROM temp.main.{plan}", table.selected());
        format!(
            "CREATE TEMP TABLE {plan} ({columns}); CREATE TEMP MACRO {} AS TABLE {rows};",
            rows_of(table)
        )
    };
    tables.iter().map(definition).collect()
}

fn rows_of(table: &ChainTable) -> String {
    format!("{FUNCTION}_{}()", table.name)
}

fn typed(table: &ChainTable, name: impl Fn(&str) -> String) -> String {
    let columns = table.columns.iter();
    let columns = columns.map(|column| format!("{} {}", name(&column.name), column.kind.sql()));
    columns.collect::<Vec<_>>().join(",")
}
