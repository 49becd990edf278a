//! Runs a continuous export through histories of ledgers in any order, retention, restarts, manual
//! exports to the same destination and failures: every exported ledger is complete and exported
//! once, and every ledger that is missing for good is reported as lost.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use orrery::export::{self, Continuous, Destination, Export, ExportError, ExportScope, Interrupt};
use orrery::programs::storage;
use orrery_ledger::domain::{Direction, LedgerRange, LedgerSeq, Page};
use orrery_store::{Durability, EventQuery, Extensions, Needs, Retention, Store, TopicFilter};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

use orrery_testkit::exported;
use orrery_testkit::histories;
use orrery_testkit::sandbox::local;
use orrery_testkit::scratch::scratch;
use orrery_testkit::witness::{FIRST, add};

const LAST: u32 = FIRST + 29;
/// Much longer than the export waits for a gap to be filled.
const LONG: Duration = Duration::from_secs(3600);

struct History {
    rng: ChaCha8Rng,
    directory: TempDir,
    portion: u32,
    now: Instant,
    open: Option<(Arc<Store>, Continuous)>,
    /// Event ids and number of transactions of each stored ledger.
    stored: BTreeMap<u32, (Vec<u64>, usize)>,
}

fn open(directory: &Path) -> Arc<Store> {
    let consumers = vec![export::consumer()];
    let extensions = Extensions { consumers, ..storage::extensions() };
    Arc::new(Store::open_with(directory, Some(&local()), extensions).unwrap())
}

fn ids(store: &Store, ledger: u32) -> Vec<u64> {
    let ledgers = Some(LedgerRange::new(ledger, ledger));
    let (contracts, topics) = (Vec::new(), TopicFilter::default());
    let page = Page { direction: Direction::OldestFirst, limit: usize::MAX, ..Page::first(1) };
    let mut ids = Vec::new();
    let query = EventQuery { ledgers, contracts, topics, page };
    store.events(&query, |event| ids.push(event.id.0)).unwrap();
    ids
}

fn continuous(directory: &Path, store: &Arc<Store>, portion: u32) -> Continuous {
    let place = Destination::directory(directory.join("x"));
    let taken = ExportScope { portion, programs: true };
    Continuous::new(Arc::clone(store), place, taken, Interrupt::default())
}

impl History {
    fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let portion = rng.random_range(1..8);
        let mut history = Self {
            rng,
            directory: scratch(),
            portion,
            now: Instant::now(),
            open: None,
            stored: BTreeMap::new(),
        };
        history.reopen();
        history
    }

    fn place(&self) -> PathBuf {
        self.directory.path().join("x")
    }

    fn reopen(&mut self) {
        drop(self.open.take());
        let store = open(&self.directory.path().join("d"));
        let export = continuous(self.directory.path(), &store, self.portion);
        self.open = Some((store, export));
    }

    fn store(&self) -> &Store {
        &self.open.as_ref().unwrap().0
    }

    fn step(&mut self) {
        match self.rng.random_range(0..12) {
            0..4 => self.ledgers(),
            4..8 => self.export(),
            8 | 9 => self.prune(),
            10 => self.reopen(),
            _ => self.export_by_hand(),
        }
        self.check();
    }

    fn ledgers(&mut self) {
        let missing: Vec<u32> = (FIRST..=LAST).filter(|it| !self.stored.contains_key(it)).collect();
        let Some(first) = missing.choose(&mut self.rng).copied() else { return };
        let first = if self.rng.random_bool(0.6) { missing[0] } else { first };
        let most = self.rng.random_range(1..9);
        let durability = match self.rng.random_bool(0.3) {
            true => Durability::Deferred,
            false => Durability::Synced,
        };
        for ledger in (first..).take(most).filter(|it| missing.contains(it)) {
            add(self.store(), ledger..=ledger, durability);
            let transactions = self.store().ledger(LedgerSeq(ledger)).unwrap().unwrap();
            let transactions = transactions.counts.stored_transactions as usize;
            self.stored.insert(ledger, (ids(self.store(), ledger), transactions));
        }
        if self.rng.random_bool(0.5) {
            // Data that a crash may still undo must not be exported.
            let durable = self.store().last_durable_event().0;
            self.export();
            let exported = exported::events(&self.place());
            let newest = exported.last().map_or(0, |row| row["id"].as_u64().unwrap());
            assert!(newest <= durable, "event {newest} is exported, {durable} is durable");
        }
        self.store().flush().unwrap();
    }

    fn export(&mut self) {
        self.now += Duration::from_secs(self.rng.random_range(0..400));
        let now = self.now;
        let (_, export) = self.open.as_mut().unwrap();
        export.step(now, |_| {}).unwrap();
        if !self.place().exists() {
            // No portion was complete yet; create an empty export.
            let (store, _) = self.open.as_ref().unwrap();
            let place = Destination::directory(self.place());
            Export::open(&place, store, Interrupt::default()).unwrap().finish().unwrap();
        }
    }

    /// Exports manually with another portion size, as a user may do beside the service.
    fn export_by_hand(&mut self) {
        let portion = self.rng.random_range(1..8);
        let store = self.store();
        let mut wanted = store.status().ledgers_with(Needs::RECORDS);
        let lost = store.consumer(export::CONSUMER).unwrap().lost;
        wanted.remove_all(&lost);
        let place = Destination::directory(self.place());
        let mut export = Export::open(&place, store, Interrupt::default()).unwrap();
        let mut portions = 0;
        export
            .add(store, &wanted, portion, |_, _| {
                portions += 1;
                if portions == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .unwrap();
    }

    fn prune(&mut self) {
        let mut kept = || self.rng.random_bool(0.7).then(|| self.rng.random_range(5..28));
        let (raw_ledgers, events, transactions) = (None, kept(), kept());
        let wait_for_consumers = self.rng.random_range(0..20);
        let retention = Retention { raw_ledgers, events, transactions, wait_for_consumers };
        while !self.store().prune(&retention).unwrap().is_nothing() {}
    }

    fn check(&self) {
        let Some(manifest) = exported::manifest(&self.place()) else { return };
        let mut found: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for row in exported::events(&self.place()) {
            let ledger = row["ledger"].as_u64().unwrap() as u32;
            found.entry(ledger).or_default().push(row["id"].as_u64().unwrap());
        }
        let mut transactions: BTreeMap<u32, usize> = BTreeMap::new();
        for row in exported::transactions(&self.place()) {
            *transactions.entry(row["ledger"].as_u64().unwrap() as u32).or_default() += 1;
        }
        let exported = &manifest.ledgers;
        for (ledger, (ids, count)) in &self.stored {
            let has = exported.contains(LedgerSeq(*ledger));
            let expected = if has { (&ids[..], *count) } else { (&[][..], 0) };
            let there = found.remove(ledger).unwrap_or_default();
            let there = (&there[..], transactions.remove(ledger).unwrap_or(0));
            assert_eq!(there, expected, "ledger {ledger}");
        }
        assert!(found.is_empty() && transactions.is_empty());
        self.check_lost();
    }

    /// A ledger is lost to the export only if some of its records are gone, or it never had some.
    fn check_lost(&self) {
        let lost = self.store().consumer(export::CONSUMER).unwrap().lost;
        for ledger in self.stored.keys().map(|it| LedgerSeq(*it)).filter(|it| lost.contains(*it)) {
            let counts = self.store().ledger(ledger).unwrap().unwrap().counts;
            let never_had = counts.events() == 0 || counts.stored_transactions == 0;
            let is_gone = self.store().lacks_records(ledger, &counts);
            assert!(is_gone || never_had, "ledger {ledger} is stored, and lost to the export");
        }
    }

    /// After a long time without new ledgers, only those of the newest portion wait; all others are
    /// exported or lost.
    fn settle(&mut self) {
        self.store().flush().unwrap();
        // What manual exports added is noticed when the manifest is read again.
        self.reopen();
        for _ in 0..4 {
            self.now += LONG;
            let now = self.now;
            let (_, export) = self.open.as_mut().unwrap();
            export.step(now, |_| {}).unwrap();
        }
        self.check();
        let status = self.store().consumer(export::CONSUMER).unwrap();
        let exported = exported::manifest(&self.place()).map(|it| it.ledgers).unwrap_or_default();
        assert_eq!(self.open.as_ref().unwrap().1.progress().ledgers, exported.ledgers());
        let newest = self.stored.last_key_value().map_or(0, |(newest, _)| *newest);
        let mut waiting = 0;
        for ledger in self.stored.keys().map(|it| LedgerSeq(*it)) {
            let (has, lost) = (exported.contains(ledger), status.lost.contains(ledger));
            assert!(!(has && lost), "ledger {ledger} is exported and lost");
            if !has && !lost {
                assert_eq!(ledger.0 / self.portion, newest / self.portion, "ledger {ledger}");
                waiting += 1;
            }
        }
        assert_eq!(status.lag, waiting);
    }
}

/// Small: 60 histories; full: 5,000.
#[test]
fn an_export_has_every_ledger_once_or_reports_it_as_lost() {
    histories::run(60, 5_000, |seed| {
        let mut history = History::new(seed);
        (0..40).for_each(|_| history.step());
        history.settle();
    });
}

/// A ledger that retention removes while it is read must not be exported in part.
#[test]
fn ledgers_pruned_during_their_export_count_as_lost() {
    let directory = scratch();
    let store = open(&directory.path().join("d"));
    add(&store, FIRST..=LAST, Durability::Synced);
    let mut export = continuous(directory.path(), &store, 5);
    let retention = Retention { events: Some(10), ..Retention::default() };
    let mut portions = 0;
    for _ in 0..3 {
        // Retention runs after the first portion, and does not wait for consumers.
        let added = export.step(Instant::now(), |_| {
            portions += 1;
            while !store.prune(&retention).unwrap().is_nothing() {}
        });
        assert!(added.is_ok(), "{added:?}");
    }
    let exported = exported::manifest(&directory.path().join("x")).unwrap().ledgers;
    let status = store.consumer(export::CONSUMER).unwrap();
    assert!(portions > 1 && status.lost.ledgers() > 10, "{portions} {:?}", status.lost);
    for ledger in (FIRST..LAST / 5 * 5).map(LedgerSeq) {
        assert!(exported.contains(ledger) != status.lost.contains(ledger), "ledger {ledger}");
    }
    exported::assert_no_strays(&directory.path().join("x"));
}

/// Retention waits for the export, also when the ledgers that are not exported are older than some
/// that are.
#[test]
fn retention_waits_for_unexported_ledgers() {
    let directory = scratch();
    let store = open(&directory.path().join("d"));
    add(&store, 12..=LAST, Durability::Synced);
    let mut export = continuous(directory.path(), &store, 5);
    export.step(Instant::now(), |_| {}).unwrap();
    add(&store, FIRST..=4, Durability::Synced);
    let retention = Retention { events: Some(5), wait_for_consumers: LAST, ..Retention::default() };
    while !store.prune(&retention).unwrap().is_nothing() {}
    let status = store.consumer(export::CONSUMER).unwrap();
    assert!(status.lost.is_empty(), "{:?}", status.lost);
    assert_eq!(
        ids(&store, 3).len() as u64,
        store.ledger(LedgerSeq(3)).unwrap().unwrap().counts.events()
    );
    // Once they are exported, retention no longer waits.
    export.step(Instant::now() + LONG, |_| {}).unwrap();
    export.step(Instant::now() + LONG * 2, |_| {}).unwrap();
    while !store.prune(&retention).unwrap().is_nothing() {}
    assert_eq!(store.consumer(export::CONSUMER).unwrap().lost.ledgers(), 0);
    assert!(ids(&store, 3).is_empty() && ids(&store, 15).is_empty());
}

/// A kill may leave the views of before; nothing else need be written for the next start to write them.
#[test]
fn views_of_a_killed_export_are_written_at_the_next_start() {
    let directory = scratch();
    let store = open(&directory.path().join("d"));
    add(&store, FIRST..=LAST, Durability::Synced);
    continuous(directory.path(), &store, 5).step(Instant::now(), |_| {}).unwrap();
    let place = directory.path().join("x");
    let views = place.join("views.sql");
    let written = fs::read(&views).unwrap();
    for left in [None, Some("-- those of before\n")] {
        match left {
            Some(text) => fs::write(&views, text).unwrap(),
            None => fs::remove_file(&views).unwrap(),
        }
        continuous(directory.path(), &store, 5).step(Instant::now(), |_| {}).unwrap();
        assert!(fs::read(&views).unwrap() == written);
    }
    exported::assert_no_strays(&place);
}

/// What a step could not write after the manifest is written by the next one, though there are no new ledgers.
#[test]
fn views_that_could_not_be_written_are_written_by_the_next_step() {
    let directory = scratch();
    let store = open(&directory.path().join("d"));
    add(&store, FIRST..=LAST - 6, Durability::Synced);
    let mut export = continuous(directory.path(), &store, 5);
    export.step(Instant::now(), |_| {}).unwrap();
    let place = directory.path().join("x");
    // No draft of the views can be made there.
    fs::create_dir(place.join("views.sql.new")).unwrap();
    add(&store, LAST - 5..=LAST, Durability::Synced);
    assert!(export.step(Instant::now(), |_| {}).is_err());
    fs::remove_dir(place.join("views.sql.new")).unwrap();
    export.step(Instant::now(), |_| {}).unwrap();
    exported::assert_no_strays(&place);
}

#[test]
fn a_destination_of_another_network_is_refused() {
    let directory = scratch();
    let store = open(&directory.path().join("d"));
    let export = continuous(directory.path(), &store, 5);
    assert!(export.check().is_ok());
    fs::create_dir(directory.path().join("x")).unwrap();
    let manifest = r#"{"format":1,"network_passphrase":"Elsewhere","ledgers":[],
                       "tables":{"events":[],"transactions":[]}}"#;
    fs::write(directory.path().join("x/manifest.json"), manifest).unwrap();
    assert!(matches!(export.check(), Err(ExportError::OtherNetwork(_))));
    fs::write(directory.path().join("x/manifest.json"), "{").unwrap();
    assert!(matches!(export.check(), Err(ExportError::Manifest(_))));
}

fn prune_all(store: &Store, retention: &Retention) {
    while !store.prune(retention).unwrap().is_nothing() {}
}

/// Ledgers that are older than what retention removed, and stored after it, are exported.
#[test]
fn older_ledgers_that_are_stored_after_a_prune_are_exported() {
    let directory = scratch();
    let store = open(&directory.path().join("d"));
    add(&store, 12..=LAST, Durability::Synced);
    let mut export = continuous(directory.path(), &store, 5);
    let retention = Retention { events: Some(5), wait_for_consumers: LAST, ..Retention::default() };
    for _ in 0..2 {
        export.step(Instant::now(), |_| {}).unwrap();
        prune_all(&store, &retention);
    }
    add(&store, FIRST..=9, Durability::Synced);
    for times in 1..4 {
        // Retention waits for the export.
        prune_all(&store, &retention);
        export.step(Instant::now() + LONG * times, |_| {}).unwrap();
    }
    let exported = exported::manifest(&directory.path().join("x")).unwrap().ledgers;
    assert!((FIRST..=9).all(|it| exported.contains(LedgerSeq(it))), "{exported:?}");
    assert_eq!(store.consumer(export::CONSUMER).unwrap().lost.ledgers(), 0);
}

/// A ledger without its transactions is not exported as if it had none, whatever is kept of events.
#[test]
fn ledgers_without_their_transactions_are_not_exported() {
    let directory = scratch();
    let store = open(&directory.path().join("d"));
    add(&store, FIRST..=LAST, Durability::Synced);
    prune_all(&store, &Retention { transactions: Some(10), ..Retention::default() });
    let place = Destination::directory(directory.path().join("x"));
    let mut export = Export::open(&place, &store, Interrupt::default()).unwrap();
    let mut add = |first, last| {
        let wanted = LedgerRange::new(first, last).into();
        export.add(&store, &wanted, 5, |_, _| ControlFlow::Continue(()))
    };
    assert!(matches!(add(FIRST, LAST), Err(ExportError::Pruned(_))));
    assert_eq!(add(LAST - 9, LAST).unwrap().ledgers, 10);
    assert_eq!(export.manifest().ledgers.ledgers(), 10);
}
