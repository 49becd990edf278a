//! Tables that grow in place, and views of several versions.

use orrery_postgres::{
    Batch, Column, ColumnType, Project, RowKey, Shows, SinkError, TableRows, Value, View, check,
    ensure,
};
use orrery_testkit::postgres::is_missing;

use crate::world::{
    Database, GENERATION, add, filled, position, project, table, transfers, with_tables, writer,
};

/// A batch with one row of a table.
fn one(project: &Project, target: &str, at: u64, values: &[Value]) -> Batch {
    let mut rows = TableRows::new(project.table(target).unwrap());
    let ledger = u32::try_from(at).unwrap();
    rows.push(RowKey { ledger, transaction: 1, number: 0 }, values).unwrap();
    let mut batch = Batch::new(GENERATION, position(at - 1));
    batch.to = position(at);
    batch.tables.push(rows);
    batch
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_and_columns_are_added_in_place() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    let (connection, mut project) = (database.connect().await, project());
    filled(&connection, &project, &[transfers(&project, 0, 5)]).await;
    database.sql(
        "CREATE INDEX theirs ON xlm.transfer (\"from\"); ALTER TABLE xlm.transfer ADD COLUMN theirs text; GRANT SELECT ON \
         xlm.transfer TO PUBLIC; COMMENT ON TABLE xlm.transfer IS 'theirs'",
    );
    // Columns come between others, too.
    project.tables[0].columns.insert(0, Column::new("to", ColumnType::list(ColumnType::Int32)));
    project.tables[0].columns.push(Column::new("memo", ColumnType::Text));
    project.tables.push(table("burn", &[("amount", ColumnType::Int256)]));
    let values =
        [Value::List(vec![Value::Integer(1)]), Value::Text("G".to_owned()), Value::Integer(2)];
    add(&connection, &project, &one(&project, "transfer", 6, &values)).await.unwrap();
    add(&connection, &project, &one(&project, "burn", 7, &[Value::Integer(9)])).await.unwrap();
    assert_eq!(
        database.sql("SELECT \"to\", amount, memo FROM xlm.transfer WHERE \"from\" = 'G'"),
        "{1}|2|"
    );
    assert_eq!(database.sql("SELECT amount FROM xlm.burn"), "9");
    let checked = check(&connection, &writer(), &project).await.unwrap();
    assert_eq!((checked.len(), checked.iter().find_map(|it| it.difference())), (2, None));
    assert_eq!(database.sql("SELECT obj_description('xlm.transfer'::regclass)"), "theirs");
    // Nothing is done where everything is there.
    let before = database.sql(
        "SELECT sum(xmin::text::bigint) FROM pg_class WHERE relnamespace = 'xlm'::regnamespace",
    );
    ensure(&connection, &writer(), &project).await.unwrap();
    let after = database.sql(
        "SELECT sum(xmin::text::bigint) FROM pg_class WHERE relnamespace = 'xlm'::regnamespace",
    );
    assert_eq!(before, after);
}

/// The project with a second version of transfers, whose amounts are texts.
fn with_versions() -> Project {
    let mut project = project();
    project.tables[0].name = "transfer_v1".to_owned();
    let mut second =
        table("transfer_v2", &[("from", ColumnType::Text), ("amount", ColumnType::Text)]);
    second.columns.push(Column::new("_ledger", ColumnType::UInt32));
    project.tables.push(second);
    let columns = vec![
        Column::new("from", ColumnType::Text),
        Column::new("amount", ColumnType::Json),
        Column::new("_ledger", ColumnType::Int256),
    ];
    let targets = ["transfer", "transfer_v2"].map(str::to_owned).to_vec();
    let shows = Shows::Versions { targets, columns };
    let (name, comment) = ("transfer".to_owned(), "all versions".to_owned());
    project.views.push(View { name, shows, comment });
    project
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_version_makes_the_name_a_view() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    let (connection, first) = (database.connect().await, project());
    filled(&connection, &first, &[transfers(&first, 0, 2)]).await;
    let project = with_versions();
    let values = ["G9", "many"].map(|it| Value::Text(it.to_owned()));
    add(&connection, &project, &one(&project, "transfer_v2", 3, &values)).await.unwrap();
    assert_eq!(
        database.sql("SELECT \"from\", amount FROM xlm.transfer ORDER BY _row"),
        "G1|\"18446744073709551615\"\nG2|\"36893488147419103230\"\nG9|\"many\""
    );
    let mut batch = transfers(&project, 3, 4);
    batch.ledger = 4;
    add(&connection, &project, &batch).await.unwrap();
    assert_eq!(database.sql("SELECT count(*) FROM xlm.transfer_v1"), "3");
    let checked = check(&connection, &writer(), &project).await.unwrap();
    assert_eq!((checked.len(), checked.iter().find_map(|it| it.difference())), (2, None));
    // A view of others keeps ours from getting other columns, and from going.
    database.sql("CREATE VIEW public.theirs AS SELECT amount FROM xlm.transfer");
    let mut other = with_versions();
    if let Shows::Versions { columns, .. } = &mut other.views[0].shows {
        columns[1].kind = ColumnType::Text;
    }
    let blocked = ensure(&connection, &writer(), &other).await.unwrap_err();
    assert!(matches!(blocked, SinkError::Blocked(_)), "{blocked:?}");
    database.sql("DROP VIEW public.theirs");
    ensure(&connection, &writer(), &other).await.unwrap();
    assert_eq!(database.sql("SELECT pg_typeof(amount) FROM xlm.transfer LIMIT 1"), "text");
    // Back again.
    ensure(&connection, &writer(), &first).await.unwrap();
    assert_eq!(
        database.sql("SELECT relkind FROM pg_class WHERE oid = 'xlm.transfer'::regclass"),
        "r"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_delays_a_change_and_is_not_delayed() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    let (connection, mut project) = (database.connect().await, project());
    filled(&connection, &project, &[transfers(&project, 0, 2)]).await;
    let reader = database.hold("BEGIN; SELECT * FROM xlm.transfer");
    project.tables[0].columns.push(Column::new("memo", ColumnType::Text));
    let error = ensure(&connection, &writer(), &project).await.unwrap_err();
    assert!(matches!(error, SinkError::Busy(_)) && !connection.is_lost(), "{error:?}");
    drop(reader);
    ensure(&connection, &writer(), &project).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn views_of_members_and_storage_answer() {
    if is_missing() {
        return;
    }
    use ColumnType::{Json, Text, Time, UInt32};
    let database = Database::new();
    let connection = database.connect().await;
    let injected = [
        ("contract_id", Text),
        ("transaction", Text),
        ("_service_event_id", Text),
        ("_ledger", UInt32),
        ("_ledger_closed_at", Time),
    ];
    let with = |own: &[(&'static str, ColumnType)]| [own, &injected].concat();
    let members = with(&[("selector", Text), ("change", Text), ("wasm_hash", Text)]);
    let storage = with(&[
        ("key_name", Text),
        ("key_args", Json),
        ("key", Json),
        ("value", Json),
        ("change", Text),
        ("durability", Text),
        ("live_until", UInt32),
        ("key_hash", Text),
    ]);
    let mut project =
        with_tables(vec![table("member_changes", &members), table("storage_changes", &storage)]);
    for (name, shows) in [
        ("members", Shows::Members("member_changes".to_owned())),
        ("storage", Shows::Storage { changes: "storage_changes".to_owned(), members: None }),
    ] {
        project.views.push(View { name: name.to_owned(), shows, comment: String::new() });
    }
    filled(&connection, &project, &[]).await;
    let text = |text: &str| Value::Text(text.to_owned());
    let origin = |ledger: u32| {
        [
            text("C1"),
            text(&format!("tx{ledger}")),
            text("id"),
            Value::Integer(ledger.into()),
            Value::Time(0),
        ]
    };
    let member = |at: u64, change: &str| {
        let own = [text("wasm"), text(change), text("hash")];
        let values = [&own[..], &origin(u32::try_from(at).unwrap())].concat();
        one(&project, "member_changes", at, &values)
    };
    for (at, change) in [(1, "joined"), (2, "left"), (3, "joined")] {
        add(&connection, &project, &member(at, change)).await.unwrap();
    }
    let changed = |at: u64, key: &str, value: Value, change: &str, live_until: u32| {
        let own = [
            text(key),
            Value::Null,
            Value::Json("1".to_owned()),
            value,
            text(change),
            text("persistent"),
            Value::Integer(live_until.into()),
            text(key),
        ];
        let values = [&own[..], &origin(u32::try_from(at).unwrap())].concat();
        let mut batch = one(&project, "storage_changes", at, &values);
        batch.ledger = u32::try_from(at).unwrap();
        batch
    };
    let value = |it: &str| Value::Json(it.to_owned());
    for batch in [
        changed(4, "a", value("1"), "created", 9),
        changed(5, "b", value("2"), "created", 9),
        changed(6, "a", value("3"), "updated", 9),
        changed(7, "a", value("3"), "extended", 20),
        changed(8, "b", Value::Null, "removed", 9),
        changed(9, "c", value("4"), "created", 9),
    ] {
        add(&connection, &project, &batch).await.unwrap();
    }
    let mut empty = Batch::new(GENERATION, position(9));
    (empty.to, empty.ledger) = (position(10), 10);
    add(&connection, &project, &empty).await.unwrap();
    assert_eq!(
        database.sql("SELECT contract_id, since_ledger, since_transaction, until_ledger FROM xlm.members ORDER BY 2"),
        "C1|1|tx1|2\nC1|3|tx3|"
    );
    assert_eq!(
        database.sql(
            "SELECT key_name, value, live_until, archived, _ledger FROM xlm.storage ORDER BY 1"
        ),
        "a|3|20|f|6\nc|4|9|t|9"
    );
}
