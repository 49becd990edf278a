//! Names of tables, views and the columns that every table has; conversion of struct names to
//! targets; quoting of names for SQL.

pub use orrery_interfaces::names::{CLOSED_AT, CONTRACT_ID, LEDGER, ROW_ID, folded};
use orrery_interfaces::names::{DECLARED, EVENT_ID, EVENT_INDEX, REST, TRANSACTION};
use orrery_ledger::domain::ProgramId;

/// Schema of all tables, in which unqualified names are resolved.
pub const SCHEMA: &str = "retroshade";
/// Schema of the tables of the chain itself, which all owners read.
pub const CHAIN: &str = "chain";
/// Column of these tables with the ledger of a row.
pub const LEDGER_OF_CHAIN: &str = "ledger";
/// Maximum length of a target in characters.
pub const LONGEST_TARGET: usize = 63;

/// Columns that every table has, before those of the program, with their SQL types.
pub const INJECTED: [(&str, &str); 5] = [
    (CONTRACT_ID, "VARCHAR"),
    (TRANSACTION, "VARCHAR"),
    (ROW_ID, "VARCHAR"),
    (LEDGER, "BIGINT"),
    (CLOSED_AT, "TIMESTAMP"),
];

/// Columns that tables of events have besides, which are not values of the events.
pub const OF_EVENTS: [&str; 4] = [EVENT_ID, EVENT_INDEX, DECLARED, REST];

/// Puts the columns of a table or view into the order in which they are shown: its own, then those that
/// every table has, and the id of the row last. `is_of_events` says whether it has events as rows.
pub fn in_shown_order<T>(
    columns: impl IntoIterator<Item = T>,
    name: impl Fn(&T) -> &str,
    is_of_events: bool,
) -> Vec<T> {
    let mut columns: Vec<T> = columns.into_iter().collect();
    columns.sort_by_key(|column| {
        let name = name(column);
        let injected = INJECTED.iter().position(|(injected, _)| *injected == name);
        let of_events = OF_EVENTS.iter().position(|it| *it == name).filter(|_| is_of_events);
        match (injected, of_events) {
            _ if name == ROW_ID => (3, 0),
            (Some(at), _) => (1, at),
            (None, Some(at)) => (2, at),
            (None, None) => (0, 0),
        }
    });
    columns
}

/// Returns the name of the table for a program's target.
pub fn table(program: ProgramId, target: &str) -> String {
    format!("program_{program}_{target}")
}

/// Returns the name under which a program's table is stored: its own, or, of a project of events, one
/// that no query may read. A view has the table's name then, because columns that the table gained later
/// stand at its end, and are shown elsewhere.
pub fn stored(program: ProgramId, target: &str, is_of_events: bool) -> String {
    let end = if is_of_events { ROWS } else { "" };
    format!("{}{end}", table(program, target))
}

/// Returns the name of the table that is being filled to take the place of a program's table.
pub fn filling(program: ProgramId, target: &str) -> String {
    format!("{}{FILLING}", table(program, target))
}

/// Ends of the names of tables that no query may read, and no view has: a dot tells them from the names
/// that queries may use.
const ROWS: &str = ".rows";
const FILLING: &str = ".filling";

/// Whether no query may read a table of this name.
pub fn is_hidden(table: &str) -> bool {
    table.starts_with("program_") && (is_filling(table) || table.ends_with(ROWS))
}

/// Whether a table of this name is being filled.
pub fn is_filling(table: &str) -> bool {
    table.starts_with("program_") && table.ends_with(FILLING)
}

/// Returns the name by which queries read a stored table that is not being filled.
pub fn shown(table: &str) -> &str {
    table.strip_suffix(ROWS).filter(|_| is_hidden(table)).unwrap_or(table)
}

/// Returns the name of the view for a project's target.
pub fn view(project: &str, target: &str) -> String {
    format!("{project}_{target}")
}

/// Names of schemas and databases of DuckDB or the service, or that could be confused with one. A
/// project with such a name gets no schema of its own.
const RESERVED_SCHEMAS: [&str; 10] = [
    SCHEMA,
    CHAIN,
    "orrery",
    "main",
    "pg_catalog",
    "information_schema",
    "system",
    "temp",
    "memory",
    // DuckDB names the database after its file.
    "tables",
];

/// Whether a project can have a schema of its own.
pub fn may_be_schema(project: &str) -> bool {
    let project = folded(project);
    is_usable(&project)
        && !project.starts_with("pg_")
        && !RESERVED_SCHEMAS.contains(&project.as_str())
}

/// Quotes a name for SQL, whatever characters it has.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Words that are no names without quotes in DuckDB: those that its `duckdb_keywords()` calls `reserved` and
/// `type_function`.
const WORDS: &str = "\
    all analyse analyze and anti any array as asc asof asymmetric at authorization binary both by case \
    cast check collate collation column concurrently constraint create cross default deferrable desc \
    describe distinct do else end except false fetch for foreign freeze from full glob group having \
    ilike in initially inner intersect into is isnull join lambda lateral leading left like limit \
    natural not notnull null offset on only or order outer overlaps pivot pivot_longer pivot_wider \
    placing positional primary qualify references returning right select semi show similar some \
    summarize symmetric table tablesample then to trailing true union unique unpack unpivot using \
    variadic verbose when where window with";

/// Returns the name of a table, column or schema as a query writes it: in quotes where it needs them.
pub fn written(name: &str) -> String {
    let begins = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
    let is_plain = name.starts_with(begins)
        && name.chars().all(|letter| begins(letter) || letter.is_ascii_digit());
    let is_word = || WORDS.split(' ').any(|word| word.eq_ignore_ascii_case(name));
    if is_plain && !is_word() { name.to_owned() } else { quoted(name) }
}

/// Returns the name of a project's table as a query writes it: `project.target`, or `project_target` where the
/// project has no schema.
pub fn in_query(project: &str, target: &str) -> String {
    match may_be_schema(project) {
        true => format!("{}.{}", written(project), written(target)),
        false => written(&view(project, target)),
    }
}

/// Returns the target of the view of the first of several versions of an event: `target_v1`, with as many `_` at
/// its end as make it differ from what is taken. That without a number is the view of all versions.
pub fn first_version(target: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let mut name = format!("{target}_v1");
    while is_taken(&name) {
        name.push('_');
    }
    name
}

/// Whether SQL can use the name when it is quoted.
pub fn is_usable(name: &str) -> bool {
    !name.is_empty() && !name.contains('\0')
}

/// Returns the targets that a struct's name may become: as the derive macro of `retroshade-sdk` 0.1
/// converts it (a digit begins a word), and as other tools do (it does not).
pub fn snake_cases(name: &str) -> Vec<String> {
    let mut names = vec![snake_case(name, true), snake_case(name, false)];
    names.dedup();
    names
}

fn snake_case(name: &str, digits_are_words: bool) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut words = String::with_capacity(name.len() + 4);
    for (i, &letter) in letters.iter().enumerate() {
        let before = i.checked_sub(1).map(|before| letters[before]);
        let after = letters.get(i + 1).copied();
        if matches!(letter, '_' | '-' | ' ') {
            end_word(&mut words);
            continue;
        }
        if before.is_some_and(|before| begins_word(before, letter, after, digits_are_words)) {
            end_word(&mut words);
        }
        words.extend(letter.to_lowercase());
    }
    words.trim_matches('_').to_owned()
}

fn end_word(words: &mut String) {
    if !words.is_empty() && !words.ends_with('_') {
        words.push('_');
    }
}

fn begins_word(before: char, letter: char, after: Option<char>, digits_are_words: bool) -> bool {
    let digit = char::is_ascii_digit;
    let hump = before.is_lowercase() && letter.is_uppercase();
    // The last of several capitals begins the following word: `NFTMint`.
    let acronym = before.is_uppercase()
        && letter.is_uppercase()
        && after.is_some_and(|after| after.is_lowercase());
    let number =
        (digit(&before) && letter.is_alphabetic()) || (before.is_alphabetic() && digit(&letter));
    let after_number = digit(&before) && letter.is_uppercase();
    hump || acronym || if digits_are_words { number } else { after_number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn struct_names_become_snake_case_targets() {
        for (name, targets) in [
            ("LiquidityEvent", &["liquidity_event"][..]),
            ("NFTMint", &["nft_mint"]),
            ("Event2", &["event_2", "event2"]),
            ("U128Test", &["u_128_test", "u128_test"]),
            ("already_snake", &["already_snake"]),
            ("V2Swap", &["v_2_swap", "v2_swap"]),
            ("A", &["a"]),
        ] {
            assert_eq!(snake_cases(name), targets, "{name}");
        }
    }

    #[test]
    fn any_name_can_be_quoted() {
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
    }

    #[test]
    fn names_are_quoted_in_queries_where_they_have_to_be() {
        for (project, target, expected) in [
            ("xlm", "transfer", "xlm.transfer"),
            ("My-pools", "swap_v2", "\"My-pools\".swap_v2"),
            ("full", "order", "\"full\".\"order\""),
            ("main", "t", "main_t"),
            ("pg_x-1", "t", "\"pg_x-1_t\""),
        ] {
            assert_eq!(in_query(project, target), expected);
        }
    }

    /// DuckDB itself says which words these are, and takes what is written here.
    #[test]
    fn words_of_sql_are_those_of_duckdb() {
        let connection = duckdb::Connection::open_in_memory().unwrap();
        let mut statement =
            connection.prepare("select keyword_name from duckdb_keywords()").unwrap();
        let words = statement.query_map([], |row| row.get(0)).unwrap();
        let words: Vec<String> = words.map(Result::unwrap).collect();
        assert!(words.len() > 300, "{words:?}");
        for word in words.iter().map(String::as_str).chain(["a-b", "1a", "", "a\"b", "A_1"]) {
            if word.is_empty() {
                continue;
            }
            let (all, name) = (quoted(word), written(word));
            let table = format!("create or replace temp table {all} as select 1 as {all}");
            connection.execute_batch(&table).unwrap();
            let query = format!("select {name} from {name}");
            assert!(connection.prepare(&query).is_ok_and(|mut it| it.query([]).is_ok()), "{query}");
        }
        let needless = WORDS.split(' ').filter(|word| !words.iter().any(|it| it == word));
        assert_eq!(needless.collect::<Vec<_>>(), Vec::<&str>::new());
    }
}
