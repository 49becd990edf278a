//! Tables of the chain: queries find the rows of files and of memory as if they were in one table, each once,
//! whatever moves meanwhile; and nothing else becomes readable by them.

mod attacks;
mod equality;
mod scene;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use arrow::datatypes::{DataType, Field, Schema};
use orrery_ledger::domain::LedgerSeq;
use orrery_tables::chain::ChainTable;
use orrery_testkit::signal::{self, Signal};
use orrery_testkit::size::choose;
use orrery_testkit::values::symbol;
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use self::scene::{Scene, StandIn, plain_rows, schema};
use crate::attacks::resident;
use crate::support::{Program, emit};

#[test]
fn counts_and_files_without_needed_rows_are_not_read() {
    let scene = Scene::new();
    let owner = scene.owner("ana");
    let old = scene.chain.write("old.parquet", &plain_rows(1, 500), false);
    let new = scene.chain.write("new.parquet", &plain_rows(501, 1000), false);
    let held = StandIn::held(&plain_rows(1001, 1003));
    scene.chain.change(|state| {
        (state.files, state.rows, state.newest) = (vec![old, new], vec![held], Some(1003));
    });
    fs::remove_file(scene.chain.events().join("old.parquet")).unwrap();
    for (sql, answer) in [
        ("select count(*) as n from chain.events", r#"[{"n":1003}]"#),
        ("select count(*) as n from chain.events where ledger > 900", r#"[{"n":103}]"#),
        (
            "select id from chain.events order by ledger desc limit 2",
            r#"[{"id":1003},{"id":1002}]"#,
        ),
        (
            "select id from chain.events where ok order by ledger desc limit 1 offset 400",
            r#"[{"id":603}]"#,
        ),
        (
            "select count(*) as n from chain.events where ledger_closed_at > make_timestamp(1700004999000000) and ledger > 800",
            r#"[{"n":4}]"#,
        ),
    ] {
        assert_eq!(scene.text(&owner, sql), answer, "{sql}");
    }
    let answer = scene.ask(&owner, "select 1 as a from chain.events limit 1").unwrap();
    assert_eq!(answer.chain_ledger, Some(LedgerSeq(1003)));
    assert_eq!(scene.ask(&owner, "select 1 as a").unwrap().chain_ledger, None);
    // The file that is gone is missed where it is needed.
    let said = scene.text(&owner, "select max(id) as n from chain.events where ledger > 400");
    assert!(said.contains("cannot be opened") && said.contains("tell the operator"), "{said}");
    assert!(!said.contains('/'), "{said}");
}
#[test]
fn owners_share_the_tables_and_a_new_process_has_them() {
    let scene = Scene::new();
    let (ana, bo) = (scene.owner("ana"), scene.owner("bo"));
    let mut program = Program::new(1, "chain");
    program.run(vec![emit("events", [("note", symbol("mine"))])]).unwrap();
    program.feed(&scene.world.tables, &ana, 10);
    let count = "select count(*) as n from chain.events";
    assert_eq!(scene.text(&bo, count), r#"[{"n":0}]"#);
    // The directory is made when the first file is.
    let file = scene.chain.write("a.parquet", &plain_rows(1, 40), false);
    let held = StandIn::held(&plain_rows(41, 45));
    scene.chain.change(|state| (state.files, state.rows) = (vec![file], vec![held]));
    for owner in [&ana, &bo] {
        assert_eq!(scene.text(owner, "select count(id) as n from chain.events"), r#"[{"n":45}]"#);
        let process = scene.world.tables.process(owner).unwrap();
        assert!(signal::send(process, Signal::KILL));
        let again = || scene.text(owner, "select sum(id)::bigint as n from chain.events");
        orrery_testkit::wait::wait_until("a new process answers", || {
            let said = again();
            if said == r#"[{"n":1035}]"# { Ok(()) } else { Err(said) }
        });
    }
    // A project of an earlier version that is called so keeps its tables, under other names.
    assert_eq!(scene.text(&ana, "select note from chain_events"), r#"[{"note":"mine"}]"#);
    let said = scene.text(&bo, "select note from chain_events");
    assert!(said.contains("does not exist") || said.contains("not one of yours"), "{said}");
}

#[test]
fn without_an_export_there_are_no_such_tables() {
    let mut scene = Scene::new();
    let owner = scene.owner("ana");
    let tables = "select table_schema as s, table_name as t from information_schema.tables where table_schema = 'chain'";
    assert_eq!(scene.text(&owner, tables), r#"[{"s":"chain","t":"events"}]"#);
    let digest = scene.world.tables.digest(&owner).unwrap();
    scene.world.settings.chain = None;
    scene.world.reopen();
    assert_eq!(scene.text(&owner, tables), "[]");
    assert_eq!(scene.world.tables.digest(&owner).unwrap(), digest);
    let said = scene.text(&owner, "select * from chain.events");
    assert!(said.contains("while the service exports to a directory"), "{said}");
    // Other columns are other views.
    let mut other = schema().fields().to_vec();
    other.push(Arc::new(Field::new("more", DataType::Boolean, true)));
    let tables = vec![ChainTable::of("events", &Schema::new(other)).unwrap()];
    let root = scene.export.path().to_owned();
    let chain = Arc::new(StandIn { root, tables, state: Mutex::default() });
    let file = chain.write("a.parquet", &plain_rows(1, 3), false);
    chain.change(|state| state.files = vec![file]);
    scene.world.settings.chain = Some(chain);
    scene.world.reopen();
    let sql = "select id, more from chain.events where id = 2";
    assert_eq!(scene.text(&owner, sql), r#"[{"id":2,"more":null}]"#);
}

#[test]
fn no_query_sees_a_row_twice_or_misses_one_while_files_are_written() {
    let scene = Scene::new();
    let owners = [scene.owner("ana"), scene.owner("bo")];
    let rounds = choose(40, 400);
    let done = AtomicBool::new(false);
    // Ledger 1 is in a file from the beginning.
    let first = scene.chain.write("0.parquet", &plain_rows(1, 1), false);
    scene.chain.change(|state| (state.files, state.newest) = (vec![first], Some(1)));
    thread::scope(|scope| {
        for owner in owners.iter().cycle().take(4) {
            scope.spawn(|| {
                let mut asked = 0;
                while !done.load(Ordering::Acquire) || asked == 0 {
                    let sql = "select count(*) as n, count(distinct id) as d, max(ledger) as l from chain.events";
                    let Ok(answer) = scene.ask(owner, sql) else { continue };
                    let newest = answer.chain_ledger.unwrap();
                    let expected = format!("[{{\"n\":{newest},\"d\":{newest},\"l\":{newest}}}]");
                    assert_eq!(String::from_utf8(answer.bytes).unwrap(), expected);
                    asked += 1;
                }
            });
        }
        let (mut random, mut exported, mut newest) = (ChaCha8Rng::seed_from_u64(3), 1, 1);
        for round in 1..=rounds {
            newest += random.random_range(1..4);
            let held: Vec<_> = (exported + 1..=newest)
                .map(|ledger| StandIn::held(&plain_rows(ledger, ledger)))
                .collect();
            scene.chain.change(|state| (state.rows, state.newest) = (held, Some(newest)));
            if random.random_bool(0.4) {
                let rows = plain_rows(exported + 1, newest);
                let file = scene.chain.write(&format!("{round}.parquet"), &rows, false);
                exported = newest;
                scene.chain.change(|state| {
                    state.files.push(file);
                    state.rows.clear();
                });
            }
            thread::yield_now();
        }
        done.store(true, Ordering::Release);
    });
}

#[test]
fn what_a_query_reads_at_a_time_is_limited() {
    let scene = Scene::new();
    let owner = scene.owner("ana");
    let file = scene.chain.write("a.parquet", &plain_rows(1, 20), false);
    scene.chain.change(|state| state.files = vec![file]);
    let joined = |times: usize| {
        let joins: String =
            (1..times).map(|at| format!(" join chain.events e{at} on e{at}.id = e0.id")).collect();
        let filters: String = (1..times).map(|at| format!(" and e{at}.id + {at} < 90")).collect();
        format!("select count(*) as n from chain.events e0{joins} where true{filters}")
    };
    assert_eq!(scene.text(&owner, &joined(3)), r#"[{"n":20}]"#);
    // What one query has read is free again for the next.
    for _ in 0..40 {
        assert_eq!(scene.text(&owner, "select max(id) as n from chain.events"), r#"[{"n":20}]"#);
    }
    let all: Vec<_> = (0..40).map(|at| format!("select id, {at} from chain.events")).collect();
    let sum = format!("select count(*) as n from ({})", all.join(" union all "));
    assert_eq!(scene.text(&owner, &sum), r#"[{"n":800}]"#);
}

/// Of large values, few rows are in memory at a time.
#[test]
fn large_values_take_little_memory() {
    let scene = Scene::new();
    let owner = scene.owner("ana");
    let mut rows = plain_rows(1, 20);
    rows.iter_mut().for_each(|row| row.name = Some("x".repeat(256 << 10)));
    // 500 MiB of values, which are one value in the file.
    let file = scene.chain.write_repeated("large.parquet", &rows, 100);
    scene.chain.change(|state| state.files = vec![file]);
    // The process that reads the directory with the file.
    assert_eq!(scene.text(&owner, "select count(*) as n from chain.events"), r#"[{"n":2000}]"#);
    let process = scene.world.tables.process(&owner).unwrap();
    let before = resident(process);
    let sql = "select count(*) as n, sum(length(name))::bigint as l from chain.events where ok";
    assert_eq!(scene.text(&owner, sql), r#"[{"n":2000,"l":524288000}]"#);
    let took = resident(process) - before;
    assert!(took > 0 && took < 150 << 20, "{} MiB", took >> 20);
}
