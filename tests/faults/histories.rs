//! Runs random histories of a store beside a model: live ledgers, imports, pruning, consumer steps,
//! consumers that are created, changed and deleted, injected write failures, crashes and restarts. After every step the
//! store must claim no more than can be read; at the end everything that was acknowledged must be
//! there, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};

use orrery_ledger::decode::decode;
use orrery_ledger::domain::{LedgerRange, LedgerSeq, LedgerSet, Page};
use orrery_store::{
    Committed, Consumed, ConsumerKind, ConsumerSpec, Durability, EventQuery, Extensions, Fault,
    IndexOptions, Needs, PreparedLedger, Retention, RowBounds, Rows, RowsMut, SharedFamily,
    StartPosition, Store, StoreError, TopicFilter, TransactionQuery, WriteKind, audit,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

use orrery_testkit::crash::copied;
use orrery_testkit::histories;
use orrery_testkit::sandbox::{ledgers, local, sandbox};
use orrery_testkit::scratch::scratch;

const FIRST: u32 = 2;
const LEDGERS: u32 = 24;
const LAST: u32 = FIRST + LEDGERS - 1;

/// Consumer that needs everything retention removes; because retention waits for it without limit,
/// it must lose nothing.
const CONSUMER: ConsumerSpec = ConsumerSpec {
    name: "witness",
    families: &["seen"],
    needs: Needs { raw_ledgers: true, events: true, transactions: true },
    start: StartPosition::FirstLedger,
};

const NOTES: SharedFamily = SharedFamily { name: "notes", compressed: false };

/// Kind of consumers of which there is one at most, with one row.
const NOTE: ConsumerKind = ConsumerKind { name: "note", families: &[NOTES], needs: NOTHING };

const NOTHING: Needs = Needs { raw_ledgers: false, events: false, transactions: false };

static CHAIN: LazyLock<Vec<Vec<u8>>> =
    LazyLock::new(|| ledgers(sandbox(3, 0..=3).with_milliseconds(LedgerSeq(8), 3), LEDGERS));

fn prepare(sequence: u32) -> PreparedLedger {
    let view = decode(&CHAIN[(sequence - FIRST) as usize], local().id()).unwrap();
    let options = IndexOptions { fee_events: true, raw_ledgers: true, ..IndexOptions::default() };
    PreparedLedger::new(&view, &options).unwrap()
}

/// Expected state of the store.
#[derive(Debug, Default, Clone)]
struct Model {
    /// Ledgers in the order in which they were stored.
    stored: Vec<u32>,
    /// Number of ledgers of `stored`, from the front, that are certainly durable.
    durable: usize,
    /// Number of ledgers of `stored`, from the front, that the consumer's cursor has passed.
    passed: usize,
    /// Ledgers that the consumer has recorded.
    seen: BTreeSet<u32>,
    /// Place of the consumer of the kind [`NOTE`], and its row.
    note: Option<(u64, Vec<u8>)>,
    /// Highest floors (first kept ledgers) of events and of transactions that a prune was asked
    /// for. Everything from them on must be readable.
    floors: (u32, u32),
}

/// Write failures that were injected during the current step.
type InjectedFaults = Arc<Mutex<Vec<(WriteKind, Fault)>>>;

struct World {
    rng: ChaCha8Rng,
    directory: TempDir,
    /// `None` only while the store is reopened.
    store: Option<Store>,
    model: Model,
    injected: InjectedFaults,
    /// Number of notes written; makes each of them different.
    writes: u32,
}

impl World {
    fn new(seed: u64) -> Self {
        let directory = scratch();
        let store = open(directory.path());
        Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            directory,
            store: Some(store),
            model: Model::default(),
            injected: InjectedFaults::default(),
            writes: 0,
        }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn step(&mut self) {
        self.injected.lock().unwrap().clear();
        match self.rng.random_range(0..20) {
            0..=4 => self.live(),
            5..=8 => self.import(),
            9 => self.flush(),
            10 | 11 => self.prune(),
            12 => self.write_note(),
            13 => self.consume(),
            14..=16 => self.plan_failures(),
            17 => self.store().faults().clear(),
            18 => self.open_again(false),
            _ => self.open_again(true),
        }
        self.check_claims();
    }

    /// Commits one to three ledgers after the newest one.
    fn live(&mut self) {
        let next = self.model.stored.iter().max().map_or(12, |newest| newest + 1);
        let last = (next + self.rng.random_range(0..3)).min(LAST);
        self.commit((next..=last).collect(), Durability::Synced);
    }

    /// Commits a few consecutive ledgers at a random position; some may already be stored.
    fn import(&mut self) {
        let first = self.rng.random_range(FIRST..=LAST);
        let last = (first + self.rng.random_range(0..4)).min(LAST);
        let durability =
            if self.rng.random_bool(0.8) { Durability::Deferred } else { Durability::Synced };
        self.commit((first..=last).collect(), durability);
    }

    fn commit(&mut self, ledgers: Vec<u32>, durability: Durability) {
        let new = |ledger: &u32| !self.model.stored.contains(ledger);
        let new: Vec<u32> = ledgers.iter().copied().filter(new).collect();
        let prepared = ledgers.iter().map(|ledger| prepare(*ledger)).collect();
        let (outcomes, done) = self.store().commit_all(prepared, durability);
        let is_stored = |ledger: &&u32| self.store().range_of(LedgerSeq(**ledger)).is_some();
        let stored: Vec<u32> = new.iter().filter(is_stored).copied().collect();
        match done {
            Ok(()) => {
                let added = outcomes.iter().filter(|outcome| **outcome == Committed::New).count();
                assert_eq!((outcomes.len(), added), (ledgers.len(), new.len()));
                assert_eq!(stored, new, "acknowledged ledgers are stored");
                self.model.stored.extend(stored);
                if durability == Durability::Synced {
                    self.model.durable = self.model.stored.len();
                }
            }
            Err(error) => {
                assert_planned(&error);
                assert!(outcomes.iter().all(|outcome| *outcome == Committed::AlreadyStored));
                let injected = self.injected.lock().unwrap().clone();
                let written = injected
                    .iter()
                    .any(|(kind, fault)| *kind != WriteKind::Flush && *fault == Fault::Written);
                let expected = if written { new } else { Vec::new() };
                assert_eq!(stored, expected, "{injected:?}");
                self.model.stored.extend(stored);
            }
        }
    }

    fn flush(&mut self) {
        match self.store().flush() {
            Ok(()) => self.model.durable = self.model.stored.len(),
            Err(error) => assert_planned(&error),
        }
    }

    fn prune(&mut self) {
        let mut kept = || self.rng.random_bool(0.7).then(|| self.rng.random_range(1..LEDGERS));
        let (raw_ledgers, events, transactions) = (kept(), kept(), kept());
        let retention =
            Retention { raw_ledgers, events, transactions, wait_for_consumers: u32::MAX };
        let latest = self.model.stored.iter().max().copied().unwrap_or(0);
        let floor = |kept: Option<u32>| kept.map_or(0, |kept| (latest + 1).saturating_sub(kept));
        let floors = &mut self.model.floors;
        floors.0 = floors.0.max(floor(retention.events));
        floors.1 = floors.1.max(floor(retention.transactions));
        for _ in 0..self.rng.random_range(1..5) {
            match self.store().prune(&retention) {
                Ok(pruned) if pruned.is_nothing() => break,
                Ok(_) => {}
                Err(error) => assert_planned(&error),
            }
        }
    }

    /// Creates, changes or deletes a consumer together with its row.
    fn write_note(&mut self) {
        self.writes += 1;
        let place = self.store().last_place();
        let text = format!("note {}", self.writes).into_bytes();
        let note = self.rng.random_bool(0.8).then_some((place, text));
        let mut changes = self.store().change_kind(&NOTE);
        match &note {
            Some((place, text)) => {
                changes.put_cursor(1, *place);
                changes.put(&NOTES.row([b'1']), text).unwrap();
            }
            None => {
                changes.delete_consumer(1);
                changes.delete_range(NOTES, b"1", b"2").unwrap();
            }
        }
        let written = changes.write();
        let found = self.note();
        match written {
            Ok(()) => {
                assert_eq!(found, note);
                self.model.durable = self.model.stored.len();
            }
            Err(error) => {
                assert_planned(&error);
                assert!(found == self.model.note || found == note);
            }
        }
        self.model.note = found;
    }

    /// Returns the place and the row of a consumer of the kind [`NOTE`], which has both or neither.
    fn note(&self) -> Option<(u64, Vec<u8>)> {
        let row = self.store().shared_row(&NOTES.row([b'1'])).unwrap();
        let place = self.store().cursor(&NOTE.consumer(1)).unwrap();
        assert_eq!(row.is_some(), place.is_some());
        place.zip(row)
    }

    /// Lets the consumer process a few ledgers.
    fn consume(&mut self) {
        let most = self.rng.random_range(1..6);
        let mut handed = Vec::new();
        let done = self.store().consume(CONSUMER.name, most, |fed, effects| {
            handed.push(fed.ledger.0);
            let key = fed.ledger.0.to_be_bytes();
            assert_eq!(effects.get("seen", &key)?, None, "{fed:?} was handed over before");
            effects.put("seen", key.to_vec(), fed.place.to_be_bytes().to_vec())
        });
        if let Err(error) = &done {
            assert_planned(error);
        }
        let place = self.store().cursor(CONSUMER.name).unwrap().unwrap();
        let moved = place - self.model.passed as u64;
        match done {
            Ok(Consumed::Ledgers(ledgers)) => {
                assert_eq!(ledgers, moved);
                self.model.durable = self.model.stored.len();
            }
            Ok(outcome) => assert_eq!((outcome, moved), (Consumed::CaughtUp, 0)),
            Err(_) => assert!(moved == 0 || moved >= handed.len() as u64),
        }
        if moved > 0 {
            self.model.seen.extend(handed);
        }
        self.model.passed = place as usize;
    }

    /// Makes writes fail from now on: a few of them, or all until the faults are cleared, as on a
    /// full disk.
    fn plan_failures(&mut self) {
        let mut chance = ChaCha8Rng::seed_from_u64(self.rng.random());
        let full = self.rng.random_bool(0.3);
        let mut left = if full { u32::MAX } else { self.rng.random_range(1..4) };
        let injected = Arc::clone(&self.injected);
        self.store().faults().plan(move |kind| {
            if left == 0 || (!full && chance.random_bool(0.4)) {
                return None;
            }
            left -= 1;
            let written = !full && chance.random_bool(0.5);
            let fault = if written { Fault::Written } else { Fault::NotWritten };
            injected.lock().unwrap().push((kind, fault));
            Some(fault)
        });
    }

    /// Closes and reopens the store; with `crash`, reopens a copy of the files that are on disk at
    /// this moment instead.
    fn open_again(&mut self, crash: bool) {
        if crash {
            let copy = copied(self.directory.path());
            drop(self.store.take());
            self.directory = copy;
        }
        drop(self.store.take());
        let store = open(self.directory.path());
        let covered: BTreeSet<u32> = covered(&store);
        let kept = covered.len();
        assert!(kept >= self.model.durable, "{kept} of {:?}", self.model);
        let expected: BTreeSet<u32> = self.model.stored.iter().take(kept).copied().collect();
        assert_eq!(covered, expected, "only the newest ledgers are lost: {:?}", self.model);
        self.model.stored.truncate(kept);
        assert!(self.model.passed <= kept, "a cursor is not durable before the ledgers it passed");
        self.model.durable = kept;
        self.store = Some(store);
    }

    /// Asserts that what the store reports about itself matches what can be read.
    fn check_claims(&self) {
        let (store, model) = (self.store(), &self.model);
        let status = store.status();
        assert_eq!(covered(store), model.stored.iter().copied().collect(), "{model:?}");
        let mut events = BTreeMap::<u32, u64>::new();
        let page = Page { limit: usize::MAX, ..Page::first(1) };
        let all = EventQuery {
            ledgers: None,
            contracts: Vec::new(),
            topics: TopicFilter::default(),
            page: Page { limit: usize::MAX, ..Page::first(1) },
        };
        store.events(&all, |event| *events.entry(event.ledger.0).or_default() += 1).unwrap();
        let mut transactions = BTreeMap::<u32, u64>::new();
        let every = TransactionQuery { ledgers: None, contracts: Vec::new(), page };
        let count = |ledger: LedgerSeq, counts: &mut BTreeMap<u32, u64>| {
            *counts.entry(ledger.0).or_default() += 1;
        };
        store.transactions(&every, |one| count(one.position.ledger, &mut transactions)).unwrap();
        assert_eq!(status.totals.events, events.values().sum::<u64>(), "{model:?}");
        assert_eq!(status.totals.transactions, transactions.values().sum::<u64>(), "{model:?}");
        let newest = |set: &LedgerSet| set.ranges().last().map(|range| range.last.0);
        assert!(newest(&status.removed.events).is_none_or(|last| last < model.floors.0));
        assert!(newest(&status.removed.transactions).is_none_or(|last| last < model.floors.1));
        for &ledger in &model.stored {
            let row = store.ledger(LedgerSeq(ledger)).unwrap().expect("a covered ledger has a row");
            let found = |counts: &BTreeMap<u32, u64>| counts.get(&ledger).copied().unwrap_or(0);
            let gone = |found: u64, stored: u64, removed: &LedgerSet| {
                let said = removed.contains(LedgerSeq(ledger));
                assert!(said == (found < stored) || stored == 0, "ledger {ledger}: {removed:?}");
            };
            gone(found(&events), row.counts.events(), &status.removed.events);
            let of_row = u64::from(row.counts.stored_transactions);
            gone(found(&transactions), of_row, &status.removed.transactions);
            if ledger >= model.floors.0 {
                assert_eq!(found(&events), row.counts.events(), "events of ledger {ledger}");
            }
            if ledger >= model.floors.1 {
                let stored = u64::from(row.counts.stored_transactions);
                assert_eq!(found(&transactions), stored, "transactions of ledger {ledger}");
            }
        }
        let fed = store.fed_after(0, usize::MAX);
        assert!(fed.iter().map(|fed| fed.place).eq(1..=model.stored.len() as u64));
        assert!(fed.iter().map(|fed| fed.ledger.0).eq(model.stored.iter().copied()), "{model:?}");
        let mut seen = BTreeSet::new();
        let view = store.consumer_view(CONSUMER.name, RowBounds::none()).unwrap();
        view.scan("seen", |key, _| {
            seen.insert(u32::from_be_bytes(key.try_into().unwrap()));
        })
        .unwrap();
        assert_eq!(seen, model.seen, "{model:?}");
        assert_eq!(self.note(), model.note);
    }

    /// Clears the faults, as when the disk has free space again, and asserts that everything can be
    /// stored and passes an audit.
    fn end(mut self) {
        self.store().faults().clear();
        self.commit((FIRST..=LAST).collect(), Durability::Synced);
        self.check_claims();
        self.open_again(self.rng.clone().random_bool(0.5));
        self.check_claims();
        assert_eq!(self.store().status().ranges, [LedgerRange::new(FIRST, LAST)]);
        drop(self.store.take());
        let audit = audit(self.directory.path(), None, &|_| {}).unwrap();
        assert_eq!(audit.problems, []);
    }
}

fn open(directory: &Path) -> Store {
    let extensions = Extensions { consumers: vec![CONSUMER], ..Extensions::default() };
    let extensions = extensions.with_kind(NOTE);
    Store::open_with(directory, Some(&local()), extensions).unwrap()
}

fn covered(store: &Store) -> BTreeSet<u32> {
    store.status().ranges.iter().flat_map(|range| range.first.0..=range.last.0).collect()
}

#[track_caller]
fn assert_planned(error: &StoreError) {
    assert!(error.to_string().contains("planned"), "{error}");
}

/// Small: 40 histories; full: 10,000.
#[test]
fn the_store_holds_what_it_reports_through_write_failures() {
    histories::run(40, 10_000, |seed| {
        let mut world = World::new(seed);
        for _ in 0..world.rng.random_range(5..25) {
            world.step();
        }
        world.end();
    });
}

/// A write that was applied but reported as failed must not corrupt the next one.
#[test]
fn a_write_falsely_reported_as_failed_is_not_overwritten() {
    let directory = scratch();
    let store = open(directory.path());
    store.commit(prepare(FIRST), Durability::Synced).unwrap();
    let mut first = true;
    store.faults().plan(move |_| std::mem::take(&mut first).then_some(Fault::Written));
    assert_planned(&store.commit(prepare(FIRST + 1), Durability::Synced).unwrap_err());
    assert_eq!(
        store.commit(prepare(FIRST + 1), Durability::Synced).unwrap(),
        Committed::AlreadyStored
    );
    store.commit(prepare(FIRST + 2), Durability::Synced).unwrap();
    assert_eq!(store.status().ranges, [LedgerRange::new(FIRST, FIRST + 2)]);
    let before = store.status();
    drop(store);
    assert_eq!(open(directory.path()).status(), before);
    let audit = audit(directory.path(), None, &|_| {}).unwrap();
    assert_eq!(audit.problems, []);
}

/// A ledger that an import stored is acknowledged to a live source only when it is on disk. Covers
/// both kinds of deferred write: to the memtables only, and to the WAL, which the store chooses
/// shortly after a synced write.
#[test]
fn committing_a_deferred_ledger_again_makes_it_durable() {
    let directory = scratch();
    let store = open(directory.path());
    let mut stored = BTreeSet::new();
    for (sequence, others_write) in [(FIRST, false), (FIRST + 1, true)] {
        if others_write {
            // A ledger that must be durable at once.
            store.commit(prepare(FIRST + 2), Durability::Synced).unwrap();
            stored.insert(FIRST + 2);
        }
        store.commit(prepare(sequence), Durability::Deferred).unwrap();
        store.faults().plan(|_| Some(Fault::NotWritten));
        assert_planned(&store.commit(prepare(sequence), Durability::Synced).unwrap_err());
        assert_planned(&store.flush().unwrap_err());
        store.faults().clear();
        let again = store.commit(prepare(sequence), Durability::Synced).unwrap();
        assert_eq!(again, Committed::AlreadyStored);
        stored.insert(sequence);
        let copy = copied(directory.path());
        assert_eq!(covered(&open(copy.path())), stored);
        // Everything is durable, so the flush must not write.
        store.faults().plan(|_| Some(Fault::NotWritten));
        store.flush().unwrap();
        store.faults().clear();
    }
}
