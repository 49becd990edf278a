//! What others did to the database is told in a sentence, and nothing of theirs is touched.

use orrery_postgres::{Column, ColumnType, SinkError, check, ensure, examine};
use orrery_testkit::postgres::is_missing;

use crate::world::{Database, add, filled, project, transfers, writer};

fn refusal<T: std::fmt::Debug>(done: Result<T, SinkError>) -> String {
    match done {
        Err(SinkError::Refused(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_privileges_are_told_with_what_mends_them() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    let role = database.role();
    database.sql("DROP SCHEMA xlm; ALTER SCHEMA orrery OWNER TO root");
    let connection = database.connect().await;
    let examined = examine(&connection, &["xlm", "public"]).await.unwrap();
    assert_eq!((&*examined.user, &*examined.database), (&*role, &*database.name));
    let expected = [
        format!(
            "{role} may not write into the schema orrery: GRANT USAGE, CREATE ON SCHEMA \"orrery\" TO \"{role}\";"
        ),
        format!("there is no schema xlm: CREATE SCHEMA \"xlm\" AUTHORIZATION \"{role}\";"),
        format!(
            "{role} may not write into the schema public: GRANT CREATE ON SCHEMA \"public\" TO \"{role}\";"
        ),
    ];
    assert_eq!(examined.missing, expected);
    let said = refusal(ensure(&connection, &writer(), &project()).await);
    assert!(said.contains("GRANT USAGE, CREATE") && said.contains("CREATE SCHEMA"), "{said}");
    for lacking in &examined.missing {
        database.sql(lacking.split_once(": ").unwrap().1);
    }
    assert_eq!(examine(&connection, &["xlm", "public"]).await.unwrap().missing, [] as [String; 0]);
    filled(&connection, &project(), &[transfers(&project(), 0, 1)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schemas_are_created_where_the_role_may() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    database.sql("DROP SCHEMA xlm; DROP SCHEMA orrery");
    database.sql(&format!("GRANT CREATE ON DATABASE {} TO {}", database.name, database.role()));
    filled(&database.connect().await, &project(), &[transfers(&project(), 0, 1)]).await;
    assert_eq!(database.sql("SELECT count(*) FROM xlm.transfer"), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_ours_is_not_touched() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    database.sql("CREATE TABLE xlm.transfer (theirs text); INSERT INTO xlm.transfer VALUES ('x')");
    let connection = database.connect().await;
    let said = refusal(ensure(&connection, &writer(), &project()).await);
    assert!(said.contains("xlm.transfer is there already, and not Orrery's"), "{said}");
    assert_eq!(database.sql("SELECT theirs FROM xlm.transfer"), "x");
    assert_eq!(database.sql("SELECT count(*) FROM orrery.objects"), "0");
    database.sql("DROP TABLE xlm.transfer");
    filled(&connection, &project(), &[]).await;
    // Another project of the same schema.
    let mut other = project();
    other.name = "other".to_owned();
    let said = refusal(ensure(&connection, &writer(), &other).await);
    assert!(said.contains("xlm.transfer is of the project xlm"), "{said}");
    // A column of theirs has the name that a new one of ours needs.
    let mut grown = project();
    grown.tables[0].columns.push(Column::new("memo", ColumnType::Text));
    database.sql("ALTER TABLE xlm.transfer ADD COLUMN memo integer");
    let said = refusal(ensure(&connection, &writer(), &grown).await);
    assert!(said.contains("a column memo that is not Orrery's"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_were_changed_stop_the_sink_with_a_sentence() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    let project = project();
    filled(&database.connect().await, &project, &[transfers(&project, 0, 5)]).await;
    let role = database.role();
    let trigger = "CREATE FUNCTION public.keeps() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; CREATE \
                   TRIGGER keeps BEFORE INSERT ON xlm.transfer FOR EACH ROW EXECUTE FUNCTION public.keeps()";
    let mine = format!("ALTER TABLE xlm.transfer OWNER TO {role}");
    for (change, expected, mend) in [
        (
            "ALTER TABLE xlm.transfer RENAME COLUMN amount TO other",
            "the column amount of the table xlm.transfer was dropped or renamed",
            "ALTER TABLE xlm.transfer RENAME COLUMN other TO amount",
        ),
        (
            "ALTER TABLE xlm.transfer ALTER amount TYPE numeric(78)",
            "is numeric(78,0), and the rows have numeric(39,0)",
            "ALTER TABLE xlm.transfer ALTER amount TYPE numeric(39)",
        ),
        ("ALTER TABLE xlm.transfer OWNER TO root", "belongs to root now: ALTER TABLE", &mine),
        (
            "ALTER TABLE xlm.transfer ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
            "NO FORCE ROW LEVEL SECURITY",
            "ALTER TABLE xlm.transfer NO FORCE ROW LEVEL SECURITY",
        ),
        (
            "ALTER TABLE xlm.transfer ADD CONSTRAINT few CHECK (_ledger < 6)",
            "the constraint \"few\" refuses what the chain has",
            "ALTER TABLE xlm.transfer DROP CONSTRAINT few",
        ),
        (
            "ALTER TABLE xlm.transfer ADD needed text NOT NULL DEFAULT ''; ALTER TABLE xlm.transfer ALTER needed DROP \
             DEFAULT",
            "the column \"needed\" must not be null",
            "ALTER TABLE xlm.transfer DROP COLUMN needed",
        ),
        (trigger, "drop the trigger", "DROP TRIGGER keeps ON xlm.transfer"),
        (
            "CREATE FUNCTION public.late() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''too late'' USING ERRCODE = \
             ''54000''; END'; CREATE CONSTRAINT TRIGGER late AFTER INSERT ON xlm.transfer DEFERRABLE INITIALLY DEFERRED \
             FOR EACH ROW EXECUTE FUNCTION public.late()",
            "committing failed: too late",
            "DROP TRIGGER late ON xlm.transfer",
        ),
        (
            "INSERT INTO xlm.transfer VALUES ('\\x000000060000000100000000')",
            "a row with its key is there already",
            "DELETE FROM xlm.transfer WHERE _row = '\\x000000060000000100000000'",
        ),
        (
            "ALTER TABLE xlm.transfer RENAME TO away",
            "the table xlm.transfer was dropped or renamed",
            "ALTER TABLE xlm.away RENAME TO transfer",
        ),
        (
            "REVOKE USAGE ON SCHEMA xlm FROM CURRENT_USER; ALTER SCHEMA xlm OWNER TO root",
            "GRANT USAGE, CREATE",
            "ALTER SCHEMA xlm OWNER TO ROLE",
        ),
    ] {
        database.sql(change);
        let connection = database.connect().await;
        let said = refusal(add(&connection, &project, &transfers(&project, 5, 6)).await);
        assert!(said.contains(expected), "{change}: {said}");
        // No value of a row is in it.
        assert!(!said.contains("G6"), "{said}");
        assert!(!connection.is_lost());
        database.sql(&mend.replace("ROLE", &role));
    }
    let connection = database.connect().await;
    add(&connection, &project, &transfers(&project, 5, 6)).await.unwrap();
    let checked = check(&connection, &writer(), &project).await.unwrap();
    assert_eq!(checked[0].difference(), None);
    database.sql("DROP TABLE xlm.transfer");
    let checked = check(&connection, &writer(), &project).await.unwrap();
    assert!(checked[0].difference().unwrap().contains("is missing"));
    // A refill makes it again.
    filled(&connection, &project, &[transfers(&project, 0, 2)]).await;
    assert_eq!(check(&connection, &writer(), &project).await.unwrap()[0].difference(), None);
}
