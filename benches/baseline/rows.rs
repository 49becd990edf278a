//! Rows into DuckDB by its own means: the appender, and one INSERT for each row. One connection in this
//! process, values as they are; nobody checks them, names them or keeps a watermark.

use std::path::Path;

use duckdb::types::{TimeUnit, Value};
use duckdb::{Connection, ToSql, params};

/// Columns of the table, of which the first five are what every table of a program has.
const COLUMNS: &str = "contract_id VARCHAR, transaction VARCHAR, _service_event_id VARCHAR,
    _ledger BIGINT, _ledger_closed_at TIMESTAMP, amount HUGEINT, fee UINTEGER, pool VARCHAR,
    buyer VARCHAR, sequence UBIGINT, buy BOOLEAN";

/// A row of a swap.
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

/// A new file with the table, set up like that of a worker.
pub fn database(file: &Path, table: &str) -> duckdb::Result<Connection> {
    let connection = Connection::open(file)?;
    connection.execute_batch(&format!("SET threads = 1; CREATE TABLE {table} ({COLUMNS})"))?;
    Ok(connection)
}

/// Appends rows, with a commit after each so many.
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

/// Inserts rows one by one with a prepared statement, with a commit after each so many.
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
