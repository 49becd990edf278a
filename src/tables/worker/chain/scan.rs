//! The function with the rows of a table of the chain, as DuckDB calls it. Its parameters are the name of the table
//! and its columns with their types. Its first column has no values: DuckDB asks for the first one where it needs
//! the number of rows alone.
//!
//! What a query finds is known to the thread that answers it ([`enter`]): DuckDB binds the function on that thread.
//! Bound elsewhere, as when a view is created, it has no rows.

use std::cell::RefCell;
use std::error::Error;
use std::sync::Arc;

use duckdb::Connection;
use duckdb::core::{DataChunkHandle, LogicalTypeHandle, LogicalTypeId};
use duckdb::vtab::{
    BindInfo, InitInfo, TableFunctionInfo, VTab, record_batch_to_duckdb_data_chunk,
};
use parking_lot::Mutex;

use super::FUNCTION;
use super::held::{ChainQuery, Content};
use super::rows::Rows;
use crate::chain::{ChainColumn, ChainType};

thread_local! {
    static QUERY: RefCell<Option<Arc<ChainQuery>>> = const { RefCell::new(None) };
}

/// While this exists, what the thread binds finds the tables of the chain.
pub struct Entered(());

/// Lets what this thread binds find what the query finds.
pub fn enter(query: Option<&Arc<ChainQuery>>) -> Entered {
    QUERY.with_borrow_mut(|entered| *entered = query.cloned());
    Entered(())
}

impl Drop for Entered {
    fn drop(&mut self) {
        QUERY.with_borrow_mut(|entered| *entered = None);
    }
}

/// Makes the function known to a database.
///
/// # Errors
/// DuckDB's error.
pub fn register(connection: &Connection) -> duckdb::Result<()> {
    connection.register_table_function::<Scan>(FUNCTION)
}

/// The function.
pub struct Scan;

/// A call of the function in a query.
pub struct Bound {
    table: String,
    columns: Arc<Vec<ChainColumn>>,
    query: Option<Arc<ChainQuery>>,
}

/// A scan that a query makes.
pub struct Begun {
    /// Columns of the function that are asked for.
    projected: Vec<usize>,
    rows: Mutex<Option<Rows>>,
}

impl VTab for Scan {
    type InitData = Begun;
    type BindData = Bound;

    fn bind(bind: &BindInfo) -> Result<Bound, Box<dyn Error>> {
        let table = bind.get_parameter(0).to_string();
        let columns = columns(&bind.get_parameter(1).to_string())
            .ok_or("the columns of a table of the chain are not known")?;
        bind.add_result_column("none", LogicalTypeId::Tinyint.into());
        for column in &columns {
            bind.add_result_column(&column.name, logical(column.kind));
        }
        let query = QUERY.with_borrow(Option::clone);
        let content = query.as_ref().and_then(|query| query.table(&table));
        bind.set_cardinality(content.map_or(0, Content::rows), false);
        Ok(Bound { table, columns: Arc::new(columns), query })
    }

    fn init(init: &InitInfo) -> Result<Begun, Box<dyn Error>> {
        let projected = init.get_column_indices();
        let projected = projected.into_iter().map(usize::try_from).collect::<Result<_, _>>()?;
        Ok(Begun { projected, rows: Mutex::new(None) })
    }

    fn func(
        call: &TableFunctionInfo<Self>,
        output: &mut DataChunkHandle,
    ) -> Result<(), Box<dyn Error>> {
        let (bound, begun) = (call.get_bind_data(), call.get_init_data());
        let Some(query) = &bound.query else {
            output.set_len(0);
            return Ok(());
        };
        let mut rows = begun.rows.lock();
        let rows = match &mut *rows {
            Some(rows) => rows,
            none => {
                none.insert(Rows::begin(query, &bound.table, &bound.columns, &begun.projected)?)
            }
        };
        match rows.next()? {
            Some(batch) => record_batch_to_duckdb_data_chunk(&batch, output),
            None => {
                output.set_len(0);
                Ok(())
            }
        }
    }

    fn supports_pushdown() -> bool {
        true
    }

    fn parameters() -> Option<Vec<LogicalTypeHandle>> {
        let text = || LogicalTypeId::Varchar.into();
        Some(vec![text(), text()])
    }
}

/// Reads columns with their types: `name TYPE,name TYPE`.
fn columns(text: &str) -> Option<Vec<ChainColumn>> {
    const KINDS: [ChainType; 5] = [
        ChainType::Boolean,
        ChainType::Integer,
        ChainType::Text,
        ChainType::Texts,
        ChainType::Time,
    ];
    let column = |text: &str| {
        let (name, kind) = text.rsplit_once(' ')?;
        let kind = KINDS.into_iter().find(|known| known.sql() == kind)?;
        Some(ChainColumn { name: name.to_owned(), kind })
    };
    text.split(',').map(column).collect()
}

fn logical(kind: ChainType) -> LogicalTypeHandle {
    match kind {
        ChainType::Boolean => LogicalTypeId::Boolean.into(),
        ChainType::Integer => LogicalTypeId::Bigint.into(),
        ChainType::Text => LogicalTypeId::Varchar.into(),
        ChainType::Texts => LogicalTypeHandle::list(&LogicalTypeId::Varchar.into()),
        ChainType::Time => LogicalTypeId::Timestamp.into(),
    }
}
