//! Limits of queries: time, memory, rows, bytes, length of the text, and concurrency.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use orrery_ledger::domain::Owner;
use orrery_settings::{Mib, Millis, nonzero};
use orrery_tables::query::{Format, QueryError, QueryRequest};
use serde_json::{Value, json};
use stellar_xdr::ScVal;

use super::support::{Program, World, emit, owner};
use orrery_testkit::signal::{self, Signal};
use orrery_testkit::wait::wait_until;

/// A query that runs until it is stopped.
const ENDLESS: &str = "SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000000) c";

fn request(query: &str) -> QueryRequest {
    QueryRequest { query: query.to_owned(), ..QueryRequest::default() }
}

fn quick() -> World {
    World::with(|settings| settings.queries.query_ms = Millis::exactly(Duration::from_millis(500)))
}

#[test]
fn a_slow_query_is_stopped_and_its_worker_survives() {
    let (world, alice) = (quick(), owner("alice"));
    world.tables.set_complete(&alice).unwrap();
    let process = world.tables.process(&alice);
    let begun = Instant::now();
    let error = world.try_rows(&alice, ENDLESS).unwrap_err();
    assert_eq!(error.to_string(), "the query took longer than 0.5 s and was stopped: ask for less");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(world.rows(&alice, "SELECT 1 AS a"), json!([{"a": 1}]));
    assert_eq!(world.tables.process(&alice), process);
}

/// Runs a query without an end for a caller that stops waiting when `is_over` is set.
fn abandoned(world: &World, who: &Owner, is_over: &AtomicBool) -> Result<Value, QueryError> {
    let interrupted = || is_over.load(Ordering::Relaxed);
    let answer = world.tables.query_when(who, request(ENDLESS), || Ok(()), &interrupted)?;
    Ok(serde_json::from_slice(&answer.bytes).unwrap())
}

#[test]
fn an_abandoned_query_ends_and_other_queries_continue() {
    let world = World::with(|settings| {
        settings.queries.query_ms = Millis::exactly(Duration::from_secs(600))
    });
    let alice = owner("alice");
    world.tables.set_complete(&alice).unwrap();
    let process = world.tables.process(&alice);
    let [one_is_over, other_is_over] = [false, false].map(AtomicBool::new);
    thread::scope(|scope| {
        let one = scope.spawn(|| abandoned(&world, &alice, &one_is_over));
        let other = scope.spawn(|| abandoned(&world, &alice, &other_is_over));
        wait_until("they run", || processor_ticks(process) > RUNNING);
        one_is_over.store(true, Ordering::Relaxed);
        assert_eq!(one.join().unwrap(), Err(QueryError::Interrupted));
        assert!(!other.is_finished());
        assert_eq!(world.rows(&alice, "SELECT 1 AS a"), json!([{"a": 1}]));
        other_is_over.store(true, Ordering::Relaxed);
        assert_eq!(other.join().unwrap(), Err(QueryError::Interrupted));
    });
    assert_eq!(world.rows(&alice, "SELECT 2 AS a"), json!([{"a": 2}]));
    assert_eq!(world.tables.process(&alice), process);
}

#[test]
fn a_stuck_worker_is_killed_also_for_an_abandoned_query() {
    let world = World::with(|settings| {
        settings.queries.query_ms = Millis::exactly(Duration::from_secs(600))
    });
    let alice = owner("alice");
    world.tables.set_complete(&alice).unwrap();
    let process = world.tables.process(&alice).unwrap();
    assert!(signal::send(process, Signal::STOP));
    let error = abandoned(&world, &alice, &AtomicBool::new(true)).unwrap_err();
    assert_eq!(error, QueryError::Interrupted);
    wait_until("it is gone", || world.tables.process(&alice) != Some(process));
}

#[test]
fn a_stuck_worker_is_killed() {
    let (world, alice) = (quick(), owner("alice"));
    world.tables.set_complete(&alice).unwrap();
    let process = world.tables.process(&alice).unwrap();
    // A process stopped with SIGSTOP does not react to an interrupt.
    assert!(signal::send(process, Signal::STOP));
    let begun = Instant::now();
    let error = world.try_rows(&alice, "SELECT 1").unwrap_err();
    assert_eq!(error, QueryError::TimedOut(Duration::from_millis(500)));
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    // While the killed process still holds the file, queries return `Unavailable`.
    let answer =
        wait_until("the file is released", || match world.try_rows(&alice, "SELECT 1 AS a") {
            Err(error @ QueryError::Unavailable(_)) => Err(error),
            answer => Ok(answer),
        });
    assert_eq!(answer, Ok(json!([{"a": 1}])));
    assert_ne!(world.tables.process(&alice), Some(process));
}

#[test]
fn a_result_that_is_too_large_is_refused_and_never_truncated() {
    let world = World::with(|settings| settings.queries.answer_mib = Mib::exactly(100_000));
    let alice = owner("alice");
    world.tables.set_complete(&alice).unwrap();
    let refuse = |request: QueryRequest| match world.tables.query(&alice, request) {
        Err(QueryError::TooLarge(sentence)) => sentence,
        other => panic!("{other:?}"),
    };
    let count = |query: &str| world.rows(&alice, query).as_array().unwrap().len();
    assert_eq!(count("SELECT 1 FROM range(10000)"), 10_000);
    assert_eq!(
        refuse(request("SELECT 1 FROM range(10001)")),
        "The answer has more than 10000 rows: use LIMIT, or ask for less"
    );
    let few = QueryRequest { max_rows: Some(5), ..request("SELECT 1 FROM range(6)") };
    assert!(refuse(few).contains("more than 5 rows"));
    let many = QueryRequest { max_rows: Some(1 << 40), ..request("SELECT 1 FROM range(10001)") };
    assert!(refuse(many).contains("more than 10000 rows"));
    for format in [Format::Rows, Format::Columns, Format::Csv, Format::Arrow, Format::Parquet] {
        let long = "SELECT md5(range::VARCHAR) AS a FROM range(9000)";
        let sentence = refuse(QueryRequest { format, ..request(long) });
        assert_eq!(
            sentence, "The answer is longer than 100000 bytes: ask for fewer rows or columns",
            "{format:?}"
        );
    }
    // Exactly the maximum: 100,000 bytes, of which `[{"a":""}]` takes 10.
    let exact = |length: usize| format!("SELECT repeat('x', {length}) AS a");
    assert_eq!(count(&exact(100_000 - 10)), 1);
    assert!(refuse(request(&exact(100_000 - 9))).contains("longer than"));
}

#[test]
fn queries_are_limited_to_64_kib() {
    let (world, alice) = (World::new(), owner("alice"));
    world.tables.set_complete(&alice).unwrap();
    let sql = |length: usize| format!("SELECT '{}' = '' AS a", "x".repeat(length - 19));
    assert_eq!(sql(65_536).len(), 65_536);
    assert_eq!(world.rows(&alice, &sql(65_536)), json!([{"a": false}]));
    let error = world.try_rows(&alice, &sql(65_537)).unwrap_err();
    assert_eq!(error.to_string(), "The query is 65537 bytes long; it may have 65536");
}

#[test]
fn memory_is_limited_and_the_next_query_works() {
    let world = World::with(|settings| {
        settings.queries.memory_mib = Mib::new(nonzero!(64));
        settings.queries.query_ms = Millis::exactly(Duration::from_secs(60));
    });
    let alice = owner("alice");
    world.tables.set_complete(&alice).unwrap();
    for hog in [
        "SELECT list(range) FROM range(100000000)",
        "SELECT count(*) FROM (SELECT DISTINCT hash(range) FROM range(50000000))",
        "SELECT length(repeat('x', 2000000000)) FROM range(3)",
    ] {
        let error = world.try_rows(&alice, hog).unwrap_err();
        assert!(
            matches!(&error, QueryError::Refused(sentence) if sentence.contains("Memory"))
                || matches!(error, QueryError::Unavailable(_)),
            "{hog}: {error:?}"
        );
        assert_eq!(world.rows(&alice, "SELECT 1 AS a"), json!([{"a": 1}]), "{hog}");
    }
}

#[test]
fn concurrent_queries_per_owner_are_limited_to_four() {
    let world =
        World::with(|settings| settings.queries.query_ms = Millis::exactly(Duration::from_secs(3)));
    let (alice, bob) = (owner("alice"), owner("bob"));
    for owner in [&alice, &bob] {
        world.tables.set_complete(owner).unwrap();
    }
    thread::scope(|scope| {
        // The query that checks whether four run takes a slot itself.
        let run = || {
            wait_until("a slot is free", || match world.try_rows(&alice, ENDLESS) {
                Err(error @ QueryError::Busy(_)) => Err(error),
                other => Ok(other),
            })
        };
        let running: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
        wait_until("a fifth is refused", || {
            matches!(world.try_rows(&alice, "SELECT 1"), Err(QueryError::Busy(4)))
        });
        // Other owners' queries and new rows do not wait.
        assert_eq!(world.rows(&bob, "SELECT 1 AS a"), json!([{"a": 1}]));
        let mut program = Program::new(1, "p");
        program.run(vec![emit("t", [("n", ScVal::U32(1))])]).unwrap();
        let begun = Instant::now();
        program.feed(&world.tables, &alice, 1);
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        for query in running {
            assert!(matches!(query.join().unwrap(), Err(QueryError::TimedOut(_))));
        }
    });
    assert_eq!(world.rows(&alice, "SELECT n FROM p_t"), json!([{"n": 1}]));
}

#[test]
fn idle_workers_end() {
    let world = World::with(|settings| {
        settings.tunables.idle = Duration::from_millis(300);
        settings.queries.workers = nonzero!(2);
    });
    let owners: Vec<_> = (0..5).map(|number| owner(&number.to_string())).collect();
    for owner in &owners {
        world.tables.set_complete(owner).unwrap();
    }
    wait_until("all of them end", || {
        owners.iter().all(|owner| world.tables.process(owner).is_none())
    });
    assert_eq!(world.rows(&owners[0], "SELECT 1 AS a"), json!([{"a": 1}]));
}

#[test]
fn parameters_are_bound_as_values() {
    let (world, alice) = (World::new(), owner("alice"));
    world.tables.set_complete(&alice).unwrap();
    let ask = |query: &str, params: Value| {
        let params = params.as_array().unwrap().clone();
        let request = QueryRequest { params, ..request(query) };
        let answer = world.tables.query(&alice, request)?;
        Ok::<Value, QueryError>(serde_json::from_slice(&answer.bytes).unwrap())
    };
    let all = json!([null, true, -1, u64::MAX, 1.5, "'; DROP TABLE x --", [1, 2]]);
    let rows = ask("SELECT ? AS a, ? AS b, ? AS c, ? AS d, ? AS e, ? AS f, ? AS g", all).unwrap();
    let expected = json!([{"a": null, "b": true, "c": -1, "d": u64::MAX.to_string(), "e": 1.5,
        "f": "'; DROP TABLE x --", "g": [1, 2]}]);
    assert_eq!(rows, expected);
    for (query, params, sentence) in [
        ("SELECT ?", json!([]), "The query has 1 parameters, and 0 values were given"),
        ("SELECT 1", json!([1]), "The query has 0 parameters, and 1 values were given"),
        (
            "SELECT ?",
            json!([1e300]),
            "The parameter 1e+300 has too many digits: give it as a string",
        ),
        (
            "SELECT ?",
            json!([{}]),
            "A parameter may be null, a boolean, a number, a string or a list",
        ),
    ] {
        assert_eq!(ask(query, params).unwrap_err().to_string(), sentence);
    }
}

#[test]
fn workers_are_limited_and_every_owner_gets_a_slot() {
    let world = World::with(|settings| {
        settings.queries.query_ms = Millis::exactly(Duration::from_secs(3));
        settings.queries.workers = nonzero!(2);
        settings.queries.wait_ms = Millis::exactly(Duration::from_secs(60));
    });
    let owners: Vec<_> = (0..3).map(|number| owner(&number.to_string())).collect();
    for owner in &owners {
        world.tables.set_complete(owner).unwrap();
    }
    let over = AtomicBool::new(false);
    let processes = || owners.iter().map(|owner| world.tables.process(owner)).collect::<Vec<_>>();
    let mut most = 0;
    thread::scope(|scope| {
        for owner in &owners[..2] {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        let _ = world.try_rows(owner, ENDLESS);
                    }
                });
            }
        }
        wait_until("two of them keep both places", || {
            owners[..2].iter().all(|owner| world.tables.process(owner).is_some())
        });
        let third = scope.spawn(|| world.rows(&owners[2], "SELECT 1 AS a"));
        while !third.is_finished() {
            // Processes that are in both lists ran at the same time.
            let (before, after) = (processes(), processes());
            if before == after {
                most = most.max(after.iter().flatten().count());
            }
            thread::yield_now();
        }
        over.store(true, Ordering::Relaxed);
        assert_eq!(third.join().unwrap(), json!([{"a": 1}]));
    });
    assert_eq!(most, 2);
    // Owners that lost their worker get one again.
    assert_eq!(world.rows(&owners[0], "SELECT 2 AS a"), json!([{"a": 2}]));
}

/// Processor time of a worker, in ticks, after which a query certainly runs.
const RUNNING: u64 = 20;

/// Returns the processor time of a process in ticks, user and system (proc_pid_stat(5), fields 14
/// and 15); 0 without a process.
fn processor_ticks(process: Option<u32>) -> u64 {
    let stat = process.and_then(|id| std::fs::read_to_string(format!("/proc/{id}/stat")).ok());
    let stat = stat.unwrap_or_default();
    // The program's name, in parentheses, may contain spaces and parentheses.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

#[test]
fn a_query_waits_for_a_worker_slot_only_up_to_its_limit() {
    let world = World::with(|settings| {
        settings.queries.query_ms = Millis::exactly(Duration::from_secs(4));
        settings.queries.workers = nonzero!(1);
        settings.queries.wait_ms = Millis::exactly(Duration::from_millis(200));
    });
    let (alice, bob) = (owner("alice"), owner("bob"));
    for owner in [&bob, &alice] {
        wait_until("there is a place", || world.tables.set_complete(owner).is_ok());
    }
    thread::scope(|scope| {
        let before = processor_ticks(world.tables.process(&alice));
        let endless = scope.spawn(|| world.try_rows(&alice, ENDLESS));
        // An idle worker uses no processor time, and loses its slot to an owner that waits.
        wait_until("the query runs", || {
            processor_ticks(world.tables.process(&alice)) >= before + RUNNING
        });
        let mut sentence = String::new();
        while !endless.is_finished() {
            if let Err(error) = world.try_rows(&bob, "SELECT 1") {
                sentence = error.to_string();
            }
        }
        assert_eq!(
            sentence,
            "all 1 SQL workers are in use by other owners, and none became free in time; try again"
        );
        assert!(endless.join().unwrap().is_err());
    });
    wait_until("the place is free again", || world.try_rows(&bob, "SELECT 1").is_ok());
}
