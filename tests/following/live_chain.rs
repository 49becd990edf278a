//! Events and transactions in SQL while a local export runs: the files and the ledgers that are in none are together
//! what the store has and had, each row once, through ledgers in any order, gaps, retention, restarts, manual exports
//! and an export that is behind.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use orrery::executables::{ExecutableIndex, Interfaces};
use orrery::export::{self, Continuous, Destination, Export, ExportScope, Interrupt, LiveChain};
use orrery::programs::storage;
use orrery::settings::Queries;
use orrery::tables::query::{QueryAnswer, QueryError, QueryRequest};
use orrery::tables::{Tables, TablesSettings, Tunables};
use orrery_ledger::domain::{LedgerRange, LedgerSeq, LedgerSet, Owner};
use orrery_store::{Durability, EventQuery, Extensions, Needs, Retention, Store};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use tempfile::TempDir;

use orrery_testkit::program;
use orrery_testkit::sandbox::local;
use orrery_testkit::scratch::scratch;
use orrery_testkit::wait::wait_until;
use orrery_testkit::witness::{FIRST, LEDGERS, add};
use orrery_testkit::{exported, histories};

const LAST: u32 = FIRST + LEDGERS - 1;

/// A store whose ledgers are exported, and SQL over them.
struct Open {
    store: Arc<Store>,
    export: Continuous,
    tables: Tables,
}

fn owner() -> Owner {
    Owner("ana".to_owned())
}

impl Open {
    fn new(directory: &Path, portion: u32) -> Self {
        Self::with(directory, portion, |chain| chain)
    }

    fn with(directory: &Path, portion: u32, adjusted: impl FnOnce(LiveChain) -> LiveChain) -> Self {
        let mut extensions =
            Extensions::for_consumers(&[Arc::new(ExecutableIndex)]).with_kind(storage::KIND);
        extensions.consumers.push(export::consumer());
        let store = Store::open_with(&directory.join("d"), Some(&local()), extensions);
        let store = Arc::new(store.unwrap());
        let names = Interfaces::patient(Arc::clone(&store), None, Duration::ZERO);
        let place = directory.join("x");
        let chain = LiveChain::open(Arc::clone(&store), Some(Arc::clone(&names)), &place, portion);
        let chain = Arc::new(adjusted(chain.unwrap()));
        let scope = ExportScope { portion, programs: false };
        let (destination, interrupt) = (Destination::directory(&place), Interrupt::default());
        let export =
            Continuous::new(Arc::clone(&store), destination, scope, interrupt).naming(names);
        let tables = Tables::open(TablesSettings {
            directory: directory.join("tables"),
            worker: program::orrery(),
            queries: Queries { allow_unconfined: true, ..Queries::default() },
            chain: Some(chain),
            tunables: Tunables::default(),
        });
        let tables = tables.unwrap();
        tables.apply(&owner(), Vec::new()).unwrap();
        tables.set_complete(&owner()).unwrap();
        Self { store, export, tables }
    }

    fn ask(&self, sql: &str) -> Result<QueryAnswer, QueryError> {
        let request = QueryRequest { query: sql.to_owned(), ..QueryRequest::default() };
        self.tables.query(&owner(), request)
    }

    /// Has the index of interfaces process all ledgers.
    fn index(&self) {
        while self.store.step(&ExecutableIndex).unwrap() {}
    }

    fn ids(&self, ledger: u32) -> Vec<u64> {
        let mut ids = Vec::new();
        let query = EventQuery::of_ledgers(LedgerRange::new(ledger, ledger));
        self.store.events(&query, |event| ids.push(event.id.0)).unwrap();
        ids
    }

    fn transactions(&self, ledger: u32) -> u64 {
        let counts = self.store.ledger(LedgerSeq(ledger)).unwrap().unwrap().counts;
        counts.stored_transactions.into()
    }
}

struct History {
    rng: ChaCha8Rng,
    directory: TempDir,
    portion: u32,
    now: Instant,
    open: Option<Open>,
    /// Event ids and number of transactions of each ledger that was stored.
    stored: BTreeMap<u32, (Vec<u64>, u64)>,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (directory, portion) = (scratch(), rng.random_range(1..12));
        let open = Some(Open::new(directory.path(), portion));
        Self { rng, directory, portion, now: Instant::now(), open, stored: BTreeMap::new() }
    }

    fn open(&self) -> &Open {
        self.open.as_ref().unwrap()
    }

    fn step(&mut self) {
        match self.rng.random_range(0..12) {
            0..5 => self.ledgers(),
            5..8 => {
                self.now += Duration::from_secs(self.rng.random_range(0..900));
                let now = self.now;
                self.open.as_mut().unwrap().export.step(now, |_| {}).unwrap();
            }
            8 => self.prune(),
            9 => {
                self.open().store.flush().unwrap();
                drop(self.open.take());
                self.open = Some(Open::new(self.directory.path(), self.portion));
            }
            10 => self.export_by_hand(),
            _ => self.open().index(),
        }
        self.check();
    }

    fn ledgers(&mut self) {
        let missing: Vec<u32> = (FIRST..=LAST).filter(|it| !self.stored.contains_key(it)).collect();
        let Some(first) = missing.choose(&mut self.rng).copied() else { return };
        let first = if self.rng.random_bool(0.7) { missing[0] } else { first };
        let most = self.rng.random_range(1..9);
        for ledger in (first..).take(most).filter(|it| missing.contains(it)) {
            add(&self.open().store, ledger..=ledger, Durability::Synced);
            let of = (self.open().ids(ledger), self.open().transactions(ledger));
            self.stored.insert(ledger, of);
        }
        if self.rng.random_bool(0.7) {
            self.open().index();
        }
    }

    fn export_by_hand(&mut self) {
        let open = self.open.as_ref().unwrap();
        let mut wanted = open.store.status().ledgers_with(Needs::RECORDS);
        wanted.remove_all(&open.store.consumer(export::CONSUMER).unwrap().lost);
        let place = Destination::directory(self.directory.path().join("x"));
        let mut export = Export::open(&place, &open.store, Interrupt::default()).unwrap();
        let portion = self.rng.random_range(1..8);
        export.add(&open.store, &wanted, portion, |_, _| ControlFlow::Break(())).unwrap();
    }

    fn prune(&mut self) {
        let mut kept = || self.rng.random_bool(0.7).then(|| self.rng.random_range(5..40));
        let (raw_ledgers, events, transactions) = (None, kept(), kept());
        let wait_for_consumers = self.rng.random_range(0..30);
        let retention = Retention { raw_ledgers, events, transactions, wait_for_consumers };
        while !self.open().store.prune(&retention).unwrap().is_nothing() {}
    }

    /// SQL has what is in files or in the store, at the newest ledger.
    fn check(&self) {
        let (open, place) = (self.open(), self.directory.path().join("x"));
        let files = exported::manifest(&place).map(|it| it.ledgers).unwrap_or_default();
        let status = open.store.status();
        let needs = |events: bool| Needs { raw_ledgers: false, events, transactions: !events };
        let is_there = |ledger: u32, stored: &LedgerSet| {
            files.contains(LedgerSeq(ledger)) || stored.contains(LedgerSeq(ledger))
        };
        let sql =
            "select ledger, list(id order by id) as of from chain.events group by 1 order by 1";
        let answer = open.ask(sql).unwrap();
        assert_eq!(answer.chain_ledger, status.latest());
        let stored = status.ledgers_with(needs(true));
        let expected = self
            .stored
            .iter()
            .filter(|(ledger, (ids, _))| !ids.is_empty() && is_there(**ledger, &stored));
        let expected: Vec<Value> = expected
            .map(|(ledger, (ids, _))| serde_json::json!({ "ledger": ledger, "of": ids }))
            .collect();
        let found: Value = serde_json::from_slice(&answer.bytes).unwrap();
        assert_eq!(found, Value::from(expected));
        let sql = "select ledger, count(*) as of, count(distinct tx) as d from chain.transactions group by 1 order by 1";
        let found: Value = serde_json::from_slice(&open.ask(sql).unwrap().bytes).unwrap();
        let stored = status.ledgers_with(needs(false));
        let expected = self
            .stored
            .iter()
            .filter(|(ledger, (_, count))| *count > 0 && is_there(**ledger, &stored));
        let expected: Vec<Value> = expected
            .map(|(ledger, (_, count))| serde_json::json!({ "ledger": ledger, "of": count, "d": count }))
            .collect();
        assert_eq!(found, Value::from(expected));
    }
}

/// Small: 8 histories; full: 1,000.
#[test]
fn sql_has_what_files_and_store_have_together() {
    histories::run(8, 1_000, |seed| {
        let mut history = History::new(seed);
        (0..30).for_each(|_| history.step());
    });
}

/// While ledgers are stored, exported and removed, each answer has all rows up to its ledger, and no other.
#[test]
fn answers_are_whole_beside_export_and_retention() {
    let directory = scratch();
    let mut open = Open::new(directory.path(), 4);
    let (store, tables) = (Arc::clone(&open.store), open.tables.clone());
    let (newest, done) = (AtomicU32::new(0), AtomicBool::new(false));
    let answered = AtomicU32::new(0);
    let mut ids = BTreeMap::new();
    let answers = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut found = Vec::new();
            while !done.load(Ordering::Acquire) {
                let before = newest.load(Ordering::Acquire);
                let query = "select list(id order by id) as of from chain.events".to_owned();
                let request = QueryRequest { query, ..QueryRequest::default() };
                let answer = match tables.query(&owner(), request) {
                    Ok(answer) => answer,
                    // It has looked several times while ledgers were removed.
                    Err(QueryError::Unavailable(_)) => continue,
                    Err(error) => panic!("{error}"),
                };
                let ledger = answer.chain_ledger.map_or(0, |ledger| ledger.0);
                assert!(ledger >= before, "{ledger} is older than {before}");
                let rows: Value = serde_json::from_slice(&answer.bytes).unwrap();
                found.push((ledger, rows[0]["of"].clone()));
                answered.fetch_add(1, Ordering::AcqRel);
            }
            found
        });
        let retention = Retention {
            events: Some(6),
            transactions: Some(3),
            wait_for_consumers: LEDGERS,
            ..Retention::default()
        };
        for ledger in FIRST..=LAST {
            add(&store, ledger..=ledger, Durability::Synced);
            ids.insert(ledger, open.ids(ledger));
            open.index();
            newest.store(ledger, Ordering::Release);
            open.export.step(Instant::now(), |_| {}).unwrap();
            while !store.prune(&retention).unwrap().is_nothing() {}
            // However slow queries are, there are some of all that is stored meanwhile.
            let least = (ledger - FIRST) / 4;
            wait_until("queries are answered", || answered.load(Ordering::Acquire) >= least);
        }
        done.store(true, Ordering::Release);
        asking.join().unwrap()
    });
    assert!(answers.len() > 3, "{} answers", answers.len());
    for (ledger, found) in answers {
        let expected: Vec<u64> = ids.range(..=ledger).flat_map(|(_, ids)| ids.clone()).collect();
        let expected = if expected.is_empty() { Value::Null } else { expected.into() };
        assert_eq!(found, expected, "up to {ledger}");
    }
}

/// What is in no file and is too much is refused with the lag of the export; then, once it is exported, it is not.
#[test]
fn an_export_that_is_far_behind_is_named() {
    let directory = scratch();
    let limited = |chain: LiveChain| chain.reading_at_most(9, 64 << 20);
    let mut open = Open::with(directory.path(), 20, limited);
    add(&open.store, FIRST..=FIRST + 8, Durability::Synced);
    open.index();
    let sql = "select count(*) as n, count(envelope_xdr) as m from chain.transactions";
    assert!(open.ask(sql).is_ok());
    add(&open.store, FIRST + 9..=LAST, Durability::Synced);
    open.index();
    let refused = open.ask(sql);
    let Err(QueryError::Unavailable(said)) = refused else { panic!("{refused:?}") };
    let parts = ["Of 60 stored ledgers", "at most 9 ledgers", "60 ledgers behind"];
    assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    // A query that reads no such table is answered.
    assert!(open.ask("select 1 as a").is_ok());
    open.export.step(Instant::now(), |_| {}).unwrap();
    assert!(open.ask(sql).is_ok());
    // A single ledger may be too large.
    let directory = scratch();
    let open = Open::with(directory.path(), 20, |chain| chain.reading_at_most(100, 1_000));
    add(&open.store, FIRST..=FIRST + 9, Durability::Synced);
    open.index();
    let refused = open.ask("select count(*) as n from chain.transactions");
    let Err(QueryError::Unavailable(said)) = refused else { panic!("{refused:?}") };
    assert!(said.contains("MiB of rows beside the files"), "{said}");
}
