//! Replays of ledgers that the consumer of webhooks has not read yet: each event is sent once, and the
//! number of waiting deliveries is that of the rows in the queue.
//!
//! Small: 12 histories; full: 1,000.

use std::collections::BTreeMap;

use orrery::domain::LedgerRange;
use orrery::store::RowBounds;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::schedule::{Scene, always};
use super::world::{BEGINNING, owner, status};
use orrery_testkit::histories;

/// Returns the number of rows in the queue.
fn queued(scene: &Scene) -> u64 {
    let view = scene.world.store.consumer_view("webhooks", RowBounds::none()).unwrap();
    let mut rows = 0;
    let _ = view.scan("queue", |_, _| rows += 1);
    rows
}

#[test]
fn each_event_is_sent_once_and_counted_once() {
    histories::run(12, 1_000, |seed| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut scene = Scene::new();
        let id = scene.subscribe("https://example.com/");
        let (mut stored, mut read, mut replayed) = (0, 0, 0);
        let mut is_sending = false;
        for _ in 0..60 {
            match rng.random_range(0..10) {
                0..4 => {
                    stored += 1;
                    scene.commit(stored);
                }
                4..7 => read += u32::from(scene.world.step_of_one_ledger()),
                7 if replayed.max(read) < stored => {
                    let range = LedgerRange::new(replayed.max(read) + 1, stored);
                    let done =
                        scene.world.webhooks.replay_ledgers(&owner("ana"), id, range, &|| false);
                    assert!(done.unwrap().next.is_none());
                    replayed = stored;
                }
                8 if !is_sending => {
                    scene.world.deliver(0, always(status(200)));
                    is_sending = true;
                }
                _ => {}
            }
            if is_sending {
                scene.world.settle();
            }
            let waiting = scene.world.registry.get(id).unwrap().waiting();
            assert_eq!(waiting, queued(&scene), "after {stored} ledgers");
        }
        scene.world.feed();
        if !is_sending {
            scene.world.deliver(0, always(status(200)));
        }
        scene.world.run_until(BEGINNING + 1000);
        assert_eq!((scene.world.registry.get(id).unwrap().waiting(), queued(&scene)), (0, 0));
        let mut sent = BTreeMap::<String, usize>::new();
        for attempt in scene.world.sent.lock().iter() {
            *sent.entry(attempt.id.clone()).or_default() += 1;
        }
        assert!(sent.values().all(|count| *count == 1), "{sent:?}");
        assert_eq!(sent.len(), scene.world.deliveries("ana", id).len());
    });
}
