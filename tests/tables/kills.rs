//! Kills workers with SIGKILL in the middle of changes: acknowledged changes are kept, no row is
//! there twice, and no change is applied in part.
//!
//! Small: 30 kills; full: 1,000.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use orrery_ledger::domain::ProgramId;
use orrery_tables::{Change, Tables};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use stellar_xdr::ScVal;

use super::evolution;
use super::support::{Program, World, emit, owner};
use orrery_testkit::signal::{self, Signal};
use orrery_testkit::size;
use orrery_testkit::values::{i128, list, string};
use orrery_testkit::wait::wait_until;

/// Emits a few rows for two tables, whose columns change with the number of the run.
fn run(program: &mut Program, number: u32) {
    let wide = if number.is_multiple_of(37) { i128(i128::MIN) } else { i128(i128::from(number)) };
    let mut emits = Vec::new();
    for part in 0..number % 5 {
        let mut fields = vec![("n", ScVal::U32(number)), ("part", ScVal::U32(part))];
        if number > 20 {
            fields.push(("wide", if number > 60 { wide.clone() } else { ScVal::I32(-1) }));
        }
        if number > 40 {
            fields.push(("list", list((0..part).map(|at| string(format!("{at}"))))));
        }
        emits.push(emit("t", fields));
    }
    if number.is_multiple_of(3) {
        emits.push(emit("u", [("note", string("x".repeat(number as usize % 2_000)))]));
    }
    program.run(emits).unwrap();
}

/// Feeds an owner's file from its watermark to the end of the log, in transactions of `batch` runs
/// of which `in_order` are given at once, with retries.
fn feed(tables: &Tables, program: &Program, batch: u64, in_order: usize) {
    let owner = owner("alice");
    let mut failures = 0;
    loop {
        let Ok(watermarks) = tables.watermarks(&owner) else {
            failures += 1;
            assert!(failures < 1_000, "it never comes up");
            continue;
        };
        let known = watermarks.get(&program.id).copied();
        let after = known.unwrap_or(0);
        if known.is_some() && after == program.end() {
            return;
        }
        let mut reached = after;
        let transactions = (0..in_order).map_while(|number| {
            let after = reached;
            reached = program.end().min(after + batch);
            (number == 0 || after < reached)
                .then(|| vec![program.definition(), program.between(after, reached)])
        });
        if tables.apply_in_order(&owner, transactions).is_err() {
            failures += 1;
            assert!(failures < 1_000, "it never gets anywhere");
        }
    }
}

#[test]
fn rows_survive_kills_exactly_once() {
    let world = World::new();
    let alice = owner("alice");
    let mut program = Program::new(1, "p");
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut kills = 0;
    let wanted = size::choose(30, 1_000);
    let mut number = 0;
    while kills < wanted {
        for _ in 0..random.random_range(1..200) {
            number += 1;
            run(&mut program, number);
        }
        let over = AtomicBool::new(false);
        let pause = Duration::from_micros(random.random_range(0..60_000));
        kills += thread::scope(|scope| {
            let killer = scope.spawn(|| {
                thread::sleep(pause);
                let process = world.tables.process(&alice);
                let busy = !over.load(Ordering::Acquire);
                // The worker may have been killed in the previous round.
                let killed = process.filter(|process| signal::send(*process, Signal::KILL));
                killed.map(|process| (process, busy))
            });
            feed(&world.tables, &program, random.random_range(1..60), random.random_range(1..6));
            over.store(true, Ordering::Release);
            let Some((process, busy)) = killer.join().unwrap() else { return 0 };
            let noticed = || world.tables.process(&alice) != Some(process);
            wait_until("the tables notice that their worker is gone", noticed);
            u64::from(busy)
        });
    }
    feed(&world.tables, &program, 1_000, 1);
    world.tables.set_complete(&alice).unwrap();
    check(&world, &program);
    // The file that survived the kills equals one that was fed without interruption.
    let calm = owner("calm");
    program.feed(&world.tables, &calm, 10_000);
    let digests = [&alice, &calm].map(|owner| world.tables.digest(owner).unwrap());
    assert_eq!(digests[0], digests[1]);
}

/// Compares the tables with the rows in memory: every row once, in order.
fn check(world: &World, program: &Program) {
    let alice = owner("alice");
    for target in ["t", "u"] {
        let rows: Vec<_> = program.rows.iter().filter(|row| row.emit.target == target).collect();
        let sql = format!(
            "SELECT count(*) AS n, count(DISTINCT _service_event_id) AS different
             FROM program_1_{target}"
        );
        let found = world.rows(&alice, &sql);
        assert_eq!(found[0]["n"], json!(rows.len()), "{target}");
        assert_eq!(found[0]["different"], json!(rows.len()), "{target}");
        for (page, rows) in rows.chunks(5_000).enumerate() {
            let sql = format!(
                "SELECT _service_event_id AS id FROM program_1_{target} LIMIT 5000 OFFSET {}",
                page * 5_000
            );
            let found = world.rows(&alice, &sql);
            let ids: Vec<String> = rows.iter().map(|row| row.event_id.to_string()).collect();
            let found: Vec<&str> =
                found.as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect();
            assert_eq!(found, ids, "{target}");
        }
    }
}

#[test]
fn rows_that_do_not_continue_the_stored_ones_are_refused() {
    let (world, alice) = (World::new(), owner("alice"));
    let mut program = Program::new(1, "p");
    (1..10).for_each(|number| run(&mut program, number));
    program.feed(&world.tables, &alice, 100);
    for change in [program.between(0, 9), program.between(3, 9)] {
        let error = world.tables.apply(&alice, vec![change]).unwrap_err();
        assert!(error.to_string().starts_with("program 1 has rows up to 9"), "{error}");
    }
    let unknown =
        Change::Rows { program: ProgramId(2), after: 0, up_to: 1, rows: Vec::new().into() };
    assert!(world.tables.apply(&alice, vec![unknown]).is_err());
    // Earlier changes of the same call are not applied either.
    let mut more = Program::new(3, "q");
    run(&mut more, 4);
    let changes = vec![more.definition(), more.between(0, 1), program.between(0, 9)];
    assert!(world.tables.apply(&alice, changes).is_err());
    assert_eq!(
        world.tables.watermarks(&alice).unwrap().into_iter().collect::<Vec<_>>(),
        [(program.id, 9)]
    );
    assert!(world.try_rows(&alice, "SELECT * FROM program_3_t").is_err());
    check(&world, &program);
}

#[test]
fn a_worker_ends_with_its_parent_and_the_next_reopens_its_file() {
    let mut world = World::new();
    let alice = owner("alice");
    let mut program = Program::new(1, "p");
    (1..10).for_each(|number| run(&mut program, number));
    program.feed(&world.tables, &alice, 100);
    let process = world.tables.process(&alice).unwrap();
    world.reopen();
    assert_eq!(world.tables.watermarks(&alice).unwrap()[&program.id], 9);
    assert_ne!(world.tables.process(&alice), Some(process));
    assert!(!std::path::Path::new(&format!("/proc/{process}")).exists());
}

#[test]
fn a_file_can_be_reopened_after_a_kill_during_any_alteration() {
    let (world, alice, calm) = (World::new(), owner("alice"), owner("calm"));
    let cases = evolution::changes();
    let mut programs: Vec<Program> =
        (1..).zip(&cases).map(|(id, _)| Program::new(id, &format!("p{id}"))).collect();
    let steps = cases.iter().map(|case| case.values.len()).max().unwrap();
    for step in 0..steps {
        let mut changes = Vec::new();
        for (case, program) in cases.iter().zip(&mut programs) {
            let before = program.end();
            if let Some(value) = case.values.get(step) {
                // Some runs fail and change nothing.
                let _ = program.run(vec![emit("t", [("v", value.clone())])]);
            }
            changes.push(program.definition());
            changes.push(program.between(before, program.end()));
        }
        world.tables.apply(&alice, changes).unwrap();
        world.tables.set_complete(&alice).unwrap();
        let process = world.tables.process(&alice).unwrap();
        assert!(signal::send(process, Signal::KILL));
        wait_until("it is gone", || world.tables.process(&alice).is_none());
        let watermarks = world.tables.watermarks(&alice).unwrap();
        for (case, program) in cases.iter().zip(&programs) {
            assert_eq!(watermarks[&program.id], program.end(), "{}, step {step}", case.name);
        }
        assert!(!world.tables.is_incomplete(&alice), "the file is the one that there was");
    }
    for program in &programs {
        program.feed(&world.tables, &calm, 1_000);
    }
    let digests = [&alice, &calm].map(|owner| world.tables.digest(owner).unwrap());
    assert_eq!(digests[0], digests[1]);
}
