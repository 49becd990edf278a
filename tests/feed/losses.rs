//! Retention beside consumers that lag or are inactive: each lost ledger is reported, and each
//! ledger that a consumer is given is complete.

use std::collections::BTreeSet;

use orrery_ledger::domain::{LedgerRange, LedgerSeq, LedgerSet, Page};
use orrery_store::{
    Consumed, ConsumerSpec, Durability, EventQuery, FedLedger, IndexOptions, Losses, Needs,
    Retention, RowBounds, RowsMut, StartPosition, Store, StoreError, TopicFilter, TransactionQuery,
};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

use orrery_testkit::histories;
use orrery_testkit::model::Universe;
use orrery_testkit::scratch::scratch;
use orrery_testkit::witness::{FIRST, add, open};

const LAST: u32 = FIRST + 29;
const CONSUMERS: [ConsumerSpec; 3] = [
    spec("events", Needs { events: true, raw_ledgers: false, transactions: false }),
    spec("transactions", Needs { events: false, raw_ledgers: false, transactions: true }),
    spec("everything", Needs { events: true, raw_ledgers: true, transactions: true }),
];

const fn spec(name: &'static str, needs: Needs) -> ConsumerSpec {
    ConsumerSpec { name, families: &["seen"], needs, start: StartPosition::FirstLedger }
}

/// Expected state of a consumer.
#[derive(Default, Clone, PartialEq)]
struct Model {
    passed: usize,
    active: bool,
    seen: BTreeSet<u32>,
    lost: LedgerSet,
}

struct History {
    rng: ChaCha8Rng,
    directory: TempDir,
    store: Option<Store>,
    /// Stored ledgers, in the order of ingestion.
    stored: Vec<u32>,
    models: [Model; 3],
}

impl History {
    fn new(seed: u64) -> Self {
        let directory = scratch();
        let store = Some(open(directory.path(), &CONSUMERS));
        let model = Model { active: true, ..Model::default() };
        let models = std::array::from_fn(|_| model.clone());
        Self { rng: ChaCha8Rng::seed_from_u64(seed), directory, store, stored: Vec::new(), models }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn step(&mut self) {
        match self.rng.random_range(0..12) {
            0..4 => self.ledgers(),
            4..8 => self.consume(),
            8 => {
                let one = self.rng.random_range(0..3);
                self.models[one].active = self.rng.random_bool(0.5);
                self.store().set_active(CONSUMERS[one].name, self.models[one].active);
            }
            9 | 10 => self.prune(),
            _ => {
                drop(self.store.take());
                self.store = Some(open(self.directory.path(), &CONSUMERS));
                self.models.iter_mut().for_each(|model| model.active = true);
            }
        }
        for (spec, model) in CONSUMERS.iter().zip(&self.models) {
            let status = self.store().consumer(spec.name).unwrap();
            assert_eq!((status.place, status.active), (model.passed as u64, model.active));
            assert_eq!(status.lost, model.lost, "{}", spec.name);
            assert_eq!(status.lag, (self.stored.len() - model.passed) as u64);
            let passed = &self.stored[..model.passed];
            assert!(
                passed
                    .iter()
                    .all(|it| model.seen.contains(it) || model.lost.contains(LedgerSeq(*it)))
            );
            assert!(model.seen.iter().all(|it| !model.lost.contains(LedgerSeq(*it))));
        }
    }

    fn ledgers(&mut self) {
        let missing: Vec<u32> = (FIRST..=LAST).filter(|it| !self.stored.contains(it)).collect();
        let Some(first) = missing.choose(&mut self.rng).copied() else { return };
        let first = if self.rng.random_bool(0.5) { missing[0] } else { first };
        let most = self.rng.random_range(1..6);
        let deferred = self.rng.random_bool(0.5);
        let durability = if deferred { Durability::Deferred } else { Durability::Synced };
        for ledger in (first..).take(most).filter(|it| missing.contains(it)) {
            add(self.store(), ledger..=ledger, durability);
            self.stored.push(ledger);
        }
        self.store().flush().unwrap();
    }

    fn consume(&mut self) {
        let one = self.rng.random_range(0..3);
        let (spec, most) = (&CONSUMERS[one], self.rng.random_range(1..8));
        let store = self.store.as_ref().unwrap();
        let mut handed = Vec::new();
        let consumed = store.consume(spec.name, most, |fed, effects| {
            handed.push(fed.ledger.0);
            assert_is_whole(store, fed, spec.needs);
            effects.put("seen", fed.ledger.0.to_be_bytes().to_vec(), Vec::new())
        });
        let model = &mut self.models[one];
        let next = &self.stored[model.passed..self.stored.len().min(model.passed + most)];
        let expected = match next.len() as u64 {
            0 => Consumed::CaughtUp,
            ledgers => Consumed::Ledgers(ledgers),
        };
        assert_eq!(consumed.unwrap(), expected);
        let left = next.iter().copied().filter(|it| !model.lost.contains(LedgerSeq(*it)));
        assert_eq!(handed, left.collect::<Vec<_>>());
        model.passed += next.len();
        model.seen.extend(handed);
    }

    fn prune(&mut self) {
        let mut kept = || self.rng.random_bool(0.7).then(|| self.rng.random_range(1..25));
        let (raw_ledgers, events, transactions) = (kept(), kept(), kept());
        let wait_for_consumers = self.rng.random_range(0..20);
        let retention = Retention { raw_ledgers, events, transactions, wait_for_consumers };
        while !self.store().prune(&retention).unwrap().is_nothing() {}
        let Some(latest) = self.stored.iter().max().copied() else { return };
        loop {
            let before = self.models.clone();
            let floor = |kept: Option<u32>, needed: fn(Needs) -> bool| {
                let wanted = kept.map_or(0, |kept| (latest + 1).saturating_sub(kept));
                let waits =
                    |(spec, model): &(&ConsumerSpec, &Model)| model.active && needed(spec.needs);
                let waiting = CONSUMERS.iter().zip(&before).filter(waits);
                let awaited = waiting.flat_map(|(_, model)| {
                    let unseen = self.stored[model.passed..].iter().copied();
                    unseen.filter(|it| !model.lost.contains(LedgerSeq(*it)))
                });
                let within = |it: &u32| *it < wanted && *it + wait_for_consumers >= wanted;
                awaited.filter(within).min().unwrap_or(wanted)
            };
            let floors = [
                floor(raw_ledgers, |needs| needs.raw_ledgers),
                floor(events, |needs| needs.events),
                floor(transactions, |needs| needs.transactions),
            ];
            for (spec, model) in CONSUMERS.iter().zip(&mut self.models) {
                let Needs { raw_ledgers, events, transactions } = spec.needs;
                let needed = floors.into_iter().zip([raw_ledgers, events, transactions]);
                let floor = needed.filter(|(_, needed)| *needed).map(|(floor, _)| floor).max();
                let gone = self.stored[model.passed..].iter().filter(|it| Some(**it) < floor);
                gone.for_each(|it| model.lost.insert(LedgerRange::new(*it, *it)));
            }
            // Lost ledgers are no longer waited for, so the floors may rise again; repeat until
            // nothing changes.
            if self.models == before {
                return;
            }
        }
    }
}

/// Asserts that everything that a consumer needs of a given ledger is stored.
fn assert_is_whole(store: &Store, fed: &FedLedger, needs: Needs) {
    let counts = store.ledger(fed.ledger).unwrap().unwrap().counts;
    let ledgers = Some(LedgerRange { first: fed.ledger, last: fed.ledger });
    if needs.raw_ledgers {
        assert!(store.raw_ledger(fed.ledger).unwrap().is_some(), "{fed:?}");
    }
    if needs.events {
        let (contracts, topics) = (Vec::new(), TopicFilter::default());
        let page = Page { limit: usize::MAX, ..Page::first(1) };
        let mut found = 0;
        let query = EventQuery { ledgers, contracts, topics, page };
        store.events(&query, |_| found += 1).unwrap();
        assert_eq!(found, counts.events(), "{fed:?}");
    }
    if needs.transactions {
        let page = Page { limit: usize::MAX, ..Page::first(1) };
        let mut found = 0;
        let query = TransactionQuery { ledgers, contracts: Vec::new(), page };
        store.transactions(&query, |_| found += 1).unwrap();
        assert_eq!(found, counts.stored_transactions, "{fed:?}");
    }
}

/// Small: 60 histories; full: 10,000.
#[test]
fn lost_ledgers_are_reported_exactly() {
    histories::run(60, 10_000, |seed| {
        let mut history = History::new(seed);
        (0..40).for_each(|_| history.step());
    });
}

/// Where raw ledgers are not kept, all ledgers are lost to a consumer that needs them, up to the
/// highest possible sequence.
#[test]
fn ledgers_without_raw_data_are_lost_to_a_rebuild() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let universe = Universe::random(&mut rng);
    let options = IndexOptions { raw_ledgers: false, ..IndexOptions::default() };
    for last in [40, u32::MAX] {
        let directory = scratch();
        let store = open(directory.path(), &CONSUMERS);
        let mut previous = [0; 32];
        for sequence in last - 4..=last {
            let ledger = universe.ledger(&mut rng, sequence, previous);
            previous = ledger.hash;
            store.commit(ledger.prepare(&options), Durability::Synced).unwrap();
        }
        for spec in &CONSUMERS {
            let second = store.begin_rebuild(spec.name, Losses::Accepted).unwrap();
            let lost = store.consumer(&second).unwrap().lost;
            let all = LedgerSet::from(LedgerRange::new(last - 4, last));
            let expected = if spec.needs.raw_ledgers { all } else { LedgerSet::default() };
            assert_eq!(lost, expected, "{} up to {last}", spec.name);
        }
    }
}

/// What a step read of a ledger while retention removed it must not be written.
#[test]
fn a_ledger_pruned_while_it_is_read_counts_as_lost() {
    let directory = scratch();
    let store = open(directory.path(), &CONSUMERS);
    add(&store, FIRST..=LAST, Durability::Synced);
    store.set_active("events", false);
    let retention = Retention { events: Some(10), ..Retention::default() };
    let mut handed = 0;
    let consumed = store.consume("events", 1, |fed, effects| {
        handed += 1;
        // Retention runs during the step.
        while !store.prune(&retention).unwrap().is_nothing() {}
        effects.put("seen", fed.ledger.0.to_be_bytes().to_vec(), Vec::new())
    });
    assert_eq!((consumed.unwrap(), handed), (Consumed::Retry, 1));
    let passed = store.consume::<StoreError>("events", 1, |fed, _| panic!("{fed:?} is lost"));
    assert_eq!(passed.unwrap(), Consumed::Ledgers(1));
    let status = store.consumer("events").unwrap();
    assert_eq!(
        (status.place, status.lost.ranges()),
        (1, &[LedgerRange::new(FIRST, LAST - 10)][..])
    );
    let view = store.consumer_view("events", RowBounds::none()).unwrap();
    view.scan("seen", |_, _| panic!("it has seen nothing")).unwrap();
}

#[test]
fn ledgers_pruned_before_a_consumer_starts_count_as_lost() {
    let directory = scratch();
    let store = open(directory.path(), &[]);
    add(&store, FIRST..=LAST, Durability::Synced);
    let retention = Retention { events: Some(10), ..Retention::default() };
    while !store.prune(&retention).unwrap().is_nothing() {}
    drop(store);
    // Two rounds: the second opening must keep what the first recorded, and add nothing.
    for _ in 0..2 {
        let store = open(directory.path(), &CONSUMERS);
        let lost = |name: &str| store.consumer(name).unwrap().lost.ranges().to_vec();
        let gone = [LedgerRange::new(FIRST, LAST - 10)];
        assert_eq!((lost("events"), lost("transactions")), (gone.to_vec(), vec![]));
        assert_eq!(lost("everything")[0].first, LedgerSeq(FIRST));
        let mut seen = Vec::new();
        let take = |fed: &FedLedger, _: &mut orrery_store::ConsumerEffects<'_>| {
            seen.push(fed.ledger.0);
            Err::<(), _>(StoreError::Missing(fed.ledger))
        };
        assert!(store.consume("events", 100, take).is_err());
        assert_eq!(seen, [LAST - 9], "the first that is all there");
    }
}
