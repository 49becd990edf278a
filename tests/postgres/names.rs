//! Names that are words of SQL, too long, or PostgreSQL's own.

use orrery_postgres::{Batch, ColumnType, RowKey, TableRows, Value, check};
use orrery_testkit::postgres::is_missing;

use crate::world::{Database, GENERATION, add, filled, position, table, with_tables, writer};

#[tokio::test(flavor = "multi_thread")]
async fn every_name_of_a_contract_can_be_one_of_a_column() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    let connection = database.connect().await;
    let words = "all analyse and any array as asc authorization binary both case cast check collate column create cross \
                 current_user default desc distinct do else end except fetch for foreign from full grant group having \
                 in inner into is join key leading left like limit natural not null offset on only or order outer \
                 overlaps primary references right row select session_user some table then to transaction trailing \
                 true union unique user using value variadic when where window with xmin xmax cmin cmax ctid tableoid \
                 oid _row _row_ public _ledger";
    let (long, longer) = ("l".repeat(63), "l".repeat(64));
    let umlauts = "ü".repeat(50);
    let mut names: Vec<&str> = words.split_whitespace().collect();
    names.extend([&*long, &*longer, &*umlauts, "A", "a", "a\"b", "a b", "$1", "'", "\\", ";--"]);
    let columns: Vec<_> = names.iter().map(|name| (*name, ColumnType::Text)).collect();
    let tables = ["select", "table", "order", &*long].map(|name| table(name, &columns));
    let project = with_tables(tables.to_vec());
    let mut batch = Batch::new(GENERATION, position(0));
    batch.to = position(1);
    for table in &project.tables {
        let values: Vec<Value> = names.iter().map(|name| Value::Text((*name).to_owned())).collect();
        let mut rows = TableRows::new(table);
        rows.push(RowKey { ledger: 1, transaction: 1, number: 0 }, &values).unwrap();
        batch.tables.push(rows);
    }
    filled(&connection, &project, &[]).await;
    add(&connection, &project, &batch).await.unwrap();
    // Each column has the value that is its exact name.
    let columns = database.sql(
        "SELECT c.table_name, c.column_name, c.exact_name FROM orrery.columns AS c WHERE c.table_name = 'select'",
    );
    assert_eq!(columns.lines().count(), names.len());
    for line in columns.lines() {
        let mut parts = line.split('|').skip(1);
        let (name, exact) = (parts.next().unwrap(), parts.next().unwrap());
        let quoted = name.replace('"', "\"\"");
        assert_eq!(database.sql(&format!("SELECT \"{quoted}\" FROM xlm.\"select\"")), exact);
        assert!(name.len() <= 63);
    }
    let checked = check(&connection, &writer(), &project).await.unwrap();
    assert_eq!((checked.len(), checked.iter().find_map(|it| it.difference())), (4, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn comments_say_what_the_declaration_says() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    let connection = database.connect().await;
    let mut project =
        with_tables(vec![table("t", &[("v", ColumnType::Json), ("w", ColumnType::Text)])]);
    project.tables[0].comment = "event t of 'xlm' \\ with\0".to_owned();
    project.tables[0].columns[0].declared = "Map<Symbol, i128>".to_owned();
    project.tables[0].columns[0].doc = format!("it's \\x {}", "é".repeat(600));
    filled(&connection, &project, &[]).await;
    assert_eq!(
        database.sql("SELECT obj_description('xlm.t'::regclass)"),
        "event t of 'xlm' \\ with\\x00"
    );
    let comment = database.sql("SELECT col_description('xlm.t'::regclass, 2)");
    assert!(
        comment.starts_with("Map<Symbol, i128>: it's \\x éé") && comment.chars().count() == 500,
        "{comment}"
    );
    assert_eq!(database.sql("SELECT col_description('xlm.t'::regclass, 3) IS NULL"), "t");
}
