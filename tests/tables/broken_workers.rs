//! Faulty workers: they are killed, callers that wait for them get an error, and other owners are
//! not affected. The worker here is `examples/stand_in_worker.rs`, whose fault is selected by the
//! name under which it is started.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use orrery_settings::Millis;
use orrery_tables::query::QueryError;
use orrery_tables::{TablesError, TablesSettings};
use serde_json::json;

use super::support::{Program, World, emit, owner};
use orrery_testkit::program::example;
use orrery_testkit::values::string;
use orrery_testkit::wait::wait_until;

static STAND_IN: LazyLock<PathBuf> = LazyLock::new(|| example("stand_in_worker"));

/// Much longer than any wait that a test expects, and much shorter than the timeouts that must not
/// apply.
const LONG: Duration = Duration::from_secs(60);

fn broken(way: &str, change: impl FnOnce(&mut TablesSettings)) -> World {
    World::with(|settings| {
        let programs = settings.directory.parent().unwrap();
        let program = programs.join(way);
        symlink(&*STAND_IN, &program).unwrap();
        settings.worker = program;
        settings.queries.query_ms = Millis::exactly(LONG);
        change(settings);
    })
}

/// More rows than a socket's buffer holds.
fn large() -> Program {
    let mut program = Program::new(1, "pool");
    for _ in 0..64 {
        program.run(vec![emit("swap", [("note", string("x".repeat(60_000)))])]).unwrap();
    }
    program
}

fn feed(world: &World, program: &Program) -> Result<(), TablesError> {
    world
        .tables
        .apply(&owner("alice"), vec![program.definition(), program.between(0, program.end())])
}

#[test]
fn a_worker_that_reads_nothing_is_killed_after_the_timeout() {
    let world = broken("reads_nothing", |settings| {
        settings.tunables.timeouts.send = Duration::from_millis(300);
    });
    let begun = Instant::now();
    assert!(matches!(feed(&world, &large()), Err(TablesError::Unavailable(_))));
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
    assert_eq!(world.tables.process(&owner("alice")), None);
}

#[test]
fn closing_does_not_wait_for_a_stuck_worker() {
    let world = broken("reads_nothing", |settings| {
        settings.tunables.timeouts.send = 10 * LONG;
        settings.tunables.timeouts.end = Duration::from_millis(300);
    });
    let begun = Instant::now();
    thread::scope(|scope| {
        let stuck = scope.spawn(|| feed(&world, &large()));
        wait_until("it runs", || world.tables.process(&owner("alice")).is_some());
        world.tables.close();
        assert!(matches!(stuck.join().unwrap(), Err(TablesError::Unavailable(_))));
    });
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
}

#[test]
fn a_worker_that_accepts_no_rows_is_killed_after_the_timeout() {
    let world = broken("says_nothing", |settings| {
        settings.tunables.timeouts.append = Duration::from_millis(300);
        settings.tunables.timeouts.commit = Duration::from_millis(300);
    });
    let begun = Instant::now();
    assert!(matches!(feed(&world, &large()), Err(TablesError::Unavailable(_))));
    let nothing_new = world.tables.apply(&owner("bob"), Vec::new());
    assert!(matches!(nothing_new, Err(TablesError::Unavailable(_))));
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
    assert_eq!(world.tables.process(&owner("alice")), None);
}

#[test]
fn a_worker_that_violates_the_protocol_is_killed() {
    for way in ["talks_nonsense", "announces_too_much", "answers_something_else"] {
        let world = broken(way, |_| {});
        let alice = owner("alice");
        world.tables.set_complete(&alice).unwrap();
        let first = world.tables.process(&alice).unwrap();
        let begun = Instant::now();
        let error = world.try_rows(&alice, "SELECT 1").unwrap_err();
        assert_eq!(
            error,
            QueryError::Unavailable("The tables cannot be read right now".to_owned()),
            "{way}"
        );
        assert!(begun.elapsed() < LONG, "{way}: {:?}", begun.elapsed());
        wait_until("it is gone", || !PathBuf::from(format!("/proc/{first}")).exists());
        // The next worker is another process.
        world.tables.watermarks(&alice).unwrap();
        assert_ne!(world.tables.process(&alice), Some(first), "{way}");
    }
}

#[test]
fn a_worker_that_has_lost_its_transaction_is_killed() {
    let world = broken("loses_its_transaction", |_| {});
    let alice = owner("alice");
    world.tables.set_complete(&alice).unwrap();
    let first = world.tables.process(&alice).unwrap();
    let error = world.try_rows(&alice, "SELECT 1").unwrap_err();
    assert!(matches!(error, QueryError::Unavailable(_)), "{error:?}");
    wait_until("it is gone", || !PathBuf::from(format!("/proc/{first}")).exists());
}

#[test]
fn a_worker_that_logs_endlessly_still_answers() {
    let world = broken("talks", |_| {});
    let alice = owner("alice");
    world.tables.set_complete(&alice).unwrap();
    for _ in 0..100 {
        assert_eq!(world.rows(&alice, "SELECT 1"), json!([]));
    }
}

#[test]
fn an_unconfined_worker_gets_queries_only_if_allowed() {
    let sentence = "SQL queries are refused here, because this kernel cannot restrict the file \
                    access of child processes (Landlock): the operator may allow them with \
                    queries.allow_unconfined";
    let world = broken("unconfined", |settings| settings.queries.allow_unconfined = false);
    let alice = owner("alice");
    world.tables.set_complete(&alice).unwrap();
    assert_eq!(world.try_rows(&alice, "SELECT 1").unwrap_err().to_string(), sentence);
    let allowed = broken("unconfined", |settings| settings.queries.allow_unconfined = true);
    allowed.tables.set_complete(&alice).unwrap();
    assert_eq!(allowed.rows(&alice, "SELECT 1"), json!([]));
}
