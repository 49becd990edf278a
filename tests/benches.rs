//! Runs every goal of the benches once, at its smallest size: that it runs to its end and has its
//! rows, whatever they say. So a limit or a format that changes breaks a test, and not the next table
//! of `benches/README.md`, whose rows are all among these.

use std::collections::BTreeSet;

use clap::Parser;
use orrery_testkit::data;

use ratios::{Arguments, Report, measure};

/// What only the bench needs is unused here.
#[allow(dead_code)]
#[path = "../benches/ratios/all.rs"]
mod ratios;

/// Whether every goal is only run, at its smallest size.
pub const SMALLEST: bool = true;

/// Sizes that are arguments of the bench.
const SIZES: [&str; 13] = [
    "ratios",
    "--events",
    "4000",
    "--compared-events",
    "3000",
    "--attacked-ledgers",
    "6",
    "--fill-events",
    "500",
    "--keys",
    "6000",
    "--scale",
    "1500,3000",
];

/// A test for each group of goals that share a load: the goals, and the rows that they have.
macro_rules! goals {
    ($($test:ident: [$($goal:literal),+] => [$($row:literal,)+])+) => {
        $(
            #[test]
            fn $test() {
                run(&[$($goal),+], &[$($row),+]);
            }
        )+

        /// All rows.
        const ROWS: &[&str] = &[$($($row,)+)+];
    };
}

goals! {
    ingestion_and_catch_up: ["P1", "P2", "P3", "catch-up"] => [
        "P1 durable ingest / full decode, public ledgers",
        "P2 bulk ingest / full decode, public ledgers",
        "P3 durable ingest / SQLite, public ledgers",
        "Catch-up from a lake / full decode, public ledgers",
        "Catch-up while live ledgers come / alone, public ledgers",
        "P1 durable ingest / full decode, synthetic ledgers",
        "P2 bulk ingest / full decode, synthetic ledgers",
        "P3 durable ingest / SQLite, synthetic ledgers",
        "Catch-up from a lake / full decode, synthetic ledgers",
        "Catch-up while live ledgers come / alone, synthetic ledgers",
    ]
    checks_of_headers: ["P29"] => [
        "P29 durable ingest with / without checks, public ledgers",
        "P29 import with / without checks, public ledgers",
        "P29 durable ingest with / without checks, dense ledgers",
        "P29 import with / without checks, dense ledgers",
    ]
    dense_ledgers: ["dense", "import"] => [
        "Dense ledgers, durable",
        "Dense ledgers, raw ledgers not kept / kept",
        "Long import of dense ledgers, last quarter / first quarter",
    ]
    what_contracts_hold: ["P32", "P33"] => [
        "P32 page of 100 of a contract with many keys, p50",
        "P32 page of 100 of a contract with many keys, p99",
        "P32 page of 1000 of a contract with many keys, p50",
        "P32 page of 1000 of a contract with many keys, p99",
        "P32 one key of a contract with many keys, p99",
        "P32 page of a contract with few keys, beside one with many / without it",
        "P33 ingestion with / without the index of keys, public ledgers",
        "P33 size with / without the index of keys, public ledgers",
    ]
    full_network: ["full-network"] => ["Full network, ledger due to ledger stored, p99",]
    snapshots: ["snapshots"] => [
        "Ingestion while snapshots are made / without",
        "Restoring a snapshot / a plain download of its objects, 125 MB/s",
        "Restoring a snapshot / a plain download of its objects, no limit",
        "Start from a snapshot to health up, beyond a plain download",
    ]
    lookups: ["lookups"] => [
        "Lookup in the smart-account index, asked again / a request that does nothing",
        "Lookup in the smart-account index, asked first / a request that does nothing",
        "Lookup in the passkey index, asked again / a request that does nothing",
        "Lookup in the passkey index, asked first / a request that does nothing",
    ]
    large_accounts: ["large-accounts"] => [
        "Event of a smart account with 100,000 events, stored and indexed / of a new account",
        "Page of the slowest smart account with 100,000 events",
        "A tenant's page beside 64 clients that ask for large accounts, from 8 addresses, p99",
        "A tenant's page beside 64 clients that search events without a token, from one address, p99",
        "A tenant's page beside 64 clients that search events without a token, from 64 addresses, p99",
    ]
    runs_of_programs: ["P13", "P14", "run"] => [
        "P13 program runs / bare invoke, no module cache, recorded calls of a vault",
        "P14 program runs / bare invoke, warm module cache, recorded calls of a vault",
        "P13 program runs / bare invoke, no module cache, deposits",
        "P14 program runs / bare invoke, warm module cache, deposits",
        "Run with a storage read, a write and an 8-field emit",
    ]
    rows_into_tables: ["P15", "P16"] => [
        "P15 rows into tables / DuckDB's appender",
        "P16 rows into tables / one INSERT per row",
    ]
    queries: ["P17", "P18"] => [
        "P17 aggregate of a million rows over HTTP / bare connection",
        "P18 exact sums of 128 bits over HTTP / PostgreSQL NUMERIC",
    ]
    visible_rows: ["P21"] => ["P21 ledger bytes to row visible to SQL, p99",]
    neighbours: ["P22", "neighbours"] => [
        "P22 ingestion beside 16 clients and an endless program / alone",
        "Ingestion beside an endless program / beside as many threads that only count",
        "Ingestion beside an endless program / alone",
        "Ingestion beside threads that only count / alone",
        "Program beside an endless program / beside as many threads that only count",
        "Program beside an endless program / alone",
        "Program beside threads that only count / alone",
        "Ingestion beside two compilers / beside as many threads that only count",
        "Ingestion beside two compilers / alone",
        "Program beside two compilers / beside as many threads that only count",
        "Program beside two compilers / alone",
    ]
    upstream: ["upstream"] => ["200 programs beside one whose upstream hangs / alone",]
    fills: ["P30"] => [
        "P30 from watch to the last row in SQL, one contract",
        "P30 rows / DuckDB's appender, one contract",
        "P30 bytes per row in DuckDB's files / in the store, one contract",
        "P30 memory after / before, block cache not counted, one contract",
        "P30 from watch to the last row in SQL, one contract, upgraded in its first ledgers",
        "P30 rows / DuckDB's appender, one contract, upgraded in its first ledgers",
        "P30 bytes per row in DuckDB's files / in the store, one contract, upgraded in its first ledgers",
        "P30 memory after / before, block cache not counted, one contract, upgraded in its first ledgers",
        "P30 from watch to the last row in SQL, one contract, upgraded in its last ledgers",
        "P30 rows / DuckDB's appender, one contract, upgraded in its last ledgers",
        "P30 bytes per row in DuckDB's files / in the store, one contract, upgraded in its last ledgers",
        "P30 memory after / before, block cache not counted, one contract, upgraded in its last ledgers",
        "P30 from watch to the last row in SQL, 100 contracts",
        "P30 rows / DuckDB's appender, 100 contracts",
        "P30 bytes per row in DuckDB's files / in the store, 100 contracts",
        "P30 memory after / before, block cache not counted, 100 contracts",
    ]
    named_events: ["P31", "by-address"] => [
        "P31 decoded page of 100, p50",
        "P31 decoded page of 100 / plain page, asked first",
        "Page of 100 by address / by contract, asked first",
    ]
    members: ["members"] => [
        "Event of a member, with 10,000 that emit events and 100,000 in all / with one member",
        "Memory of each of 100,000 members",
    ]
    conditions: ["conditions"] => ["Condition on an event, p99",]
    backfills: ["backfills"] => [
        "Ingestion beside a program's backfill and one of ledgers / beside as many threads that only count",
        "Ingestion beside a program's backfill and one of ledgers / alone",
        "Ingestion beside threads that only count / alone",
    ]
    attacked: ["attacked"] => [
        "Ledger in the lake to delivery of another's event, p99, beside a costly interface / an ordinary one",
        "Event of another in a stream to its delivery, p99, beside a costly interface / an ordinary one",
        "A tenant's page, p99, beside a costly interface / an ordinary one",
        "A tenant's page beside a costly interface, p99",
        "Ingestion beside a costly interface / an ordinary one",
        "SIGTERM to exit beside a costly interface",
    ]
    copying_into_a_database: ["sinks"] => [
        "Copying rows, from our own answer until PostgreSQL has them, p99",
        "Copying rows, filled in / binary COPY with the key",
        "Copying rows, ingestion with a living database / without",
        "Copying rows, ingestion with a dead database / without",
        "Copying rows, ingestion with a hanging database / without",
    ]
    supplied: ["supplied"] => [
        "Resident memory after 512 supplied interfaces / after as many before",
        "Resident memory after 512 supplied interfaces, beyond a new service's",
    ]
    webhooks: ["P19", "P20", "webhooks"] => [
        "P19 webhook deliveries / bare hyper client to the same receiver",
        "P20 ledger bytes to first byte of a webhook, p99",
        "Ingestion while a popular contract's events are delivered / alone",
    ]
    subscribers: ["subscribers"] => [
        "Ingestion with 10,000 subscriptions on one contract, 2 deliveries per ledger / without",
    ]
    streams: ["streams"] => ["Ledger bytes to each of 1,000 streams, p99",]
    sizes: ["P5", "P6"] => [
        "P5 size / zstd-3 of the events alone",
        "P5 before the final compaction",
        "P6 size / SQLite",
    ]
    growth: ["scale"] => [
        "Scale: start after a kill, 3000 events",
        "Scale: import beside all consumers, last tenth, 3000 events / 1500",
        "Scale: ledgers one by one, durably, 3000 events / 1500",
        "Scale: disk, all families, 3000 events / 1500",
        "Scale: request that does nothing, p50, 3000 events / 1500",
        "Scale: page of 100 by contract, p50, 3000 events / 1500",
        "Scale: page of 100 by contract, p99, 3000 events / 1500",
        "Scale: page of 100 by contract, decoded, p50, 3000 events / 1500",
        "Scale: page of 100 by contract, decoded, p99, 3000 events / 1500",
        "Scale: page of 100 by topic, p50, 3000 events / 1500",
        "Scale: page of 100 by topic, p99, 3000 events / 1500",
        "Scale: page of 100 by address, p50, 3000 events / 1500",
        "Scale: page of 100 by address, p99, 3000 events / 1500",
        "Scale: events of a transaction, p50, 3000 events / 1500",
        "Scale: events of a transaction, p99, 3000 events / 1500",
        "Scale: memory without block cache, 3000 events / 1500",
        "Scale: SQL count of all events, 3000 events / 1500",
        "Scale: SQL aggregate of all events, 3000 events / 1500",
        "Scale: audit, 3000 events / 1500",
        "Scale: backup, 3000 events / 1500",
    ]
    pages_beside_sqlite: ["P9"] => [
        "P9 by-contract limit=100 / SQLite, in process, popular contracts",
        "P9 by-contract limit=100 / SQLite, in process, uniform contracts",
        "P9 by-contract limit=100 / SQLite, over HTTP, popular contracts, asked again",
        "P9 by-contract limit=100 / SQLite, over HTTP, popular contracts, asked first",
    ]
    json_rpc: ["rpc"] => [
        "getEvents, contract and topic, page of 100, asked again / a call that does nothing",
        "getEvents, contract and topic, page of 100, asked again / SQLite, over HTTP",
        "getEvents, contract and topic, page of 100, asked first / a call that does nothing",
        "getEvents, contract and topic, page of 100, asked first / SQLite, over HTTP",
        "getTransaction, of a smart contract, asked again / a call that does nothing",
        "getTransaction, of a smart contract, asked first / a call that does nothing",
        "getTransaction, of classic operations, asked again / a call that does nothing",
        "getTransaction, of classic operations, asked first / a call that does nothing",
    ]
    pages_and_process: ["P7", "P8", "P11", "P12", "chain", "P23", "P24"] => [
        "P7 by-tx, recent, asked again / no-op",
        "P7 by-tx, recent, asked first / no-op",
        "P7 by-ledger limit=1, asked again / no-op",
        "P7 by-ledger limit=1, asked first / no-op",
        "P7 by-contract limit=1, asked again / no-op",
        "P7 by-contract limit=1, asked first / no-op",
        "P7 by-tx, anywhere, asked first / no-op",
        "P8 by-contract limit=100, popular contracts, asked again / no-op",
        "P8 by-contract limit=100, popular contracts, asked first / no-op",
        "P8 by-contract limit=100, uniform contracts, asked first / no-op",
        "P11 rare topic over all ledgers, p99 / usual page, p50",
        "P11 rare contract over all ledgers, p99 / usual page, p50",
        "P12 serialised per core, pages of 1000",
        "P12 the same page again and again",
        "Count of chain.events",
        "Newest 100 of chain.events",
        "P23 kill -9 to health up, nothing in the log",
        "P23 start after a crash, 120 ledgers in the log",
        "P24 resident memory without block cache",
    ]
}

/// Runs goals, and asserts that they have these rows.
fn run(goals: &[&str], rows: &[&str]) {
    if data::missing() {
        return;
    }
    let arguments = Arguments::parse_from(SIZES.iter().chain(goals));
    let directory = tempfile::tempdir().unwrap();
    let mut report = Report::default();
    measure(&arguments, &data::ledgers().unwrap(), directory.path(), &mut report).unwrap();
    // A baseline that is not installed leaves its rows out, and says so.
    let is_skipped = |row: &&&str| {
        let goal = row.split(' ').next().unwrap_or_default();
        report.notes.iter().any(|note| note.starts_with(&format!("{goal} is skipped")))
    };
    let had: BTreeSet<_> = report.rows.iter().map(|row| without_sizes(&row.name)).collect();
    let expected: BTreeSet<_> =
        rows.iter().filter(|row| !is_skipped(row)).map(|row| without_sizes(row)).collect();
    assert_eq!(had, expected);
    let nothing = report.rows.iter().find(|row| !row.sides.ours.median().is_finite());
    assert!(nothing.is_none(), "{:?}", nothing.map(|row| &row.name));
}

/// Returns the name of a row with `#` for each number but those of goals: sizes differ here.
fn without_sizes(row: &str) -> String {
    let is_size = |word: &str| word.starts_with(|first: char| first.is_ascii_digit());
    let words = row.split(' ').map(|word| if is_size(word) { "#" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// An option that RocksDB does not know is noticed here, and not after hours of measuring.
#[test]
fn every_variant_of_an_import_is_measured() {
    if data::missing() {
        return;
    }
    let file = data::project().join("benches/variants.txt");
    let named = std::fs::read_to_string(&file).unwrap();
    let named = named.lines().filter(|line| line.starts_with('[')).count();
    let variants = ["--variants", file.to_str().unwrap()];
    let import = ["ratios", "import", "--import-copies", "1"];
    let arguments = Arguments::parse_from(import.into_iter().chain(variants));
    let directory = tempfile::tempdir().unwrap();
    let mut report = Report::default();
    measure(&arguments, &data::ledgers().unwrap(), directory.path(), &mut report).unwrap();
    let rows: BTreeSet<_> = report.rows.iter().map(|row| &row.name).collect();
    assert_eq!(rows.len(), named);
    assert!(named > 5);
}

#[test]
fn the_table_has_no_other_rows() {
    let readme = std::fs::read_to_string(data::project().join("benches/README.md")).unwrap();
    let known: BTreeSet<String> = ROWS.iter().map(|row| without_sizes(row)).collect();
    let (mut is_table, mut found) = (false, 0);
    for line in readme.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            is_table = ["All rows", "The checks of what a header binds"].contains(&heading);
        }
        let name = line.strip_prefix("| ").and_then(|line| line.split(" | ").next());
        // The head of a table has no name.
        if let Some(name) = name.filter(|name| is_table && !name.starts_with('|')) {
            found += 1;
            let name = name.trim_matches('*');
            assert!(known.contains(&without_sizes(name)), "no goal has the row '{name}'");
        }
    }
    assert!(found > 50, "{found} rows");
}
