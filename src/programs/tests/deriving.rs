//! When projects of events look for what has become known, and derive their rows anew: in parts of a turn
//! each, and not without need.

use std::time::Duration;

use super::events::fresh;
use super::events_world::WORLDS;
use super::*;
use crate::events::{Found, Looks};

/// A turn derives a part of the rows: programs of others have their turns in between.
#[test]
fn rows_are_derived_anew_in_many_turns() {
    let world = &WORLDS[0];
    let scene = Scene::storing(world);
    // The index has processed no ledger.
    let id = scene.watch("early", world.contracts.clone(), false);
    scene.run_until_settled();
    scene.index(usize::MAX);
    let rows = scene.rows(id).len();
    let must_derive = || scene.manifest(id).events.unwrap().must_derive();
    let mut turns = 0;
    while !must_derive() {
        scene.live.turn(id, Lane::Fast);
        turns += 1;
        assert!(turns < MANY_TURNS);
    }
    let mut parts = 0;
    while must_derive() {
        // Whichever thread has the turn.
        let turn = match parts % 2 {
            0 => scene.live.turn(id, Lane::Fast),
            _ => scene.backfills.turn(id),
        };
        let is_last = !must_derive();
        assert_eq!(turn == Turn::Worked { delayed_others: false }, !is_last, "{turn:?}");
        parts += 1;
    }
    // Each run is derived in a turn.
    assert!(rows > 20 && parts >= rows - 1, "{parts} turns for {rows} runs");
    scene.run_until_settled();
    let contracts = scene.manifest(id).contracts;
    assert_eq!(scene.content(id).0, *fresh(0, contracts, false));
}

/// A look whose time is over goes on with the next span, and finds what has become known in the end.
#[test]
fn a_look_is_made_in_parts() {
    let world = &WORLDS[0];
    let scene = Scene::storing(world);
    // The index has processed no ledger.
    let id = scene.watch("early", world.contracts.clone(), false);
    scene.run_until_settled();
    let project = scene.manifest(id).events.unwrap();
    let spans = project.unsure.spans().count();
    let mut looks = Looks::default();
    let mut parts_until = |found| {
        let mut parts = 1;
        while scene.runner.look(id, &project, &mut looks, Duration::ZERO).unwrap() != found {
            parts += 1;
            assert!(parts < MANY_TURNS);
        }
        parts
    };
    let parts = parts_until(Found::Nothing);
    assert!(spans > 2 && parts > spans, "{parts} parts for {spans} spans");
    scene.index(usize::MAX);
    assert!(parts_until(Found::More) <= spans);
}

#[test]
fn nothing_is_derived_anew_while_nothing_becomes_known() {
    let world = &WORLDS[0];
    let scene = Scene::storing(world);
    // The index has processed no ledger.
    let id = scene.watch("early", world.contracts.clone(), false);
    let derivations = || scene.manifest(id).events.unwrap().derivation;
    scene.run_until_settled();
    let begun = derivations();
    for _ in 0..3 {
        scene.run_until_settled();
        assert_eq!(derivations(), begun);
    }
    assert!(!scene.manifest(id).events.unwrap().unsure.is_empty());
    scene.index(usize::MAX);
    scene.run_until_settled();
    let once = derivations();
    scene.run_until_settled();
    assert!(once > 0 && derivations() == once, "{once}, then {}", derivations());
    assert!(scene.manifest(id).events.unwrap().unsure.is_empty());
}
