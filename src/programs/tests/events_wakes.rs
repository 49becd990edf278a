//! Projects of events whose turns are only those that something wakes them for: a stored ledger, or that
//! more is known of the code of contracts. Threads give the turns while ledgers are stored and indexed in
//! any order; in the end nothing is left to be used.

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::events::{fresh, owner};
use super::events_world::WORLDS;
use super::*;
use crate::events::look_when_more_is_known;
use orrery_testkit::histories;
use orrery_testkit::wait::wait_until;

/// Ends the threads of a scene, also when the test fails.
struct Stopping<'a>(&'a Lanes, &'a Scene);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.stop();
        self.1.backfills.stop();
    }
}

#[test]
fn whatever_becomes_known_is_followed_by_a_turn() {
    let world = &WORLDS[0];
    histories::run(12, 2_000, |seed| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let scene = Scene::of_network(world.network.clone());
        let lanes = Arc::new(Lanes::default());
        let interfaces = Interfaces::patient(
            Arc::clone(&scene.store),
            None,
            std::time::Duration::from_millis(1),
        );
        look_when_more_is_known(&interfaces, &scene.registry, &lanes);
        let woken = Arc::downgrade(&lanes);
        scene.store.listen(move || woken.upgrade().inspect(|lanes| lanes.wake(None)).is_some());
        let mut contracts = world.contracts.clone();
        contracts.truncate(rng.random_range(1..=contracts.len()));
        let is_paused = rng.random_bool(0.3);
        let id = std::thread::scope(|threads| {
            let _stopping = Stopping(&lanes, &scene);
            let (lanes, scene) = (&lanes, &scene);
            for lane in [Lane::New, Lane::Upstream, Lane::Fast, Lane::Slow] {
                threads.spawn(move || lanes.work(lane, |program| scene.live.turn(program, lane)));
                threads.spawn(move || scene.backfills.work(lane, || {}));
            }
            let mut ledgers: Vec<_> = world.ledgers.values().collect();
            ledgers.shuffle(&mut rng);
            let at = rng.random_range(0..ledgers.len());
            let mut project = None;
            for (number, raw) in ledgers.into_iter().enumerate() {
                if number == at {
                    let id = scene.watch("woken", contracts.clone(), false);
                    lanes.add(id);
                    project = Some(id);
                }
                scene.commit(raw, rng.random());
                if rng.random_bool(0.2) {
                    scene.index(if rng.random() { usize::MAX } else { 1 });
                }
            }
            let id = project.unwrap();
            let expected: usize = world
                .events
                .iter()
                .filter(|((_, contract), _)| contracts.contains(contract))
                .map(|(_, count)| count)
                .sum();
            let progress = || scene.registry.get(id).unwrap().lock().progress;
            wait_until("all events are read", || {
                let read = progress().events.events;
                if read == expected as u64 { Ok(()) } else { Err((read, expected)) }
            });
            if is_paused {
                scene.registry.set_running(&owner(), id, false).unwrap();
            }
            // Nothing else wakes the project from here on.
            scene.index(usize::MAX);
            wait_until("all that is known is used", || {
                let project = scene.manifest(id).events.unwrap();
                if project.may_know_more() { Err(project.unsure) } else { Ok(()) }
            });
            id
        });
        contracts.sort_unstable();
        let (content, _) = scene.content(id);
        assert_eq!(content, *fresh(0, contracts, false), "seed {seed}");
    });
}
