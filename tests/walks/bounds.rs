//! Walks that are interrupted: paging on from the cursors returns every row once.

use std::cell::Cell;
use std::ops::ControlFlow;

use orrery_ledger::domain::{Direction, EventId, Page, TxHash};
use orrery_store::{Bounds, Durability, EventQuery, IndexOptions, Store, TransactionQuery};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::{QueryGenerator, any_order, chain, network, prune};
use orrery_testkit::model::{EventRow, Model, TransactionRow, Universe};
use orrery_testkit::size;

/// Bounds of a walk, from nothing to unlimited.
struct Cost {
    records: u64,
    index_rows: u64,
    /// Number of checks of the clock until the time is up.
    looks: u64,
    /// Number of rows after which the visitor stops.
    rows: usize,
}

impl Cost {
    fn random(rng: &mut ChaCha8Rng) -> Self {
        let mut some = |choice: &[u64]| *choice.choose(rng).unwrap();
        Self {
            records: some(&[0, 1, 2, 5, 20, u64::MAX]),
            index_rows: some(&[0, 1, 3, 10, 50, u64::MAX]),
            looks: some(&[0, 1, u64::MAX]),
            rows: some(&[1, 3, 1000]) as usize,
        }
    }
}

/// Runs one page's walk within the bounds.
fn bounded<T>(
    cost: &Cost,
    walk: impl FnOnce(Bounds<'_>, &dyn Fn(usize) -> ControlFlow<()>) -> T,
) -> T {
    let looks = Cell::new(0);
    let interrupted = || {
        looks.set(looks.get() + 1);
        looks.get() > cost.looks
    };
    let bounds =
        Bounds { records: cost.records, index_rows: cost.index_rows, interrupted: &interrupted };
    walk(bounds, &|rows| match rows >= cost.rows {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    })
}

fn is_beyond<C: Ord>(cursor: C, before: Option<C>, direction: Direction) -> bool {
    before.is_none_or(|before| match direction {
        Direction::NewestFirst => cursor < before,
        Direction::OldestFirst => cursor > before,
    })
}

/// Returns all rows of a query, page by page, from each row's or interruption's cursor. When the
/// walk is interrupted before the offset is used up, the client skips the rest of it.
fn follow_events(store: &Store, query: &EventQuery, cost: &Cost) -> Vec<EventRow> {
    let mut query = query.clone();
    let mut left_out = 0;
    let mut met = Vec::new();
    loop {
        let mut rows = Vec::new();
        let walked = bounded(cost, |bounds, goes_on| {
            store.events_within(&query, bounds, |record| {
                rows.push(EventRow::of(record));
                goes_on(rows.len())
            })
        })
        .unwrap();
        let next = match (rows.last(), walked.interrupted) {
            (Some(last), _) => EventId(last.id),
            (None, Some(at)) => {
                if query.page.cursor.is_none() {
                    left_out = query.page.offset - at.skipped;
                }
                at.cursor
            }
            (None, None) => break,
        };
        assert!(is_beyond(next, query.page.cursor, query.page.direction), "{query:?} gets on");
        query.page.cursor = Some(next);
        met.extend(rows);
    }
    met.split_off(met.len().min(left_out as usize))
}

fn follow_transactions(
    store: &Store,
    query: &TransactionQuery,
    cost: &Cost,
) -> Vec<TransactionRow> {
    let mut query = query.clone();
    let mut left_out = 0;
    let mut met = Vec::new();
    loop {
        let mut rows = Vec::new();
        let walked = bounded(cost, |bounds, goes_on| {
            store.transactions_within(&query, bounds, |record| {
                rows.push(TransactionRow::of(record));
                goes_on(rows.len())
            })
        })
        .unwrap();
        let next = match (rows.last(), walked.interrupted) {
            (Some(last), _) => TxHash::from(last.tx),
            (None, Some(at)) => {
                if query.page.cursor.is_none() {
                    left_out = query.page.offset - at.skipped;
                }
                at.cursor
            }
            (None, None) => break,
        };
        let next = store.transaction_position(&next).unwrap().expect("a cursor is stored");
        assert!(is_beyond(next, query.page.cursor, query.page.direction), "{query:?} gets on");
        query.page.cursor = Some(next);
        met.extend(rows);
    }
    met.split_off(met.len().min(left_out as usize))
}

fn compare(store: &Store, model: &Model, queries: &mut QueryGenerator<'_>) {
    let cost = Cost::random(queries.rng);
    let query = queries.events();
    let whole = EventQuery { page: Page { limit: usize::MAX, ..query.page }, ..query.clone() };
    assert_eq!(follow_events(store, &query, &cost), model.events(&whole), "{query:?}");
    let query = queries.transactions();
    let whole =
        TransactionQuery { page: Page { limit: usize::MAX, ..query.page }, ..query.clone() };
    assert_eq!(follow_transactions(store, &query, &cost), model.transactions(&whole), "{query:?}");
}

/// Small: 400 queries; full: 40,000.
#[test]
fn cursors_of_interrupted_walks_return_every_row_once() {
    let stores = size::choose(4, 50);
    let questions_each = size::choose(25, 200);
    for seed in 0..stores {
        let mut rng = ChaCha8Rng::seed_from_u64(7000 + seed);
        let universe = Universe::random(&mut rng);
        let options = IndexOptions {
            classic_events: rng.random_bool(0.5),
            fee_events: rng.random_bool(0.5),
            contracts: None,
            raw_ledgers: true,
        };
        let ledgers = chain(&mut rng, &universe, 50);
        let ledgers = any_order(&mut rng, ledgers);
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), Some(&network())).unwrap();
        let mut model = Model::default();
        for ledger in &ledgers {
            // The events of ledgers that are durable at once are in memory.
            let durability =
                if rng.random_bool(0.5) { Durability::Deferred } else { Durability::Synced };
            store.commit(ledger.prepare(&options), durability).unwrap();
            model.add(ledger, &options);
        }
        let mut queries = QueryGenerator {
            rng: &mut rng,
            universe: &universe,
            sequences: 90..=160,
            hashes: Vec::new(),
            positions: model.transactions.keys().copied().collect(),
            last_event: model.events.len() as u64,
        };
        for _ in 0..questions_each {
            compare(&store, &model, &mut queries);
        }
        prune(&store, &mut model, queries.rng);
        queries.positions = model.transactions.keys().copied().collect();
        for _ in 0..questions_each {
            compare(&store, &model, &mut queries);
        }
    }
}
