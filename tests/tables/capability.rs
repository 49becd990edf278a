//! Common SQL works and gives exact answers.

use serde_json::Value;
use stellar_xdr::ScVal;

use super::corpus_capability::ANSWERS;
use super::support::{Program, World, emit, owner};
use orrery_testkit::values::{i128, list, map, symbol, u128};

/// The events of a small exchange.
fn exchange() -> Program {
    let mut program = Program::new(1, "dex");
    let tags = |tags: &[&str]| list(tags.iter().map(|tag| symbol(tag)));
    let meta = |entries: &[(&str, u64)]| {
        map(entries.iter().map(|(key, value)| (symbol(key), ScVal::U64(*value))))
    };
    let state = |kind: &str, number| list([symbol(kind), ScVal::U64(number)]);
    let swaps = [
        (
            "xlm_usdc",
            i128(1_000),
            30,
            "ann",
            tags(&["a", "b"]),
            meta(&[("hops", 1)]),
            state("Filled", 10),
        ),
        (
            "xlm_usdc",
            i128(-250),
            30,
            "bob",
            tags(&["a"]),
            meta(&[("hops", 2), ("via", 7)]),
            state("Filled", 20),
        ),
        ("btc_usdc", i128(10i128.pow(30)), 5, "ann", tags(&[]), meta(&[]), state("Open", 0)),
        ("btc_usdc", i128(4), 5, "cid", tags(&["c"]), meta(&[("hops", 3)]), state("Filled", 5)),
        ("eth_usdc", ScVal::Void, 10, "bob", ScVal::Void, ScVal::Void, state("Open", 1)),
        (
            "xlm_usdc",
            i128(50),
            30,
            "ann",
            tags(&["b", "c"]),
            meta(&[("hops", 1)]),
            state("Filled", 30),
        ),
    ];
    for (number, (pool, amount, fee, buyer, tags, meta, state)) in (1..).zip(swaps) {
        let fields = [
            ("n", ScVal::U32(number)),
            ("pool", symbol(pool)),
            ("amount", amount),
            ("fee", ScVal::U32(fee)),
            ("buyer", symbol(buyer)),
            ("tags", tags),
            ("meta", meta),
            ("state", state),
        ];
        program.run(vec![emit("swap", fields)]).unwrap();
    }
    for (name, tvl, u) in [("xlm_usdc", 5, 0), ("btc_usdc", 7, 1), ("big", 0, u128::MAX)] {
        let fields = [("name", symbol(name)), ("tvl", ScVal::U32(tvl)), ("u", u128(u))];
        program.run(vec![emit("pool", fields)]).unwrap();
    }
    program
}

/// A table with the maximum number of columns.
fn wide() -> Program {
    let mut program = Program::new(2, "dex");
    let fields = (0..100u32).map(|number| {
        let name: &'static str = Box::leak(format!("c{number}").into_boxed_str());
        (name, ScVal::U32(number))
    });
    program.run(vec![emit("wide", fields)]).unwrap();
    program
}

#[test]
fn common_queries_are_answered() {
    assert!(ANSWERS.len() >= 120, "{}", ANSWERS.len());
    let (world, alice) = (World::new(), owner("alice"));
    exchange().feed(&world.tables, &alice, 4);
    let mut wrong = Vec::new();
    for (sql, expected) in ANSWERS {
        if sql.contains("dex_wide") {
            wide().feed(&world.tables, &alice, 1);
        }
        let expected: Value =
            serde_json::from_str(expected).unwrap_or_else(|error| panic!("{sql}: {error}"));
        match world.try_rows(&alice, sql) {
            Ok(rows) if rows == expected => {}
            other => wrong.push(format!("{sql}\n  expected {expected}\n  got      {other:?}")),
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), ANSWERS.len(), wrong.join("\n"));
}

#[test]
fn explain_works_and_errors_have_a_position() {
    let (world, alice) = (World::new(), owner("alice"));
    exchange().feed(&world.tables, &alice, 4);
    for sql in [
        "EXPLAIN SELECT sum(fee) FROM dex_swap",
        "explain analyze select sum(fee) from dex_swap",
        "EXPLAIN (FORMAT json) SELECT 1",
        "\n explain (analyze, format json) SELECT 1",
        "EXPLAIN -- so\n SELECT 1",
    ] {
        let plan = world.rows(&alice, sql);
        assert!(!plan[0]["explain_value"].as_str().unwrap().is_empty(), "{sql}: {plan}");
    }
    for (sql, parts) in [
        ("SELEC 1", &["syntax error at or near \"SELEC\"", "(line 1, character 1)"][..]),
        ("SELECT 1,\n  2 FROM FROM", &["syntax error", "(line 2, character 10)"]),
        ("SELECT nope FROM dex_swap", &["\"nope\" not found", "LINE 1", "^"]),
        ("SELECT * FROM nope", &["nope does not exist", "SHOW TABLES lists", "LINE 1", "^"]),
        ("SELECT nope(1)", &["The function nope cannot be used here"]),
        (
            "SELECT sum(h) FROM (VALUES (170141183460469231731687303715884105727::HUGEINT), (1)) t(h)",
            &["Overflow"],
        ),
        ("SELECT 1; SELECT 2", &["Give one statement at a time"]),
    ] {
        let error = world.try_rows(&alice, sql).unwrap_err().to_string();
        for part in parts {
            assert!(error.contains(part), "{sql}: {error}");
        }
    }
}

#[test]
fn the_row_id_is_described_as_unique() {
    let (world, alice) = (World::new(), owner("alice"));
    exchange().feed(&world.tables, &alice, 4);
    let described = world.rows(&alice, "DESCRIBE retroshade.program_1_swap");
    let unique: Vec<&str> = described
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["key"] == "UNI")
        .map(|row| row["column_name"].as_str().unwrap())
        .collect();
    assert_eq!(unique, ["_service_event_id"]);
}
