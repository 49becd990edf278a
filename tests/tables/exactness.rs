//! Integers stay exact in SQL: a query that would round them without being asked to is refused, with the
//! CAST that mends it.

use orrery_tables::query::{QueryError, QueryRequest};
use orrery_testkit::values::{i128, list, map, symbol, u128};
use serde_json::{Value, json};
use stellar_xdr::ScVal;

use crate::support::{Program, World, emit, owner};

/// 2^53 + 1, which no floating-point number of 64 bits holds.
const ODD: i128 = (1 << 53) + 1;

/// Tables with integers of all widths. `u`, `i`, `b` and `w` are unsigned and signed integers of 128 bits
/// and of 64 bits.
fn world() -> World {
    let (world, owner) = (World::new(), owner("alice"));
    let mut program = Program::new(1, "p");
    let unsigned = || u128(ODD.cast_unsigned());
    let row = |i: i128| {
        emit(
            "trade",
            [
                ("u", unsigned()),
                ("i", i128(i)),
                ("b", ScVal::I64(i64::try_from(ODD).unwrap())),
                ("w", ScVal::U64(u64::try_from(ODD).unwrap())),
                ("n", ScVal::U32(3)),
                ("lu", list([unsigned()])),
                ("li", list([i128(i)])),
                ("mu", map([(symbol("k"), unsigned())])),
                ("mi", map([(symbol("k"), i128(i))])),
            ],
        )
    };
    program.run(vec![row(ODD - 1)]).unwrap();
    program.feed(&world.tables, &owner, 1);
    world
}

fn ask(world: &World, sql: &str, params: &[Value]) -> Result<Value, QueryError> {
    let params = params.to_vec();
    let request = QueryRequest { query: sql.to_owned(), params, ..QueryRequest::default() };
    let answer = world.tables.query(&owner("alice"), request)?;
    Ok(serde_json::from_slice(&answer.bytes).unwrap())
}

fn refused(world: &World, sql: &str, params: &[Value]) -> String {
    match ask(world, sql, params) {
        Err(QueryError::Refused(sentence)) => {
            assert!(sentence.starts_with("Integers would be rounded: "), "{sql}: {sentence}");
            sentence
        }
        other => panic!("{sql}: {other:?}"),
    }
}

#[test]
fn integers_are_not_rounded_without_a_word() {
    let world = world();
    for sql in [
        // Aggregates.
        "SELECT sum(u) FROM p.trade",
        "SELECT sum(DISTINCT u) FILTER (n > 1) FROM p.trade",
        "SELECT sum(u) OVER () FROM p.trade",
        "SELECT sum(u) OVER (ORDER BY n::DOUBLE) FROM p.trade",
        "SELECT n, sum(u) FROM p.trade GROUP BY ROLLUP (n)",
        "SELECT product(b) FROM p.trade",
        "PIVOT p.trade ON n IN (3) USING sum(u)",
        "SELECT sum(x) FROM (SELECT 9007199254740993::UHUGEINT AS x)",
        // Comparisons, joins and sets of values.
        "SELECT u = i AS same FROM p.trade",
        "SELECT count(*) FROM p.trade WHERE u = i",
        "SELECT count(*) FROM p.trade WHERE u BETWEEN i AND i + 1",
        "SELECT count(*) FROM p.trade WHERE u IN (i, b)",
        "SELECT count(*) FROM p.trade WHERE u IN (SELECT i FROM p.trade)",
        "SELECT count(*) FROM p.trade WHERE u > ANY (SELECT i FROM p.trade)",
        "SELECT count(*) FROM p.trade a WHERE EXISTS (SELECT 1 FROM p.trade c WHERE c.u = a.i)",
        "SELECT count(*) FROM p.trade a JOIN p.trade c ON a.u = c.i",
        "SELECT count(*) FROM (SELECT u AS x FROM p.trade) JOIN (SELECT i AS x FROM p.trade) USING (x)",
        "SELECT count(*) FROM p.trade a ASOF JOIN p.trade c ON a.u >= c.i",
        "SELECT nullif(u, i) FROM p.trade",
        "SELECT u IS DISTINCT FROM i FROM p.trade",
        // Values of one type out of several.
        "SELECT coalesce(u, i) FROM p.trade",
        "SELECT greatest(u, i), least(i, u) FROM p.trade",
        "SELECT CASE WHEN n = 3 THEN u ELSE i END FROM p.trade",
        "SELECT if(n = 3, u, i) FROM p.trade",
        "SELECT u FROM p.trade UNION ALL SELECT i FROM p.trade",
        "SELECT u FROM p.trade UNION SELECT i FROM p.trade ORDER BY 1 LIMIT 1",
        "SELECT 1, u FROM p.trade EXCEPT SELECT 1, i FROM p.trade",
        "SELECT u FROM p.trade UNION ALL BY NAME SELECT i AS u FROM p.trade",
        "SELECT u FROM p.trade UNION ALL (SELECT u FROM p.trade UNION ALL SELECT i FROM p.trade)",
        "VALUES (1, 9007199254740993::UHUGEINT), (2, 1::HUGEINT)",
        "SELECT [u, i] FROM p.trade",
        "SELECT unnest([u, i]) FROM p.trade",
        "UNPIVOT (SELECT u, i FROM p.trade) ON u, i INTO NAME k VALUE v",
        // Constants that are computed before there is a plan.
        "FROM unnest([9007199254740993::UHUGEINT, 1::HUGEINT])",
        "SELECT n FROM p.trade, unnest([9007199254740993::UHUGEINT, 1::HUGEINT]) x(v)",
        "FROM repeat(9007199254740993::UHUGEINT - 1::HUGEINT, 3)",
        // Arithmetic and functions.
        "SELECT u - i FROM p.trade",
        "SELECT u + b FROM p.trade",
        "SELECT u * n::INTEGER FROM p.trade",
        "SELECT u % i FROM p.trade",
        "SELECT u // i FROM p.trade",
        "SELECT sum(u * n) FROM p.trade",
        "SELECT round(u), floor(u) FROM p.trade",
        // Lists, maps and structs.
        "SELECT list_sum(lu) FROM p.trade",
        "SELECT list_aggregate(lu, 'sum') FROM p.trade",
        "SELECT list_contains(lu, i) FROM p.trade",
        "SELECT list_position(lu, i) FROM p.trade",
        "SELECT lu = li FROM p.trade",
        "SELECT lu || li FROM p.trade",
        "SELECT mu = mi FROM p.trade",
        "SELECT mu['k'] - mi['k'] FROM p.trade",
        "SELECT {'a': u} = {'a': i} FROM p.trade",
        "SELECT list_transform(lu, lambda x: x - i) FROM p.trade",
        "SELECT list_filter(lu, lambda x: x = i) FROM p.trade",
        // In a part of the query, and in one that is only explained.
        "WITH a AS (SELECT sum(u) AS s FROM p.trade) SELECT s IS NULL FROM a",
        "SELECT * FROM p.trade ORDER BY u - i",
        "SELECT count(*) FROM p.trade HAVING sum(u) > 1",
        "EXPLAIN SELECT sum(u) FROM p.trade",
        // A written conversion beside another one.
        "SELECT u::DOUBLE, sum(u) FROM p.trade GROUP BY u",
        "SELECT sum(u::UHUGEINT) FROM p.trade",
    ] {
        refused(&world, sql, &[]);
    }
}

#[test]
fn the_refusal_names_the_cast_that_is_exact() {
    let world = world();
    assert_eq!(
        refused(&world, "SELECT sum(u) AS s FROM p.trade", &[]),
        "Integers would be rounded: sum converts u from UHUGEINT to DOUBLE, which holds integers only up \
         to 2^53: write u::HUGEINT, which is exact, or u::DOUBLE"
    );
    let odd = ODD.to_string();
    for (sql, expected) in [
        ("SELECT sum(u::HUGEINT) AS v FROM p.trade", json!(odd)),
        ("SELECT sum(u::HUGEINT) OVER () AS v FROM p.trade", json!(odd)),
        ("SELECT u::HUGEINT = i AS v FROM p.trade", json!(false)),
        ("SELECT u::HUGEINT - i AS v FROM p.trade", json!(1)),
        ("SELECT coalesce(u::HUGEINT, i) AS v FROM p.trade", json!(odd)),
        ("SELECT list_sum(lu::HUGEINT[]) AS v FROM p.trade", json!(odd)),
        (
            "SELECT max(v) AS v FROM (SELECT u::HUGEINT AS v FROM p.trade UNION ALL SELECT i FROM p.trade)",
            json!(odd),
        ),
        ("SELECT sum(u::DOUBLE) AS v FROM p.trade", json!(9007199254740992.0)),
        ("SELECT sum(CAST(u AS DOUBLE PRECISION)) AS v FROM p.trade", json!(9007199254740992.0)),
        ("SELECT list_sum(lu::DOUBLE[]) AS v FROM p.trade", json!(9007199254740992.0)),
        ("SELECT u::FLOAT8 = i AS v FROM p.trade", json!(true)),
    ] {
        assert_eq!(ask(&world, sql, &[]).unwrap(), json!([{"v": expected}]), "{sql}");
    }
}

/// What is exact, and what is a floating-point number because the query says so.
#[test]
fn other_queries_are_answered() {
    let world = world();
    for sql in [
        "SELECT sum(i), sum(b), sum(w), sum(n), min(u), max(u), count(u), list(u), any_value(u) FROM p.trade",
        "SELECT u + 1, u + w, u = 9007199254740993, u > 5, u = n, u = b, u = w, i = b, i - b, i + w, -i FROM p.trade",
        "SELECT coalesce(u, 0), greatest(u, w), CASE WHEN n = 3 THEN u ELSE 0 END, [u, 1], nullif(u, 0) FROM p.trade",
        "SELECT u FROM p.trade UNION ALL SELECT w FROM p.trade UNION ALL SELECT 1",
        "SELECT avg(u), avg(i), stddev(u), median(u), var_pop(i), quantile_cont(i, 0.5) FROM p.trade",
        "SELECT u / 2, i / b, b / 10000000, sqrt(u), ln(i), b ** 2, list_avg(lu) FROM p.trade",
        "SELECT u > 1e9, i * 1.5e0, u * 2.5::DOUBLE, b + random(), coalesce(i, 0.5::DOUBLE) FROM p.trade",
        "SELECT count(*) FROM p.trade WHERE u > (SELECT avg(u) FROM p.trade)",
        "SELECT u FROM p.trade UNION ALL SELECT avg(i) FROM p.trade",
        "SELECT u::DOUBLE FROM p.trade UNION ALL SELECT i FROM p.trade",
        "SELECT list_transform(lu, lambda x: x::DOUBLE / 2), list_sum([0.5::DOUBLE]) FROM p.trade",
        "SELECT to_timestamp(b - b), u IS NULL, i IN (1, 2), u::VARCHAR || i, hash(u) FROM p.trade",
        "SELECT lag(u, 1, u) OVER (ORDER BY n), row_number() OVER (ORDER BY u) FROM p.trade",
        "SUMMARIZE p.trade",
        "DESCRIBE p.trade",
        "SHOW TABLES",
        "SELECT * FROM information_schema.columns",
        "FROM information_schema.tables",
        "SELECT * EXCLUDE (u) FROM p.trade a JOIN p.trade c USING (i) WHERE a.u = c.u",
        "WITH RECURSIVE r AS (SELECT 1::BIGINT AS x UNION ALL SELECT x + 1 FROM r WHERE x < 5) SELECT sum(x) FROM r",
        "SELECT sum(x) FROM range(10) t(x)",
        "FROM unnest([9007199254740993::UHUGEINT, 1::UHUGEINT])",
        "FROM unnest([9007199254740993::DOUBLE, 1::HUGEINT])",
        "SELECT x FROM p.trade, unnest(li) x(v), range(1, n::BIGINT) y(w), repeat(')', 2) z(t)",
        "SELECT unnest([[1, 2], [3]], recursive := true)",
    ] {
        ask(&world, sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

#[test]
fn parameters_have_the_types_of_their_values() {
    let world = world();
    let sql = "SELECT u - ? AS v FROM p.trade";
    // The same text with values of several types: what was found of one is not taken for another.
    for _ in 0..2 {
        let sentence = refused(&world, sql, &[json!(1)]);
        assert!(sentence.contains("u::HUGEINT"), "{sentence}");
        let rounded = ask(&world, sql, &[json!(0.5)]).unwrap();
        assert_eq!(rounded, json!([{"v": 9007199254740992.0}]));
        let unsigned =
            ask(&world, "SELECT u - ?::UHUGEINT AS v FROM p.trade", &[json!(1)]).unwrap();
        assert_eq!(unsigned, json!([{"v": (ODD - 1).to_string()}]));
        for value in [json!(i64::try_from(ODD).unwrap()), json!(ODD.to_string())] {
            let equal = ask(&world, "SELECT u = ? AS v, $1 = i AS w FROM p.trade", &[value]);
            assert_eq!(equal.unwrap(), json!([{"v": true, "w": false}]));
        }
        let both = "SELECT i - $2 AS v, $1 || 'é' AS w FROM p.trade WHERE 'ü' <> $1";
        let answer = ask(&world, both, &[json!("x"), json!(1)]).unwrap();
        assert_eq!(answer, json!([{"v": 9007199254740991_i64, "w": "xé"}]));
    }
}

#[test]
fn numbers_that_no_integer_can_be_are_refused() {
    let world = world();
    let most = u128::MAX.to_string();
    let equal = ask(&world, &format!("SELECT u = {most} AS v, {most} AS w FROM p.trade"), &[]);
    assert_eq!(equal.unwrap(), json!([{"v": false, "w": most}]));
    let more = "340282366920938463463374607431768211456";
    let (least, below) = (i128::MIN, "170141183460469231731687303715884105729");
    let equal = ask(&world, &format!("SELECT i = {least} AS v FROM p.trade"), &[]);
    assert_eq!(equal.unwrap(), json!([{"v": false}]));
    for (sql, number) in [
        (format!("SELECT u = {more} FROM p.trade"), more.to_owned()),
        (format!("SELECT -{more} AS v"), format!("-{more}")),
        (format!("SELECT i = -{below} FROM p.trade"), format!("-{below}")),
    ] {
        let Err(QueryError::Refused(sentence)) = ask(&world, &sql, &[]) else { panic!("{sql}") };
        assert!(sentence.contains(&format!("write {number}e0")), "{sentence}");
    }
    assert!(ask(&world, &format!("SELECT {more}e0 AS v"), &[]).is_ok());
}

/// Deep texts and wide ones, which take DuckDB's plan to its limits. Longer chains than these are not
/// prepared within the time that a query has: DuckDB simplifies them in more than squared time.
#[test]
fn deep_and_wide_queries_are_examined() {
    let world = world();
    let chain = |operator: &str, count: usize| vec!["n"; count].join(operator);
    for sql in [
        format!("SELECT {} AS v FROM p.trade", chain(" + ", 200)),
        format!("SELECT {}n{} AS v FROM p.trade", "(".repeat(190), ")".repeat(190)),
        format!("SELECT {} FROM p.trade", chain(", ", 1_000)),
    ] {
        ask(&world, &sql, &[]).unwrap_or_else(|error| panic!("{}…: {error}", &sql[..60]));
        let sql = sql.replacen("SELECT ", "SELECT u - i, ", 1);
        let found = ask(&world, &sql, &[]);
        assert!(
            matches!(&found, Err(QueryError::Refused(it)) if it.contains("rounded")),
            "{found:?}"
        );
    }
}

#[test]
fn times_with_a_time_zone_have_a_sentence_of_their_own() {
    let world = world();
    for sql in [
        "SELECT to_timestamp(1) + INTERVAL '1 day' AS t",
        "SELECT TIMESTAMPTZ '2024-01-01' - TIMESTAMPTZ '2023-01-01' AS t",
        "SELECT date_trunc('day', to_timestamp(1)) AS t",
    ] {
        let Err(QueryError::Refused(sentence)) = ask(&world, sql, &[]) else { panic!("{sql}") };
        assert!(sentence.contains("CAST the time to TIMESTAMP"), "{sql}: {sentence}");
    }
    let mended = ask(&world, "SELECT to_timestamp(1)::TIMESTAMP + INTERVAL '1 day' AS t", &[]);
    assert_eq!(mended.unwrap(), json!([{"t": "1970-01-02T00:00:01"}]));
}

#[test]
fn a_missing_table_is_not_answered_with_one_that_cannot_be_read() {
    let world = world();
    for (sql, words) in [
        ("FROM transactions", "Transactions are under /rest/txs"),
        ("FROM p_trad", "Did you mean \"p_trade\"?"),
        ("FROM constraint_of", "SHOW TABLES lists their tables"),
    ] {
        let Err(QueryError::Refused(sentence)) = ask(&world, sql, &[]) else { panic!("{sql}") };
        assert!(sentence.contains(words) && !sentence.contains("duckdb_"), "{sql}: {sentence}");
        let place = format!("LINE 1: {sql}\n{}^", " ".repeat("LINE 1: FROM ".len()));
        assert!(sentence.contains(&place), "{sentence}");
    }
}
