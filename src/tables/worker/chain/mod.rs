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
mod rows;
mod scan;
mod scans;

pub use self::held::{ChainQuery, Held};
pub use self::scan::{enter, register};
use crate::chain::ChainTable;

/// Name of the function. No query may call it, because the gate does not list it.
const FUNCTION: &str = "orrery_chain";

/// Returns the query for all rows of a table.
pub fn select(table: &ChainTable) -> String {
    let columns =
        table.columns.iter().map(|column| format!("{} {}", column.name, column.kind.sql()));
    let columns = columns.collect::<Vec<_>>().join(",").replace('\'', "''");
    let name = table.name.replace('\'', "''");
    format!("SELECT {} FROM {FUNCTION}('{name}', '{columns}')", table.selected())
}
