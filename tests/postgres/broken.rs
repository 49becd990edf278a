//! Whatever breaks, each row is there exactly once.

use std::time::Duration;

use orrery_postgres::{
    Batch, Connection, Cursor, Generation, OnBlocked, Position, Refill, RowKey, ServerUrl,
    SinkError, TableRows, Writer, check, watch,
};
use orrery_testkit::postgres::{Break, Proxy, Server, is_missing};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::world::{
    Database, GENERATION, add, add_in_parts, filled, position, project, transfers, writer,
};

/// Adds rows up to a position as a feeder does, whatever happens to connections. Returns how often one was lost.
async fn feed(url: &ServerUrl, up_to: u64, mut disturb: impl FnMut(u64)) -> u32 {
    let project = project();
    let mut lost = 0;
    let mut connection: Option<Connection> = None;
    let mut at: Option<Position> = None;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(90);
    loop {
        assert!(tokio::time::Instant::now() < deadline, "{at:?}");
        let done: Result<Cursor, SinkError> = async {
            if connection.as_ref().is_none_or(Connection::is_lost) {
                (connection, at) = (Some(url.connect().await?), None);
            }
            let connection = connection.as_ref().unwrap();
            let from = match at {
                Some(at) => at,
                None => writer().cursor(connection, "xlm").await?.unwrap().position,
            };
            if from.number == up_to {
                return Ok(writer().cursor(connection, "xlm").await?.unwrap());
            }
            disturb(from.number);
            let to = (from.number + 3).min(up_to);
            add_in_parts(connection, &project, from.number, to).await
        }
        .await;
        match done {
            Ok(cursor) if cursor.position.number == up_to => return lost,
            Ok(cursor) => at = Some(cursor.position),
            Err(SinkError::Lost(_)) => {
                (connection, at) = (None, None);
                lost += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(SinkError::Busy(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(error) => panic!("{error:?}"),
        }
    }
}

async fn all_are_there(database: &Database<'_>, up_to: u64) {
    let numbers =
        "SELECT count(*), count(DISTINCT _ledger), min(_ledger), max(_ledger) FROM xlm.transfer";
    assert_eq!(database.sql(numbers), format!("{up_to}|{up_to}|1|{up_to}"));
    let connection = database.connect().await;
    let checked = check(&connection, &writer(), &project()).await.unwrap();
    assert_eq!(checked.iter().find_map(|it| it.difference()), None);
    let cursor = writer().cursor(&connection, "xlm").await.unwrap().unwrap();
    assert_eq!((cursor.position, cursor.rows), (position(up_to), up_to));
    assert_eq!(u64::from(cursor.ledger), up_to);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_break_lose_and_double_nothing() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    filled(&database.connect().await, &project(), &[]).await;
    let proxy = Proxy::new(database.server.port);
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut broken = 0;
    let lost = feed(&database.at(proxy.port), 120, |_| {
        let kinds = [Break::Nowhere, Break::BeforeCommit, Break::AfterCommit, Break::InCopy];
        let next = kinds[rng.random_range(0..kinds.len())];
        broken += u32::from(next != Break::Nowhere);
        proxy.breaks(next);
    })
    .await;
    assert!(lost >= 10 && broken >= lost, "{lost} of {broken}");
    all_are_there(&database, 120).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_loses_and_doubles_nothing() {
    if is_missing() {
        return;
    }
    let mut server = Server::start(&[]);
    let name = {
        let database = Database::on(&server);
        filled(&database.connect().await, &project(), &[]).await;
        database.name.clone()
    };
    for round in 1..=3_u64 {
        let url = Database::named(&server, &name).url();
        let feeding = tokio::spawn(async move { feed(&url, round * 200, |_| ()).await });
        tokio::time::sleep(Duration::from_millis(150)).await;
        server.kill();
        server.run();
        assert!(feeding.await.unwrap() > 0 || round > 1);
        all_are_there(&Database::named(&server, &name), round * 200).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_do_not_follow_the_cursor_are_not_written() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    let (connection, project) = (database.connect().await, project());
    filled(&connection, &project, &[transfers(&project, 0, 5)]).await;
    for (from, to) in [(0, 5), (4, 6), (6, 7)] {
        let error = add(&connection, &project, &transfers(&project, from, to)).await.unwrap_err();
        assert!(matches!(error, SinkError::Moved(_)), "{error:?}");
    }
    // The same number of another log.
    let mut of_backup = transfers(&project, 5, 6);
    of_backup.from.transaction += 1;
    assert!(matches!(add(&connection, &project, &of_backup).await, Err(SinkError::Moved(_))));
    let mut of_other = transfers(&project, 5, 6);
    of_other.generation.arrangement += 1;
    assert!(matches!(add(&connection, &project, &of_other).await, Err(SinkError::Moved(_))));
    add(&connection, &project, &transfers(&project, 5, 6)).await.unwrap();
    all_are_there(&database, 6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn time_limits_of_the_role_do_not_hold() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    let role = database.role();
    filled(&database.connect().await, &project(), &[]).await;
    database.sql(&format!(
        "ALTER ROLE {role} SET statement_timeout = '20ms'; ALTER ROLE {role} SET lock_timeout = '1ms'; \
         ALTER ROLE {role} SET search_path = 'nowhere'; ALTER ROLE {role} SET standard_conforming_strings = off; \
         ALTER ROLE {role} SET default_transaction_read_only = on; ALTER ROLE {role} SET default_transaction_isolation = \
         serializable; CREATE \
         FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.1); RETURN NEW; END'; \
         CREATE TRIGGER slow BEFORE INSERT ON xlm.transfer FOR EACH STATEMENT EXECUTE FUNCTION public.slow()"
    ));
    let (connection, project) = (database.connect().await, project());
    add(&connection, &project, &transfers(&project, 0, 9)).await.unwrap();
    all_are_there(&database, 9).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_somebody_removed_are_told() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    let (connection, project) = (database.connect().await, project());
    filled(&connection, &project, &[transfers(&project, 0, 5)]).await;
    let lost = async || {
        let tables = watch(&connection, &writer(), &project).await.unwrap();
        tables[0].problem("xlm")
    };
    assert_eq!(lost().await, None);
    database.sql("TRUNCATE xlm.transfer");
    add(&connection, &project, &transfers(&project, 5, 6)).await.unwrap();
    let told = lost().await.unwrap();
    assert!(told.starts_with("rows of xlm.transfer were removed"), "{told}");
    let checked = check(&connection, &writer(), &project).await.unwrap();
    let said = checked[0].difference().unwrap();
    assert!(said.starts_with("xlm.transfer has 1 rows, and 6 were written"), "{said}");
    // Nor does a row before all others hide it.
    let mut before = transfers(&project, 6, 7);
    let mut rows = TableRows::new(project.table("transfer").unwrap());
    let key = RowKey { ledger: 0, transaction: 1, number: 0 };
    rows.push(key, &[]).unwrap();
    before.tables = vec![rows];
    add(&connection, &project, &before).await.unwrap();
    assert_eq!(lost().await, Some(told));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_was_left_is_not_gone_on_with() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    let (connection, project) = (database.connect().await, project());
    filled(&connection, &project, &[]).await;
    let held = database.hold("BEGIN; SELECT * FROM orrery.cursor FOR UPDATE");
    let batch = transfers(&project, 0, 2);
    let adding = add(&connection, &project, &batch);
    assert!(tokio::time::timeout(Duration::from_millis(500), adding).await.is_err());
    assert!(connection.is_lost());
    drop(held);
    let error = add(&connection, &project, &batch).await.unwrap_err();
    assert!(matches!(error, SinkError::Lost(_)), "{error:?}");
    let _: Writer = writer();
    add(&database.connect().await, &project, &batch).await.unwrap();
    all_are_there(&database, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_break_while_tables_are_replaced_leave_all_or_nothing() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    let (project, writer) = (project(), writer());
    filled(&database.connect().await, &project, &[transfers(&project, 0, 5)]).await;
    database.sql(
        "CREATE INDEX theirs ON xlm.transfer (\"from\"); GRANT SELECT ON xlm.transfer TO PUBLIC",
    );
    let proxy = Proxy::new(database.server.port);
    let url = database.at(proxy.port);
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let mut lost = 0;
    for round in 2..6 {
        let generation = Generation { arrangement: round, ..GENERATION };
        let until = tokio::time::Instant::now() + Duration::from_secs(60);
        loop {
            assert!(tokio::time::Instant::now() < until);
            let kinds = [Break::Nowhere, Break::BeforeCommit, Break::AfterCommit, Break::InCopy];
            // Nothing of it is seen until it is over.
            let now = database.sql("SELECT count(*) FROM xlm.transfer");
            let done: Result<bool, SinkError> = async {
                let connection = url.connect().await?;
                let cursor = writer.cursor(&connection, "xlm").await?.unwrap();
                assert_eq!(cursor.rows.to_string(), now);
                if cursor.generation == generation {
                    return Ok(true);
                }
                let targets = ["transfer".to_owned()].into();
                proxy.breaks(kinds[rng.random_range(0..kinds.len())]);
                let begun =
                    Refill::begin(&connection, &writer, &project, generation, targets).await;
                let (refill, mut cursor) = begun?;
                while cursor.position.number < 6 * round {
                    proxy.breaks(kinds[rng.random_range(0..kinds.len())]);
                    let (from, to) = (cursor.position.number, cursor.position.number + 3);
                    let batch = Batch { generation, ..transfers(&project, from, to) };
                    cursor = refill.fill(&connection, &batch).await?;
                }
                proxy.breaks(kinds[rng.random_range(0..kinds.len())]);
                refill.swap_after(&connection, OnBlocked::Wait, Duration::ZERO).await?;
                Ok(false)
            }
            .await;
            match done {
                Ok(true) => break,
                Ok(false) => {}
                Err(SinkError::Lost(_)) => lost += 1,
                Err(error) => panic!("{error:?}"),
            }
        }
        assert_eq!(database.sql("SELECT count(*) FROM xlm.transfer"), (6 * round).to_string());
        let checked = check(&database.connect().await, &writer, &project).await.unwrap();
        assert_eq!(checked[0].difference(), None);
        let names = "SELECT string_agg(relname, ',' ORDER BY relname) FROM pg_class WHERE relnamespace = \
                     'xlm'::regnamespace AND relkind IN ('r', 'i')";
        assert_eq!(database.sql(names), "theirs,transfer,transfer_pkey");
    }
    assert!(lost >= 10, "{lost}");
}
