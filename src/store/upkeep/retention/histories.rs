//! Random histories of ledgers in any order, retention, prunes, rebuilds, failed writes and
//! restarts, with commits and steps of consumers between all parts of a prune. After each step,
//! every reader says that records are gone exactly when counting them says so, and each ledger that
//! a consumer has passed was processed by it or is lost to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::channel;
use std::sync::{Arc, LazyLock};
use std::thread;

use orrery_ledger::decode::decode;
use orrery_ledger::domain::Page;
use orrery_testkit::histories;
use orrery_testkit::sandbox::local;
use orrery_testkit::scratch::scratch;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

use super::*;
use crate::db::faults::Fault;
use crate::feed::consume::Consumed;
use crate::feed::rebuild::Losses;
use crate::ingest::commit::Durability;
use crate::ingest::prepare::{IndexOptions, PreparedLedger};
use crate::read::query::{EventQuery, TransactionQuery};
use crate::sample_ledgers::{chain, everything};
use crate::state::consumers::rows::RowBounds;
use crate::state::consumers::rows::RowsMut;
use crate::state::consumers::spec::{ConsumerSpec, Needs, StartPosition, second_build};
use crate::upkeep::audit::audit;
use crate::upkeep::extensions::Extensions;

const FIRST: u32 = 2;
const LEDGERS: u32 = 24;

/// Raw ledgers from [`FIRST`] on; some have no transactions.
static CHAIN: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| chain(17, 0..=3, LEDGERS));

static CONSUMERS: [ConsumerSpec; 3] = [
    spec("events", Needs::EVENTS),
    spec("transactions", Needs::TRANSACTIONS),
    spec("everything", Needs { raw_ledgers: true, events: true, transactions: true }),
];

const fn spec(name: &'static str, needs: Needs) -> ConsumerSpec {
    ConsumerSpec { name, families: &["seen"], needs, start: StartPosition::FirstLedger }
}

fn open(directory: &TempDir) -> Arc<Store> {
    let extensions = Extensions { consumers: CONSUMERS.to_vec(), ..Extensions::default() };
    Arc::new(Store::open_with(directory.path(), Some(&local()), extensions).unwrap())
}

/// What is gone of a ledger, and what it had, by counting its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counted {
    gone: Needs,
    had: Needs,
}

impl Counted {
    fn of(store: &Store, ledger: LedgerSeq) -> Self {
        let counts = store.ledger(ledger).unwrap().unwrap().counts;
        let (mut events, mut transactions) = (0, 0);
        let ledgers = LedgerRange::only(ledger);
        store.events(&EventQuery::of_ledgers(ledgers), |_| events += 1).unwrap();
        let (ledgers, contracts, page) = (Some(ledgers), Vec::new(), Page::all());
        let query = TransactionQuery { ledgers, contracts, page };
        store.transactions(&query, |_| transactions += 1).unwrap();
        Self {
            gone: Needs {
                raw_ledgers: store.raw_ledger(ledger).unwrap().is_none(),
                events: events < counts.events(),
                transactions: transactions < counts.stored_transactions,
            },
            had: Needs {
                raw_ledgers: true,
                events: counts.events() > 0,
                transactions: counts.stored_transactions > 0,
            },
        }
    }

    fn lacks(&self, needs: Needs) -> bool {
        self.gone.raw_ledgers && needs.raw_ledgers
            || self.gone.events && needs.events
            || self.gone.transactions && needs.transactions
    }

    /// Asserts that `said` is right. A ledger that never had something needed may be said to lack it.
    fn check(&self, needs: Needs, said: bool, who: &str) {
        let never_had =
            needs.events && !self.had.events || needs.transactions && !self.had.transactions;
        assert!(said == self.lacks(needs) || said && never_had, "{who}: {said}, {self:?}");
    }
}

struct History {
    rng: ChaCha8Rng,
    directory: TempDir,
    store: Option<Arc<Store>>,
    stored: BTreeSet<u32>,
    /// Those whose raw form was not kept in the first place.
    without_raw: BTreeSet<u32>,
    retention: Retention,
}

impl History {
    fn new(seed: u64) -> Self {
        let directory = scratch();
        let store = Some(open(&directory));
        Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            directory,
            store,
            stored: BTreeSet::new(),
            without_raw: BTreeSet::new(),
            retention: Retention::default(),
        }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn step(&mut self) {
        match self.rng.random_range(0..15) {
            0..4 => self.commit(),
            4..7 => self.consume(),
            7 | 8 => self.change_retention(),
            9..11 => self.prune(),
            11 => self.rebuild(),
            12 => self.prune_with_failure(),
            13 => self.prune_beside_others(),
            _ => {
                drop(self.store.take());
                self.store = Some(open(&self.directory));
            }
        }
        self.check();
    }

    fn change_retention(&mut self) {
        let mut kept = || self.rng.random_bool(0.7).then(|| self.rng.random_range(0..20));
        let (raw_ledgers, events, transactions) = (kept(), kept(), kept());
        let wait_for_consumers = [0, 0, 5, 30].choose(&mut self.rng).copied().unwrap();
        self.retention = Retention { raw_ledgers, events, transactions, wait_for_consumers };
    }

    fn commit(&mut self) {
        let missing: Vec<u32> =
            (FIRST..FIRST + LEDGERS).filter(|it| !self.stored.contains(it)).collect();
        let Some(first) = missing.choose(&mut self.rng).copied() else { return };
        let most = self.rng.random_range(1..6);
        let durability = match self.rng.random_bool(0.3) {
            true => Durability::Deferred,
            false => Durability::Synced,
        };
        for ledger in (first..).take(most).filter(|it| missing.contains(it)) {
            let raw_ledgers = self.rng.random_bool(0.8);
            let options = IndexOptions { raw_ledgers, ..everything() };
            let view = decode(&CHAIN[(ledger - FIRST) as usize], local().id()).unwrap();
            let prepared = PreparedLedger::new(&view, &options).unwrap();
            self.store().commit(prepared, durability).unwrap();
            self.stored.insert(ledger);
            if !raw_ledgers {
                self.without_raw.insert(ledger);
            }
        }
        if self.rng.random_bool(0.8) {
            self.store().flush().unwrap();
        }
    }

    /// Passes ledgers to a consumer, while retention may remove something.
    fn consume(&mut self) {
        let spec = CONSUMERS.choose(&mut self.rng).unwrap();
        let (name, most) = (second_build(spec.name), self.rng.random_range(1..6));
        let is_built = self.store().consumer(&name).is_some() && self.rng.random_bool(0.5);
        let name = if is_built { name } else { spec.name.to_owned() };
        let prunes = self.rng.random_bool(0.3);
        self.consume_as(&name, spec.needs, most, prunes);
    }

    fn consume_as(&self, name: &str, needs: Needs, most: usize, prunes: bool) -> Consumed {
        let store = self.store();
        let mut is_whole = true;
        let consumed = store.consume::<StoreError>(name, most, |fed, effects| {
            if prunes {
                store.prune(&self.retention).unwrap();
            }
            let raw_ledgers = needs.raw_ledgers && !self.without_raw.contains(&fed.ledger.0);
            let needs = Needs { raw_ledgers, ..needs };
            is_whole &= !Counted::of(store, fed.ledger).lacks(needs);
            effects.put("seen", fed.ledger.0.to_be_bytes().to_vec(), Vec::new())
        });
        let consumed = consumed.unwrap();
        assert!(is_whole || consumed == Consumed::Retry, "{name} was given an incomplete ledger");
        consumed
    }

    fn rebuild(&mut self) {
        let spec = CONSUMERS.choose(&mut self.rng).unwrap();
        let name = second_build(spec.name);
        if self.store().consumer(&name).is_none() {
            self.store().begin_rebuild(spec.name, Losses::Accepted).unwrap();
            let lost = self.store().consumer(&name).unwrap().lost;
            for ledger in self.stored.iter().map(|it| LedgerSeq(*it)) {
                let counted = Counted::of(self.store(), ledger);
                counted.check(spec.needs, lost.contains(ledger), "rebuild");
            }
        } else {
            while self.consume_as(&name, spec.needs, 7, false) != Consumed::CaughtUp {}
            self.store().finish_rebuild(spec.name).unwrap();
        }
    }

    /// Something else that happens beside a prune.
    fn interrupt(&mut self) {
        for _ in 0..self.rng.random_range(0..3) {
            self.write_beside();
        }
        if self.rng.random_bool(0.1) {
            self.change_retention();
        }
        self.check();
    }

    /// A few rounds of retention, as [`Store::prune`] makes them, with others between their parts.
    fn prune(&mut self) {
        for _ in 0..self.rng.random_range(1..8) {
            let store = Arc::clone(self.store.as_ref().unwrap());
            let Some(mut round) = store.begin_round(&self.retention).unwrap() else { return };
            round.most = self.rng.random_range(1..9);
            self.interrupt();
            store.prune_raw(&round).unwrap();
            self.interrupt();
            store.collect(&mut round).unwrap();
            self.interrupt();
            store.write_pruned(round).unwrap();
            self.interrupt();
        }
    }

    /// All that retention removes, in a thread of its own. With each write of it, at the moment when
    /// the database has it and the state in memory does not, another thread begins to store ledgers
    /// or to pass some to a consumer.
    fn prune_beside_others(&mut self) {
        const MOST: usize = 20;
        let store = Arc::clone(self.store.as_ref().unwrap());
        let retention = self.retention;
        let (wrote, writes) = channel();
        store.faults().after_writes(move |_| {
            // Nobody waits any more after the last one.
            let _ = wrote.send(());
        });
        thread::scope(|scope| {
            let pruning = scope.spawn(move || {
                while !store.prune(&retention).unwrap().is_nothing() {}
                store.faults().clear();
            });
            // The writes of this thread count too, and end with the others'.
            for () in writes.iter().take(MOST) {
                self.write_beside();
            }
            pruning.join().unwrap();
        });
    }

    fn write_beside(&mut self) {
        if self.rng.random_bool(0.5) {
            return self.commit();
        }
        let spec = CONSUMERS.choose(&mut self.rng).unwrap();
        let most = self.rng.random_range(1..6);
        self.consume_as(spec.name, spec.needs, most, false);
    }

    /// A round of which a write fails, or succeeds although it says that it failed.
    fn prune_with_failure(&mut self) {
        let mut left = self.rng.random_range(0..3);
        let fault = [Fault::NotWritten, Fault::Written].choose(&mut self.rng).copied();
        self.store().faults().plan(move |_| {
            left -= 1;
            if left < 0 { fault } else { None }
        });
        let failed = self.store().prune(&self.retention).is_err();
        self.store().faults().clear();
        if failed && self.rng.random_bool(0.5) {
            drop(self.store.take());
            self.store = Some(open(&self.directory));
        }
    }

    fn check(&self) {
        let store = self.store();
        let counted: BTreeMap<LedgerSeq, Counted> = self
            .stored
            .iter()
            .map(|ledger| LedgerSeq(*ledger))
            .map(|ledger| (ledger, Counted::of(store, ledger)))
            .collect();
        for needs in [Needs::RAW_LEDGERS, Needs::EVENTS, Needs::TRANSACTIONS, Needs::RECORDS] {
            let removed = store.removed(needs).unwrap();
            let status = store.status();
            assert_eq!(status.removed.of(needs), removed);
            let with = status.ledgers_with(needs);
            for (ledger, counted) in &counted {
                counted.check(needs, removed.contains(*ledger), "removed");
                assert_eq!(with.contains(*ledger), !removed.contains(*ledger));
            }
            assert!(removed.ranges().iter().all(|range| covers(&self.stored, *range)));
        }
        for (ledger, counted) in &counted {
            let has_all = store.has_all_transactions(*ledger).unwrap();
            assert_eq!(has_all, !counted.gone.transactions, "{ledger} {counted:?}");
            let lacks = counted.lacks(Needs::RECORDS);
            let counts = store.ledger(*ledger).unwrap().unwrap().counts;
            assert_eq!(store.lacks_records(*ledger, &counts), lacks, "{ledger} {counted:?}");
            let only = LedgerRange::only(*ledger);
            assert_eq!(store.ledgers_without_records(only).unwrap(), u64::from(lacks));
        }
        check_entries(store, &counted);
        check_oldest(store, &counted);
        check_lost_events(store, &counted);
        self.check_consumers();
    }

    /// Each ledger that a consumer has passed was processed or is lost.
    fn check_consumers(&self) {
        for spec in &CONSUMERS {
            let status = self.store().consumer(spec.name).unwrap();
            let mut seen = BTreeSet::new();
            let view = self.store().consumer_view(spec.name, RowBounds::none()).unwrap();
            view.scan("seen", |key, _| {
                seen.insert(u32::from_be_bytes(key.try_into().unwrap()));
            })
            .unwrap();
            let passed = self.store().fed_after(0, status.place as usize);
            for fed in passed {
                let is_seen = seen.contains(&fed.ledger.0);
                let is_lost = status.lost.contains(fed.ledger);
                assert!(is_seen != is_lost, "{}: {fed:?} {is_seen} {is_lost}", spec.name);
            }
        }
    }

    /// Gives everything to the consumers, and removes everything that is too old.
    fn end(mut self) {
        self.store().flush().unwrap();
        for spec in &CONSUMERS {
            while self.consume_as(spec.name, spec.needs, 5, false) != Consumed::CaughtUp {}
        }
        self.check();
        while !self.store().prune(&self.retention).unwrap().is_nothing() {
            self.check();
        }
        drop(self.store.take());
        let audit = audit(self.directory.path(), None, &|_| {}).unwrap();
        assert_eq!(audit.problems, []);
    }
}

fn covers(stored: &BTreeSet<u32>, range: LedgerRange) -> bool {
    (range.first.0..=range.last.0).all(|ledger| stored.contains(&ledger))
}

/// Lookups of entries are complete where all transactions are stored.
fn check_entries(store: &Store, counted: &BTreeMap<LedgerSeq, Counted>) {
    for (ledger, of_ledger) in counted {
        let complete = store.entry_reader(*ledger).unwrap().complete();
        of_ledger.check(Needs::TRANSACTIONS, complete.is_none(), "entries");
        if let Some(range) = complete {
            assert!(range.contains(*ledger));
            let mut around = counted.range(range.first..=range.last);
            assert!(around.all(|(_, other)| !other.gone.transactions), "{ledger}: {range:?}");
        }
    }
}

/// The oldest ledger with events is the first one that is not gone.
fn check_oldest(store: &Store, counted: &BTreeMap<LedgerSeq, Counted>) {
    let oldest = store.ends().oldest;
    assert_eq!(store.status().oldest(), oldest);
    for (ledger, counted) in counted {
        let is_before = oldest.is_none_or(|oldest| *ledger < oldest);
        assert!(!is_before || counted.gone.events || !counted.had.events, "{ledger} {oldest:?}");
        assert!(oldest != Some(*ledger) || !counted.gone.events, "{ledger}");
    }
}

/// A stream is told of all events that are gone, and of no others but those of the same ledgers.
fn check_lost_events(store: &Store, counted: &BTreeMap<LedgerSeq, Counted>) {
    let mut stored = BTreeSet::new();
    let (ledgers, page) = (None, Page::all());
    let query = EventQuery { ledgers, page, ..EventQuery::of_ledgers(LedgerRange::new(0, 0)) };
    store
        .events(&query, |event| {
            stored.insert(event.id);
        })
        .unwrap();
    let mut told = BTreeSet::new();
    let mut after = EventId(0);
    while let Some(lost) = store.lost_events(after).unwrap() {
        assert!(lost.first > after && lost.first <= lost.last, "{lost:?}");
        told.extend((lost.first.0..=lost.last.0).map(EventId));
        for ledger in lost.ledgers.first.0..=lost.ledgers.last.0 {
            let counted = counted[&LedgerSeq(ledger)];
            assert!(counted.gone.events || !counted.had.events, "{ledger}: {lost:?}");
        }
        after = lost.last;
    }
    for ledger in counted.keys() {
        let row = store.ledger(*ledger).unwrap().unwrap();
        for id in (row.first_event.0..row.first_event.0 + row.counts.events()).map(EventId) {
            assert!(
                stored.contains(&id) || told.contains(&id),
                "event {id} is gone without a word"
            );
        }
    }
}

/// Small: 40 histories; full: 20,000.
#[test]
fn records_are_said_to_be_gone_exactly_when_they_are() {
    histories::run(40, 20_000, |seed| {
        let mut history = History::new(seed);
        (0..40).for_each(|_| history.step());
        history.end();
    });
}
