//! How tables grow: fields are added, removed and changed, between runs and between versions of a
//! struct. No row is lost or altered, and a run with incompatible types fails as a whole.

use serde_json::{Value, json};
use stellar_xdr::{Int256Parts, ScVal};

use super::support::{Program, World, emit, owner};
use orrery_testkit::values::{bytes, i128, list, map, string, symbol, u128};

fn i256(number: i64) -> ScVal {
    let sign = if number < 0 { u64::MAX } else { 0 };
    ScVal::I256(Int256Parts {
        hi_hi: number >> 63,
        hi_lo: sign,
        lo_hi: sign,
        lo_lo: number.cast_unsigned(),
    })
}

/// Values of one column, each from a run of its own, and the expected result: the column's type and
/// its values, or the error of the run that fails.
pub struct Case {
    pub name: &'static str,
    pub values: Vec<ScVal>,
    after: Result<(&'static str, Value), &'static str>,
}

fn case(
    name: &'static str,
    values: impl IntoIterator<Item = ScVal>,
    after: Result<(&'static str, Value), &'static str>,
) -> Case {
    Case { name, values: values.into_iter().collect(), after }
}

fn pair() -> ScVal {
    list([symbol("Some"), ScVal::U64(1)])
}

fn tagged_pair() -> Value {
    json!({"vec": [{"symbol": "Some"}, {"u64": "1"}]})
}

pub fn changes() -> Vec<Case> {
    let (huge, all) = (i128::MIN.to_string(), u128::MAX.to_string());
    let int = |number| ScVal::I32(number);
    vec![
        case("u32 to u64", [ScVal::U32(7), ScVal::U64(8)], Ok(("UBIGINT", json!([7, 8])))),
        case("u64 then u32", [ScVal::U64(8), ScVal::U32(7)], Ok(("UBIGINT", json!([8, 7])))),
        case("signs meet", [ScVal::U32(u32::MAX), int(-1)], Ok(("BIGINT", json!([u32::MAX, -1])))),
        case("u64 meets i64", [ScVal::U64(1), ScVal::I64(-1)], Ok(("HUGEINT", json!([1, -1])))),
        case("to i128", [int(-5), i128(i128::MIN)], Ok(("HUGEINT", json!([-5, huge])))),
        case("u64 to u128", [ScVal::U64(5), u128(u128::MAX)], Ok(("UHUGEINT", json!([5, all])))),
        case("u128 meets i32", [u128(u128::MAX), int(-1)], Ok(("VARCHAR", json!([all, "-1"])))),
        case("to i256", [i128(i128::MIN), i256(-3)], Ok(("VARCHAR", json!([huge, "-3"])))),
        case("i256 then u32", [i256(-3), ScVal::U32(4)], Ok(("VARCHAR", json!(["-3", "4"])))),
        case(
            "three steps",
            [ScVal::U32(1), ScVal::I64(-2), i128(3), i256(4)],
            Ok(("VARCHAR", json!(["1", "-2", "3", "4"]))),
        ),
        case("null to number", [ScVal::Void, i128(1)], Ok(("HUGEINT", json!([null, 1])))),
        case("null to list", [ScVal::Void, list([int(1)])], Ok(("INTEGER[]", json!([null, [1]])))),
        case("number to null", [int(1), ScVal::Void], Ok(("INTEGER", json!([1, null])))),
        case("symbol and string", [symbol("a"), string("b")], Ok(("VARCHAR", json!(["a", "b"])))),
        case(
            "list widens inside",
            [list([ScVal::U32(1)]), list([i128(-2), ScVal::Void])],
            Ok(("HUGEINT[]", json!([[1], [-2, null]]))),
        ),
        case(
            "empty list to texts",
            [list([]), list([string("a")])],
            Ok(("VARCHAR[]", json!([[], ["a"]]))),
        ),
        case(
            "empty list to anything",
            [list([]), ScVal::Void, pair()],
            Ok(("JSON", json!([{"vec": []}, null, tagged_pair()]))),
        ),
        case(
            "anything then empty list",
            [pair(), list([])],
            Ok(("JSON", json!([tagged_pair(), {"vec": []}]))),
        ),
        case(
            "anything then a number",
            [pair(), ScVal::U32(3)],
            Ok(("JSON", json!([tagged_pair(), {"u32": 3}]))),
        ),
        case(
            "map widens inside",
            [map([(symbol("a"), int(1))]), map([(symbol("b"), ScVal::I64(i64::MIN))])],
            Ok(("MAP(VARCHAR, BIGINT)", json!([{"a": 1}, {"b": i64::MIN.to_string()}]))),
        ),
        case(
            "empty map to texts",
            [map([]), map([(ScVal::U32(1), string("x"))])],
            Ok(("MAP(UINTEGER, VARCHAR)", json!([{}, {"1": "x"}]))),
        ),
        case(
            "empty map to anything",
            [map([]), map([(symbol("a"), int(1)), (symbol("b"), symbol("c"))])],
            Ok((
                "JSON",
                json!([{"map": []}, {"map": [
                    {"key": {"symbol": "a"}, "val": {"i32": 1}},
                    {"key": {"symbol": "b"}, "val": {"symbol": "c"}},
                ]}]),
            )),
        ),
        case(
            "empty list to anything, inside a list",
            [list([list([]), ScVal::Void]), list([list([ScVal::Void])]), list([pair()])],
            Ok(("JSON[]", json!([[{"vec": []}, null], [{"vec": ["void"]}], [tagged_pair()]]))),
        ),
        case(
            "empty map to anything, inside a map",
            [
                map([(symbol("k"), map([]))]),
                map([(symbol("k"), map([(symbol("a"), int(1)), (symbol("b"), symbol("c"))]))]),
            ],
            Ok((
                "MAP(VARCHAR, JSON)",
                json!([{"k": {"map": []}}, {"k": {"map": [
                    {"key": {"symbol": "a"}, "val": {"i32": 1}},
                    {"key": {"symbol": "b"}, "val": {"symbol": "c"}},
                ]}}]),
            )),
        ),
        case(
            "list of nothing to anything",
            [list([ScVal::Void, ScVal::Void]), pair()],
            Ok(("JSON", json!([{"vec": ["void", "void"]}, tagged_pair()]))),
        ),
        case(
            "empty lists in lists widen",
            [list([list([])]), list([list([ScVal::U32(1)])]), list([list([i128(-1)])])],
            Ok(("HUGEINT[][]", json!([[[]], [[1]], [[-1]]]))),
        ),
        case(
            "keys that are lists",
            [map([(list([ScVal::U32(1)]), i128(1)), (list([ScVal::U64(1)]), i128(2))])],
            Ok((
                "JSON",
                json!([{"map": [
                    {"key": {"vec": [{"u32": 1}]}, "val": {"i128": "1"}},
                    {"key": {"vec": [{"u64": "1"}]}, "val": {"i128": "2"}},
                ]}]),
            )),
        ),
        case(
            "empty map to keys that are lists",
            [map([]), map([(list([symbol("a")]), int(1)), (list([string("a")]), int(2))])],
            Ok((
                "JSON",
                json!([{"map": []}, {"map": [
                    {"key": {"vec": [{"string": "a"}]}, "val": {"i32": 2}},
                    {"key": {"vec": [{"symbol": "a"}]}, "val": {"i32": 1}},
                ]}]),
            )),
        ),
        case(
            "number to text",
            [ScVal::U32(1), string("x")],
            Err("column 'v' of 't' expected UINTEGER and got VARCHAR"),
        ),
        case(
            "text to bytes",
            [symbol("x"), bytes(&[1])],
            Err("column 'v' of 't' expected VARCHAR and got BLOB"),
        ),
        case(
            "bool to number",
            [ScVal::Bool(true), ScVal::U32(1)],
            Err("column 'v' of 't' expected BOOLEAN and got UINTEGER"),
        ),
        case(
            "text to digits",
            [symbol("x"), i256(1)],
            Err("column 'v' of 't' expected VARCHAR and got a 256-bit integer"),
        ),
        case(
            "list to scalar",
            [list([int(1)]), int(1)],
            Err("column 'v' of 't' expected INTEGER[] and got INTEGER"),
        ),
        case(
            "inside a list",
            [list([int(1)]), list([int(2), symbol("x")])],
            Err("column 'v[]' of 't' expected INTEGER and got VARCHAR"),
        ),
        case(
            "inside a map",
            [map([(symbol("a"), int(1))]), map([(symbol("a"), bytes(&[]))])],
            Err("column 'v[value]' of 't' expected INTEGER and got BLOB"),
        ),
        case(
            "list to anything",
            [list([symbol("a")]), pair()],
            Err("column 'v[]' of 't' expected VARCHAR and got UBIGINT"),
        ),
    ]
}

#[test]
fn a_changed_field_type_widens_or_fails_the_run() {
    let (world, owner) = (World::new(), owner("alice"));
    let cases = changes();
    assert!(cases.len() >= 30, "{}", cases.len());
    for (id, Case { name, values, after }) in (1..).zip(cases) {
        let mut program = Program::new(id, "p");
        let mut admitted = Vec::new();
        let mut failed = None;
        for value in values {
            // A valid emit is not admitted without the other one of its run.
            let emits = vec![emit("other", [("n", ScVal::U32(1))]), emit("t", [("v", value)])];
            let before = program.rows.len();
            match program.run(emits) {
                Ok(()) => admitted.push(program.log.len()),
                Err(error) => {
                    assert_eq!(program.rows.len(), before);
                    failed = Some(error.to_string());
                }
            }
            // Every step is fed, so that the table has to change in place.
            program.feed(&world.tables, &owner, 1);
        }
        let rows = world.rows(
            &owner,
            &format!("SELECT v, typeof(v) AS t FROM program_{id}_t ORDER BY _ledger"),
        );
        let counted = world.rows(&owner, &format!("SELECT count(*) AS n FROM program_{id}_other"));
        assert_eq!(counted[0]["n"], json!(admitted.len()), "{name}: no row is lost");
        match after {
            Ok((kind, shown)) => {
                assert_eq!(failed, None, "{name}");
                let values: Vec<&Value> =
                    rows.as_array().unwrap().iter().map(|row| &row["v"]).collect();
                assert_eq!(json!(values), shown, "{name}");
                assert_eq!(rows[0]["t"], kind, "{name}");
            }
            Err(sentence) => {
                assert_eq!(failed.as_deref(), Some(sentence), "{name}");
                assert_eq!(rows.as_array().unwrap().len(), admitted.len(), "{name}");
            }
        }
    }
}

#[test]
fn fields_and_structs_may_be_added_and_removed() {
    let (world, owner) = (World::new(), owner("alice"));
    let mut program = Program::new(1, "pool");
    let runs = [
        vec![emit("t", [("a", ScVal::U32(1)), ("b", symbol("x"))])],
        vec![emit("t", [("b", symbol("y")), ("c", i128(3))])],
        vec![emit("u", [("z", ScVal::Bool(true))]), emit("t", [])],
        vec![emit("t", [("c", i128(4)), ("a", ScVal::U64(2)), ("d", list([]))])],
    ];
    for run in runs {
        program.run(run).unwrap();
        program.feed(&world.tables, &owner, 1);
    }
    let expected = json!([
        {"a": 1, "b": "x", "c": null, "d": null},
        {"a": null, "b": "y", "c": 3, "d": null},
        {"a": null, "b": null, "c": null, "d": null},
        {"a": 2, "b": null, "c": 4, "d": []},
    ]);
    for table in ["program_1_t", "pool_t"] {
        let sql = format!("SELECT a, b, c, d FROM {table} ORDER BY _ledger");
        assert_eq!(world.rows(&owner, &sql), expected, "{table}");
    }
    assert_eq!(world.rows(&owner, "SELECT z FROM pool_u"), json!([{"z": true}]));
}

#[test]
fn a_file_grown_in_steps_equals_one_filled_at_once() {
    let (world, stepwise, at_once) = (World::new(), owner("stepwise"), owner("at once"));
    let mut programs = Vec::new();
    for (id, Case { values, .. }) in (1..).zip(changes()) {
        let mut program = Program::new(id, &format!("p{id}"));
        for value in values {
            // Failed runs add no rows to either.
            let _ = program.run(vec![emit("t", [("v", value)])]);
            program.feed(&world.tables, &stepwise, 1);
        }
        programs.push(program);
    }
    for program in &programs {
        program.feed(&world.tables, &at_once, 1_000);
    }
    assert_eq!(world.tables.digest(&stepwise).unwrap(), world.tables.digest(&at_once).unwrap());
}

#[test]
fn every_project_has_its_own_schema_despite_similar_names() {
    let (world, owner) = (World::new(), owner("alice"));
    // `a` + `b_c` and `a_b` + `c` are the same name when joined with `_`.
    let mut programs = Vec::new();
    let projects = [("a", "b_c"), ("a_b", "c"), ("A-1", "main"), ("main", "t"), ("tables", "t")];
    let more = ["orrery", "Retroshade", "system", "temp", "memory", "information_schema"];
    let more = more.iter().map(|project| (*project, "t"));
    for (id, (project, target)) in (1..).zip(projects.into_iter().chain(more)) {
        let mut program = Program::new(id, project);
        program.run(vec![emit(target, [("n", ScVal::U32(id))])]).unwrap();
        program.feed(&world.tables, &owner, 1);
        programs.push(program);
    }
    for (sql, n) in [
        ("SELECT n FROM a.b_c", 1),
        ("SELECT n FROM A_b.C", 2),
        ("SELECT n FROM retroshade.a_b_c", 1),
        ("SELECT x.n FROM \"a-1\".main x", 3),
        ("SELECT n FROM main_t", 4),
        ("SELECT n FROM tables_t", 5),
        ("SELECT n FROM orrery_t", 6),
        ("SELECT n FROM retroshade_t", 7),
        ("SELECT a.b_c.n FROM a.b_c", 1),
    ] {
        assert_eq!(world.rows(&owner, sql), json!([{"n": n}]), "{sql}");
    }
    let described = world.rows(&owner, "DESCRIBE a.b_c");
    assert_eq!(described[0]["column_name"], "n", "{described}");
    assert_eq!(described[5]["column_name"], "_service_event_id", "{described}");
    for sql in [
        "FROM main.t",
        "FROM orrery.programs",
        "FROM orrery.t",
        "FROM system.t",
        "FROM tables.t",
        "FROM pg_catalog.pg_class",
        "FROM information_schema.t",
        "FROM a.nothing",
        "FROM b.c",
    ] {
        let refused = world.try_rows(&owner, sql).unwrap_err().to_string();
        assert!(refused.contains("is not one of yours"), "{sql}: {refused}");
    }
    // A schema is dropped with its project, and a new project may take its name.
    let gone = vec![orrery_tables::Change::Drop { program: programs[0].id }];
    world.tables.apply(&owner, gone).unwrap();
    assert!(world.try_rows(&owner, "FROM a.b_c").is_err());
    assert_eq!(world.rows(&owner, "SELECT n FROM a_b_c"), json!([{"n": 2}]));
    let mut again = Program::new(20, "A");
    again.run(vec![emit("d", [("n", ScVal::U32(20))])]).unwrap();
    again.feed(&world.tables, &owner, 1);
    assert_eq!(world.rows(&owner, "SELECT n FROM a.d"), json!([{"n": 20}]));
}

#[test]
fn views_of_a_program_are_kept_when_another_program_changes() {
    // Without the protections around SQL, DuckDB's catalogue of views can be queried.
    let world = World::with(|settings| {
        settings.tunables.protections.gate = false;
        settings.tunables.protections.lock = false;
    });
    let owner = owner("alice");
    let mut one = Program::new(1, "one");
    one.run(vec![emit("t", [("n", ScVal::U32(1))])]).unwrap();
    one.feed(&world.tables, &owner, 1);
    let views = |project: &str| {
        let sql = format!(
            "SELECT view_oid FROM duckdb_views() WHERE view_name = '{project}_t'
             OR schema_name = '{project}' ORDER BY view_oid"
        );
        let found = world.rows(&owner, &sql);
        assert_eq!(found.as_array().unwrap().len(), 2, "{found}");
        found
    };
    let before = views("one");
    let mut other = Program::new(2, "other");
    other.run(vec![emit("t", [("n", ScVal::U32(1))])]).unwrap();
    other.feed(&world.tables, &owner, 1);
    let others = views("other");
    other.run(vec![emit("t", [("n", i128(1)), ("more", symbol("x"))])]).unwrap();
    other.feed(&world.tables, &owner, 1);
    assert_eq!(views("one"), before);
    assert_ne!(views("other"), others, "it shows the new column");
    let rows = world.rows(&owner, "SELECT n, more FROM other.t");
    assert_eq!(rows, json!([{"n": 1, "more": null}, {"n": 1, "more": "x"}]));
}

#[test]
fn tables_with_incompatible_types_are_recreated() {
    let (world, owner) = (World::new(), owner("alice"));
    let (mut program, mut neighbour) = (Program::new(1, "p"), Program::new(2, "q"));
    for number in 0..3 {
        program.run(vec![emit("t", [("v", ScVal::U32(number))])]).unwrap();
        neighbour.run(vec![emit("t", [("v", ScVal::U32(number))])]).unwrap();
    }
    program.feed(&world.tables, &owner, 10);
    neighbour.feed(&world.tables, &owner, 10);
    // The same program, as if another version of the service had defined it.
    let mut other = Program::new(1, "p");
    for number in 0..3 {
        other.run(vec![emit("t", [("v", list([symbol("Some"), ScVal::U32(number)]))])]).unwrap();
    }
    world.tables.apply(&owner, vec![other.definition()]).unwrap();
    let watermarks = world.tables.watermarks(&owner).unwrap();
    assert_eq!(watermarks.into_iter().collect::<Vec<_>>(), [(program.id, 0), (neighbour.id, 3)]);
    world.tables.apply(&owner, vec![other.between(0, 2)]).unwrap();
    let before = json!([{"v": 0}, {"v": 1}, {"v": 2}]);
    assert_eq!(world.rows(&owner, "SELECT v FROM p.t"), before, "until all rows are there");
    world.tables.apply(&owner, vec![other.between(2, 3)]).unwrap();
    let tagged = |number| json!({"v": {"vec": [{"symbol": "Some"}, {"u32": number}]}});
    let all: Vec<_> = (0..3).map(tagged).collect();
    assert_eq!(world.rows(&owner, "SELECT v FROM p.t"), json!(all));
    assert_eq!(world.rows(&owner, "SELECT count(*) AS n FROM q.t"), json!([{"n": 3}]));
}

#[test]
fn queries_of_a_project_work_across_a_redeploy() {
    let (world, owner) = (World::new(), owner("alice"));
    let mut old = Program::new(1, "pool");
    old.run(vec![emit("swap", [("amount", ScVal::U32(1))])]).unwrap();
    old.feed(&world.tables, &owner, 1);
    let mut new = Program::new(2, "pool");
    new.run(vec![emit("swap", [("amount", i128(2)), ("fee", ScVal::U32(3))])]).unwrap();
    world
        .tables
        .apply(
            &owner,
            vec![
                orrery_tables::Change::Drop { program: old.id },
                new.definition(),
                new.between(0, 1),
            ],
        )
        .unwrap();
    assert_eq!(
        world.rows(&owner, "SELECT amount FROM retroshade.pool_swap"),
        json!([{"amount": 2}])
    );
    let gone = world.try_rows(&owner, "SELECT * FROM retroshade.program_1_swap").unwrap_err();
    assert!(gone.to_string().contains("program_1_swap does not exist"), "{gone}");
    assert_eq!(
        world.tables.watermarks(&owner).unwrap().into_iter().collect::<Vec<_>>(),
        [(new.id, 1)]
    );
}
