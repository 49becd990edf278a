//! Who writes: other services, restored backups, and those who listen.

use std::future::poll_fn;
use std::time::Duration;

use orrery_postgres::{Generation, OnBlocked, Refill, SinkError, cursors, drop_begun};
use orrery_testkit::postgres::is_missing;
use tokio_postgres::AsyncMessage;

use crate::world::{
    Database, GENERATION, add, add_in_parts, filled, filled_as, project, transfers, writer,
};

#[tokio::test(flavor = "multi_thread")]
async fn two_services_of_one_name_do_not_write_both() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    let (connection, project) = (database.connect().await, project());
    assert_eq!(writer().cursor(&connection, "xlm").await.unwrap(), None);
    assert_eq!(cursors(&connection, "test network", "main").await.unwrap(), []);
    filled(&connection, &project, &[transfers(&project, 0, 5)]).await;
    let other = orrery_postgres::Writer {
        id: "writer-2".to_owned(),
        name: "host two".to_owned(),
        ..writer()
    };
    let error = other.cursor(&connection, "xlm").await.unwrap_err();
    assert!(
        matches!(&error, SinkError::OtherWriter(text) if text.contains("host one")),
        "{error:?}"
    );
    let targets = || ["transfer".to_owned()].into();
    let begun = Refill::begin(&connection, &other, &project, GENERATION, targets()).await;
    assert!(matches!(begun, Err(SinkError::OtherWriter(_))), "{begun:?}");
    // Another sink of the same database has a schema of its own, or is told.
    let beside = orrery_postgres::Writer { sink: "second".to_owned(), ..other.clone() };
    let begun = Refill::begin(&connection, &beside, &project, GENERATION, targets()).await;
    assert!(matches!(begun, Err(SinkError::Refused(_))), "{begun:?}");
    // Whoever is silent for long is replaced, with rows of its own.
    assert_eq!(writer().touch(&connection).await.unwrap(), 1);
    database.sql("UPDATE orrery.cursor SET updated_at = now() - interval '11 minutes'");
    let taken = other.cursor(&connection, "xlm").await.unwrap().unwrap();
    assert_eq!((&*taken.writer, taken.position.number, taken.is_recent), ("writer-1", 5, false));
    filled_as(&connection, &other, &project, GENERATION, &[transfers(&project, 0, 2)]).await;
    assert_eq!(database.sql("SELECT count(*) FROM xlm.transfer"), "2");
    let error = add(&connection, &project, &transfers(&project, 5, 6)).await.unwrap_err();
    assert!(matches!(error, SinkError::OtherWriter(_)), "{error:?}");
    let all = cursors(&connection, "test network", "main").await.unwrap();
    assert_eq!((all.len(), &*all[0].writer_name, &*all[0].state), (1, "host two", "live"));
    other.set_state(&connection, "xlm", "deleted").await.unwrap();
    assert_eq!(database.sql("SELECT state FROM orrery.cursor WHERE sink = 'main'"), "deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refill_goes_on_where_it_was_and_nobody_sees_it() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    let (connection, project) = (database.connect().await, project());
    filled(&connection, &project, &[transfers(&project, 0, 5)]).await;
    let next = Generation { arrangement: 2, ..GENERATION };
    let (writer, targets) = (writer(), || ["transfer".to_owned()].into());
    let of_next =
        |from, to| orrery_postgres::Batch { generation: next, ..transfers(&project, from, to) };
    let (refill, cursor) =
        Refill::begin(&connection, &writer, &project, next, targets()).await.unwrap();
    assert_eq!(cursor.position.number, 0);
    refill.fill(&connection, &of_next(0, 7)).await.unwrap();
    assert_eq!(database.sql("SELECT count(*) FROM xlm.transfer"), "5");
    let again = database.connect().await;
    let (refill, cursor) = Refill::begin(&again, &writer, &project, next, targets()).await.unwrap();
    assert_eq!((cursor.position.number, cursor.rows), (7, 7));
    assert!(matches!(refill.fill(&again, &of_next(0, 7)).await, Err(SinkError::Moved(_))));
    refill.fill(&again, &of_next(7, 8)).await.unwrap();
    // Of the rows before, more may come meanwhile.
    add(&connection, &project, &transfers(&project, 5, 6)).await.unwrap();
    let cursor = refill.swap_after(&again, OnBlocked::Wait, Duration::ZERO).await.unwrap();
    assert_eq!((cursor.generation, cursor.rows), (next, 8));
    assert_eq!(database.sql("SELECT count(*) FROM xlm.transfer"), "8");
    assert_eq!(database.sql("SELECT count(*) FROM orrery.refill"), "0");
    assert_eq!(database.sql("SELECT count(*) FROM pg_class WHERE relname LIKE '\\_orrery%'"), "0");
    // What was begun for a project that has gone is dropped; what others see stays.
    let (refill, cursor) =
        Refill::begin(&again, &writer, &project, GENERATION, targets()).await.unwrap();
    assert!(!cursor.has_copied());
    refill.fill(&again, &transfers(&project, 0, 3)).await.unwrap();
    drop_begun(&again, &writer, |name| name == "xlm").await.unwrap();
    assert_eq!(database.sql("SELECT count(*) FROM orrery.refill"), "1");
    drop_begun(&again, &writer, |_| false).await.unwrap();
    assert_eq!(database.sql("SELECT count(*) FROM orrery.refill"), "0");
    assert_eq!(database.sql("SELECT count(*) FROM orrery.objects WHERE kind = 'filling'"), "0");
    assert_eq!(database.sql("SELECT count(*) FROM pg_class WHERE relname LIKE '\\_orrery%'"), "0");
    assert_eq!(database.sql("SELECT count(*) FROM xlm.transfer"), "8");
    // Another generation begins anew.
    let third = Generation { arrangement: 3, ..GENERATION };
    let (_, cursor) = Refill::begin(&again, &writer, &project, third, targets()).await.unwrap();
    assert_eq!(cursor.position.number, 0);
    let (_, cursor) = Refill::begin(&again, &writer, &project, next, targets()).await.unwrap();
    assert_eq!(cursor.position.number, 0);
    assert_eq!(
        database
            .sql("SELECT count(*) FROM pg_class WHERE relname LIKE '\\_orrery%' AND relkind = 'r'"),
        "1"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_listens_hears_of_each_transaction_with_rows() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    let (connection, project) = (database.connect().await, project());
    let (client, mut listening) = database.client().await;
    let (sender, mut told) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| listening.poll_message(context)).await {
            if let AsyncMessage::Notification(message) = message {
                sender.send((message.channel().to_owned(), message.payload().to_owned())).unwrap();
            }
        }
    });
    client.batch_execute("LISTEN orrery").await.unwrap();
    filled(&connection, &project, &[transfers(&project, 0, 5)]).await;
    add_in_parts(&connection, &project, 5, 8).await.unwrap();
    let message =
        tokio::time::timeout(Duration::from_secs(10), told.recv()).await.unwrap().unwrap();
    let expected =
        r#"{"from":6,"generation":"7-3-1","project":"xlm","rows":3,"sink":"main","to":8}"#;
    let sorted: serde_json::Value = serde_json::from_str(&message.1).unwrap();
    assert_eq!((&*message.0, sorted), ("orrery", serde_json::from_str(expected).unwrap()));
    // Rows go on when nobody may be told.
    database.sql("REVOKE EXECUTE ON FUNCTION pg_notify(text, text) FROM PUBLIC");
    add_in_parts(&connection, &project, 8, 11).await.unwrap();
    assert_eq!(database.sql("SELECT count(*) FROM xlm.transfer"), "11");
    assert!(told.try_recv().is_err());
}
