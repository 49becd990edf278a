//! Transactions that are sent while the one before is committed: one that fails, for whichever
//! reason and at whichever place, ends the ones after it, and the ones before it are kept.

use std::panic::{AssertUnwindSafe, catch_unwind};

use orrery_tables::{Change, NewRows};

use super::support::{Program, World, emit, owner};
use orrery_testkit::values::{i128, string, u128};

/// Transactions of each call.
const TRANSACTIONS: u64 = 4;
/// Runs of each transaction: fewer and more rows than a frame has.
const RUNS: [u64; 2] = [3, 3_000];

/// How a transaction fails.
#[derive(Debug, Clone, Copy)]
enum Failure {
    /// Its rows do not continue those of the file: found before its rows are packed.
    OutOfStep,
    /// A value does not have the type of its column: found when the rows are packed.
    NotAdmitted,
    /// A number is outside of the range of its column: found by DuckDB, and reported by the commit.
    Refused,
}

/// Returns the rows of one transaction, changed so that it fails.
fn fails(program: &Program, after: u64, runs: u64, failure: Failure) -> Change {
    let mut change = program.between(after, after + runs);
    let Change::Rows { after: begin, rows: NewRows::Emits(rows), .. } = &mut change else {
        panic!("not rows")
    };
    let last = rows.last_mut().unwrap();
    match failure {
        Failure::OutOfStep => *begin += 1,
        Failure::NotAdmitted => last.emit = emit("t", [("number", string("seven"))]),
        Failure::Refused => last.emit = emit("t", [("number", i128(-1))]),
    }
    change
}

#[test]
fn a_failed_transaction_aborts_the_following_ones() {
    let world = World::new();
    for runs in RUNS {
        let mut program = Program::new(1, "p");
        for number in 0..u32::try_from(runs * TRANSACTIONS).unwrap() {
            program.run(vec![emit("t", [("number", u128(u128::from(number)))])]).unwrap();
        }
        let whole = owner(&format!("whole-{runs}"));
        program.feed(&world.tables, &whole, runs);
        for failure in [Failure::OutOfStep, Failure::NotAdmitted, Failure::Refused] {
            for failing in 0..TRANSACTIONS {
                let what = format!("{failure:?} in transaction {failing} of {runs} runs each");
                let owner = owner(&format!("{failure:?}-{failing}-{runs}"));
                world.tables.apply(&owner, vec![program.definition()]).unwrap();
                let mut taken = 0;
                let transactions = (0..TRANSACTIONS).map(|number| {
                    taken = number;
                    let after = number * runs;
                    vec![match number == failing {
                        true => fails(&program, after, runs, failure),
                        false => program.between(after, after + runs),
                    }]
                });
                let error = world.tables.apply_in_order(&owner, transactions).unwrap_err();
                let part = match failure {
                    Failure::OutOfStep => "and these come after",
                    Failure::NotAdmitted => "cannot hold this value: ",
                    Failure::Refused => "DuckDB rejects the change: ",
                };
                assert!(error.to_string().contains(part), "{what}: {error}");
                // Only what DuckDB refuses is known when the next transaction is on its way.
                let ahead = u64::from(matches!(failure, Failure::Refused));
                assert_eq!(taken, (failing + ahead).min(TRANSACTIONS - 1), "{what}");
                let reached = world.tables.watermarks(&owner).unwrap()[&program.id];
                assert_eq!(reached, failing * runs, "{what}");
                world.tables.set_complete(&owner).unwrap();
                let count = world.rows(&owner, "SELECT count(*) AS n FROM program_1_t");
                assert_eq!(count[0]["n"], failing * runs, "{what}");
                // The file takes what was refused with the failing transaction.
                program.feed(&world.tables, &owner, runs);
                let digests = [&owner, &whole].map(|owner| world.tables.digest(owner).unwrap());
                assert_eq!(digests[0], digests[1], "{what}");
            }
        }
    }
}

#[test]
fn a_panic_of_the_iterator_duplicates_no_row() {
    let (world, owner) = (World::new(), owner("alice"));
    let mut program = Program::new(1, "p");
    for number in 0..u32::try_from(TRANSACTIONS).unwrap() {
        program.run(vec![emit("t", [("number", u128(u128::from(number)))])]).unwrap();
    }
    world.tables.apply(&owner, vec![program.definition()]).unwrap();
    let transactions = (0..TRANSACTIONS).map(|number| {
        assert!(number < 2, "on purpose, while the second transaction is committed");
        vec![program.between(number, number + 1)]
    });
    let applied = || world.tables.apply_in_order(&owner, transactions);
    assert!(catch_unwind(AssertUnwindSafe(applied)).is_err());
    program.feed(&world.tables, &owner, 1);
    let count = world.rows(&owner, "SELECT count(*) AS n FROM program_1_t");
    assert_eq!(count[0]["n"], TRANSACTIONS);
}
