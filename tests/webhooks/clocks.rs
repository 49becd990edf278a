//! A machine's clock that is wrong for a while: it disables no subscription, ends no delivery and
//! removes nothing, and neither does a process that starts meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use orrery::webhooks::rows::State;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::schedule::{HOUR, Scene, always};
use super::world::{Answers, BEGINNING, status};

const SECOND: u64 = 1000;
const DAY: u64 = 24 * HOUR;

/// An endpoint that answers with the status in the variable.
fn endpoint(answer: u16) -> (Arc<AtomicU16>, Answers) {
    let answer = Arc::new(AtomicU16::new(answer));
    let now = Arc::clone(&answer);
    (answer, Arc::new(move |_| status(now.load(Ordering::SeqCst))))
}

fn days(days: i64) -> i64 {
    days * DAY as i64
}

/// Asserts that the subscription is enabled, and that its deliveries wait for their next attempts.
fn assert_waiting(scene: &Scene, id: u32, case: &str) {
    let state = scene.world.registry.get(id).unwrap().state();
    assert!(state.enabled, "{case}: {:?}", state.disabled_reason);
    for (number, delivery) in scene.world.deliveries("ana", id) {
        assert_eq!(delivery.state, State::Retrying, "{case}: {number:?}");
    }
}

#[test]
fn a_clock_that_is_wrong_for_seconds_ends_nothing() {
    for wrong in [20, 400, -20, -20_000] {
        let mut scene = Scene::new();
        let id = scene.subscribe("https://example.com/");
        scene.ledgers_with_events(id);
        let (answer, answers) = endpoint(500);
        scene.world.deliver(0, answers);
        scene.world.run_until(BEGINNING + 2 * SECOND);
        scene.world.set_clock_wrong(days(wrong));
        scene.world.run_until(BEGINNING + 10 * SECOND);
        assert_waiting(&scene, id, "meanwhile");
        assert_eq!(scene.attempts(&scene.id(id, 0)), [BEGINNING, BEGINNING + 5 * SECOND]);
        assert_eq!(scene.world.webhooks.sweep().unwrap(), 0);
        scene.world.set_clock_wrong(0);
        scene.world.run_until(BEGINNING + 20 * SECOND);
        assert_waiting(&scene, id, "later");
        answer.store(200, Ordering::SeqCst);
        scene.world.run_until(BEGINNING + 40 * SECOND);
        let deliveries = scene.world.deliveries("ana", id);
        assert!(deliveries.iter().all(|(_, it)| it.state == State::Delivered), "{wrong} days");
        assert_eq!(scene.attempts(&scene.id(id, 0))[2], BEGINNING + 35 * SECOND);
    }
}

/// The clock is wrong when a process starts, as that of a machine without a battery is.
#[test]
fn a_clock_that_is_wrong_at_the_start_ends_nothing() {
    for wrong in [20, 400, -20, -20_000] {
        let mut scene = Scene::new();
        let id = scene.subscribe("https://example.com/");
        scene.ledgers_with_events(id);
        scene.world.deliver(0, always(status(500)));
        scene.world.run_until(BEGINNING + 3 * HOUR);
        let now = BEGINNING + 3 * HOUR + 10 * SECOND;
        let mut scene = scene.restarted(now, days(wrong));
        let (answer, answers) = endpoint(500);
        scene.world.deliver(0, answers);
        scene.world.run_until(now + 8 * SECOND);
        assert_eq!(scene.world.webhooks.sweep().unwrap(), 0);
        assert_waiting(&scene, id, "meanwhile");
        scene.world.set_clock_wrong(0);
        assert_eq!(scene.world.webhooks.sweep().unwrap(), 0);
        scene.world.run_until(now + HOUR);
        assert_waiting(&scene, id, "later");
        answer.store(200, Ordering::SeqCst);
        scene.world.run_until(now + 2 * DAY);
        let deliveries = scene.world.deliveries("ana", id);
        assert!(deliveries.iter().all(|(_, it)| it.state == State::Delivered), "{wrong} days");
    }
}

/// What ends while the clock is wrong, in either direction, is kept as long as everything else.
#[test]
fn ended_deliveries_are_kept_for_their_days_whatever_the_clock_says() {
    for (ends, dead, kept) in [(200, false, 7), (410, true, 30)] {
        for wrong in [0, 60, -60, -20_000] {
            let mut scene = Scene::new();
            let id = scene.subscribe("https://example.com/");
            scene.world.set_clock_wrong(days(wrong));
            scene.world.deliver(0, always(status(ends)));
            scene.ledger_with_one_event(id);
            scene.world.settle();
            let count = |scene: &Scene| scene.world.deliveries("ana", id).len();
            let is_dead = scene.world.deliveries("ana", id)[0].1.state == State::Dead;
            assert_eq!(is_dead, dead);
            let sweep = |scene: &Scene| scene.world.webhooks.sweep().unwrap();
            assert_eq!(sweep(&scene), 0);
            scene.world.set_clock_wrong(0);
            assert_eq!(sweep(&scene), 0);
            scene.world.set_time(BEGINNING + kept * DAY - HOUR);
            assert_eq!((sweep(&scene), count(&scene)), (0, 1), "{ends}, {wrong} days");
            scene.world.set_clock_wrong(days(100));
            assert_eq!((sweep(&scene), count(&scene)), (0, 1), "{ends}, {wrong} days");
            scene.world.set_clock_wrong(0);
            scene.world.set_time(BEGINNING + (kept + 2) * DAY);
            assert_eq!((sweep(&scene), count(&scene)), (1, 0), "{ends}, {wrong} days");
        }
    }
}

/// Five days are counted over several processes, and however the clock is set meanwhile.
#[test]
fn five_days_pass_over_restarts_and_wrong_clocks() {
    for seed in 0..6 {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let mut scene = Scene::new();
        let id = scene.subscribe("https://example.com/");
        scene.world.deliver(0, always(status(500)));
        let mut disabled = None;
        for half in 1..=14 {
            scene.ledger_with_one_event(id);
            let wrong = if rng.random_bool(0.5) { days(rng.random_range(-300..300)) } else { 0 };
            scene.world.set_clock_wrong(wrong);
            scene.world.settle();
            scene.world.set_clock_wrong(0);
            scene.world.run_until(BEGINNING + half * DAY / 2);
            if rng.random_bool(0.4) {
                scene = scene.restarted(BEGINNING + half * DAY / 2, wrong);
                scene.world.deliver(0, always(status(500)));
                scene.world.settle();
                scene.world.set_clock_wrong(0);
            }
            if !scene.world.registry.get(id).unwrap().is_enabled() {
                disabled = Some(half);
                break;
            }
        }
        // An attempt is made at least once in half a day.
        assert!(
            disabled.is_some_and(|half| (10..=11).contains(&half)),
            "seed {seed}: {disabled:?}"
        );
    }
}
