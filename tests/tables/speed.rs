//! Measures how fast rows are appended, compared with DuckDB's own appender and with one INSERT per
//! row. Run it with `cargo test --release --test tables -- --ignored --nocapture speed`.

use std::time::{Duration, Instant};

use duckdb::{Connection, params};
use orrery_tables::Change;
use stellar_xdr::ScVal;

use super::support::{Program, World, emit, owner};
use orrery_testkit::values::{i128, string, symbol};

const ROWS: u32 = 300_000;
const COLUMNS: &str = "contract_id VARCHAR, transaction VARCHAR, _service_event_id VARCHAR,
    _ledger BIGINT, _ledger_closed_at TIMESTAMP, amount HUGEINT, fee UINTEGER, pool VARCHAR,
    buyer VARCHAR, sequence UBIGINT, buy BOOLEAN";

fn program() -> Program {
    let mut program = Program::new(1, "p");
    for number in 0..ROWS / 3 {
        let swap = |part: u32| {
            emit(
                "t",
                [
                    ("amount", i128(i128::from(number) * 1_000_000_007)),
                    ("fee", ScVal::U32(number % 100)),
                    ("pool", symbol(if part == 0 { "xlm_usdc" } else { "btc_usdc" })),
                    ("buyer", string(format!("GBUYER{:050}", number % 5_000))),
                    ("sequence", ScVal::U64(u64::from(number) << 20)),
                    ("buy", ScVal::Bool(number % 2 == 0)),
                ],
            )
        };
        program.run((0..3).map(swap).collect()).unwrap();
    }
    program
}

/// A row as the plain appender takes it.
struct Plain {
    ids: [String; 3],
    ledger: i64,
    amount: i128,
    number: u32,
    buyer: String,
}

fn plain(program: &Program) -> Vec<Plain> {
    (0..)
        .zip(&program.rows)
        .map(|(at, row)| Plain {
            ids: [
                row.emit.contract.to_string(),
                row.transaction.to_string(),
                row.event_id.to_string(),
            ],
            ledger: i64::from(row.ledger.0),
            amount: i128::from(at / 3u32) * 1_000_000_007,
            number: at / 3,
            buyer: format!("GBUYER{:050}", at / 3 % 5_000),
        })
        .collect()
}

fn database(directory: &tempfile::TempDir, unique: bool) -> Connection {
    let connection = Connection::open(directory.path().join(format!("{unique}.duckdb"))).unwrap();
    let columns = match unique {
        true => COLUMNS.replace("_service_event_id VARCHAR", "_service_event_id VARCHAR UNIQUE"),
        false => COLUMNS.to_owned(),
    };
    connection.execute_batch(&format!("SET threads = 1; CREATE TABLE t ({columns})")).unwrap();
    connection
}

fn with_appender(connection: &Connection, rows: &[Plain]) -> Duration {
    let begun = Instant::now();
    connection.execute_batch("BEGIN").unwrap();
    let mut appender = connection.appender("t").unwrap();
    for row in rows {
        appender
            .append_row(params![
                row.ids[0],
                row.ids[1],
                row.ids[2],
                row.ledger,
                duckdb::types::Value::Timestamp(duckdb::types::TimeUnit::Second, row.ledger),
                row.amount,
                row.number % 100,
                "xlm_usdc",
                row.buyer,
                u64::from(row.number) << 20,
                row.number % 2 == 0,
            ])
            .unwrap();
    }
    appender.flush().unwrap();
    drop(appender);
    connection.execute_batch("COMMIT").unwrap();
    begun.elapsed()
}

fn with_inserts(connection: &Connection, rows: &[Plain]) -> Duration {
    let begun = Instant::now();
    connection.execute_batch("BEGIN").unwrap();
    let insert = "INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    let mut insert = connection.prepare(insert).unwrap();
    for row in rows {
        insert
            .execute(params![
                row.ids[0],
                row.ids[1],
                row.ids[2],
                row.ledger,
                duckdb::types::Value::Timestamp(duckdb::types::TimeUnit::Second, row.ledger),
                row.amount,
                row.number % 100,
                "xlm_usdc",
                row.buyer,
                u64::from(row.number) << 20,
                row.number % 2 == 0,
            ])
            .unwrap();
    }
    connection.execute_batch("COMMIT").unwrap();
    begun.elapsed()
}

fn per_second(rows: usize, time: Duration) -> f64 {
    f64::from(u32::try_from(rows).unwrap()) / time.as_secs_f64()
}

#[test]
#[ignore = "measures, on a quiet machine"]
fn speed_of_appending() {
    let directory = tempfile::TempDir::new().unwrap();
    let program = program();
    let rows = plain(&program);
    let appender = per_second(rows.len(), with_appender(&database(&directory, false), &rows));
    let some = &rows[..20_000];
    let unique = per_second(some.len(), with_appender(&database(&directory, true), some));
    let few = &rows[..2_000];
    let inserts = per_second(few.len(), {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(&format!("CREATE TABLE t ({COLUMNS})")).unwrap();
        with_inserts(&connection, few)
    });
    let world = World::new();
    let alice = owner("alice");
    world.tables.apply(&alice, vec![program.definition()]).unwrap();
    let all = program.between(0, program.end());
    let begun = Instant::now();
    world.tables.apply(&alice, vec![all]).unwrap();
    let apply = per_second(rows.len(), begun.elapsed());
    // One ledger at a time, as live rows arrive.
    let bob = owner("bob");
    world.tables.apply(&bob, vec![program.definition()]).unwrap();
    let begun = Instant::now();
    for number in 0..200 {
        let change: Change = program.between(number * 10, number * 10 + 10);
        world.tables.apply(&bob, vec![change]).unwrap();
    }
    let small = begun.elapsed() / 200;
    eprintln!("appender, row by row     {appender:>10.0} rows/s");
    eprintln!("the same, with an index  {unique:>10.0} rows/s");
    eprintln!("INSERT, row by row       {inserts:>10.0} rows/s");
    eprintln!("Tables::apply            {apply:>10.0} rows/s");
    eprintln!("of the appender          {:>10.2}", apply / appender);
    eprintln!("of INSERT                {:>10.1}", apply / inserts);
    eprintln!("a change of 30 rows      {small:>10.1?}");
    assert!(apply / appender >= 0.6, "{}", apply / appender);
    assert!(apply / inserts >= 30.0, "{}", apply / inserts);
}
