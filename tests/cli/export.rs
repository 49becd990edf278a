//! `orrery export`: the files hold exactly what the store holds, even if the export is killed
//! repeatedly.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use arrow::record_batch::RecordBatch;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use orrery::domain::{ContractId, Direction, Page};
use orrery::export::{AttestedLedgers, DataFile, Manifest};
use orrery::store::{EventQuery, Store, TopicFilter, TransactionQuery};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use orrery_testkit::binary::{Ran, Service, orrery_in, run};
use orrery_testkit::data::ledgers;
use orrery_testkit::exported;
use orrery_testkit::signal::Signal;
use orrery_testkit::size;
use orrery_testkit::wait::wait_until;

const FIRST: u32 = 63_092_982;
const LAST: u32 = 63_092_993;

/// Imports recorded ledgers into the data directory `d`; `None` when they are not available.
fn stored(at: &Path) -> Option<()> {
    let ledgers = ledgers()?.join("pubnet");
    let path = ledgers.to_str().unwrap();
    let ran = run(at, &["import", "--data-dir", "d", "--network", "mainnet", path]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    Some(())
}

fn export(at: &Path, to: &str, more: &[&str]) -> Ran {
    run(at, &[&["export", "--data-dir", "d", "--to-dir", to], more].concat())
}

fn batches(export: &Path, files: &[DataFile]) -> Vec<RecordBatch> {
    let open = |file: &DataFile| {
        let read = File::open(export.join(&file.path)).unwrap();
        ParquetRecordBatchReaderBuilder::try_new(read).unwrap().build().unwrap()
    };
    files.iter().flat_map(open).map(Result::unwrap).collect()
}

fn text(batch: &RecordBatch, column: &str, row: usize) -> Option<String> {
    let column = batch.column_by_name(column).unwrap().as_string::<i32>();
    column.is_valid(row).then(|| column.value(row).to_owned())
}

fn number(batch: &RecordBatch, column: &str, row: usize) -> Option<i64> {
    let column = batch.column_by_name(column).unwrap().as_primitive::<Int64Type>();
    column.is_valid(row).then(|| column.value(row))
}

fn list(batch: &RecordBatch, column: &str, row: usize) -> Vec<String> {
    let values = batch.column_by_name(column).unwrap().as_list::<i32>().value(row);
    values.as_string::<i32>().iter().map(|value| value.unwrap().to_owned()).collect()
}

fn closed_at(batch: &RecordBatch, row: usize) -> i64 {
    let column = batch.column_by_name("ledger_closed_at").unwrap();
    column.as_primitive::<TimestampMicrosecondType>().value(row)
}

fn exported_rows(directory: &Path) -> (Vec<String>, Vec<String>) {
    let bytes = fs::read(directory.join("manifest.json")).unwrap();
    let manifest = Manifest::parse(&bytes, "manifest.json").unwrap();
    let mut events = Vec::new();
    for batch in batches(directory, &manifest.tables.events) {
        for row in 0..batch.num_rows() {
            let topics = list(&batch, "topics", row);
            let first = ["topic1", "topic2", "topic3", "topic4"].map(|c| text(&batch, c, row));
            assert!((0..4).all(|i| first[i].as_ref() == topics.get(i)));
            events.push(format!(
                "{:?}",
                (
                    number(&batch, "id", row).unwrap(),
                    text(&batch, "contract_id", row),
                    topics,
                    text(&batch, "data", row).unwrap(),
                    text(&batch, "tx", row).unwrap(),
                    number(&batch, "event_index", row),
                    number(&batch, "ledger", row).unwrap(),
                    closed_at(&batch, row),
                    text(&batch, "type", row).unwrap(),
                    number(&batch, "application_order", row).unwrap(),
                    number(&batch, "op_index", row),
                )
            ));
        }
    }
    let mut transactions = Vec::new();
    for batch in batches(directory, &manifest.tables.transactions) {
        let boolean = |name: &str, row| batch.column_by_name(name).unwrap().as_boolean().value(row);
        for row in 0..batch.num_rows() {
            let one = (
                text(&batch, "tx", row).unwrap(),
                number(&batch, "ledger", row).unwrap(),
                closed_at(&batch, row),
                number(&batch, "application_order", row).unwrap(),
                boolean("successful", row),
                (boolean("fee_bump", row), text(&batch, "inner_tx", row)),
                text(&batch, "source_account", row).unwrap(),
                text(&batch, "fee_account", row).unwrap(),
                number(&batch, "fee_charged", row).unwrap(),
                list(&batch, "contracts", row),
                number(&batch, "event_count", row).unwrap(),
            );
            let xdr =
                ["envelope_xdr", "result_xdr", "meta_xdr"].map(|c| text(&batch, c, row).unwrap());
            transactions.push(format!("{one:?} {xdr:?}"));
        }
    }
    events.sort();
    transactions.sort();
    (events, transactions)
}

fn stored_rows(data: &Path) -> (Vec<String>, Vec<String>) {
    let store = Store::open(data, None).unwrap();
    let topics = TopicFilter::default();
    let page = Page { direction: Direction::OldestFirst, ..Page::first(usize::MAX) };
    let mut events = Vec::new();
    let query = EventQuery { ledgers: None, contracts: Vec::new(), topics, page };
    store
        .events(&query, |event| {
            let topics: Vec<String> =
                event.topics.iter().map(|topic| STANDARD.encode(topic)).collect();
            events.push(format!(
                "{:?}",
                (
                    event.id.0,
                    event.contract.map(|id| ContractId(*id).to_string()),
                    topics,
                    STANDARD.encode(event.data),
                    hex::encode(event.tx),
                    event.event_index(),
                    event.ledger.0,
                    event.closed_at.seconds() * 1_000_000,
                    format!("{:?}", event.event_type).to_lowercase(),
                    event.application_order,
                    event.op_index(),
                )
            ));
        })
        .unwrap();
    let mut transactions = Vec::new();
    let page = Page { direction: Direction::OldestFirst, ..Page::first(usize::MAX) };
    let query = TransactionQuery { ledgers: None, contracts: Vec::new(), page };
    store
        .transactions(&query, |it| {
            let one = (
                hex::encode(it.tx),
                it.position.ledger.0,
                it.closed_at.seconds() * 1_000_000,
                it.position.application_order,
                it.successful,
                (it.inner_tx.is_some(), it.inner_tx.map(hex::encode)),
                it.source_account,
                it.fee_account,
                it.fee_charged,
                it.contracts.iter().map(ToString::to_string).collect::<Vec<_>>(),
                it.event_count,
            );
            let xdr = [it.envelope, it.result, it.meta].map(|xdr| STANDARD.encode(xdr));
            transactions.push(format!("{one:?} {xdr:?}"));
        })
        .unwrap();
    events.sort();
    transactions.sort();
    (events, transactions)
}

#[test]
fn an_export_equals_the_store_and_can_be_continued() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let Some(()) = stored(at) else { return };
    let (middle, from) = ((FIRST + 5).to_string(), (FIRST + 3).to_string());
    let some = export(at, "x", &["--to", &middle, "--ledgers-per-file", "4", "--json"]).json();
    assert_eq!(some["new_ledgers"], 6);
    // Ledgers that are already exported are skipped.
    let rest = export(at, "x", &["--from", &from, "--ledgers-per-file", "4", "--json"]).json();
    assert_eq!(rest["new_ledgers"], 6);
    // Other ranges of ledgers are stored too, with gaps between them.
    let others = export(at, "x", &["--json"]).json()["new_ledgers"].as_u64().unwrap();
    assert!(others > 1, "{others}");
    assert_eq!(export(at, "x", &["--json"]).json()["new_ledgers"], 0);

    let (events, transactions) = exported_rows(&at.join("x"));
    let (stored_events, stored_transactions) = stored_rows(&at.join("d"));
    assert!(stored_events.len() > 100 && stored_transactions.len() > 50);
    assert!(events == stored_events, "{} and {}", events.len(), stored_events.len());
    assert!(transactions == stored_transactions);
    second_reader(&at.join("x"), events.len(), transactions.len());
}

#[test]
fn the_manifest_tells_what_is_attested() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let Some(()) = stored(at) else { return };
    let manifest = |export: &str| {
        let bytes = fs::read(at.join(export).join("manifest.json")).unwrap();
        Manifest::parse(&bytes, "manifest.json").unwrap()
    };
    let (first, last) = (FIRST.to_string(), (FIRST + 11).to_string());
    let up_to = |to: u32| {
        let to = to.to_string();
        let range = ["--from", &first, "--to", &to, "--ledgers-per-file", "2", "--json"];
        export(at, "x", &range).json()
    };
    up_to(FIRST + 1);
    let attested = |first: u32, attested: u32| AttestedLedgers {
        first_ledger: first.into(),
        attested_ledger: attested.into(),
    };
    assert_eq!(manifest("x").attested, [attested(FIRST, FIRST + 1)]);
    // An earlier version wrote no such member.
    let path = at.join("x/manifest.json");
    let mut earlier: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    earlier.as_object_mut().unwrap().remove("attested").unwrap();
    fs::write(&path, earlier.to_string()).unwrap();
    assert!(manifest("x").attested.is_empty());
    up_to(FIRST + 11);
    assert_eq!(manifest("x").attested, [attested(FIRST, 63_092_986)]);
    // A running service says what its checkpoint's ledgers are.
    let service = Service::start_in(at, &["--data-dir", "d"]);
    let range = ["--from", &first, "--to", &last, "--json"];
    assert_eq!(export(at, "y", &range).json()["new_ledgers"], 12);
    assert_eq!(manifest("y").attested, [attested(FIRST, 63_092_986)]);
    service.stop();
}

#[test]
fn a_service_keeps_ingesting_during_an_export() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let (demo, _) = Service::demo(at, &[]);
    let latest = || demo.health()["service_latest_ledger"].as_u64().unwrap_or(0);
    let mut exported = 0;
    for wanted in [10, 14] {
        wait_until("there are ledgers", || Some(latest()).filter(|latest| *latest >= wanted));
        let before = latest();
        let summary = export(at, "x", &["--json"]).json();
        let to = summary["to"].as_u64().unwrap();
        assert!(to >= before, "{summary} contains the ledgers stored before");
        assert_eq!(summary["new_ledgers"].as_u64().unwrap(), to - exported.max(1), "{summary}");
        exported = to;
        wait_until("the service goes on", || Some(latest()).filter(|latest| *latest > to));
    }
    // The checkpoint that an export reads from is removed.
    let left = || fs::read_dir(at.join("d/checkpoints")).map_or(0, |left| left.count());
    wait_until("checkpoints are removed", || left() == 0);
    assert_eq!(demo.end_with(Signal::INT), Some(0));
    assert_eq!(export(at, "x", &[]).code, 0);
    let (stored, read) = (stored_rows(&at.join("d")), exported_rows(&at.join("x")));
    assert!(stored.0.len() > 10 && read == stored, "{} and {}", read.0.len(), stored.0.len());
}

/// Checks that pyarrow and DuckDB read the same rows. `ORRERY_TEST_PYTHON` names a Python that has
/// both; without it the check is skipped.
fn second_reader(export: &Path, events: usize, transactions: usize) {
    let Some(python) = std::env::var_os("ORRERY_TEST_PYTHON") else {
        println!(
            "skipped other readers: ORRERY_TEST_PYTHON names no Python with pyarrow and duckdb"
        );
        return;
    };
    let script = "import duckdb, json, sys, pyarrow.parquet as pq
root = sys.argv[1]
manifest = json.load(open(root + '/manifest.json'))
for table in ('events', 'transactions'):
    files = manifest['tables'][table]
    read = [pq.read_table(root + '/' + f['path']) for f in files]
    assert [t.num_rows for t in read] == [f['rows'] for f in files]
    print(sum(t.num_rows for t in read))
    sums = 'select count(*), sum(ledger), sum(application_order), count(distinct tx), min(ledger_closed_at)::text'
    duckdb.sql(open(root + '/tables/chain/views.sql').read())
    whole = duckdb.sql(f'{sums} from chain.{table}').fetchall()[0]
    paths = [root + '/' + f['path'] for f in files]
    tables = duckdb.sql(f'{sums} from read_parquet({paths})').fetchall()[0]
    ours = [row for t in read for row in t.select(['ledger', 'application_order', 'tx']).to_pylist()]
    expected = (len(ours), sum(r['ledger'] for r in ours), sum(r['application_order'] for r in ours), len({r['tx'] for r in ours}))
    assert whole == tables and whole[:4] == expected, (whole, tables, expected)";
    let ran = Command::new(python).args(["-c", script]).arg(export).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(String::from_utf8_lossy(&ran.stdout), format!("{events}\n{transactions}\n"));
}

#[test]
fn a_repeatedly_killed_export_equals_an_uninterrupted_one() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let Some(()) = stored(at) else { return };
    let begun = Instant::now();
    assert_eq!(export(at, "whole", &["--ledgers-per-file", "1"]).code, 0);
    let whole_takes = begun.elapsed();
    let whole = exported_rows(&at.join("whole"));
    let ledgers = |export: &str| {
        let bytes = fs::read(at.join(export).join("manifest.json")).unwrap();
        Manifest::parse(&bytes, "manifest.json").unwrap().ledgers
    };
    let (mut rng, kills) = (ChaCha8Rng::seed_from_u64(7), size::choose(5, 50));
    let (mut killed, mut round) = (0, 0);
    while killed < kills {
        let to = format!("x{round}");
        round += 1;
        loop {
            let mut child = orrery_in(at)
                .args(["export", "--data-dir", "d", "--to-dir", &to, "--ledgers-per-file", "1"])
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            // The sleep makes the moment of the kill random; it does not wait for a condition.
            thread::sleep(Duration::from_secs_f64(
                rng.random_range(0.0..whole_takes.as_secs_f64()),
            ));
            if let Some(status) = child.try_wait().unwrap() {
                assert!(status.success());
                break;
            }
            child.kill().unwrap();
            child.wait().unwrap();
            killed += 1;
            if killed >= kills {
                assert_eq!(export(at, &to, &["--ledgers-per-file", "1"]).code, 0);
                break;
            }
        }
        assert_eq!(ledgers(&to), ledgers("whole"));
        assert!(exported_rows(&at.join(&to)) == whole, "{to}");
        exported::assert_no_strays(&at.join(&to));
    }
}

#[test]
fn invalid_export_requests_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let Some(()) = stored(at) else { return };
    let beyond = (LAST + 1).to_string();
    export(at, "x", &["--to", &beyond]).refuses(1, &[&beyond, "not stored"]);
    let from = FIRST.to_string();
    let range = ["--from", &from, "--to", &beyond];
    export(at, "x", &range).refuses(1, &[&format!("{beyond} to {beyond}"), "not stored"]);
    export(at, "x", &["--from", "5", "--to", "4"]).refuses(2, &["--from 5 is after --to 4"]);
    fs::create_dir(at.join("other")).unwrap();
    fs::write(at.join("other/letter.txt"), "dear").unwrap();
    export(at, "other", &[]).refuses(1, &["other", "neither empty nor an export"]);
    assert_eq!(fs::read_dir(at.join("other")).unwrap().count(), 1);
}
