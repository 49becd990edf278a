//! Writes rows into DuckDB with its own means: the appender, and one INSERT per row. Uses one
//! connection in this process and writes values as they are, without validation, column naming or
//! watermarks.

use std::path::Path;

use duckdb::types::{TimeUnit, Value};
use duckdb::{Connection, ToSql, params};

/// Columns of the table. The first five are those that every table of a program has.
const COLUMNS: &str = "contract_id VARCHAR, transaction VARCHAR, _service_event_id VARCHAR,
    _ledger BIGINT, _ledger_closed_at TIMESTAMP, amount HUGEINT, fee UINTEGER, pool VARCHAR,
    buyer VARCHAR, sequence UBIGINT, buy BOOLEAN";

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

impl PlainRow {
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

/// Creates a database file with the table, configured like that of the SQL worker.
pub fn database(file: &Path, table: &str) -> duckdb::Result<Connection> {
    let connection = Connection::open(file)?;
    connection.execute_batch(&format!("SET threads = 1; CREATE TABLE {table} ({COLUMNS})"))?;
    Ok(connection)
}

/// Appends rows, committing after every `per_commit` rows.
pub fn append(
    connection: &Connection,
    table: &str,
    rows: &[PlainRow],
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
