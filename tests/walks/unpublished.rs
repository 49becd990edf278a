//! Readers during a write: what is in the database already, and not yet in the store's state, is not
//! shown. Otherwise a client could learn of a ledger from one query that another one lacks.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use orrery_ledger::domain::{Direction, LedgerRange, LedgerSeq, Page, TxHash};
use orrery_store::{
    Durability, EventQuery, EventRecord, Store, TopicFilter, TransactionQuery, TransactionRecord,
};
use orrery_testkit::model::{Ledger, Universe};
use orrery_testkit::scratch::scratch;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::{any_order, ask_events, ask_transactions, chain, everything, network};

/// Returns the ledgers of which any query shows something.
fn shown(store: &Store, ledgers: &[Ledger]) -> BTreeSet<LedgerSeq> {
    let mut shown = BTreeSet::new();
    let ranges = [None, Some(LedgerRange::new(0, u32::MAX)), Some(LedgerRange::new(1, 150))];
    for (range, direction) in ranges
        .into_iter()
        .flat_map(|range| [Direction::NewestFirst, Direction::OldestFirst].map(|it| (range, it)))
    {
        let page = Page { direction, ..Page::first(usize::MAX) };
        let (contracts, topics) = (Vec::new(), TopicFilter::default());
        let query = EventQuery { ledgers: range, contracts, topics, page };
        shown.extend(ask_events(store, &query).iter().map(|row| LedgerSeq(row.ledger)));
        let page = Page { direction, ..Page::first(usize::MAX) };
        let query = TransactionQuery { ledgers: range, contracts: Vec::new(), page };
        shown.extend(ask_transactions(store, &query).iter().map(|row| row.position.ledger));
    }
    for transaction in ledgers.iter().flat_map(|ledger| &ledger.transactions) {
        let hash = TxHash::from(transaction.hash);
        let visit = |record: &EventRecord<'_>| {
            shown.insert(record.ledger);
        };
        store.events_of_transaction(&hash, visit).unwrap();
        shown.extend(store.transaction_position(&hash).unwrap().map(|position| position.ledger));
    }
    shown
}

#[test]
fn no_query_shows_a_ledger_before_its_write_is_over() {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let universe = Universe::random(&mut rng);
    let ledgers = chain(&mut rng, &universe, 60);
    let ledgers = any_order(&mut rng, ledgers);
    let directory = scratch();
    let store = Arc::new(Store::open(directory.path(), Some(&network())).unwrap());
    let observed = Arc::new(Mutex::new(0));
    let has_rows =
        |ledger: &&Ledger| ledger.transactions.iter().any(|transaction| transaction.smart_contract);
    for (number, portion) in ledgers.chunks(3).enumerate() {
        let unpublished: Vec<_> = portion.iter().map(|ledger| LedgerSeq(ledger.sequence)).collect();
        let (reader, count, all) = (Arc::clone(&store), Arc::clone(&observed), ledgers.clone());
        store.faults().after_writes(move |_| {
            let shown = shown(&reader, &all);
            let early: Vec<_> =
                unpublished.iter().filter(|ledger| shown.contains(ledger)).collect();
            assert!(early.is_empty(), "{early:?}");
            *count.lock().unwrap() += 1;
        });
        let durability = if number % 2 == 0 { Durability::Synced } else { Durability::Deferred };
        let prepared = portion.iter().map(|ledger| ledger.prepare(&everything())).collect();
        store.commit_all(prepared, durability).1.unwrap();
        store.faults().clear();
        let shown = shown(&store, &ledgers);
        for ledger in portion.iter().filter(has_rows) {
            assert!(shown.contains(&LedgerSeq(ledger.sequence)), "{}", ledger.sequence);
        }
    }
    assert!(*observed.lock().unwrap() >= ledgers.len() / 3);
}

/// Three ledgers in a row, each with a smart-contract transaction.
fn three_with_transactions(rng: &mut ChaCha8Rng, universe: &Universe) -> [Ledger; 3] {
    loop {
        let mut previous = [0; 32];
        let ledgers = [100, 101, 102].map(|sequence| {
            let ledger = universe.ledger(rng, sequence, previous);
            previous = ledger.hash;
            ledger
        });
        let has_rows = |ledger: &Ledger| ledger.transactions.iter().any(|it| it.smart_contract);
        if ledgers.iter().all(has_rows) {
            return ledgers;
        }
    }
}

/// One write stores the ledgers around a stored one, and ends while a page is being read.
#[test]
fn a_write_that_ends_during_a_page_is_not_seen_in_part() {
    let mut rng = ChaCha8Rng::seed_from_u64(12);
    let universe = Universe::random(&mut rng);
    let [before, stored, after] = three_with_transactions(&mut rng, &universe);
    for direction in [Direction::OldestFirst, Direction::NewestFirst] {
        let directory = scratch();
        let store = Arc::new(Store::open(directory.path(), Some(&network())).unwrap());
        store.commit(stored.prepare(&everything()), Durability::Synced).unwrap();
        let (begun, has_begun) = mpsc::channel();
        let (ended, has_ended) = mpsc::channel::<()>();
        let reader = Arc::clone(&store);
        let page = Page { direction, ..Page::first(usize::MAX) };
        let read = move || {
            let mut seen = BTreeSet::new();
            let query = TransactionQuery { ledgers: None, contracts: Vec::new(), page };
            let visit = |record: &TransactionRecord<'_>| {
                if seen.is_empty() {
                    begun.send(()).unwrap();
                    has_ended.recv().unwrap();
                }
                seen.insert(record.position.ledger.0);
            };
            reader.transactions(&query, visit).unwrap();
            seen
        };
        let mut read = Some(read);
        let reading = Arc::new(Mutex::new(None));
        let started = Arc::clone(&reading);
        store.faults().after_writes(move |_| {
            let Some(read) = read.take() else { return };
            *started.lock().unwrap() = Some(thread::spawn(read));
            has_begun.recv().unwrap();
        });
        let around = [&before, &after].map(|ledger| ledger.prepare(&everything()));
        store.commit_all(around.into(), Durability::Synced).1.unwrap();
        store.faults().clear();
        ended.send(()).unwrap();
        let seen = reading.lock().unwrap().take().unwrap().join().unwrap();
        assert_eq!(seen, BTreeSet::from([stored.sequence]), "{direction:?}");
    }
}
