//! Changes of a consumer's rows that are made outside of its steps.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use orrery_store::{
    Consumed, ConsumerEffects, Durability, Fault, RowBounds, Rows, RowsMut, Store, StoreError,
    WriteKind,
};

use orrery_testkit::scratch::scratch;
use orrery_testkit::wait::wait_until;
use orrery_testkit::witness::{FIRST, LEDGERS, WITNESS, add, assert_all_once, open, witness};

const KEY: &[u8] = b"count";

fn number(effects: &ConsumerEffects<'_>, key: &[u8]) -> Result<u64, StoreError> {
    let row = effects.get("order", key)?;
    Ok(row.map_or(0, |row| u64::from_be_bytes(row.try_into().unwrap())))
}

fn add_one(effects: &mut ConsumerEffects<'_>) -> Result<u64, StoreError> {
    let next = number(effects, KEY)? + 1;
    effects.put("order", KEY.to_vec(), next.to_be_bytes().to_vec())?;
    Ok(next)
}

fn stored(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
    store.consumer_view(WITNESS.name, RowBounds::none()).unwrap().get("order", key).unwrap()
}

#[test]
fn concurrent_changes_and_steps_lose_no_updates() {
    let directory = scratch();
    let store = Arc::new(open(directory.path(), &[WITNESS]));
    let (threads, changes) = (8, 40);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let feeder = scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                // A step increments the same counter row.
                store
                    .consume(WITNESS.name, 3, |fed, effects| {
                        witness(fed, effects)?;
                        add_one(effects).map(drop)
                    })
                    .unwrap();
            }
        });
        add(&store, FIRST..=FIRST + LEDGERS - 1, Durability::Synced);
        let changing: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut last = 0;
                    for _ in 0..changes {
                        let now = store.change_consumer_rows(WITNESS.name, add_one).unwrap();
                        assert!(now > last, "each change sees earlier writes");
                        last = now;
                    }
                })
            })
            .collect();
        changing.into_iter().for_each(|thread| thread.join().unwrap());
        wait_until("it is fed", || store.consumer(WITNESS.name).unwrap().lag == 0);
        done.store(true, Ordering::SeqCst);
        feeder.join().unwrap();
    });
    let total = threads * changes + u64::from(LEDGERS);
    assert_eq!(stored(&store, KEY), Some(total.to_be_bytes().to_vec()));
    store
        .change_consumer_rows(WITNESS.name, |effects| effects.delete("order", KEY.to_vec()))
        .unwrap();
    assert_all_once(&store);
    drop(store);
    assert_all_once(&open(directory.path(), &[WITNESS]));
}

/// Changes that arrive while another change is being written share the next write.
#[test]
fn concurrent_changes_share_a_write() {
    const OTHERS: u64 = 8;
    let directory = scratch();
    let store = open(directory.path(), &[WITNESS]);
    let (writes, arrived) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (counted, arrivals) = (Arc::clone(&writes), Arc::clone(&arrived));
    store.faults().plan(move |_| {
        if counted.fetch_add(1, Ordering::SeqCst) == 0 {
            wait_until("all others begin", || arrivals.load(Ordering::SeqCst) == OTHERS);
            // The threads have announced that they are about to submit a change; nothing signals
            // that they have.
            std::thread::sleep(Duration::from_millis(50));
        }
        None
    });
    std::thread::scope(|scope| {
        scope.spawn(|| store.change_consumer_rows(WITNESS.name, add_one).unwrap());
        wait_until("the first write begins", || writes.load(Ordering::SeqCst) > 0);
        for _ in 0..OTHERS {
            scope.spawn(|| {
                arrived.fetch_add(1, Ordering::SeqCst);
                store.change_consumer_rows(WITNESS.name, add_one).unwrap()
            });
        }
    });
    assert!(writes.load(Ordering::SeqCst) < 1 + OTHERS, "{writes:?}");
    assert_eq!(stored(&store, KEY), Some((1 + OTHERS).to_be_bytes().to_vec()));
}

#[test]
fn a_failed_change_has_no_effect_and_fails_no_other() {
    let directory = scratch();
    let store = open(directory.path(), &[WITNESS]);
    let change = |key: u8, fails: bool| {
        store.change_consumer_rows(WITNESS.name, move |effects| {
            effects.put("order", vec![key], vec![key])?;
            effects.put("times", vec![key], vec![key])?;
            match fails {
                true => Err(StoreError::UnknownConsumer("me".to_owned())),
                false => Ok(key),
            }
        })
    };
    assert_eq!(change(1, false).unwrap(), 1);
    assert!(matches!(change(2, true), Err(StoreError::UnknownConsumer(_))));
    assert_eq!((stored(&store, &[1]), stored(&store, &[2])), (Some(vec![1]), None));
    store.faults().plan(|kind| (kind == WriteKind::Synced).then_some(Fault::NotWritten));
    let failed = change(3, false).unwrap_err().to_string();
    assert!(failed.contains("No space left"), "{failed}");
    store.faults().clear();
    assert_eq!(stored(&store, &[3]), None);
    assert_eq!(change(3, false).unwrap(), 3);
    let foreign = store.change_consumer_rows(WITNESS.name, |it| it.put("others", vec![1], vec![1]));
    assert!(matches!(foreign, Err(StoreError::UnknownFamily(_))));
    let unknown = store.change_consumer_rows("nobody", |_| Ok::<_, StoreError>(()));
    assert!(matches!(unknown, Err(StoreError::UnknownConsumer(_))));
    // Acknowledged changes are there after a restart.
    drop(store);
    let store = open(directory.path(), &[WITNESS]);
    assert_eq!((stored(&store, &[1]), stored(&store, &[3])), (Some(vec![1]), Some(vec![3])));
}

#[test]
fn range_deletes_include_rows_put_earlier_in_the_same_change() {
    let directory = scratch();
    let store = open(directory.path(), &[WITNESS]);
    let put =
        |effects: &mut ConsumerEffects<'_>, key: u8| effects.put("order", vec![key], vec![key]);
    store
        .change_consumer_rows(WITNESS.name, move |it| (0..9).try_for_each(|key| put(it, key)))
        .unwrap();
    store
        .change_consumer_rows(WITNESS.name, move |effects| {
            put(effects, 20)?;
            effects.delete_range("order", &[2], &[21])?;
            assert_eq!(effects.get("order", &[20])?, None);
            assert_eq!(effects.get("order", &[5])?, None);
            assert_eq!(effects.get("order", &[1])?, Some(vec![1]));
            put(effects, 6)?;
            assert_eq!(effects.get("order", &[6])?, Some(vec![6]));
            assert_eq!(effects.without_changes().get("order", &[5])?, Some(vec![5]));
            Ok::<_, StoreError>(())
        })
        .unwrap();
    let mut keys = Vec::new();
    let view = store.consumer_view(WITNESS.name, RowBounds::none()).unwrap();
    view.scan_back("order", &[6], |key, _| {
        keys.push(key[0]);
        Ok::<_, StoreError>(ControlFlow::Continue(()))
    })
    .unwrap();
    assert_eq!(keys, [6, 1, 0]);
    view.scan("times", |_, _| panic!("the other family is as it was")).unwrap();
}

/// A ledger whose work exceeds one write is passed to the consumer again until the work is
/// complete.
#[test]
fn a_ledger_may_be_processed_in_parts() {
    let directory = scratch();
    let store = open(directory.path(), &[WITNESS]);
    add(&store, FIRST..=FIRST + 3, Durability::Synced);
    let step = || {
        store.consume(WITNESS.name, 2, |fed, effects| {
            let key = [fed.ledger.0 as u8];
            let parts = number(effects, &key)? + 1;
            effects.put("order", key.to_vec(), parts.to_be_bytes().to_vec())?;
            if fed.ledger.0 == FIRST + 1 && parts < 3 {
                effects.mark_unfinished();
            }
            Ok::<_, StoreError>(())
        })
    };
    let steps: Vec<_> = (0..5).map(|_| step().unwrap()).collect();
    assert_eq!(
        steps,
        [
            Consumed::Ledgers(1),
            Consumed::Ledgers(0),
            Consumed::Ledgers(2),
            Consumed::Ledgers(1),
            Consumed::CaughtUp
        ]
    );
    for (ledger, parts) in [(FIRST, 1u64), (FIRST + 1, 3), (FIRST + 2, 1), (FIRST + 3, 1)] {
        assert_eq!(stored(&store, &[ledger as u8]), Some(parts.to_be_bytes().to_vec()));
    }
}

/// A step that changes no rows costs no write, and the consumer still does not lose its cursor.
#[test]
fn a_step_without_changes_writes_nothing() {
    let directory = scratch();
    let store = open(directory.path(), &[WITNESS]);
    add(&store, FIRST..=FIRST + 9, Durability::Synced);
    store.faults().plan(|kind| panic!("{kind:?}"));
    let pass = |store: &Store| store.consume(WITNESS.name, 100, |_, _| Ok::<_, StoreError>(()));
    assert_eq!(pass(&store).unwrap(), Consumed::Ledgers(10));
    assert_eq!(pass(&store).unwrap(), Consumed::CaughtUp);
    store.faults().clear();
    add(&store, FIRST + 10..=FIRST + 10, Durability::Synced);
    store.consume(WITNESS.name, 100, witness).unwrap();
    drop(store);
    // The next write has stored the cursor as well.
    let store = open(directory.path(), &[WITNESS]);
    assert_eq!(pass(&store).unwrap(), Consumed::CaughtUp);
}

/// Rows as a step reads them, including its own changes, match a map that is changed in the same
/// way, and so do rows in files. Prefixes are shorter and longer than those that files have filters
/// for.
#[test]
fn a_step_reads_rows_in_order_including_its_own_changes() {
    use std::collections::BTreeMap;

    use rand::seq::IndexedRandom;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    type Model = BTreeMap<Vec<u8>, Vec<u8>>;

    fn key(rng: &mut ChaCha8Rng) -> Vec<u8> {
        let length = *[0, 1, 2, 3, 31, 32, 33, 34].choose(rng).unwrap();
        vec![rng.random_range(0..8); length]
    }

    /// Returns the rows under a prefix, each with the rest of its key.
    fn under(rows: &Model, prefix: &[u8], from: &[u8], most: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let rows = rows.range([prefix, from].concat()..);
        let rest = rows
            .map_while(|(key, value)| Some((key.strip_prefix(prefix)?.to_vec(), value.clone())));
        rest.take(most).collect()
    }

    fn until(is_over: bool) -> ControlFlow<()> {
        if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    let directory = scratch();
    let mut store = open(directory.path(), &[WITNESS]);
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let mut model = Model::new();
    for round in 0..90 {
        let (mut changed, mut own) = (model.clone(), rng.clone());
        // Buffered changes of all families are in one map: this row of `times` must not appear in
        // scans of `order`.
        let after = store.change_consumer_rows(WITNESS.name, move |effects| {
            effects.put("times", vec![0], vec![1])?;
            for _ in 0..own.random_range(0..30) {
                let changing = key(&mut own);
                match own.random_range(0..5) {
                    0..3 => {
                        let value = vec![own.random()];
                        effects.put("order", changing.clone(), value.clone())?;
                        changed.insert(changing, value);
                    }
                    3 => {
                        effects.delete("order", changing.clone())?;
                        changed.remove(&changing);
                    }
                    _ => {
                        let to = vec![own.random_range(0..9)];
                        effects.delete_range("order", &changing, &to)?;
                        changed.retain(|row, _| *row < changing || *row >= to);
                    }
                }
                let (prefix, from) = (key(&mut own), vec![own.random_range(0..8); 1]);
                let from = &from[..own.random_range(0..2)];
                let most = own.random_range(1..20);
                for (prefix, from) in [(&[][..], &[][..]), (&prefix, from)] {
                    let mut found = Vec::new();
                    let flow = effects.scan_prefix("order", prefix, from, &mut |rest, value| {
                        found.push((rest.to_vec(), value.to_vec()));
                        Ok(until(found.len() == most))
                    })?;
                    assert_eq!(found, under(&changed, prefix, from, most));
                    assert_eq!(flow, until(found.len() == most));
                }
            }
            Ok::<_, StoreError>((changed, own))
        });
        (model, rng) = after.unwrap();
        match round % 10 {
            // The rows are now in a file.
            3 | 6 => {
                drop(store);
                store = open(directory.path(), &[WITNESS]);
            }
            9 => store.compact().unwrap(),
            _ => {}
        }
        let view = store.consumer_view(WITNESS.name, RowBounds::none()).unwrap();
        for _ in 0..10 {
            let (prefix, most) = (key(&mut rng), rng.random_range(1..20));
            let mut found = Vec::new();
            let mut visit = |rest: &[u8], value: &[u8]| {
                found.push((rest.to_vec(), value.to_vec()));
                Ok(until(found.len() == most))
            };
            let flow = view.scan_prefix("order", &prefix, &[], &mut visit).unwrap();
            assert_eq!(found, under(&model, &prefix, &[], most));
            assert_eq!(flow, until(found.len() == most));
        }
    }
    assert!(!model.is_empty());
    let unknown = store.change_consumer_rows(WITNESS.name, |effects| {
        effects.scan_prefix("others", &[], &[], &mut |_, _| Ok(ControlFlow::Break(())))
    });
    assert!(matches!(unknown, Err(StoreError::UnknownFamily(_))));
}
