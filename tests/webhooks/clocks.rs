//! A machine's clock that is wrong for a while: it disables no subscription, ends no delivery and
//! removes nothing, and neither does a process that starts meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use orrery::webhooks::rows::State;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::schedule::{HOUR, Scene, always};
use super::world::{Answers, BEGINNING, Sent, status};

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

/// The service did not run for a long time, which it believes after a day. What begins in that day is
/// counted from then, and not from before.
#[test]
fn what_begins_after_a_long_pause_is_counted_from_then() {
    for pause in [3, 10, 60, 2_000] {
        let mut scene = Scene::new();
        let failing = scene.subscribe("https://example.com/failing");
        scene.ledger_with_one_event(failing);
        scene.world.deliver(0, always(status(200)));
        scene.world.settle();
        let now = BEGINNING + pause * DAY;
        let mut scene = scene.restarted(now, 0);
        let good = scene.subscribe("https://example.com/good");
        let answer = Arc::new(AtomicU16::new(500));
        let given = Arc::clone(&answer);
        let answers = move |sent: &Sent| match sent.endpoint.contains("good") {
            true => status(200),
            false => status(given.load(Ordering::SeqCst)),
        };
        scene.world.deliver(0, Arc::new(answers));
        scene.ledger_with_one_event(failing);
        scene.world.run_until(now + 50 * HOUR);
        let state = scene.world.registry.get(failing).unwrap().state();
        assert!(state.enabled, "{pause} days: {:?}", state.disabled_reason);
        answer.store(200, Ordering::SeqCst);
        scene.world.run_until(now + 3 * DAY);
        // What was delivered before the pause is removed once the service knows of it.
        scene.world.webhooks.sweep().unwrap();
        let states = |scene: &Scene, id| -> Vec<State> {
            scene.world.deliveries("ana", id).iter().map(|it| it.1.state).collect()
        };
        let left = if pause < 4 { 2 } else { 1 };
        assert_eq!(states(&scene, failing), vec![State::Delivered; left], "{pause} days");
        assert_eq!(states(&scene, good), [State::Delivered], "{pause} days");
        scene.world.set_time(now + 12 * DAY);
        scene.world.webhooks.sweep().unwrap();
        assert!(states(&scene, failing).is_empty() && states(&scene, good).is_empty());
        // Five days are five days.
        answer.store(500, Ordering::SeqCst);
        scene.ledger_with_one_event(failing);
        scene.world.run_until(now + 15 * DAY);
        assert!(scene.world.registry.get(failing).unwrap().is_enabled(), "{pause} days");
        scene.ledger_with_one_event(failing);
        scene.world.run_until(now + 18 * DAY);
        assert!(!scene.world.registry.get(failing).unwrap().is_enabled(), "{pause} days");
    }
}
