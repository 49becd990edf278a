//! Feeds a consumer that the store does not define itself: its rows, its cursor, and rebuilding its
//! rows.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use orrery::config::Config;
use orrery::decode::decode;
use orrery::domain::{LedgerRange, Network};
use orrery::service::Ledgers;
use orrery::source::sandbox::{Sandbox, SandboxConfig};
use orrery::store::{
    Arrival, Consumed, ConsumerEffects, ConsumerSpec, Durability, Extensions, FedLedger,
    IndexOptions, LedgerConsumer, Needs, PreparedLedger, Retention, StartPosition, Store,
    StoreError, audit,
};
use tempfile::TempDir;

pub(super) const FIRST: u32 = 2;
pub(super) const LEDGERS: u32 = 60;

/// Records which ledgers it was given, in which order and how often.
pub(super) const WITNESS: ConsumerSpec = ConsumerSpec {
    name: "witness",
    families: &["times", "order"],
    needs: Needs { raw_ledgers: false, events: true, transactions: false },
    start: StartPosition::FirstLedger,
};

pub(super) fn network() -> Network {
    Network::from_name_or_passphrase("local")
}

pub(super) static CHAIN: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let config = SandboxConfig {
        network: network(),
        seed: 11,
        start_time: 1_750_000_000,
        close_interval: 5,
        transactions_per_ledger: 1..=2,
    };
    let mut sandbox = Sandbox::new(config).unwrap();
    (0..LEDGERS).map(|_| sandbox.next_ledger().unwrap()).collect()
});

pub(super) fn prepared(xdr: &[u8]) -> PreparedLedger {
    let view = decode(xdr, network().id()).unwrap();
    let options = IndexOptions { fee_events: true, raw_ledgers: true, ..IndexOptions::default() };
    PreparedLedger::new(&view, &options).unwrap()
}

pub(super) fn add(store: &Store, ledgers: std::ops::RangeInclusive<u32>, durability: Durability) {
    for ledger in ledgers {
        store.commit(prepared(&CHAIN[(ledger - FIRST) as usize]), durability).unwrap();
    }
}

pub(super) fn scratch() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

pub(super) fn open(directory: &Path, consumers: &[ConsumerSpec]) -> Store {
    let consumers = consumers.to_vec();
    let extensions = Extensions { consumers, ..Extensions::default() };
    Store::open_with(directory, Some(&network()), extensions).unwrap()
}

/// Work of the witness for a ledger: counts it in `times` and records its place in `order`.
pub(super) fn witness(
    fed: &FedLedger,
    effects: &mut ConsumerEffects<'_>,
) -> Result<(), StoreError> {
    let key = fed.ledger.0.to_be_bytes();
    let times = effects.get("times", &key)?.map_or(0, |value| value[0]);
    effects.put("times", key, [times + 1, u8::from(fed.arrival == Arrival::Live)])?;
    effects.put("order", fed.place.to_be_bytes(), key)
}

/// Ledgers that the witness was given: by place, and by ledger how often and whether it arrived
/// live.
pub(super) struct Witnessed {
    pub order: BTreeMap<u64, u32>,
    pub times: BTreeMap<u32, (u8, bool)>,
}

pub(super) fn witnessed(store: &Store) -> Witnessed {
    let view = store.consumer_view(WITNESS.name).unwrap();
    let mut order = BTreeMap::new();
    view.scan("order", |key, value| {
        let place = u64::from_be_bytes(key.try_into().unwrap());
        order.insert(place, u32::from_be_bytes(value.try_into().unwrap())).is_none()
    })
    .unwrap();
    let mut times = BTreeMap::new();
    view.scan("times", |key, value| {
        let ledger = u32::from_be_bytes(key.try_into().unwrap());
        times.insert(ledger, (value[0], value[1] != 0)).is_none()
    })
    .unwrap();
    Witnessed { order, times }
}

/// Asserts that every ingested ledger was given exactly once, with its place and with the correct
/// arrival.
pub(super) fn assert_all_once(store: &Store) {
    let Witnessed { order, times } = witnessed(store);
    let fed = store.fed_after(0, usize::MAX);
    assert!(order.into_iter().eq(fed.iter().map(|fed| (fed.place, fed.ledger.0))));
    let expected = fed.iter().map(|fed| (fed.ledger.0, (1, fed.arrival == Arrival::Live)));
    assert_eq!(times, expected.collect());
}

#[test]
fn a_consumer_gets_every_ledger_in_the_order_of_ingestion() {
    let directory = scratch();
    let store = open(directory.path(), &[WITNESS]);
    let notified = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&notified);
    store.listen(move || counted.fetch_add(1, Ordering::Relaxed) < 9);
    add(&store, 20..=29, Durability::Synced);
    add(&store, 10..=12, Durability::Deferred);
    add(&store, 30..=30, Durability::Synced);
    assert_eq!(notified.load(Ordering::Relaxed), 10, "who has gone is not told any more");
    assert_eq!(store.consumer("witness").unwrap().lag, 14);
    assert_eq!(store.consume("witness", 4, witness).unwrap(), Consumed::Ledgers(4));
    drop(store);
    // A process without this consumer leaves its cursor unchanged.
    let store = open(directory.path(), &[]);
    add(&store, 31..=31, Durability::Synced);
    let unknown = store.consume("witness", 4, witness).unwrap_err();
    assert!(matches!(unknown, StoreError::UnknownConsumer(_)), "{unknown}");
    assert!(!store.consumer("witness").unwrap().active);
    drop(store);
    let store = open(directory.path(), &[WITNESS]);
    while store.consume("witness", 4, witness).unwrap() != Consumed::CaughtUp {}
    assert_all_once(&store);
    let order: Vec<u32> = witnessed(&store).order.into_values().collect();
    assert_eq!(order, (20..=29).chain(10..=12).chain(30..=31).collect::<Vec<_>>());
    let live = witnessed(&store).times.into_iter().filter(|(_, (_, live))| !live);
    assert_eq!(live.map(|(ledger, _)| ledger).collect::<Vec<_>>(), [10, 11, 12]);
    let status = store.consumer("witness").unwrap();
    assert_eq!((status.place, status.lag, status.active), (15, 0, true));
    assert!(store.sizes().unwrap().contains_key("witness.order"));
    drop(store);
    let audit = audit(directory.path(), None, &|_| {}).unwrap();
    assert_eq!((audit.problems, audit.drift), (Vec::new(), Vec::new()));
}

#[test]
fn what_work_leaves_is_written_with_the_cursor_or_not_at_all() {
    let directory = scratch();
    let store = open(directory.path(), &[WITNESS]);
    add(&store, FIRST..=9, Durability::Synced);
    let mut left = 3;
    let failed = store.consume("witness", 8, |fed, effects| {
        witness(fed, effects)?;
        left -= 1;
        if left == 0 { Err(StoreError::Missing(fed.ledger)) } else { Ok(()) }
    });
    assert!(failed.is_err());
    assert!(witnessed(&store).order.is_empty());
    let foreign = store.consume("witness", 8, |_, effects| effects.put("others", [1], [2]));
    assert!(matches!(foreign, Err(StoreError::UnknownFamily(_))));
    // Reads within one step see the writes of that step.
    store
        .consume("witness", 8, |fed, effects| {
            witness(fed, effects)?;
            let key = fed.ledger.0.to_be_bytes();
            assert!(effects.get("times", &key)?.is_some());
            if fed.ledger.0 == 5 { effects.delete("times", key) } else { Ok(()) }
        })
        .unwrap();
    let Witnessed { order, times } = witnessed(&store);
    assert_eq!((order.len(), times.len()), (8, 7));
}

#[test]
fn a_consumer_that_begins_now_sees_what_comes() {
    let directory = scratch();
    let store = open(directory.path(), &[]);
    add(&store, FIRST..=9, Durability::Synced);
    drop(store);
    let store =
        open(directory.path(), &[ConsumerSpec { start: StartPosition::NextLedger, ..WITNESS }]);
    assert_eq!(store.consume("witness", 8, witness).unwrap(), Consumed::CaughtUp);
    add(&store, 10..=11, Durability::Synced);
    assert_eq!(store.consume("witness", 8, witness).unwrap(), Consumed::Ledgers(2));
}

#[test]
fn the_old_rows_are_read_until_the_new_ones_are_there() {
    let directory = scratch();
    let mut store = open(directory.path(), &[WITNESS]);
    add(&store, FIRST..=30, Durability::Synced);
    // Incorrect work that counts every ledger twice, to be corrected by the rebuild.
    store
        .consume("witness", 100, |fed, effects| {
            witness(fed, effects)?;
            witness(fed, effects)
        })
        .unwrap();
    let retention = Retention { events: Some(20), ..Retention::default() };
    while !store.prune(&retention).unwrap().is_nothing() {}
    for step in 0.. {
        let second = store.begin_rebuild("witness").unwrap();
        if step % 2 == 0 {
            // Live ledgers and restarts go on during the rebuild.
            add(&store, 31 + step / 2..=31 + step / 2, Durability::Synced);
            store.consume("witness", 100, witness).unwrap();
            drop(store);
            store = open(directory.path(), &[WITNESS]);
        }
        assert_eq!(witnessed(&store).times[&FIRST].0, 2, "the old rows are read");
        store.consume(&second, 7, witness).unwrap();
        let progress = store.consumer("witness").unwrap().rebuild.unwrap();
        assert!(progress.done <= progress.target);
        if store.finish_rebuild("witness").unwrap() {
            break;
        }
    }
    let status = store.consumer("witness").unwrap();
    assert_eq!((status.lag, status.rebuild), (0, None));
    // Ledgers that retention removed cannot be read again, and are reported as lost.
    assert_eq!(status.lost.ranges(), [LedgerRange::new(FIRST, 10)]);
    let Witnessed { order, times } = witnessed(&store);
    assert!(times.values().all(|(times, _)| *times == 1));
    assert_eq!(times.keys().next(), Some(&11));
    assert_eq!(order.len(), times.len());
    drop(store);
    let store = open(directory.path(), &[WITNESS]);
    assert_eq!(witnessed(&store).times, times);
    assert!(store.finish_rebuild("witness").unwrap(), "there is nothing to finish");
}

/// The witness as a consumer of a running service.
struct Witness;

impl LedgerConsumer for Witness {
    fn spec(&self) -> ConsumerSpec {
        WITNESS
    }

    fn ledger(
        &self,
        _: &Store,
        ledger: &FedLedger,
        effects: &mut ConsumerEffects<'_>,
    ) -> Result<(), StoreError> {
        witness(ledger, effects)
    }
}

#[test]
fn a_consumer_is_built_anew_step_by_step() {
    let directory = scratch();
    let config = Config { data_dir: directory.path().to_owned(), ..Config::default() };
    let ledgers = Ledgers::open_with(&config, Some(&network()), vec![Arc::new(Witness)]).unwrap();
    add(ledgers.store(), FIRST..=FIRST + LEDGERS - 1, Durability::Synced);
    while ledgers.store().step(&Witness).unwrap() {}
    assert_all_once(ledgers.store());
    let unknown = ledgers.rebuild("nobody", true).unwrap_err();
    assert_eq!(unknown.to_string(), "there is no consumer 'nobody'");
    assert!(ledgers.rebuild("witness", true).unwrap().running);
    let before = ledgers.rebuild("witness", true).unwrap();
    assert_eq!((before.done, before.of), (0, u64::from(LEDGERS)), "it is not begun twice");
    let mut steps = 0;
    while ledgers.rebuild_step("witness").unwrap() {
        steps += 1;
        assert!(steps < 100);
    }
    let after = ledgers.rebuild("witness", false).unwrap();
    assert_eq!((after.running, after.done, after.lost), (false, u64::from(LEDGERS), vec![]));
    assert_all_once(ledgers.store());
    let report = ledgers.report().unwrap();
    let consumer = &report.consumers[0];
    assert_eq!((consumer.name.as_str(), consumer.active, consumer.lag), ("witness", true, 0));
    ledgers.report_consumers();
    let metrics = ledgers.metrics().render().unwrap();
    assert!(metrics.contains("orrery_consumer_lag_ledgers{consumer=\"witness\"} 0"), "{metrics}");
    assert!(metrics.contains("orrery_consumer_lost_ledgers{consumer=\"witness\"} 0"), "{metrics}");
    assert!(ledgers.health().components().contains_key("feed"));
}
