//! Tables that take the place of others, and what these had.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use orrery_postgres::{
    Batch, Column, ColumnType, EqualRows, Generation, Notify, OnBlocked, Project, Refill,
    SinkError, apply, blocked_by, check, ensure, ledger_digests, outgrown_tables, remove,
};
use orrery_testkit::postgres::is_missing;

use crate::world::{Database, GENERATION, filled, filled_as, position, project, transfers, writer};

const NEXT: Generation = Generation { arrangement: 2, ..GENERATION };

fn of_next(project: &Project, from: u64, to: u64) -> Batch {
    Batch { generation: NEXT, ..transfers(project, from, to) }
}

/// What others made on the table, as the server describes it.
const DESCRIBED: &str = "\
SELECT relacl FROM pg_class WHERE oid = 'xlm.transfer'::regclass; \
SELECT attname, attacl FROM pg_attribute WHERE attrelid = 'xlm.transfer'::regclass AND attacl IS NOT NULL; \
SELECT reloptions, relrowsecurity, relreplident FROM pg_class WHERE oid = 'xlm.transfer'::regclass; \
SELECT reloptions FROM pg_class WHERE oid = (SELECT reltoastrelid FROM pg_class WHERE oid = 'xlm.transfer'::regclass); \
SELECT indexdef FROM pg_indexes WHERE tablename = 'transfer' ORDER BY 1; \
SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'xlm.transfer'::regclass ORDER BY 1; \
SELECT * FROM pg_policies ORDER BY policyname; \
SELECT pg_get_triggerdef(oid), tgenabled FROM pg_trigger WHERE tgrelid = 'xlm.transfer'::regclass ORDER BY 1; \
SELECT obj_description('xlm.transfer'::regclass), col_description('xlm.transfer'::regclass, 2); \
SELECT pubname, tablename, attnames, rowfilter FROM pg_publication_tables ORDER BY 1; \
SELECT pg_get_statisticsobjdef(oid) FROM pg_statistic_ext; \
SELECT attname, attstattarget FROM pg_attribute WHERE attrelid = 'xlm.transfer'::regclass AND attstattarget > 0; \
SELECT oid, relname, relacl, reloptions, pg_get_viewdef(oid) FROM pg_class WHERE relkind = 'v' AND relnamespace = \
'public'::regnamespace ORDER BY relname";

#[tokio::test(flavor = "multi_thread")]
async fn what_others_made_is_on_the_new_table() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    let (connection, project, role) = (database.connect().await, project(), database.role());
    filled(&connection, &project, &[transfers(&project, 0, 5)]).await;
    let reader = format!("{role}_reader");
    database.sql(&format!(
        "CREATE ROLE {reader}; \
         GRANT SELECT ON xlm.transfer TO {reader} WITH GRANT OPTION; GRANT SELECT (\"from\") ON xlm.transfer TO PUBLIC; \
         CREATE INDEX by_from ON xlm.transfer (\"from\" text_pattern_ops) WHERE _ledger > 1; \
         CREATE UNIQUE INDEX \"By Ledger\" ON xlm.transfer USING btree (_ledger DESC, lower(\"from\")) INCLUDE (amount) \
         WITH (fillfactor = 80); \
         ALTER TABLE xlm.transfer ADD CONSTRAINT one UNIQUE (_ledger), ADD CONSTRAINT positive CHECK (amount >= 0) NOT VALID; \
         ALTER TABLE xlm.transfer SET (fillfactor = 70, autovacuum_enabled = false, toast.autovacuum_enabled = false); \
         ALTER TABLE xlm.transfer ENABLE ROW LEVEL SECURITY; \
         CREATE POLICY \"their's\" ON xlm.transfer FOR SELECT TO {reader} USING (\"from\" <> 'G1'); \
         CREATE POLICY all_of ON xlm.transfer AS RESTRICTIVE USING (true) WITH CHECK (amount > 0); \
         CREATE TABLE public.log (what text); CREATE FUNCTION public.logs() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN INSERT INTO public.log VALUES (NEW.\"from\"); RETURN NEW; END'; GRANT INSERT ON public.log TO {role}; \
         GRANT USAGE ON SCHEMA public TO {role}; \
         CREATE TRIGGER logs AFTER INSERT ON xlm.transfer FOR EACH ROW WHEN (NEW._ledger > 6) EXECUTE FUNCTION public.logs(); \
         CREATE TRIGGER sleeps BEFORE UPDATE OF amount ON xlm.transfer FOR EACH ROW EXECUTE FUNCTION public.logs(); \
         ALTER TABLE xlm.transfer DISABLE TRIGGER sleeps; \
         COMMENT ON TABLE xlm.transfer IS 'it''s theirs'; COMMENT ON COLUMN xlm.transfer.\"from\" IS 'whose'; \
         CREATE PUBLICATION something FOR TABLE xlm.transfer (_row, amount) WHERE (_row > '\\x00'); ALTER PUBLICATION something OWNER TO {role}; \
         CREATE STATISTICS xlm.both ON \"from\", amount FROM xlm.transfer; ALTER STATISTICS xlm.both OWNER TO {role}; \
         ALTER TABLE xlm.transfer ALTER amount SET STATISTICS 500; \
         CREATE VIEW public.large WITH (security_barrier = true, check_option = local) AS SELECT \"from\" AS who, t.* FROM \
         xlm.transfer AS t WHERE amount > 5; GRANT SELECT ON public.large TO {reader}; \
         CREATE VIEW public.larger AS SELECT who FROM public.large; ALTER VIEW public.large OWNER TO {role}; \
         GRANT CREATE ON SCHEMA public TO {role}"
    ));
    let before = database.sql(DESCRIBED);
    let oid = database.sql("SELECT 'xlm.transfer'::regclass::oid");
    filled_as(&connection, &writer(), &project, NEXT, &[of_next(&project, 0, 6)]).await;
    assert_eq!(database.sql(DESCRIBED), before);
    assert_ne!(database.sql("SELECT 'xlm.transfer'::regclass::oid"), oid);
    assert_eq!(database.sql("SELECT count(*), max(who) FROM public.large"), "6|G6");
    // Filling in is no event for triggers; rows that come afterwards are.
    assert_eq!(database.sql("SELECT count(*) FROM public.log"), "0");
    let places = ensure(&connection, &writer(), &project).await.unwrap();
    let batch = of_next(&project, 6, 7);
    apply(&connection, &writer(), &places, ("xlm", "xlm"), &batch, Notify::Nobody).await.unwrap();
    assert_eq!(database.sql("SELECT what FROM public.log"), "G7");
    let seen = format!("SET ROLE {reader}; SELECT count(*) FROM public.large");
    assert_eq!(database.sql(&seen).lines().last(), Some("7"));
    assert_eq!(check(&connection, &writer(), &project).await.unwrap()[0].difference(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_kept_makes_the_swap_wait() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    let (connection, project, writer) = (database.connect().await, project(), writer());
    filled(&connection, &project, &[transfers(&project, 0, 5)]).await;
    database.sql(
        "CREATE MATERIALIZED VIEW public.kept AS SELECT * FROM xlm.transfer; CREATE TABLE public.refers (row bytea \
         REFERENCES xlm.transfer); CREATE FUNCTION public.counts() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT count(*) \
         FROM xlm.transfer; END; CREATE VIEW public.theirs AS SELECT amount FROM xlm.transfer; CREATE TABLE public.rows (r \
         xlm.transfer); CREATE RULE rule AS ON DELETE TO xlm.transfer DO ALSO NOTHING; ALTER TABLE xlm.transfer ADD own text; \
         CREATE TABLE public.child () INHERITS (xlm.transfer); CREATE PUBLICATION foreign_one FOR TABLE xlm.transfer",
    );
    let targets = || ["transfer".to_owned()].into();
    let (refill, _) = Refill::begin(&connection, &writer, &project, NEXT, targets()).await.unwrap();
    refill.fill(&connection, &of_next(&project, 0, 6)).await.unwrap();
    let blocked = match refill.swap(&connection, OnBlocked::Wait).await {
        Err(SinkError::Blocked(blocked)) => blocked,
        other => panic!("{other:?}"),
    };
    assert_eq!(blocked, blocked_by(&connection, &writer, &project, &targets()).await.unwrap());
    let text = blocked.join("\n");
    for part in [
        "public.kept",
        "public.refers",
        "public.counts()",
        "public.theirs",
        "public.rows",
        "rule rule",
        "column own",
        "public.child",
        "foreign_one",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(blocked.len(), 9, "{text}");
    assert_eq!(database.sql("SELECT count(*) FROM xlm.transfer"), "5");
    let cursor = refill.swap_after(&connection, OnBlocked::Drop, Duration::ZERO).await.unwrap();
    assert_eq!(cursor.rows, 6);
    assert_eq!(database.sql("SELECT count(*) FROM xlm.transfer"), "6");
    assert_eq!(
        database.sql("SELECT count(*) FROM pg_class WHERE relname IN ('kept', 'child')"),
        "0"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_rows_are_not_sent_again_and_other_tables_stay() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    let (connection, mut project, writer) = (database.connect().await, project(), writer());
    project.tables.push(crate::world::table("other", &[("v", ColumnType::Text)]));
    filled(&connection, &project, &[transfers(&project, 0, 10)]).await;
    let oid = database.sql("SELECT 'xlm.other'::regclass::oid");
    // A column that is not in the project any more, or only there.
    assert!(outgrown_tables(&connection, &writer, &project).await.unwrap().is_empty());
    let mut other = project.clone();
    let column = other.tables[0].columns.pop().unwrap();
    let outgrown = outgrown_tables(&connection, &writer, &other).await.unwrap();
    assert_eq!(outgrown.iter().collect::<Vec<_>>(), ["transfer"]);
    other.tables[0].columns.extend([column.clone(), Column { name: "new".to_owned(), ..column }]);
    assert!(outgrown_tables(&connection, &writer, &other).await.unwrap().is_empty());
    // Rows of ledger 4 and later ones are others now.
    let mut now = of_next(&project, 3, 10);
    now.tables[0] = transfers(&project, 4, 10).tables[0].clone();
    let names = ("xlm", "xlm");
    let found = ledger_digests(&connection, &writer, names, "transfer", &(1..=3)).await.unwrap();
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(found[&2], transfers(&project, 1, 2).tables[0].digest());
    let targets = ["transfer".to_owned()].into();
    let (refill, _) = Refill::begin(&connection, &writer, &project, NEXT, targets).await.unwrap();
    now.from = position(0);
    now.equal.push(EqualRows { target: "transfer".to_owned(), ledgers: 1..=3 });
    let filled = refill.fill(&connection, &now).await.unwrap();
    assert_eq!((filled.rows, filled.has_copied()), (9, true));
    refill.swap_after(&connection, OnBlocked::Wait, Duration::ZERO).await.unwrap();
    let ledgers = "SELECT string_agg(_ledger::text, ',' ORDER BY _row) FROM xlm.transfer";
    assert_eq!(database.sql(ledgers), "1,2,3,5,6,7,8,9,10");
    assert_eq!(database.sql("SELECT 'xlm.other'::regclass::oid"), oid);
    let checked = check(&connection, &writer, &project).await.unwrap();
    assert_eq!((checked.len(), checked.iter().find_map(|it| it.difference())), (2, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_stay_and_filled_ones_go_on_from_one_position() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    let (connection, mut project, writer) = (database.connect().await, project(), writer());
    project.tables.push(crate::world::table("other", &[("v", ColumnType::Text)]));
    filled(&connection, &project, &[transfers(&project, 0, 10)]).await;
    let targets = || ["transfer".to_owned()].into();
    let (mut refill, _) =
        Refill::begin(&connection, &writer, &project, NEXT, targets()).await.unwrap();
    refill.fill(&connection, &of_next(&project, 0, 9)).await.unwrap();
    let error = refill.swap_after(&connection, OnBlocked::Wait, Duration::ZERO).await.unwrap_err();
    assert!(matches!(&error, SinkError::Moved(text) if text.contains("table other")), "{error:?}");
    assert_eq!(refill.restart(&connection).await.unwrap().position, position(0));
    refill.fill(&connection, &of_next(&project, 0, 10)).await.unwrap();
    let cursor = refill.swap_after(&connection, OnBlocked::Wait, Duration::ZERO).await.unwrap();
    assert_eq!((cursor.rows, &*cursor.state), (10, "live"));
    // Equal rows: another generation, and the tables stay.
    let third = Generation { arrangement: 3, ..GENERATION };
    let (refill, _) =
        Refill::begin(&connection, &writer, &project, third, [].into()).await.unwrap();
    let empty =
        Batch { generation: third, to: position(10), ledger: 10, ..Batch::new(third, position(0)) };
    refill.fill(&connection, &empty).await.unwrap();
    project.tables[1].columns.push(orrery_postgres::Column::new("w", ColumnType::Text));
    let oid = database.sql("SELECT 'xlm.transfer'::regclass::oid");
    let (refill, _) =
        Refill::begin(&connection, &writer, &project, third, [].into()).await.unwrap();
    let cursor = refill.swap_after(&connection, OnBlocked::Wait, Duration::ZERO).await.unwrap();
    assert_eq!((cursor.rows, cursor.generation, cursor.position), (10, third, position(10)));
    assert_eq!(database.sql("SELECT 'xlm.transfer'::regclass::oid"), oid);
    assert_eq!(database.sql("SELECT count(w) FROM xlm.other"), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swap_waits_for_transactions_of_before() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    let (connection, project, writer) = (database.connect().await, project(), writer());
    filled(&connection, &project, &[transfers(&project, 0, 5)]).await;
    let targets = ["transfer".to_owned()].into();
    let reader =
        database.hold("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM orrery.cursor");
    let (refill, _) = Refill::begin(&connection, &writer, &project, NEXT, targets).await.unwrap();
    refill.fill(&connection, &of_next(&project, 0, 6)).await.unwrap();
    let swapping = refill.swap(&connection, OnBlocked::Wait);
    let mut swapping = std::pin::pin!(swapping);
    assert!(tokio::time::timeout(Duration::from_secs(3), &mut swapping).await.is_err());
    // Whoever reads meanwhile sees the rows of before.
    assert_eq!(database.sql("SELECT count(*) FROM xlm.transfer"), "5");
    drop(reader);
    let swapped = tokio::time::timeout(Duration::from_secs(20), swapping).await.unwrap();
    assert_eq!(swapped.unwrap().rows, 6);
    // One who holds the table is let pass, within a second, and the next attempt does the rest.
    database.sql(
        "CREATE INDEX theirs ON xlm.transfer (amount); CREATE INDEX stays ON xlm.transfer (amount)",
    );
    database.sql("ALTER TABLE xlm.transfer ADD CONSTRAINT few CHECK (amount > 0)");
    let third = Generation { arrangement: 3, ..GENERATION };
    let targets = ["transfer".to_owned()].into();
    let (refill, _) = Refill::begin(&connection, &writer, &project, third, targets).await.unwrap();
    refill
        .fill(&connection, &Batch { generation: third, ..transfers(&project, 0, 7) })
        .await
        .unwrap();
    let reader = database.hold("BEGIN; SELECT * FROM xlm.transfer");
    let busy = refill.swap_after(&connection, OnBlocked::Wait, Duration::ZERO).await;
    assert!(matches!(busy, Err(SinkError::Busy(_))), "{busy:?}");
    drop(reader);
    // What was dropped meanwhile is not there.
    database.sql("DROP INDEX xlm.theirs; ALTER TABLE xlm.transfer DROP CONSTRAINT few");
    let swapped = refill.swap_after(&connection, OnBlocked::Wait, Duration::ZERO).await.unwrap();
    assert_eq!(swapped.rows, 7);
    let names = "SELECT string_agg(indexname, ',' ORDER BY indexname) FROM pg_indexes WHERE schemaname = 'xlm'";
    assert_eq!(database.sql(names), "stays,transfer_pkey");
    let constraints = "SELECT string_agg(conname, ',') FROM pg_constraint WHERE conrelid = 'xlm.transfer'::regclass";
    assert_eq!(database.sql(constraints), "transfer_pkey");
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_are_gone_go_and_types_may_be_others() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    let (connection, mut first) = (database.connect().await, project());
    first.tables.push(crate::world::table("gone", &[("v", ColumnType::Text)]));
    filled(&connection, &first, &[transfers(&first, 0, 5)]).await;
    database.sql(&format!(
        "CREATE VIEW public.theirs AS SELECT amount FROM xlm.transfer; ALTER VIEW public.theirs OWNER TO {}; GRANT ALL ON \
         SCHEMA public TO {0}",
        database.role()
    ));
    let mut project = project();
    project.tables[0].name = "transfer_v1".to_owned();
    project.tables[0].columns[1].kind = ColumnType::Int256;
    let writer = writer();
    let targets = ["transfer".to_owned()].into();
    let (refill, _) = Refill::begin(&connection, &writer, &project, NEXT, targets).await.unwrap();
    refill.fill(&connection, &of_next(&project, 0, 6)).await.unwrap();
    let blocked =
        refill.swap_after(&connection, OnBlocked::Wait, Duration::ZERO).await.unwrap_err();
    assert!(
        matches!(&blocked, SinkError::Blocked(all) if all[0].contains("public.theirs")),
        "{blocked:?}"
    );
    assert_eq!(database.sql("SELECT count(*) FROM xlm.transfer, xlm.gone"), "0");
    database.sql("DROP VIEW public.theirs");
    refill.swap_after(&connection, OnBlocked::Wait, Duration::ZERO).await.unwrap();
    let tables = "SELECT string_agg(relname, ',') FROM pg_class WHERE relnamespace = 'xlm'::regnamespace AND relkind IN \
                  ('r', 'v')";
    assert_eq!(database.sql(tables), "transfer_v1");
    assert_eq!(check(&connection, &writer, &project).await.unwrap()[0].difference(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_reads_sees_the_rows_of_before_or_those_of_now() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    let (connection, project, writer) = (database.connect().await, project(), writer());
    filled(&connection, &project, &[transfers(&project, 0, 5)]).await;
    database.sql(&format!(
        "CREATE VIEW public.direct AS SELECT * FROM xlm.transfer; CREATE VIEW public.nested AS SELECT * FROM public.direct; \
         ALTER VIEW public.direct OWNER TO {0}; GRANT CREATE, USAGE ON SCHEMA public TO {0}",
        database.role()
    ));
    let done = Arc::new(AtomicBool::new(false));
    let mut readers = Vec::new();
    for table in ["xlm.transfer", "public.direct", "public.nested"] {
        let (client, moving) = database.client().await;
        tokio::spawn(moving);
        let done = Arc::clone(&done);
        readers.push(tokio::spawn(async move {
            let sql = format!("SELECT count(*) FROM {table}");
            let (mut seen, mut times) = (5_i64, 0);
            while !done.load(Ordering::Relaxed) {
                let rows = client.query_typed(&sql, &[]).await.unwrap();
                let now: i64 = rows[0].get(0);
                assert!(now >= seen, "{table}: {now} after {seen}");
                (seen, times) = (now, times + 1);
            }
            (seen, times)
        }));
    }
    for round in 2..8 {
        let generation = Generation { arrangement: round, ..GENERATION };
        let targets = ["transfer".to_owned()].into();
        let (refill, _) =
            Refill::begin(&connection, &writer, &project, generation, targets).await.unwrap();
        refill
            .fill(&connection, &Batch { generation, ..transfers(&project, 0, 4 + round) })
            .await
            .unwrap();
        loop {
            match refill.swap(&connection, OnBlocked::Wait).await {
                Ok(_) => break,
                Err(SinkError::Busy(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
                Err(error) => panic!("{error:?}"),
            }
        }
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    done.store(true, Ordering::Relaxed);
    for reader in readers {
        let (seen, times) = reader.await.unwrap();
        assert!(seen == 11 && times > 20, "{seen} {times}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_removed_is_gone_unless_others_need_it() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    let (connection, project, writer) = (database.connect().await, project(), writer());
    filled(&connection, &project, &[transfers(&project, 0, 5)]).await;
    let targets = ["transfer".to_owned()].into();
    Refill::begin(&connection, &writer, &project, NEXT, targets).await.unwrap();
    database
        .sql("CREATE VIEW public.theirs AS SELECT * FROM xlm.transfer; CREATE TABLE xlm.theirs ()");
    let blocked = remove(&connection, &writer, "xlm").await.unwrap_err();
    assert!(matches!(blocked, SinkError::Blocked(_)), "{blocked:?}");
    assert_eq!(database.sql("SELECT count(*) FROM xlm.transfer"), "5");
    database.sql("DROP VIEW public.theirs");
    remove(&connection, &writer, "xlm").await.unwrap();
    let left =
        "SELECT string_agg(relname, ',') FROM pg_class WHERE relnamespace = 'xlm'::regnamespace";
    assert_eq!(database.sql(left), "theirs");
    assert_eq!(writer.cursor(&connection, "xlm").await.unwrap(), None);
    assert_eq!(database.sql("SELECT count(*) FROM orrery.objects"), "0");
}
