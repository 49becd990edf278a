//! Writes rows into DuckDB with its own means: the appender, and one INSERT per row. Uses one
//! connection in this process and writes values as they are, without validation, column naming or
//! watermarks.

use std::path::Path;

use duckdb::types::{TimeUnit, Value};
use duckdb::{Connection, ToSql, params};

/// A row, whose values are written as they are.
pub trait Plain {
    /// Columns of the table.
    const COLUMNS: &'static str;

    /// Calls `take` with the values, in the order of the columns.
    fn with_values<T>(&self, take: impl FnOnce(&[&dyn ToSql]) -> T) -> T;
}

/// One row of a swap.
pub struct PlainRow {
    pub contract: String,
    pub transaction: String,
    pub event_id: String,
    pub ledger: i64,
    pub closed_at: i64,
    pub amount: i128,
    pub fee: u32,
    pub pool: &'static str,
    pub buyer: String,
    pub sequence: u64,
    pub buy: bool,
}

impl Plain for PlainRow {
    /// The first five are those that every table of a program has.
    const COLUMNS: &'static str =
        "contract_id VARCHAR, transaction VARCHAR, _service_event_id VARCHAR,
        _ledger BIGINT, _ledger_closed_at TIMESTAMP, amount HUGEINT, fee UINTEGER, pool VARCHAR,
        buyer VARCHAR, sequence UBIGINT, buy BOOLEAN";

    fn with_values<T>(&self, take: impl FnOnce(&[&dyn ToSql]) -> T) -> T {
        take(params![
            self.contract,
            self.transaction,
            self.event_id,
            self.ledger,
            Value::Timestamp(TimeUnit::Second, self.closed_at),
            self.amount,
            self.fee,
            self.pool,
            self.buyer,
            self.sequence,
            self.buy,
        ])
    }
}

/// One row of a transfer, as a project of events has it.
pub struct PlainTransfer {
    pub contract: String,
    pub transaction: String,
    pub row_id: String,
    pub ledger: i64,
    pub closed_at: i64,
    pub event_id: u64,
    pub event_index: u32,
    pub from: String,
    pub to: String,
    pub amount: i128,
}

impl Plain for PlainTransfer {
    /// All but three are those that every table of events has.
    const COLUMNS: &'static str =
        "contract_id VARCHAR, transaction VARCHAR, _service_event_id VARCHAR,
        _ledger BIGINT, _ledger_closed_at TIMESTAMP, _event_id UBIGINT, _event_index UINTEGER,
        \"from\" VARCHAR, \"to\" VARCHAR, amount HUGEINT, _declared VARCHAR, _rest JSON";

    fn with_values<T>(&self, take: impl FnOnce(&[&dyn ToSql]) -> T) -> T {
        take(params![
            self.contract,
            self.transaction,
            self.row_id,
            self.ledger,
            Value::Timestamp(TimeUnit::Second, self.closed_at),
            self.event_id,
            self.event_index,
            self.from,
            self.to,
            self.amount,
            "contract",
            Value::Null,
        ])
    }
}

/// Creates a database file with the table, configured like that of the SQL worker.
pub fn database<R: Plain>(file: &Path, table: &str) -> duckdb::Result<Connection> {
    let connection = Connection::open(file)?;
    let columns = R::COLUMNS;
    connection.execute_batch(&format!("SET threads = 1; CREATE TABLE {table} ({columns})"))?;
    Ok(connection)
}

/// Appends rows, committing after every `per_commit` rows.
pub fn append<R: Plain>(
    connection: &Connection,
    table: &str,
    rows: &[R],
    per_commit: usize,
) -> duckdb::Result<()> {
    for rows in rows.chunks(per_commit) {
        connection.execute_batch("BEGIN")?;
        let mut appender = connection.appender(table)?;
        for row in rows {
            row.with_values(|values| appender.append_row(values))?;
        }
        appender.flush()?;
        drop(appender);
        connection.execute_batch("COMMIT")?;
    }
    Ok(())
}

/// Inserts rows one by one with a prepared statement, committing after every `per_commit` rows.
pub fn insert(
    connection: &Connection,
    table: &str,
    rows: &[PlainRow],
    per_commit: usize,
) -> duckdb::Result<()> {
    let sql = format!("INSERT INTO {table} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
    let mut insert = connection.prepare(&sql)?;
    for rows in rows.chunks(per_commit) {
        connection.execute_batch("BEGIN")?;
        for row in rows {
            row.with_values(|values| insert.execute(values))?;
        }
        connection.execute_batch("COMMIT")?;
    }
    Ok(())
}
