//! P9 in process, P11 and P12: from a query to finished JSON.

use std::hint::black_box;

use orrery::api::EventList;
use orrery::domain::EventId;
use orrery::store::{EventQuery, Store};

use super::baseline::sqlite::Sqlite;
use super::measure::{alternate, micros, quantile, repeat, sized, time};
use super::report::{Goal, Report, Row};
use super::stores::{Filled, QuerySample, of_contract, page};

pub const P9: Goal = Goal::at_least(3.0, 10.0);
const P11: Goal = Goal::at_most(20.0, 5.0);
const P12: Goal = Goal::at_least(1e6, 3e6);

/// Queries per repetition.
const QUESTIONS: usize = sized(2_000, 50);
/// Pages of a thousand events per repetition.
const LARGE_PAGES: usize = sized(300, 5);

/// Returns the response to a query, as the API serialises it.
pub fn json(store: &Store, query: &EventQuery) -> Vec<u8> {
    let mut list = EventList::with_room_for(query.page.limit);
    store.events(query, |event| list.event(event)).expect("the store answers");
    list.finish()
}

/// Notes what the store reads for these queries: event blocks, each of which is read and decompressed
/// unless it is in memory, and index rows.
pub fn note_reads(store: &Store, name: &str, queries: &[EventQuery], report: &mut Report) {
    let (mut events, mut blocks, mut rows) = (0u64, Vec::new(), Vec::new());
    for query in queries {
        let cost = store.events(query, |_| events += 1).expect("the store answers");
        blocks.push(cost.records as f64);
        rows.push(cost.index_rows as f64);
    }
    report.note(format!(
        "{name}: {:.0} events a page on average; at p50 and p99 {:.0} and {:.0} event blocks, {:.0} and {:.0} index rows.",
        events as f64 / queries.len().max(1) as f64,
        quantile(&blocks, 0.5),
        quantile(&blocks, 0.99),
        quantile(&rows, 0.5),
        quantile(&rows, 0.99),
    ));
}

/// Returns the same response from SQLite.
pub fn sqlite_json(sqlite: &Sqlite, query: &EventQuery) -> Vec<u8> {
    let mut list = EventList::with_room_for(query.page.limit);
    sqlite
        .by_contract(&query.contracts[0], query.page.limit, |event| list.event(event))
        .expect("SQLite answers");
    list.finish()
}

/// Measures P9 in process.
pub fn against_sqlite(
    store: &Store,
    sqlite: &Sqlite,
    questions: &QuerySample,
    report: &mut Report,
) {
    let popular: Vec<_> =
        questions.contracts.iter().take(QUESTIONS).copied().map(of_contract).collect();
    let uniform: Vec<_> = questions.distinct_contracts().into_iter().map(of_contract).collect();
    for (popularity, queries) in [("popular", popular), ("uniform", uniform)] {
        // Speeds, so that higher is better: pages per second at the median time.
        let sides = alternate(
            || 1e6 / quantile(&micros(&queries, |q| drop(black_box(json(store, q)))), 0.5),
            || 1e6 / quantile(&micros(&queries, |q| drop(black_box(sqlite_json(sqlite, q)))), 0.5),
        );
        let name = format!("P9 by-contract limit=100 / SQLite, in process, {popularity} contracts");
        report.add(match popularity {
            "popular" => Row::new(name, "pages/s", sides, P9),
            _ => Row::information(name, "pages/s", sides),
        });
    }
}

/// Measures P11.
pub fn worst_page(filled: &Filled, questions: &QuerySample, report: &mut Report) {
    let store = &*filled.store;
    let usual = questions.usual_pages(QUESTIONS);
    let worst = [
        ("rare topic", questions.rare_topics(QUESTIONS)),
        ("rare contract", questions.rare_contracts(QUESTIONS)),
    ];
    for (name, queries) in worst {
        let sides = alternate(
            || quantile(&micros(&queries, |query| drop(black_box(json(store, query)))), 0.99),
            || quantile(&micros(&usual, |query| drop(black_box(json(store, query)))), 0.5),
        );
        let name = format!("P11 {name} over all ledgers, p99 / usual page, p50");
        report.add(Row::new(name, "µs", sides, P11));
    }
}

/// Measures P12.
pub fn serialization(store: &Store, questions: &QuerySample, report: &mut Report) {
    let pages = |list: &dyn Fn(u64) -> EventQuery| {
        let queries: Vec<_> = (0..LARGE_PAGES as u64).map(list).collect();
        repeat(|| {
            let mut events = 0;
            let took = time(|| {
                for query in &queries {
                    let mut list = EventList::with_room_for(query.page.limit);
                    let visited = store.events(query, |event| {
                        list.event(event);
                        events += 1;
                    });
                    visited.expect("the store answers");
                    black_box(list.finish());
                }
            });
            f64::from(events) / took.as_secs_f64()
        })
    };
    let newest = |number: u64| questions.last.saturating_sub(1000 * number);
    let neighbours = pages(&|number| {
        let mut query = page(1000);
        query.page.cursor = Some(EventId(newest(number)));
        query
    });
    report.add(Row::absolute(
        "P12 serialised per core, pages of 1000",
        "events/s",
        neighbours,
        P12,
    ));
    let same = pages(&|_| page(1000));
    report.add(Row::absolute("P12 the same page again and again", "events/s", same, P12));
}
