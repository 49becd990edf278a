//! Feeds a consumer that the store does not define itself: its rows, its cursor, and rebuilding its
//! rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use orrery_ledger::domain::{LedgerRange, LedgerSeq};
use orrery_store::{
    Consumed, ConsumerEffects, ConsumerSpec, Durability, FedLedger, LedgerConsumer, Losses,
    Retention, Rows, RowsMut, StartPosition, Store, StoreError, audit,
};
use orrery_testkit::scratch::scratch;
use orrery_testkit::witness::{
    FIRST, WITNESS, Witnessed, add, assert_all_once, open, witness, witnessed,
};

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
    assert_eq!(
        notified.load(Ordering::Relaxed),
        10,
        "a listener that returned false is not notified again"
    );
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
    assert_eq!(audit.problems, []);
}

#[test]
fn rows_of_a_step_are_written_atomically_with_the_cursor() {
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
    let foreign = store.consume("witness", 8, |_, effects| effects.put("others", vec![1], vec![2]));
    assert!(matches!(foreign, Err(StoreError::UnknownFamily(_))));
    // Reads within one step see the writes of that step.
    store
        .consume("witness", 8, |fed, effects| {
            witness(fed, effects)?;
            let key = fed.ledger.0.to_be_bytes();
            assert!(effects.get("times", &key)?.is_some());
            if fed.ledger.0 == 5 { effects.delete("times", key.to_vec()) } else { Ok(()) }
        })
        .unwrap();
    let Witnessed { order, times } = witnessed(&store);
    assert_eq!((order.len(), times.len()), (8, 7));
}

#[test]
fn a_consumer_that_starts_at_the_next_ledger_sees_only_new_ones() {
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
fn old_rows_are_read_until_the_rebuild_is_complete() {
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
    let refused = store.begin_rebuild("witness", Losses::Refused).unwrap_err();
    assert!(
        matches!(
            refused,
            StoreError::RebuildLoses { ledgers, first: LedgerSeq(FIRST), last: LedgerSeq(10), .. }
                if ledgers == u64::from(10 - FIRST + 1)
        ),
        "{refused}"
    );
    for step in 0.. {
        let second = store.begin_rebuild("witness", Losses::Accepted).unwrap();
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
        let generation = store.generation();
        if store.finish_rebuild("witness").unwrap() {
            assert_ne!(store.generation(), generation, "cached answers about the old rows end");
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

/// The witness, which takes this long for each ledger and counts them.
struct Slow {
    per_ledger: Duration,
    ledgers: AtomicU32,
}

impl LedgerConsumer for Slow {
    fn spec(&self) -> ConsumerSpec {
        WITNESS
    }

    fn process_ledger(
        &self,
        _: &Store,
        ledger: &FedLedger,
        effects: &mut ConsumerEffects<'_>,
    ) -> Result<(), StoreError> {
        thread::sleep(self.per_ledger);
        self.ledgers.fetch_add(1, Ordering::Relaxed);
        witness(ledger, effects)
    }
}

#[test]
fn a_step_ends_at_a_stop_and_at_its_time_and_keeps_what_is_done() {
    let directory = scratch();
    let store = open(directory.path(), &[WITNESS]);
    add(&store, FIRST..=41, Durability::Synced);
    // Stopped while the third ledger is processed.
    let slow = Slow { per_ledger: Duration::ZERO, ledgers: AtomicU32::new(0) };
    let stop = || slow.ledgers.load(Ordering::Relaxed) >= 3;
    assert!(store.step_until(&slow, &stop).unwrap(), "there is more to do");
    assert_eq!(store.cursor("witness").unwrap(), Some(3));
    // Each further ledger takes longer than the time that a step has for all.
    let slow = Slow { per_ledger: Duration::from_millis(400), ledgers: AtomicU32::new(0) };
    let begun = Instant::now();
    assert!(store.step(&slow).unwrap());
    let (taken, ledgers) = (begun.elapsed(), slow.ledgers.load(Ordering::Relaxed));
    assert!((1..=3).contains(&ledgers), "{ledgers} ledgers in {taken:?}");
    assert_eq!(store.cursor("witness").unwrap(), Some(3 + u64::from(ledgers)));
    let fast = Slow { per_ledger: Duration::ZERO, ledgers: AtomicU32::new(0) };
    while store.step(&fast).unwrap() {}
    assert_all_once(&store);
}

/// A directory whose consumer has rows of another layout: it lacks a family that the consumer has.
#[test]
fn rows_of_another_layout_are_made_again() {
    const BEFORE: ConsumerSpec = ConsumerSpec { families: &["times"], ..WITNESS };
    let directory = scratch();
    let store = open(directory.path(), &[BEFORE]);
    add(&store, FIRST..=20, Durability::Synced);
    let before = |fed: &FedLedger, effects: &mut ConsumerEffects<'_>| {
        effects.put("times", fed.ledger.0.to_be_bytes().to_vec(), vec![9, 9, 9])
    };
    while store.consume("witness", 64, before).unwrap() != Consumed::CaughtUp {}
    store.begin_rebuild("witness", Losses::Refused).unwrap();
    drop(store);
    let store = open(directory.path(), &[WITNESS]);
    let status = store.consumer("witness").unwrap();
    assert_eq!((status.place, status.rebuild), (0, None));
    assert!(status.lost.is_empty());
    while store.consume("witness", 64, witness).unwrap() != Consumed::CaughtUp {}
    assert_all_once(&store);
    drop(store);
    // Once only.
    let store = open(directory.path(), &[WITNESS]);
    assert_eq!(store.consumer("witness").unwrap().lag, 0);
    assert_all_once(&store);
}
