//! Owners are isolated from each other, whatever their names are.

use std::collections::BTreeSet;
use std::fs;

use orrery_tables::Change;
use orrery_tables::query::QueryError;
use serde_json::json;
use stellar_xdr::ScVal;

use super::support::{Program, World, emit, owner};

#[test]
fn each_owner_has_its_own_file_and_process() {
    let world = World::new();
    let long = "x".repeat(5_000);
    let names = [
        "alice",
        "Alice",
        "ALICE",
        "",
        ".",
        "..",
        "a/b",
        "../alice",
        "a\0b",
        "grün",
        "a b",
        "-rf",
        "CON",
        long.as_str(),
        "owner",
        "tables.duckdb",
    ];
    let mut processes = BTreeSet::new();
    for (id, name) in (1..).zip(names) {
        let mut program = Program::new(id, "p");
        program.run(vec![emit("t", [("n", ScVal::U32(id))])]).unwrap();
        program.feed(&world.tables, &owner(name), 1);
        processes.insert(world.tables.process(&owner(name)).unwrap());
    }
    assert_eq!(processes.len(), names.len());
    let directories = fs::read_dir(&world.settings.directory).unwrap();
    let folded: BTreeSet<String> = directories
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().to_ascii_lowercase())
        .collect();
    assert_eq!(folded.len(), names.len());
    for (id, name) in (1..).zip(names) {
        let owner = owner(name);
        assert_eq!(world.rows(&owner, "SELECT n FROM p_t"), json!([{"n": id}]), "{name}");
        let tables = world.rows(
            &owner,
            "SELECT table_name AS t FROM information_schema.tables WHERE table_schema = 'retroshade'
             ORDER BY 1",
        );
        assert_eq!(tables, json!([{"t": "p_t"}, {"t": format!("program_{id}_t")}]), "{name}");
        let next = id % u32::try_from(names.len()).unwrap() + 1;
        for table in [format!("program_{next}_t"), format!("retroshade.program_{next}_t")] {
            let sql = format!("SELECT * FROM {table}");
            let refused = world.try_rows(&owner, &sql).unwrap_err();
            assert!(matches!(refused, QueryError::Refused(_)), "{name}: {refused}");
            assert!(!refused.to_string().contains(&format!("n\": {next}")));
        }
    }
}

/// The names of tables are known before the first query can come.
#[test]
fn the_first_query_after_a_start_finds_all_tables() {
    let (world, alice) = (World::new(), owner("alice"));
    for id in 1..=40 {
        let mut program = Program::new(id, &format!("p{id}"));
        program.run(vec![emit("t", [("n", ScVal::U32(id))])]).unwrap();
        program.feed(&world.tables, &alice, 1);
    }
    for round in 0..40 {
        world.tables.close();
        let rows = world.try_rows(&alice, "SELECT n FROM p40.t");
        assert_eq!(rows.unwrap(), json!([{"n": 40}]), "start {round}");
    }
}

#[test]
fn a_public_program_never_shadows_an_owned_one() {
    let (world, alice) = (World::new(), owner("alice"));
    let program = |id: u32, project: &str, value: u32| {
        let mut program = Program::new(id, project);
        program.run(vec![emit("swap", [("n", ScVal::U32(value))])]).unwrap();
        program
    };
    let define = |program: &Program, own: bool| match program.definition() {
        Change::Program { id, project, schema, .. } => Change::Program { id, project, own, schema },
        other => other,
    };
    // Another owner's public program has the same name and is there first; a third program has a
    // project named like a table.
    let (foreign, own) = (program(1, "POOL", 1), program(2, "pool", 2));
    let trap = program(3, "program_2", 3);
    for (program, own) in [(&foreign, false), (&trap, false), (&own, true)] {
        world.tables.apply(&alice, vec![define(program, own), program.between(0, 1)]).unwrap();
    }
    world.tables.set_complete(&alice).unwrap();
    for (table, value) in
        [("pool_swap", 2), ("program_1_swap", 1), ("program_2_swap", 2), ("program_3_swap", 3)]
    {
        let rows = world.rows(&alice, &format!("SELECT n FROM {table}"));
        assert_eq!(rows, json!([{"n": value}]), "{table}");
    }
    // Once the own program is dropped, the name is free.
    world.tables.apply(&alice, vec![Change::Drop { program: own.id }]).unwrap();
    assert_eq!(world.rows(&alice, "SELECT n FROM pool_swap"), json!([{"n": 1}]));
}
