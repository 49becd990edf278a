use super::*;

fn parser() -> Connection {
    Connection::open_in_memory().unwrap()
}

/// Every DuckDB function is either on the list or left out on purpose, so that the functions of a
/// newer DuckDB are reviewed before queries can call them.
#[test]
fn every_duckdb_function_is_allowed_or_deliberately_left_out() {
    let connection = parser();
    let mut statement = connection
        .prepare(
            "SELECT DISTINCT CASE WHEN function_type LIKE 'table%' THEN 'table ' ELSE '' END
                 || lower(function_name)
             FROM duckdb_functions() WHERE function_type <> 'pragma' ORDER BY 1",
        )
        .unwrap();
    let known: Vec<String> =
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let left_out: HashSet<&str> =
        include_str!("left_out.txt").lines().filter(|line| !line.starts_with('#')).collect();
    let new: Vec<&String> = known
        .iter()
        .filter(|name| !FUNCTIONS.contains(name.as_str()) && !left_out.contains(name.as_str()))
        .collect();
    assert!(new.is_empty(), "allow these or leave them out: {new:?}");
    let both: Vec<_> = FUNCTIONS.intersection(&left_out).collect();
    assert!(both.is_empty(), "{both:?}");
    let known: HashSet<&str> = known.iter().map(String::as_str).collect();
    // Outside of FROM, `unnest` is part of the grammar and not a listed function.
    let gone: Vec<_> = FUNCTIONS
        .union(&left_out)
        .filter(|name| !known.contains(*name) && **name != "unnest")
        .collect();
    assert!(gone.is_empty(), "DuckDB no longer has {gone:?}");
}

#[test]
fn refused_queries_get_the_right_reason() {
    let parser = parser();
    let gate = Gate::new(&parser).unwrap();
    let names = BTreeSet::from(["program_1_swap".to_owned()]);
    let pass = |sql: &str| gate.check(&parser, Text::of(sql), &names).map(|it| it.describes);
    assert_eq!(pass("SELECT * FROM program_1_swap"), Ok(false));
    assert_eq!(pass("DESCRIBE program_1_swap"), Ok(true));
    for (sql, sentence) in [
        ("SELECT 1; SELECT 2", "Give one statement at a time"),
        ("", "There is no statement: write one SELECT"),
        ("SELECT * FROM read_text('a')", "The function read_text cannot be used here"),
        (
            "SELECT * FROM duckdb_databases",
            "Table 'duckdb_databases' is not one of yours: SHOW TABLES lists them",
        ),
        (
            "SELECT * FROM orrery.programs",
            "Table 'orrery.programs' is not one of yours: SHOW TABLES lists them",
        ),
        ("SHOW threads", "Table 'threads' is not one of yours: SHOW TABLES lists them"),
        (
            "WITH a AS (DELETE FROM t RETURNING *) SELECT * FROM a",
            "A query may only read: a part of it changes something",
        ),
        (
            "SELECT 1,\n 2 FROM FROM",
            "Parser Error: syntax error at or near \"FROM\" (line 2, character 9)",
        ),
        (
            "EXPLAIN\n SELECT FROM",
            "Parser Error: syntax error at or near \"FROM\" (line 2, character 9)",
        ),
    ] {
        assert_eq!(pass(sql), Err(refused(sentence)), "{sql}");
    }
    for sql in
        ["DROP TABLE program_1_swap", "/**/EXPLAIN SELECT 1", "EXPLAIN DROP TABLE program_1_swap"]
    {
        let Err(Failure::Refused(sentence)) = pass(sql) else { panic!("{sql}") };
        assert!(sentence.starts_with("Only statements that read are answered"), "{sentence}");
    }
}
