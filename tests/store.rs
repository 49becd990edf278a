//! The store against a plain in-memory model: random ledgers and queries, any order of ingestion,
//! pruning, restarts, and readers beside a writer.

mod faults {
    mod histories;
}
mod feed {
    mod changes;
    mod consumers;
    mod extracts;
    mod kills;
    mod kinds;
    mod losses;
    mod progress_in_memory;
    mod restored_ids;
}

mod indexes {
    mod registered;
}
mod walks {
    mod attested;
    mod bounds;
    mod unpublished;
}

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use orrery_ledger::domain::{
    ContractId, Direction, EventId, LedgerRange, LedgerSeq, Network, Page, TxHash,
};
use orrery_ledger::verify::VerifyError;
use orrery_store::{
    Committed, Durability, EventQuery, IndexOptions, Retention, Store, StoreError, TopicFilter,
    TransactionPosition, TransactionQuery, audit,
};
use orrery_testkit::model::{EventRow, Ledger, Model, TransactionRow, Universe};
use orrery_testkit::size;
use rand::seq::{IndexedRandom, IteratorRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn network() -> Network {
    Network::from_passphrase("store tests")
}

fn everything() -> IndexOptions {
    IndexOptions { classic_events: true, fee_events: true, contracts: None, raw_ledgers: true }
}

fn ask_events(store: &Store, query: &EventQuery) -> Vec<EventRow> {
    let mut rows = Vec::new();
    store.events(query, |record| rows.push(EventRow::of(record))).unwrap();
    rows
}

fn ask_transactions(store: &Store, query: &TransactionQuery) -> Vec<TransactionRow> {
    let mut rows = Vec::new();
    store.transactions(query, |record| rows.push(TransactionRow::of(record))).unwrap();
    rows
}

/// Generates a chain over `len` sequences from 100 on. A few sequences are left out, so that the
/// store has several ranges.
fn chain(rng: &mut ChaCha8Rng, universe: &Universe, len: u32) -> Vec<Ledger> {
    chain_of(rng, universe, 100..=99 + len)
}

/// As [`chain`], for these sequences. The last one is never left out.
fn chain_of(
    rng: &mut ChaCha8Rng,
    universe: &Universe,
    sequences: RangeInclusive<u32>,
) -> Vec<Ledger> {
    let mut previous = [0; 32];
    let mut ledgers = Vec::new();
    for sequence in sequences.clone() {
        let ledger = universe.ledger(rng, sequence, previous);
        previous = ledger.hash;
        if sequence == *sequences.end() || rng.random_bool(0.95) {
            ledgers.push(ledger);
        }
    }
    ledgers
}

/// Cuts the chain into pieces and usually shuffles them.
fn any_order(rng: &mut ChaCha8Rng, ledgers: Vec<Ledger>) -> Vec<Ledger> {
    let mut pieces: Vec<Vec<Ledger>> = vec![Vec::new()];
    for ledger in ledgers {
        if rng.random_bool(0.1) {
            pieces.push(Vec::new());
        }
        pieces.last_mut().unwrap().push(ledger);
    }
    if rng.random_bool(0.6) {
        pieces.shuffle(rng);
    }
    pieces.into_iter().flatten().collect()
}

struct QueryGenerator<'a> {
    rng: &'a mut ChaCha8Rng,
    universe: &'a Universe,
    /// Sequences in queries: those of the ledgers, and some around them.
    sequences: RangeInclusive<u32>,
    hashes: Vec<[u8; 32]>,
    positions: Vec<TransactionPosition>,
    last_event: u64,
}

impl QueryGenerator<'_> {
    fn ledgers(&mut self) -> Option<LedgerRange> {
        self.rng.random_bool(0.5).then(|| {
            let first = self.rng.random_range(self.sequences.clone());
            let last = match self.rng.random_range(0..10) {
                0 => u32::MAX,
                // A ledger whose blocks are in memory is read without the indexes.
                1..5 => first,
                _ => self.rng.random_range(self.sequences.clone()),
            };
            LedgerRange::new(first, last)
        })
    }

    fn contracts(&mut self) -> Vec<ContractId> {
        let count = *[0, 1, 1, 2, 5, 40].choose(self.rng).unwrap();
        (0..count)
            .map(|_| {
                if self.rng.random_bool(0.1) {
                    ContractId(self.rng.random())
                } else {
                    *self.universe.contracts.choose(self.rng).unwrap()
                }
            })
            .collect()
    }

    fn topic(&mut self) -> Vec<u8> {
        if self.rng.random_bool(0.05) {
            return vec![1, 2, 3, 4];
        }
        self.universe.topics.choose(self.rng).unwrap().clone()
    }

    fn topics(&mut self) -> TopicFilter {
        let mut filter = TopicFilter::default();
        if self.rng.random_bool(0.4) {
            let count = self.rng.random_range(1..=3);
            filter.anywhere = (0..count).map(|_| self.topic()).collect();
            filter.all = self.rng.random_bool(0.4);
        }
        if self.rng.random_bool(0.3) {
            let position = self.rng.random_range(0..4);
            filter.positional[position] = Some(self.topic());
            if self.rng.random_bool(0.3) {
                filter.positional[(position + 1) % 4] = Some(self.topic());
            }
        }
        if self.rng.random_bool(0.2) {
            let addresses = self.universe.topics.iter().filter(|it| it.starts_with(&[0, 0, 0, 18]));
            filter.address = addresses.choose(self.rng).cloned();
        }
        filter
    }

    fn page<C>(&mut self, cursor: impl FnOnce(&mut Self) -> C) -> Page<C> {
        Page {
            direction: if self.rng.random_bool(0.5) {
                Direction::NewestFirst
            } else {
                Direction::OldestFirst
            },
            cursor: if self.rng.random_bool(0.4) { Some(cursor(self)) } else { None },
            offset: if self.rng.random_bool(0.3) { self.rng.random_range(0..200) } else { 0 },
            limit: *[1, 2, 10, 100, 1000].choose(self.rng).unwrap(),
        }
    }

    fn events(&mut self) -> EventQuery {
        EventQuery {
            ledgers: self.ledgers(),
            contracts: self.contracts(),
            topics: self.topics(),
            page: self.page(|q| {
                EventId(
                    *[0, 1, u64::MAX, q.rng.random_range(0..q.last_event + 3)]
                        .choose(q.rng)
                        .unwrap(),
                )
            }),
        }
    }

    fn transactions(&mut self) -> TransactionQuery {
        TransactionQuery {
            ledgers: self.ledgers(),
            contracts: self.contracts(),
            page: self.page(|q| match q.positions.choose(q.rng) {
                Some(position) if q.rng.random_bool(0.9) => *position,
                _ => TransactionPosition { ledger: LedgerSeq(0), application_order: 0 },
            }),
        }
    }

    fn hash(&mut self) -> TxHash {
        match self.hashes.choose(self.rng) {
            Some(hash) if self.rng.random_bool(0.9) => TxHash::from(*hash),
            _ => TxHash::from(self.rng.random::<[u8; 32]>()),
        }
    }
}

fn compare(store: &Store, model: &Model, queries: &mut QueryGenerator<'_>) {
    let query = queries.events();
    assert_eq!(ask_events(store, &query), model.events(&query), "{query:?}");
    let query = queries.transactions();
    assert_eq!(ask_transactions(store, &query), model.transactions(&query), "{query:?}");
    let hash = queries.hash();
    let mut rows = Vec::new();
    store.events_of_transaction(&hash, |record| rows.push(EventRow::of(record))).unwrap();
    assert_eq!(rows, model.events_of_transaction(&hash), "{hash}");
    let mut row = None;
    store.transaction(&hash, |record| row = Some(TransactionRow::of(record))).unwrap();
    assert_eq!(row.as_ref(), model.transaction(&hash), "{hash}");
}

/// First sequences of the chains: one in the middle of the range, and one whose chain ends with the
/// largest sequence.
const FIRSTS: [u32; 2] = [100, u32::MAX - (LEDGERS - 1)];
/// Number of sequences in such a chain.
const LEDGERS: u32 = 70;

/// Small: 4,000 queries; full: 60,000.
#[test]
fn random_queries_agree_with_the_model() {
    let stores = size::choose(10, 60);
    let questions_each = size::choose(100, 250);
    for seed in 0..stores {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let universe = Universe::random(&mut rng);
        let options = IndexOptions {
            classic_events: rng.random_bool(0.7),
            fee_events: rng.random_bool(0.7),
            contracts: rng
                .random_bool(0.2)
                .then(|| universe.contracts.iter().copied().take(5).collect::<BTreeSet<_>>()),
            raw_ledgers: true,
        };
        let first = FIRSTS[seed as usize % FIRSTS.len()];
        let sequences = first..=first + (LEDGERS - 1);
        let ledgers = chain_of(&mut rng, &universe, sequences.clone());
        let ledgers = any_order(&mut rng, ledgers);
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::open(directory.path(), Some(&network())).unwrap();
        let mut model = Model::default();
        for ledger in &ledgers {
            let durability =
                if rng.random_bool(0.5) { Durability::Deferred } else { Durability::Synced };
            let committed = store.commit(ledger.prepare(&options), durability).unwrap();
            assert_eq!(committed, Committed::New);
            model.add(ledger, &options);
        }
        if rng.random_bool(0.5) {
            store.compact().unwrap();
        }
        if rng.random_bool(0.5) {
            store.flush().unwrap();
            drop(store);
            store = Store::open(directory.path(), None).unwrap();
        }
        let transactions = ledgers.iter().flat_map(|ledger| &ledger.transactions);
        let mut queries = QueryGenerator {
            rng: &mut rng,
            universe: &universe,
            sequences: first - 10..=sequences.end().saturating_add(10),
            hashes: transactions.flat_map(|t| [Some(t.hash), t.inner_hash]).flatten().collect(),
            positions: model.transactions.keys().copied().collect(),
            last_event: model.events.len() as u64,
        };
        for _ in 0..questions_each {
            compare(&store, &model, &mut queries);
        }
        assert_eq!(store.status().last_event_id.0, model.events.len() as u64);
        assert_eq!(store.status().totals.events, model.events.len() as u64);
        assert_eq!(store.status().totals.transactions, model.transactions.len() as u64);

        prune(&store, &mut model, queries.rng);
        for _ in 0..questions_each {
            compare(&store, &model, &mut queries);
        }
        assert_eq!(store.status().totals.events, model.events.len() as u64);
        for ledger in &ledgers {
            let again = store.commit(ledger.prepare(&options), Durability::Synced).unwrap();
            assert_eq!(again, Committed::AlreadyStored);
        }
        drop(store);
        let mut audit = audit(directory.path(), None, &|_| {}).unwrap();
        // The model's raw ledgers are random bytes, which the audit reports.
        audit.problems.retain(|problem| !problem.place.starts_with("ledger_xdr of ledger "));
        assert_eq!(audit.problems, []);
    }
}

fn prune(store: &Store, model: &mut Model, rng: &mut ChaCha8Rng) {
    let (first, latest) = (store.status().ranges[0].first.0, store.status().latest().unwrap().0);
    let mut kept = || rng.random_bool(0.7).then(|| rng.random_range(1..80u32));
    let retention = Retention {
        raw_ledgers: kept(),
        events: kept(),
        transactions: kept(),
        ..Retention::default()
    };
    store.flush().unwrap();
    while !store.prune(&retention).unwrap().is_nothing() {}
    let range =
        |kept: Option<u32>| LedgerRange::new(kept.map_or(0, |kept| latest - (kept - 1)), latest);
    model.prune(range(retention.events), range(retention.transactions));
    for sequence in first..=latest {
        let stored = store.ledger(LedgerSeq(sequence)).unwrap().is_some();
        let wanted = range(retention.raw_ledgers).contains(LedgerSeq(sequence));
        assert_eq!(store.raw_ledger(LedgerSeq(sequence)).unwrap().is_some(), stored && wanted);
    }
}

/// With any order and filter, paging by cursor while ledgers are written returns every row that
/// existed at the start exactly once, and no row twice.
#[test]
fn paging_by_cursor_beside_a_writer_returns_every_row_once() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let universe = Universe::random(&mut rng);
    let mut previous = [0; 32];
    let mut ledgers = Vec::new();
    for sequence in 10..10 + size::choose(120, 600) as u32 {
        let ledger = universe.ledger(&mut rng, sequence, previous);
        previous = ledger.hash;
        ledgers.push(ledger);
    }
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), Some(&network())).unwrap();
    let (first, later) = ledgers.split_at(60);
    let mut model = Model::default();
    for ledger in first {
        store.commit(ledger.prepare(&everything()), Durability::Synced).unwrap();
        model.add(ledger, &everything());
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for ledger in later {
                store.commit(ledger.prepare(&everything()), Durability::Synced).unwrap();
            }
            done.store(true, Ordering::Release);
        });
        let mut rounds = 0;
        while !done.load(Ordering::Acquire) || rounds == 0 {
            for direction in [Direction::NewestFirst, Direction::OldestFirst] {
                for contract in universe.contracts.iter().take(3).map(Some).chain([None]) {
                    walk_events(&store, &model, direction, contract);
                    walk_transactions(&store, &model, direction, contract);
                }
            }
            rounds += 1;
        }
    });
}

fn walk_events(store: &Store, model: &Model, direction: Direction, contract: Option<&ContractId>) {
    let mut query = EventQuery {
        ledgers: None,
        contracts: contract.copied().into_iter().collect(),
        topics: TopicFilter::default(),
        page: Page { direction, cursor: None, offset: 0, limit: 37 },
    };
    let whole = Page { limit: usize::MAX, ..query.page };
    let expected = model.events(&EventQuery { page: whole, ..query.clone() });
    let mut met = Vec::new();
    loop {
        let rows = ask_events(store, &query);
        let Some(last) = rows.last() else { break };
        query.page.cursor = Some(EventId(last.id));
        met.extend(rows);
    }
    let ids: BTreeSet<u64> = met.iter().map(|row| row.id).collect();
    assert_eq!(ids.len(), met.len(), "a row was met twice");
    let known = model.events.len() as u64;
    met.retain(|row| row.id <= known);
    assert_eq!(met, expected);
}

fn walk_transactions(
    store: &Store,
    model: &Model,
    direction: Direction,
    contract: Option<&ContractId>,
) {
    let mut query = TransactionQuery {
        ledgers: None,
        contracts: contract.copied().into_iter().collect(),
        page: Page { direction, cursor: None, offset: 0, limit: 23 },
    };
    let whole = Page { limit: usize::MAX, ..query.page };
    let expected = model.transactions(&TransactionQuery { page: whole, ..query.clone() });
    let newest = *model.transactions.last_key_value().unwrap().0;
    let mut met = Vec::new();
    loop {
        let rows = ask_transactions(store, &query);
        let Some(last) = rows.last() else { break };
        query.page.cursor = store.transaction_position(&TxHash::from(last.tx)).unwrap();
        met.extend(rows);
    }
    let positions: BTreeSet<_> = met.iter().map(|row| row.position).collect();
    assert_eq!(positions.len(), met.len(), "a row was met twice");
    met.retain(|row| row.position <= newest);
    assert_eq!(met, expected);
}

/// The rows and records read for a page depend on the page, not on how much is stored. Small:
/// 100,000 events; full: 10 million.
#[test]
fn work_is_proportional_to_the_page() {
    const LIMIT: usize = 100;
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let mut universe = Universe::random(&mut rng);
    universe.without_twins();
    // A contract with fewer events than a page. One without any events is added below.
    let rare = ContractId(rng.random());
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), Some(&network())).unwrap();
    let mut previous = [0; 32];
    let ledgers = size::choose(50, 5_000) as u32;
    for sequence in 10..10 + ledgers {
        let mut ledger = universe.dense_ledger(&mut rng, sequence, previous);
        if sequence % (ledgers / 25) == 0 {
            ledger.events.last_mut().unwrap().contract = Some(rare.0);
        }
        previous = ledger.hash;
        let options = IndexOptions { raw_ledgers: false, ..everything() };
        store.commit(ledger.prepare(&options), Durability::Deferred).unwrap();
    }
    store.flush().unwrap();
    let mut most = 0;
    universe.contracts.extend([rare, ContractId(rng.random())]);
    for contract in &universe.contracts {
        for direction in [Direction::NewestFirst, Direction::OldestFirst] {
            for ledgers in [None, Some(LedgerRange::new(0, u32::MAX))] {
                let query = EventQuery {
                    ledgers,
                    contracts: vec![*contract],
                    topics: TopicFilter::default(),
                    page: Page { direction, cursor: None, offset: 0, limit: LIMIT },
                };
                let mut rows = 0;
                let cost = store.events(&query, |_| rows += 1).unwrap();
                // Every block read holds a row of the page; one more index row is read to detect
                // the end.
                assert!(cost.records <= rows as u64, "{rows} rows: {cost:?}");
                assert!(cost.index_rows <= rows as u64 + 1, "{rows} rows: {cost:?}");
                most = most.max(cost.index_rows + cost.records);
            }
        }
    }
    let events = store.status().totals.events;
    println!("{events} events: at most {most} rows and records read for a page of {LIMIT}");
    drop(store);
    let start = Instant::now();
    let audit = audit(directory.path(), None, &|_| {}).unwrap();
    assert_eq!(audit.problems, []);
    assert_eq!(audit.ranges.iter().map(|range| range.events).sum::<u64>(), events);
    println!("read back and recomputed in {:?}", start.elapsed());
}

/// A backfill behind a live source leaves one run per ledger. The work for a page still depends
/// only on its rows, whichever ledgers the query selects. Small: 600 ledgers; full: 20,000.
#[test]
fn work_does_not_depend_on_the_order_of_ingestion() {
    const LIMIT: usize = 40;
    let mut rng = ChaCha8Rng::seed_from_u64(10);
    let mut universe = Universe::random(&mut rng);
    universe.without_twins();
    let mut previous = [0; 32];
    let mut ledgers = Vec::new();
    for sequence in 10..10 + size::choose(600, 20_000) as u32 {
        let ledger = universe.ledger(&mut rng, sequence, previous);
        previous = ledger.hash;
        ledgers.push(ledger);
    }
    let options = IndexOptions { raw_ledgers: false, ..everything() };
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), Some(&network())).unwrap();
    let mut model = Model::default();
    let (old, live) = ledgers.split_at(ledgers.len() / 2);
    for ledger in live.iter().zip(old).flat_map(|(live, old)| [live, old]) {
        store.commit(ledger.prepare(&options), Durability::Deferred).unwrap();
        model.add(ledger, &options);
    }
    assert_eq!(store.status().ranges.len(), 1);
    let (first, middle, last) = (10, live[0].sequence, 9 + ledgers.len() as u32);
    let ranges = [
        (first, middle - 1),
        (middle, last),
        (first + 1, last),
        (middle - 20, middle + 20),
        (first + 7, first + 9),
        (last - 5, u32::MAX),
    ];
    let mut most = 0.0f64;
    for (first, last) in ranges {
        for direction in [Direction::NewestFirst, Direction::OldestFirst] {
            for contract in [None, universe.contracts.first(), universe.contracts.last()] {
                let query = EventQuery {
                    ledgers: Some(LedgerRange::new(first, last)),
                    contracts: contract.copied().into_iter().collect(),
                    topics: TopicFilter::default(),
                    page: Page { direction, cursor: None, offset: 0, limit: LIMIT },
                };
                let mut rows = Vec::new();
                let cost = store.events(&query, |record| rows.push(EventRow::of(record))).unwrap();
                assert_eq!(rows, model.events(&query), "{query:?}");
                assert!(cost.records <= rows.len() as u64, "{} rows: {cost:?}", rows.len());
                // In the order of row ids, an unwanted ledger lies between any two wanted ones.
                let found = rows.len().max(1) as f64;
                most = most.max(cost.index_rows as f64 / found);
                if rows.len() == LIMIT {
                    assert!(cost.index_rows <= 3 * LIMIT as u64, "{cost:?}");
                }
            }
        }
    }
    println!("{} runs: at most {most:.1} rows of indexes for a row", ledgers.len());
}

#[test]
fn broken_links_and_conflicts_are_refused_on_both_sides_of_a_gap() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let universe = Universe::random(&mut rng);
    let options = everything();
    let first = universe.ledger(&mut rng, 10, [0; 32]);
    let second = universe.ledger(&mut rng, 11, first.hash);
    let third = universe.ledger(&mut rng, 12, second.hash);
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), Some(&network())).unwrap();
    store.commit(first.prepare(&options), Durability::Synced).unwrap();
    store.commit(third.prepare(&options), Durability::Synced).unwrap();
    let before = store.status();
    assert_eq!(before.ranges, [LedgerRange::new(10, 10), LedgerRange::new(12, 12)]);

    let commit = |ledger: &Ledger| store.commit(ledger.prepare(&options), Durability::Synced);
    let stranger = Ledger { previous_hash: [9; 32], ..second.clone() };
    assert!(is_broken_link(commit(&stranger), 11));
    let stranger = Ledger { hash: [9; 32], ..second.clone() };
    assert!(is_broken_link(commit(&stranger), 12));
    let stranger = Ledger { hash: [9; 32], ..first.clone() };
    assert!(matches!(
        commit(&stranger),
        Err(StoreError::Chain(VerifyError::Conflict { ledger: LedgerSeq(10), .. }))
    ));
    assert_eq!(store.status(), before, "a refused ledger changes nothing");

    commit(&second).unwrap();
    assert_eq!(store.status().ranges, [LedgerRange::new(10, 12)]);
}

fn is_broken_link(result: Result<Committed, StoreError>, later: u32) -> bool {
    matches!(
        result,
        Err(StoreError::Chain(VerifyError::BrokenLink { ledger: LedgerSeq(ledger), .. }))
            if ledger == later
    )
}

#[test]
fn a_directory_belongs_to_one_process_and_one_network() {
    let directory = tempfile::tempdir().unwrap();
    assert!(matches!(Store::open(directory.path(), None), Err(StoreError::Empty(_))));
    let store = Store::open(directory.path(), Some(&network())).unwrap();
    let again = Store::open(directory.path(), Some(&network()));
    assert!(matches!(again, Err(StoreError::InUse(_))));
    drop(store);
    let other = Network::from_passphrase("another");
    let error = Store::open(directory.path(), Some(&other)).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains(": give another directory for ") && error.contains("\"another\""),
        "{error}"
    );
    assert!(error.ends_with(", or delete this one, which has no ledger yet"), "{error}");
    assert_eq!(Store::open(directory.path(), None).unwrap().network(), &network());
}
