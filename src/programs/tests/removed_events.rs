//! Projects that begin after retention has removed some of their events: what they could not read stays
//! missing, whatever is read later.

use super::events_world::WORLDS;
use super::*;
use orrery_store::Retention;

#[test]
fn events_that_were_removed_before_a_project_began_stay_missing() {
    let world = &WORLDS[0];
    let mut scene = Scene::indexing(world);
    let newest = *world.ledgers.keys().last().unwrap();
    let retention = Retention { events: Some(8), wait_for_consumers: 0, ..Retention::default() };
    while !scene.store.prune(&retention).unwrap().is_nothing() {}
    let id = scene.watch("late", world.contracts.clone(), false);
    scene.run_until_settled();
    let missing = scene.status(id).missing;
    let has_events = |ledger: u32| {
        let mut contracts = world.contracts.iter();
        contracts.any(|contract| world.events.contains_key(&(ledger, *contract)))
    };
    for ledger in world.ledgers.keys().filter(|ledger| has_events(**ledger)) {
        let is_missing = missing.contains(LedgerSeq(*ledger));
        assert_eq!(is_missing, *ledger <= newest - 8, "{ledger}: {missing:?}");
    }
    assert!(!missing.is_empty());
    scene.begin(id, newest, newest).unwrap();
    scene.run_until_settled();
    scene.restart();
    assert_eq!(scene.status(id).missing, missing);
}
