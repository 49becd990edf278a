//! Tables whose rows cannot be converted in place are filled anew beside those that queries see:
//! whatever happens meanwhile, queries see all rows of the one or of the other, and in the end the
//! file is one that was filled once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use orrery_ledger::domain::{Owner, ProgramId};
use orrery_tables::Change;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use stellar_xdr::ScVal;

use super::support::{Program, World, emit, owner};
use orrery_testkit::histories;
use orrery_testkit::signal::{self, Signal};
use orrery_testkit::values::string;
use orrery_testkit::wait::wait_until;

const TOTAL: &str = "SELECT count(*) AS n FROM p_t";

/// A program with this number of rows, one per run.
fn program(rows: u32) -> Program {
    let mut program = Program::new(1, "p");
    (0..rows).for_each(|number| run(&mut program, number));
    program
}

fn run(program: &mut Program, number: u32) {
    program.run(vec![emit("t", [("n", ScVal::U32(number))])]).unwrap();
}

/// Changes the program's tables so that those of a file cannot be converted.
fn arrange_anew(program: &mut Program, derivation: u64) {
    program.schema = program.schema.clone().derived(derivation);
}

fn count(world: &World, owner: &Owner, sql: &str) -> u64 {
    world.rows(owner, sql)[0]["n"].as_u64().unwrap()
}

/// Feeds the next entries of the log, as the service does. Returns whether there are more.
fn feed_some(world: &World, owner: &Owner, program: &Program, entries: u64) -> bool {
    world.tables.apply(owner, vec![program.definition()]).unwrap();
    let after = world.tables.watermarks(owner).unwrap()[&program.id];
    let up_to = program.end().min(after + entries);
    if after < up_to {
        world.tables.apply(owner, vec![program.between(after, up_to)]).unwrap();
    }
    up_to < program.end()
}

#[test]
fn queries_see_the_old_rows_until_the_new_tables_have_them_all() {
    let world = World::new();
    let alice = owner("alice");
    let mut program = program(100);
    program.feed(&world.tables, &alice, 30);
    arrange_anew(&mut program, 1);
    (100..110).for_each(|number| run(&mut program, number));
    world.tables.apply(&alice, vec![program.definition()]).unwrap();
    assert_eq!(world.tables.watermarks(&alice).unwrap()[&program.id], 0);
    assert_eq!(world.tables.filled_anew(&alice).unwrap()[&program.id], 100);
    let tables = world.rows(&alice, "SHOW TABLES");
    for _ in 0..4 {
        assert_eq!(count(&world, &alice, TOTAL), 100);
        assert_eq!(world.rows(&alice, "SHOW TABLES"), tables, "what is being filled is not shown");
        assert!(feed_some(&world, &alice, &program, 24));
    }
    for name in ["\"program_1_t.filling\"", "retroshade.\"program_1_t.filling\""] {
        let refused = world.try_rows(&alice, &format!("SELECT * FROM {name}")).unwrap_err();
        assert!(refused.to_string().contains("not one of yours"), "{refused}");
    }
    // With the 100th row, all that queries have seen is there.
    feed_some(&world, &alice, &program, 8);
    assert_eq!(count(&world, &alice, TOTAL), 104);
    assert!(world.tables.filled_anew(&alice).unwrap().is_empty());
    feed_some(&world, &alice, &program, 100);
    let fresh = World::new();
    program.feed(&fresh.tables, &alice, 1_000);
    assert_eq!(world.tables.digest(&alice).unwrap(), fresh.tables.digest(&alice).unwrap());
}

#[test]
fn what_is_being_filled_follows_the_tables_of_the_program() {
    let world = World::new();
    let alice = owner("alice");
    let mut program = program(50);
    program.feed(&world.tables, &alice, 50);
    let before = program.schema.clone();
    // A column more, while the tables are filled: it goes on. The rows have it from there on.
    arrange_anew(&mut program, 1);
    feed_some(&world, &alice, &program, 20);
    program.run(vec![emit("t", [("n", ScVal::U32(50)), ("more", string("x"))])]).unwrap();
    feed_some(&world, &alice, &program, 10);
    assert_eq!(world.tables.watermarks(&alice).unwrap()[&program.id], 30);
    // Other tables again: it begins again.
    arrange_anew(&mut program, 2);
    world.tables.apply(&alice, vec![program.definition()]).unwrap();
    assert_eq!(world.tables.watermarks(&alice).unwrap()[&program.id], 0);
    // Another name: queries find the old rows under it.
    program.project = "q".to_owned();
    feed_some(&world, &alice, &program, 10);
    assert_eq!(count(&world, &alice, "SELECT count(*) AS n FROM q_t"), 50);
    // Back to tables that the old ones can become: these go on.
    let changed = std::mem::replace(&mut program.schema, before);
    world.tables.apply(&alice, vec![program.definition()]).unwrap();
    assert_eq!(world.tables.watermarks(&alice).unwrap()[&program.id], 50);
    assert!(world.tables.filled_anew(&alice).unwrap().is_empty());
    program.schema = changed;
    feed_some(&world, &alice, &program, 10);
    // Dropped in the middle, nothing of it is left.
    world.tables.apply(&alice, vec![Change::Drop { program: program.id }]).unwrap();
    assert!(world.tables.watermarks(&alice).unwrap().is_empty());
    program.feed(&world.tables, &alice, 7);
    let fresh = World::new();
    program.feed(&fresh.tables, &alice, 1_000);
    assert_eq!(world.tables.digest(&alice).unwrap(), fresh.tables.digest(&alice).unwrap());
}

/// Random steps on a program whose tables are arranged anew again and again, with a second program
/// beside it, while workers are killed and the directory is opened again.
fn history(seed: u64) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut world = World::new();
    let alice = owner("alice");
    let mut own = program(random.random_range(1..80));
    let mut other = Program::new(2, "other");
    run(&mut other, 0);
    own.feed(&world.tables, &alice, 1_000);
    let (mut least, mut derivation, mut rows) = (own.end(), 0, 1_000);
    for _ in 0..40 {
        match random.random_range(0..12) {
            0..4 => drop(feed_some(&world, &alice, &own, random.random_range(1..40))),
            4 | 5 => drop(feed_some(&world, &alice, &other, 5)),
            6 => {
                derivation += 1;
                arrange_anew(&mut own, derivation);
            }
            7 => {
                rows += 1;
                run(&mut own, rows);
                run(&mut other, rows);
            }
            8 => {
                let name = format!("c{}", rows % 7);
                let emits = [("n", ScVal::U32(rows))];
                let mut emit = emit("t", emits);
                let mut fields = emit.fields.0.to_vec();
                fields.push(stellar_xdr::ScMapEntry {
                    key: orrery_testkit::values::symbol(&name),
                    val: ScVal::U32(1),
                });
                fields.sort();
                emit.fields = stellar_xdr::ScMap(fields.try_into().unwrap());
                own.run(vec![emit]).unwrap();
            }
            9 => world.reopen(),
            10 => {
                let process = world.tables.process(&alice);
                if process.is_some_and(|process| signal::send(process, Signal::KILL)) {
                    let noticed = || world.tables.process(&alice) != process;
                    wait_until("the tables notice that their worker is gone", noticed);
                }
            }
            _ => {}
        }
        let now = count(&world, &alice, TOTAL);
        assert!(now >= least, "{now} rows, after {least}");
        least = now;
    }
    while feed_some(&world, &alice, &own, 30) || own.end() != count(&world, &alice, TOTAL) {}
    while feed_some(&world, &alice, &other, 30) {}
    let fresh = World::new();
    for program in [&own, &other] {
        program.feed(&fresh.tables, &alice, 1_000);
    }
    assert_eq!(world.tables.digest(&alice).unwrap(), fresh.tables.digest(&alice).unwrap());
}

/// Small: 6 histories; full: 600.
#[test]
fn rows_never_become_fewer_while_tables_are_filled_anew() {
    histories::run(6, 600, history);
}

#[test]
fn a_reader_at_any_moment_sees_all_rows() {
    let world = World::new();
    let alice = owner("alice");
    let mut program = program(3_000);
    program.feed(&world.tables, &alice, 3_000);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut counts = 0;
            while !over.load(Ordering::Acquire) {
                let found = world.rows(&alice, "SELECT count(*) AS n, max(n) AS last FROM p.t");
                assert_eq!(found, json!([{ "n": 3_000, "last": 2_999 }]));
                counts += 1;
            }
            counts
        });
        for derivation in 1..8 {
            arrange_anew(&mut program, derivation);
            while feed_some(&world, &alice, &program, 700) {}
        }
        over.store(true, Ordering::Release);
        assert!(reader.join().unwrap() > 10);
    });
    assert_eq!(program.id, ProgramId(1));
}
