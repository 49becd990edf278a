//! Random histories of programs: whatever they emit, in any order, in any number of steps and with
//! workers killed in between, the tables equal, cell by cell, those built from the same rows at
//! once. Another owner's tables do not change.
//!
//! Small: 96 histories; full: 20,000.

use orrery_ledger::domain::LedgerSeq;
use orrery_tables::schema::{ProgramSchema, SchemaLimits};
use orrery_tables::{Change, Tables};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use stellar_xdr::ScVal;

use super::support::{Program, World, emit, owner};
use orrery_testkit::random_values::{self, Template};
use orrery_testkit::signal::{self, Signal};
use orrery_testkit::size;
use orrery_testkit::values::{list, map};

/// Number of histories that go into one file side by side, so that they share commits.
const TOGETHER: u32 = 24;
/// Number of runs of a history.
const RUNS: std::ops::RangeInclusive<u32> = 3..=9;
/// One in this many groups has its worker killed between steps.
const KILLED: u64 = 4;

const TARGETS: [&str; 3] = ["t", "u", random_values::SPECIFIED];
const FIELDS: [&str; 4] = ["a", "b", "c", "d"];

/// A program, and templates for the fields of its tables.
struct History {
    program: Program,
    fields: Vec<Vec<Template>>,
    runs: u32,
    refused: u32,
}

impl History {
    fn new(id: u32, random: &mut ChaCha8Rng) -> Self {
        let fields = TARGETS.map(|target| match target {
            random_values::SPECIFIED => random_values::specified(),
            _ => FIELDS.map(|_| random_values::template(random, 3)).to_vec(),
        });
        let runs = random.random_range(RUNS);
        let mut program = Program::new(id, &format!("p{id}"));
        let emits = |target: &str| target == random_values::SPECIFIED;
        let limits = SchemaLimits::default();
        program.schema =
            ProgramSchema::from_spec(&random_values::specification(), emits, limits).unwrap();
        Self { program, fields: fields.to_vec(), runs, refused: 0 }
    }

    /// Runs the program once, on a random ledger, because backfills run older ledgers after newer
    /// ones.
    fn run(&mut self, random: &mut ChaCha8Rng) {
        let emits = (0..random.random_range(0..4)).map(|_| {
            let target = random.random_range(0..TARGETS.len());
            let mut fields: Vec<(&'static str, ScVal)> = Vec::new();
            for (name, template) in FIELDS.iter().zip(&self.fields[target]) {
                if random.random_bool(0.7) {
                    fields.push((*name, random_values::value(random, template)));
                }
            }
            emit(TARGETS[target], fields)
        });
        let emits = emits.collect();
        let before = self.program.rows.len();
        if self.program.run(emits).is_err() {
            self.refused += 1;
        }
        let ledger = LedgerSeq(random.random_range(1..100_000));
        self.program.rows[before..].iter_mut().for_each(|row| row.ledger = ledger);
    }
}

/// Feeds the missing rows of all histories to an owner's file, in small steps and with retries.
fn feed(tables: &Tables, histories: &[History], random: &mut ChaCha8Rng) {
    let alice = owner("grown");
    for _ in 0..200 {
        let Ok(mut watermarks) = tables.watermarks(&alice) else { continue };
        let mut behind = true;
        let transactions = (0..random.random_range(1..4)).map_while(|_| {
            if !std::mem::replace(&mut behind, false) {
                return None;
            }
            let mut changes = Vec::new();
            for History { program, .. } in histories {
                let reached = watermarks.entry(program.id).or_insert(0);
                let after = *reached;
                changes.push(program.definition());
                *reached = program.end().min(after + random.random_range(1..4));
                if after < *reached {
                    changes.push(program.between(after, *reached));
                }
                behind |= *reached < program.end();
            }
            Some(changes)
        });
        match tables.apply_in_order(&alice, transactions) {
            Ok(()) if !behind => return,
            Ok(()) => {}
            // The worker was killed.
            Err(error) => assert!(
                error.to_string().contains("process that keeps the tables has ended"),
                "{error}"
            ),
        }
    }
    panic!("it never gets there");
}

/// Returns the types of a table's columns and all its cells, as queries return them.
fn cells(world: &World, owner_name: &str, table: &str) -> String {
    let owner = owner(owner_name);
    let columns = world.try_rows(&owner, &format!("DESCRIBE {table}"));
    let rows = world.try_rows(&owner, &format!("FROM {table}"));
    match (columns, rows) {
        (Ok(columns), Ok(rows)) => format!("{columns}\n{rows}"),
        (columns, rows) => format!("{columns:?} {rows:?}"),
    }
}

#[test]
fn grown_tables_equal_rebuilt_ones_and_others_do_not_change() {
    let (world, other) = (World::new(), owner("bystander"));
    let grown = owner("grown");
    let mut bystander = Program::new(1, "quiet");
    for number in 0..50 {
        bystander.run(vec![emit("t", [("n", ScVal::U32(number))])]).unwrap();
    }
    bystander.feed(&world.tables, &other, 100);
    let before = world.tables.digest(&other).unwrap();
    let wanted = size::choose(96, 20_000);
    let (mut made, mut group, mut rows, mut refused, mut kills) = (0, 0_u64, 0, 0, 0);
    while made < wanted {
        let mut random = ChaCha8Rng::seed_from_u64(group);
        let mut histories: Vec<History> =
            (0..TOGETHER).map(|at| History::new(2 + at, &mut random)).collect();
        let killed = group % KILLED == KILLED - 1;
        while histories.iter().any(|history| history.runs > 0) {
            for history in histories.iter_mut().filter(|history| history.runs > 0) {
                let runs = random.random_range(1..=3).min(history.runs);
                history.runs -= runs;
                (0..runs).for_each(|_| history.run(&mut random));
            }
            feed(&world.tables, &histories, &mut random);
            if killed && let Some(process) = world.tables.process(&grown) {
                kills += u64::from(signal::send(process, Signal::KILL));
            }
        }
        world.tables.set_complete(&grown).unwrap();
        compare(&world, &histories, group);
        refused += histories.iter().map(|it| it.refused).sum::<u32>();
        rows += histories.iter().map(|it| it.program.rows.len()).sum::<usize>();
        let drop = |owner_name: &str| {
            let gone = histories.iter().map(|it| Change::Drop { program: it.program.id });
            world.tables.apply(&owner(owner_name), gone.collect()).unwrap();
        };
        drop("grown");
        drop("rebuilt");
        made += u64::from(TOGETHER);
        group += 1;
    }
    println!("{made} histories, {rows} rows, {refused} runs refused, {kills} kills");
    assert!(rows as u64 > made, "most of it is admitted");
    assert_eq!(world.tables.digest(&other).unwrap(), before);
    assert_eq!(world.rows(&other, "SELECT count(*) AS n FROM quiet.t"), json!([{"n": 50}]));
    // Killing a worker leaves no damage.
    let files = std::fs::read_dir(world.tables.directory(&grown)).unwrap();
    let names = files.map(|file| file.unwrap().file_name().to_string_lossy().into_owned());
    assert_eq!(names.filter(|name| name.starts_with("damaged")).count(), 0);
}

fn compare(world: &World, histories: &[History], group: u64) {
    let rebuilt = owner("rebuilt");
    let mut changes = Vec::new();
    for History { program, .. } in histories {
        changes.extend([program.definition(), program.between(0, program.end())]);
    }
    world.tables.apply(&rebuilt, changes).unwrap();
    world.tables.set_complete(&rebuilt).unwrap();
    let digest = |name: &str| world.tables.digest(&owner(name)).unwrap();
    let same = digest("grown") == digest("rebuilt");
    let (mut counts, mut expected) = (Vec::new(), Vec::new());
    for History { program, .. } in histories {
        for table in program.schema.tables() {
            let name = format!("program_{}_{}", program.id, table.target);
            if !same {
                // Shows which table differs, and the rows that led to it.
                let [one, other] = ["grown", "rebuilt"].map(|owner| cells(world, owner, &name));
                assert_eq!(one, other, "group {group}, {name}: {:?}", program.rows);
            }
            counts.push(format!("SELECT count(*) AS n FROM {name}"));
            let emitted = program.rows.iter().filter(|row| row.emit.target == table.target);
            expected.push(json!({"n": emitted.count()}));
        }
    }
    assert!(same, "group {group}: views or watermarks differ");
    assert_eq!(world.rows(&rebuilt, &counts.join(" UNION ALL ")), json!(expected));
}

#[test]
fn admitted_keys_of_one_map_are_distinct_in_sql() {
    let (world, alice) = (World::new(), owner("alice"));
    let mut random = ChaCha8Rng::seed_from_u64(99);
    let wanted = size::choose(400, 20_000);
    let mut program = Program::new(1, "maps");
    let mut lengths = Vec::new();
    for number in 0..wanted {
        // Each kind of key has a field of its own, whose types meet and widen.
        let keys = random_values::key_template(&mut random);
        let value = random_values::map_of(&mut random, &keys, &Template::Int, 6);
        let ScVal::Map(Some(entries)) = &value else { panic!("it is a map") };
        let length = entries.len();
        let target = keys.name();
        if program.run(vec![emit(target, [("v", value.clone())])]).is_ok() {
            lengths.push((number, target, length));
        }
    }
    program.feed(&world.tables, &alice, 50);
    let mut maps = 0;
    for target in random_values::KEYS {
        let table = format!("program_1_{target}");
        let kind = world.rows(&alice, &format!("SELECT typeof(v) AS t FROM {table} LIMIT 1"));
        let Some(kind) = kind[0]["t"].as_str() else { continue };
        let sql = if kind.starts_with("MAP(") {
            maps += 1;
            "len(list_distinct(map_keys(v)))"
        } else {
            assert_eq!(kind, "JSON", "{target}");
            "json_array_length(v, '$.map')"
        };
        let found = world.rows(&alice, &format!("SELECT {sql} AS n FROM {table}"));
        let found: Vec<u64> =
            found.as_array().unwrap().iter().map(|row| row["n"].as_u64().unwrap()).collect();
        let expected: Vec<u64> = lengths
            .iter()
            .filter(|(_, name, _)| *name == target)
            .map(|(_, _, length)| *length as u64)
            .collect();
        assert_eq!(found, expected, "{target}");
    }
    assert!(maps >= 3, "keys of numbers, texts and bytes make maps");
}

#[test]
fn structs_with_too_many_missing_fields_fail_the_run() {
    let (world, alice) = (World::new(), owner("alice"));
    let mut program = Program::new(1, "p");
    let limits = SchemaLimits::default();
    program.schema =
        ProgramSchema::from_spec(&random_values::specification(), |target| target == "s", limits)
            .unwrap();
    // Each empty map is a struct without its two fields: null cells that the program never emitted.
    let emits = |count: usize| vec![emit("s", [("a", list(vec![map([]); count]))])];
    program.run(emits(5_000)).unwrap();
    let refused = program.run(emits(5_001)).unwrap_err().to_string();
    assert!(refused.contains("leave out more than 10000 fields"), "{refused}");
    program.feed(&world.tables, &alice, 1);
    assert_eq!(world.rows(&alice, "SELECT len(a) AS n FROM p.s"), json!([{"n": 5_000}]));
}
