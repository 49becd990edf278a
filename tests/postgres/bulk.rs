//! How fast rows are there: filled in, against a binary `COPY` of the same rows into a table with the same key; and
//! one ledger at a time.

use std::time::{Duration, Instant};

use orrery_postgres::{Batch, MOST_ROWS, Notify, OnBlocked, Refill, TableRows, apply, ensure};
use orrery_testkit::postgres::is_missing;

use crate::world::{Database, GENERATION, filled, position, project, transfers, writer};

/// Rows of the comparison.
const ROWS: u64 = 400_000;
/// Least part of the speed of the plain copy, on a machine that does other things, too.
const LEAST: f64 = 0.2;

#[tokio::test(flavor = "multi_thread")]
async fn filling_in_is_about_as_fast_as_a_copy() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    let (connection, project, writer) = (database.connect().await, project(), writer());
    let targets = ["transfer".to_owned()].into();
    let batches: Vec<Batch> = (0..ROWS)
        .step_by(MOST_ROWS as usize)
        .map(|from| transfers(&project, from, (from + MOST_ROWS).min(ROWS)))
        .collect();
    let bytes: usize = batches.iter().flat_map(|it| &it.tables).map(TableRows::bytes).sum();
    let begun = Instant::now();
    let (refill, cursor) =
        Refill::begin(&connection, &writer, &project, GENERATION, targets).await.unwrap();
    assert_eq!(cursor.position, position(0));
    for batch in &batches {
        assert!(batch.is_full());
        refill.fill(&connection, batch).await.unwrap();
    }
    refill.swap_after(&connection, OnBlocked::Wait, Duration::ZERO).await.unwrap();
    let filled = begun.elapsed();
    let file = database.server.directory.join("rows");
    database.sql(&format!("COPY xlm.transfer TO '{}' (FORMAT binary)", file.display()));
    let begun = Instant::now();
    database.sql(&format!(
        "CREATE TABLE public.plain (LIKE xlm.transfer); COPY public.plain FROM '{}' (FORMAT binary); ALTER TABLE public.plain \
         ADD PRIMARY KEY (_row); ANALYZE public.plain",
        file.display()
    ));
    let plain = begun.elapsed();
    let part = plain.as_secs_f64() / filled.as_secs_f64();
    eprintln!("{ROWS} rows, {bytes} bytes: filled in {filled:?}, copied in {plain:?}: {part:.2}");
    assert!(part >= LEAST, "{part:.2}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_ledger_are_there_soon() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    let (connection, project) = (database.connect().await, project());
    filled(&connection, &project, &[]).await;
    let places = ensure(&connection, &writer(), &project).await.unwrap();
    let mut times = Vec::new();
    for number in 0..300 {
        let batch = transfers(&project, number, number + 1);
        let begun = Instant::now();
        apply(&connection, &writer(), &places, ("xlm", "xlm"), &batch, Notify::Listeners)
            .await
            .unwrap();
        times.push(begun.elapsed());
    }
    times.sort();
    eprintln!("a ledger: median {:?}, 99 % within {:?}", times[150], times[297]);
    assert!(times[150] <= Duration::from_millis(100), "{:?}", times[150]);
}
