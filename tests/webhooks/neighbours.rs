//! Several owners whose endpoints are at one server: what one of them does to it takes nothing from
//! the others.

use std::sync::Arc;

use orrery::webhooks::rows::State;
use orrery_testkit::wait::wait_until;

use super::schedule::Scene;
use super::world::{BEGINNING, Sent, status, unreachable};

/// Number of subscriptions of the owner with slow or dead endpoints.
const MANY: usize = 100;

/// A scene in which mallory has many subscriptions, and ana one, all to one server.
fn shared_server() -> (Scene, u32) {
    let scene = Scene::new();
    for number in 0..MANY {
        let endpoint = format!("https://hooks.example/mallory/{number}");
        scene.world.subscribe("mallory", &endpoint, scene.contract());
    }
    let id = scene.subscribe("https://hooks.example/ana");
    (scene, id)
}

fn sent_to(scene: &Scene, part: &str) -> usize {
    scene.world.sent.lock().iter().filter(|it| it.endpoint.contains(part)).count()
}

#[test]
fn slow_answers_use_up_the_places_of_their_own_owner() {
    let (mut scene, id) = shared_server();
    scene.world.deliver_to_all_but("mallory");
    for _ in 0..5 {
        scene.ledgers_with_events(id);
        wait_until("all of ana's deliveries have arrived", || {
            let deliveries = scene.world.deliveries("ana", id);
            deliveries.iter().all(|(_, it)| it.state == State::Delivered)
        });
    }
    // Ana is one of two, and one place at least is hers.
    let held = sent_to(&scene, "mallory");
    assert!((4..8).contains(&held), "{held} attempts are in progress");
}

#[test]
fn the_pause_of_a_server_that_does_not_answer_one_owner_is_none_of_another() {
    let (mut scene, id) = shared_server();
    let answers = |attempt: &Sent| match attempt.endpoint.contains("mallory") {
        true => unreachable(),
        false => status(200),
    };
    scene.world.deliver(0, Arc::new(answers));
    for _ in 0..3 {
        let more = scene.ledgers_with_events(id);
        assert!(more > 0);
        scene.world.run_until(BEGINNING);
        let deliveries = scene.world.deliveries("ana", id);
        assert!(deliveries.iter().all(|(_, it)| it.state == State::Delivered), "{deliveries:?}");
    }
    assert_eq!(sent_to(&scene, "/ana"), scene.world.deliveries("ana", id).len());
    assert!(sent_to(&scene, "mallory") < 20, "it is left alone after a few failures");
}
